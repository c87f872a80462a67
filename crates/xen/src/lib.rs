//! The domains of Xen as guests, dom0 included.
//!
//! Idea: xenstore has a domain's settings and takes its target (`memory/target`); a watch reports
//! changes. Only the hypervisor knows how much a domain really holds, and how much it may hold at
//! most (maxmem). The hypervisor's interface changes with each version, so `xl` is run for that.
//! Start reading at `host.rs`.
//!
//! Source: Xen's `docs/misc/xenstore-paths.pandoc` and `xl(1)`; flexmemd §3.1.2 for what guests
//! publish. Limits: one host, from within dom0.

#![forbid(unsafe_code)]

mod claims;
mod disk_reads;
mod dom0;
mod domain;
mod host;
mod key;
mod limit;
mod probe;
mod xl;
mod xl_program;

pub use claims::{Claims, DomainFacts, ValueTimes};
pub use dom0::parse_dom0_stats;
pub use host::{XenConfig, XenHost};
pub use key::parse_kib;
pub use probe::{XenProbe, probe_xen};
pub use xl::{XlDomain, XlError, XlInfo, parse_xl_info, parse_xl_list};
