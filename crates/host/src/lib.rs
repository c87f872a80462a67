//! Readers of the host's memory state, the daemon's own priority and limits, and the settings of
//! the kernel's merging of pages.
//!
//! Idea: one small reader per file of `/proc`. Each takes the `/proc` folder as a parameter, so
//! that tests can pass a folder of their own. [`HostReader`] combines the files into the model's
//! [`HostSample`](ballast_model::HostSample); [`ProcessReader`] follows one hypervisor process.
//! [`HostFacts`] holds what hardly changes from tick to tick, for a diagnosis. Begin with
//! `sample.rs`.
//!
//! Cost: files stay open and are read with `pread` into one reused buffer: two files for a sample
//! of the host, one for a process (`benches/readers.rs`).
//!
//! Parsing is hand-written: the lines are `Name: number kB`, errors must name path, line and
//! expectation, and a tick must not allocate. `docs/decisions/0004-proc-readers.md` has the
//! argument and the figures.
//!
//! Limits: Linux; files of at most [`READ_BYTES_MAX`] bytes; decides nothing.

#![deny(unsafe_code)]

mod balloon_owner;
mod boot;
mod error;
mod facts;
mod file;
mod line;
mod meminfo;
mod merging;
mod own_resources;
mod pinned;
mod pressure;
mod pressure_trigger;
mod priority;
mod process;
mod rights;
mod sample;
mod swap_areas;

pub use balloon_owner::{balloon_owner, balloon_owners};
pub use boot::boot_id;
pub use error::ReadError;
pub use facts::{Fact, HostFacts, KernelVersion, parse_nodes, parse_release};
pub use file::READ_BYTES_MAX;
pub use meminfo::{MemInfo, parse_meminfo};
pub use merging::{KSM, MergingControl, merging_owner, parse_number, read_merged, read_merging};
pub use own_resources::{keep_freed_memory, lock_memory, raise_open_files};
pub use pinned::{pinned_by, read_pinned};
pub use pressure::parse_pressure;
pub use pressure_trigger::PressureTrigger;
pub use priority::{
    give_ordinary_priority, give_up_raised_priority, raise_priority, work_in_background_of,
};
pub use process::{ProcessMemory, ProcessReader, parse_start_time, parse_status};
pub use rights::{ProcessCapability, ProcessRights, parse_rights};
pub use sample::HostReader;
pub use swap_areas::{SwapArea, SwapKind, parse_swaps};

/// The usual mount point of procfs.
pub const PROC: &str = "/proc";
