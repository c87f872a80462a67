//! `meb`: the fewest misses that a budget allows (MEB §4).
//!
//! Idea: who knows what each size would cost each guest can choose the sizes that cost least in all.
//! [`balance`] does it within limits of rate, floors and ceilings, with shares and service objectives.
//! Two solvers choose, with the same answer to the last step: the paper's
//! [dynamic programme](dynamic_programme), and an [exact one](exact) that rules out most sizes before.

pub mod balance;
mod cost;
pub mod dynamic_programme;
pub mod exact;
mod instance;
mod policy;
mod proportion;
mod settings;

#[cfg(test)]
mod brute_force;
#[cfg(test)]
mod tests;

pub use instance::{Instance, InstanceError, LOWER_MAX, Sizes, Solution, WIDTH_MAX, WIDTHS_MAX};
pub use policy::Meb;
pub use settings::{Settings, Weighting};
