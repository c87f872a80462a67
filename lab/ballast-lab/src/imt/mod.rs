//! Intermittent tracking of recorded series: replayed, compared, and shown.
//!
//! Idea: a series of working sets and events, recorded with tracking always on, is replayed under
//! every threshold that MEB compares. Each replay is a `runs::Run`; everything shown is made from
//! these.

pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod runs;
mod series;
pub(crate) mod summary;

pub(crate) use series::{BYTES_MAX, EVENTS};
pub use series::{Fault, parse, parse_with};
