//! Xen: its domains as guests, dom0 among them.
//!
//! Idea: xenstore says what a domain was given and takes what it is to hold (`memory/target`); a
//! watch tells what changes. What it really holds, and what the hypervisor lets it hold at most,
//! only the hypervisor knows, whose interface changes with each version: so `xl` is run for that.
//! Begin reading at `host.rs`.
//!
//! Source: Xen's `docs/misc/xenstore-paths.pandoc` and `xl(1)`; flexmemd §3.1.2 for what guests
//! publish. Limits: one host, from within dom0.

#![forbid(unsafe_code)]

mod claims;
mod dom0;
mod domain;
mod found;
mod host;
mod key;
mod limit;
mod xl;
mod xl_program;

pub use claims::{Claims, DomainFacts, FoundAt};
pub use dom0::parse_dom0_stats;
pub use found::{XenFound, find_xen};
pub use host::{XenConfig, XenHost};
pub use key::parse_kib;
pub use xl::{XlDomain, XlError, XlInfo, parse_xl_info, parse_xl_list};
