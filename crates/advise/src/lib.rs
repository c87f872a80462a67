//! Advice from a journal: what balancing would have been worth, before it moves anything.
//!
//! Idea: `run.rs` reads the journal and passes each tick to the replay and the advisor of
//! `ballast-replay`, which do no I/O. `json.rs`, `text.rs` and `page.rs` render the advice.
//! `ballast advise` calls this, and so does the lab's benchmark, which compares advice with
//! measurements.
//!
//! Cost: 0.5 to 1 ms a tick of a hundred guests for reading the journal, and about as much for
//! deciding. Memory does not grow with the length of the record.

#![forbid(unsafe_code)]

mod json;
mod page;
mod plot;
mod progress;
mod recorded;
mod run;
mod text;

pub use json::advice_view;
pub use page::page;
pub use progress::ProgressLine;
pub use recorded::RecordedSettings;
pub use run::{Request, advise};
pub use text::render;
