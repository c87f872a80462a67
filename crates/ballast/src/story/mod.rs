//! A scenario played under several policies, measured and compared.
//!
//! Idea: real guests and a real daemon play the same scenario once per policy, in turns; what comes
//! of it is a [`record::Record`], from which table, page and raw data are made.

pub mod compare;
mod figures;
#[cfg(test)]
mod fixture;
pub mod page;
mod plot;
pub mod raw;
pub mod record;
mod series;
pub mod table;
mod words;
