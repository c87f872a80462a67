//! LRU stack distances and miss-ratio curves: the benefit of memory to a program that made these
//! references.
//!
//! Idea: a stream of page references goes into an [`Engine`]; the engine keeps the pages in LRU
//! order and counts at which position (stack distance) each reference finds its page. A reference
//! at distance *d* hits in every memory of at least *d* pages, so the [`Histogram`] of distances
//! gives the miss ratio of every size at once (Mattson 1970; MEB §3.1).
//!
//! Pages are grouped into tags of [`Granularity`] pages; engines see only tags.
//!
//! Limits: no input or output, no clock, no threads; independent of the rest of Ballast.

#![deny(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod aet;
mod aging;
mod avl;
mod chooser;
mod counting_engine;
mod curve;
mod distances;
mod distinct;
mod engine;
mod exact;
mod granularity;
mod hash;
mod histogram;
mod hot_set;
mod index;
mod list;
mod log_linear;
mod page_weighted;
mod shards;
mod stack;
mod statistical;

pub use aet::Aet;
pub use aging::Aging;
pub use avl::Avl;
pub use chooser::{Choice, ChoiceReason, Chosen, Requirements, choose};
pub use counting_engine::CountingEngine;
pub use curve::{Curve, Form, Step, mean_absolute_error};
pub use engine::{Engine, EngineName};
pub use exact::Exact;
pub use granularity::Granularity;
pub use histogram::{Bucket, Histogram, Layout};
pub use hot_set::{Access, AccessCounts, HotSet, with_hidden};
pub use list::List;
pub use page_weighted::PageWeighted;
pub use shards::{SampleRate, Scaling, Shards, ShardsFixedSize};
pub use stack::{COLD, Full, Stack, TAGS_MAX};
pub use statistical::Statistical;
