//! Advice from a journal: what balancing would have been worth, before it moves anything.
//!
//! Idea: `run.rs` reads the journal tick by tick and passes each to the pure replay and advisor of
//! `ballast-replay`; `json.rs`, `text.rs` and `page.rs` render what they say. The command of
//! `ballast` and the lab's benchmark, which holds it to the truth, call the same.
//!
//! Cost: that of reading the journal, 0.5 to 1 ms a tick of a hundred guests, and as much for
//! deciding. Memory does not grow with the time.

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
