//! `meb`: divides the budget so that the guests have the fewest misses in sum (MEB §4).
//!
//! Idea: with the misses of each guest at each size known, choose the sizes with the fewest misses
//! in sum. [`balance`] does so within rate limits, floors and ceilings, with shares and service
//! objectives; begin there. Two solvers give identical results: the paper's [dynamic
//! programme](dynamic_programme), and an [exact one](exact) that first rules out most sizes.

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
pub use settings::{MebSettings, Weighting};
