//! Host reclaim: the host takes a guest's memory without the guest's help, and gives it back.
//!
//! Idea: the host moves pages of the hypervisor process to its own swap. [`PageOut`] picks pages at
//! random, because the host knows less about them than the guest does; pages that a tracker found
//! cold go first, hot ones last ([`Coldness`]). [`PageIn`] reads pages back before the guest faults
//! on them. [`CgroupPageOut`] lets the kernel pick pages within the guest's own [`MemoryCgroup`]. A
//! [`Fence`] keeps a guest from growing beyond its target. [`PageGenerations`] show how much of a
//! cgroup's memory was touched. [`capabilities()`] says which of these methods work for a process,
//! and why the others do not. Start reading at `page_out.rs`.
//!
//! Every job proceeds in steps that never sleep: time is a parameter, a step does a bounded amount
//! of work, and it reports how much memory really moved. Errors are [`ReclaimError`]s.
//!
//! Cost: 8 to 25 µs for a single page, from 4 µs for pages in groups of 16 neighbours
//! (`benches/paging.rs`).
//! Source: flexmemd §3.2.2 pages out where a guest does not release memory; process_madvise(2),
//! proc_pid_pagemap(5).
//! Limits: Linux, pages of 4 KiB; locked memory and hugetlbfs pages stay. This crate makes no
//! decisions.
//!
//! # When the host gains the memory
//!
//! A page that was paged out has left the process at once. With synchronous swap (zram) its memory
//! is free at once too. With a disk it stays in the swap cache, clean, at the end of the host's LRU
//! list: the kernel frees it first when it next needs memory, and `MemFree` does not rise until
//! then (seen on Linux 6.18: all of 64 MiB). [`SwapUsage::cached`] is the amount in that state. A
//! cgroup is still charged for it, and gives it up first when its limit is lowered.
//!
//! The host's own reclaim, and any proactive reclaim it runs, page out too. Pages that were read
//! back and are not touched may go again at once.

#![deny(unsafe_code)]

mod capabilities;
mod cgroup;
mod cgroup_page_out;
mod coldness;
mod error;
mod guest_memory;
mod kernel;
mod line;
mod maps;
mod page_in;
mod page_out;
mod pagemap;
mod permutation;
mod picker;
mod process;
mod progress;
mod ram;
mod ranges;
mod shared_file;
mod swap;
mod token_bucket;

pub use capabilities::{ReclaimCapabilities, capabilities};
pub use cgroup::{
    Aging, CgroupMount, CgroupVersion, Fence, LIMIT_STEP, MARK, MemoryCgroup, NodeGenerations,
    PageGenerations, ProcessCgroups, RECLAIM_BYTES_MAX, Reclaimed, Squeeze, SqueezeState,
    SqueezeStep, parse_amount, parse_generations, parse_mountinfo, parse_proc_cgroup,
};
pub use cgroup_page_out::{CgroupMethod, CgroupPageOut};
pub use coldness::{Coldness, FilePart};
pub use error::ReclaimError;
pub use guest_memory::{GuestMemory, Residency};
pub use maps::{Mapping, SmapsTotals, parse_maps, parse_smaps};
pub use page_in::{PageIn, PageInLimits};
pub use page_out::{PageOut, PageOutLimits};
pub use pagemap::{PagemapEntry, parse_pagemap};
pub use picker::{GRANULE_PAGES_MAX, Picker};
pub use process::{VmmProcess, parse_start_time};
pub use progress::{FinishReason, PagingProgress, PagingState};
pub use ram::{GuestRam, GuestRegion};
pub use ranges::{AddressRange, RangeSet, runs};
pub use swap::{SwapBounds, SwapUsage, parse_swap};
pub use token_bucket::TokenBucket;
