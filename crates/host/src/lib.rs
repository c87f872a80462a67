//! What the host's memory looks like, and the daemon's own standing on it.
//!
//! Idea: one small reader per file of `/proc`, each taking the folder that stands for `/proc` as a
//! parameter, so that tests feed it files of their own. [`HostReader`] joins them into the model's
//! [`HostSample`](ballast_model::HostSample); [`ProcessReader`] follows one hypervisor process.
//!
//! Cost: files stay open and are read anew with `pread` into one reused buffer. A sample of the host
//! is two reads, a process one (`benches/readers.rs`).
//!
//! Parsing is by hand: the lines are `Name: number kB`, and what the daemon needs of an error (path,
//! line, what was expected) and of a tick (no allocation) a general library does not give; the
//! argument and the figures are in `docs/decisions/0004-proc-readers.md`.
//!
//! Limits: Linux; no file is read beyond [`READ_BYTES_MAX`]; decides nothing.

#![forbid(unsafe_code)]

mod boot;
mod disk;
mod error;
mod file;
mod line;
mod meminfo;
mod pressure;
mod pressure_trigger;
mod priority;
mod process;
mod sample;
mod swaps;
mod vmstat;

pub use boot::boot_id;
pub use disk::disk_free;
pub use error::ReadError;
pub use file::READ_BYTES_MAX;
pub use meminfo::{MemInfo, parse_meminfo, read_meminfo};
pub use pressure::{parse_pressure, read_pressure};
pub use pressure_trigger::PressureTrigger;
pub use priority::{Priority, Raised, Setting, raise_priority};
pub use process::{ProcessMemory, ProcessReader, parse_start_time, parse_status};
pub use sample::HostReader;
pub use swaps::{SWAPS_MAX, SwapArea, parse_swaps, read_swaps};
pub use vmstat::{VmCounters, parse_vmstat, read_vmstat};

/// Where the kernel shows its files on every ordinary host.
pub const PROC: &str = "/proc";
