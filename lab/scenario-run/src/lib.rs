//! A scenario played under several policies, measured and compared.
//!
//! Idea: real guests and a real daemon play the same scenario once per policy, in turns. The
//! results are a [`record::Record`]; table, page and raw data are made from it.

#![forbid(unsafe_code)]

mod balloon;
pub mod calibration;
mod calibration_table;
mod calls;
pub mod compare;
pub mod daemon;
mod describe;
mod domains_table;
mod figure;
mod figures;
mod fixed_work;
#[cfg(test)]
mod fixture;
mod fleet;
pub mod fleet_findings;
pub mod fleet_record;
mod fleet_table;
pub mod follow;
mod inside;
mod live;
pub mod machine;
mod measure;
mod moves;
mod moves_table;
mod needs;
pub mod page;
pub mod paper;
pub mod part;
mod play;
mod plot;
mod prepare;
pub mod raw;
pub mod record;
mod rival;
mod series;
mod settings;
pub mod simulate;
mod start_size;
mod stillness;
pub mod table;
mod traces;
mod transfer;
pub mod transfer_table;
mod turns;
mod words;

pub use live::Live;
pub use play::{Call, now, play_part};
