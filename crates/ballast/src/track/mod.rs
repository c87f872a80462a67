//! The touches of live guests, and what follows from them.
//!
//! Idea: [`Follower`] joins the tracker of one guest (`crates/tracker`) with the machines that say what its
//! touches mean and how to watch next (`crates/working-set`); interval after interval it yields a [`Row`].
//! `ballast track` shows them, the daemon lets its policy see them.

mod coldness;
mod follow;
pub(crate) mod page;
mod plot;
pub(crate) mod record;
mod row;
mod sampler;
mod service;
mod signals;
pub(crate) mod table;
mod tiny;
mod watcher;

pub(crate) use follow::{FollowSettings, Follower};
pub(crate) use row::Row;
pub(crate) use sampler::Sampler;
pub(crate) use service::{Present, Service, ServiceSettings};
pub(crate) use signals::{GuestCounts, SignalReader};
pub(crate) use watcher::Watcher;
