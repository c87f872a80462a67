//! Host reclaim: memory of a guest is taken by the host, without the guest's help, and given back.
//!
//! Idea: the host writes pages of the hypervisor's process to its own swap. [`PageOut`] takes pages at random, as
//! the host knows less of them than the guest does; what a tracker knows to be cold goes first, what it knows to
//! be hot last ([`Coldness`]). [`PageIn`] reads them back before the guest has to. [`GroupOut`] leaves the choice of pages
//! to the kernel, in the guest's own [`MemoryCgroup`]. [`capabilities`] says which of these ways a guest's process has,
//! and why not the others.
//!
//! All of it is steps that never sleep: time is a parameter, each step does a bounded amount, and says what really
//! left and came. Whatever is refused is a [`Refusal`].
//!
//! Cost: 8 to 25 µs for a page that goes alone, from 4 µs where 16 neighbours go together (`benches/paging.rs`).
//! Source: flexmemd §3.2.2 pages out where a guest does not give; process_madvise(2), proc_pid_pagemap(5).
//! Limits: Linux, pages of 4 KiB; memory that is locked or in huge pages of hugetlbfs stays. Decides nothing.
//!
//! # What the host gains, and when
//!
//! What was paged out has left the process at once. With a swap area that answers at once (zram) its memory is free
//! as soon. With a disk it stays in the swap cache, written and clean, at the end of the host's list, and the kernel
//! takes it when it next looks for memory, before anything else; till then `MemFree` does not rise
//! (seen on Linux 6.18: all of 64 MiB). [`Swap::cached`] tells how much of the host is in that state. A group counts it
//! still, and gives it up first when it is squeezed.
//!
//! Others page out as well: the host's own reclaim, and whatever proactive reclaim it runs. What was read back and is not
//! touched may go again at once.

#![deny(unsafe_code)]

mod capabilities;
mod cgroup;
mod coldness;
mod group_out;
mod kernel;
mod line;
mod maps;
mod page_in;
mod page_out;
mod pagemap;
mod paging;
mod permutation;
mod picker;
mod process;
mod progress;
mod ram;
mod ranges;
mod rate;
mod refusal;
mod shared_file;
mod swap;

pub use capabilities::{ReclaimCapabilities, capabilities};
pub use cgroup::{
    CgroupMount, CgroupVersion, LIMIT_STEP, MemoryCgroup, OwnGroups, RECLAIM_BYTES_MAX, Reclaimed,
    Squeeze, SqueezeStep, Squeezed, parse_amount, parse_mountinfo, parse_own_groups,
};
pub use coldness::{Coldness, FilePart};
pub use group_out::{GroupOut, GroupWay};
pub use maps::{Mapping, Totals, parse_maps, parse_totals};
pub use page_in::{PageIn, PageInLimits};
pub use page_out::{PageOut, PageOutLimits};
pub use paging::{Paging, Residency};
pub use picker::{GRANULE_PAGES_MAX, Picker};
pub use process::{Vmm, parse_start_time};
pub use progress::{Finish, Progress, State};
pub use ram::{GuestRam, Region};
pub use ranges::{AddressRange, RangeSet};
pub use rate::Rate;
pub use refusal::Refusal;
pub use swap::{Swap, SwapBounds, parse_swap};
