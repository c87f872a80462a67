//! The daemon with real guests.

mod balancing;
#[path = "../harness/mod.rs"]
mod harness;
mod paging;
mod support;
