//! Containers as guests: cgroups of version 2, under the same budget as virtual machines.
//!
//! Idea: a container, a systemd service or slice and a pod are all a cgroup with a memory
//! controller. Its *allocation* is what it may hold: `memory.high`, or what it holds if that is
//! more. An order sets `memory.high`; the kernel then reclaims pages, or throttles a container that
//! has none to give. Its *used* memory is what it holds less what the kernel could drop at once, as
//! for a virtual machine.
//!
//! ```text
//! find       the cgroups that the configuration names
//! figures    parsers of the kernel's files, without I/O
//! note       the limits that Ballast set, and those it found, noted on the cgroup
//! probe      how much to reclaim at a time, to find out what is idle
//! container  one container
//! backend    all containers, as a `Backend`
//! ```
//!
//! Cost: eight small kernel files per container and sample, some 80 µs. Source: Linux,
//! Documentation/admin-guide/cgroup-v2.rst and accounting/psi.rst; probing after Weiner et al.,
//! *TMO: Transparent Memory Offloading in Datacenters* (ASPLOS 2022), §3.3. Limits: version 2 only,
//! because version 1 kills where version 2 throttles.

#![forbid(unsafe_code)]

mod backend;
mod container;
mod figures;
mod find;
mod note;
mod probe;

pub use backend::{Containers, ContainersConfig};
pub use figures::{MemoryStat, parse_amount, parse_memory_stat, parse_stalled};
pub use find::{CgroupPattern, CgroupPatternError, cgroup2_mount};
pub use note::{Limits, Note};
