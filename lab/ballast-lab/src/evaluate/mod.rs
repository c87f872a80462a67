//! Compares the papers' tables and figures with ours; verdicts follow from bands argued beforehand.
//!
//! Idea: a catalogue says what is compared, jobs run what is missing and keep the results, and the
//! findings are computed from the kept results. The figures of real guests are also kept with the
//! source, for calls without the runs. Page, text and JSON are made from the findings.
//! Begin reading at `catalogue.rs`.

pub(crate) mod band;
pub(crate) mod catalogue;
pub(crate) mod counts;
pub(crate) mod figure;
pub(crate) mod findings;
pub(crate) mod job;
pub(crate) mod markdown;
pub(crate) mod measure;
pub(crate) mod origins;
pub(crate) mod page;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod tables;
pub(crate) mod time_left;
pub(crate) mod verdict;
pub(crate) mod work;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;
