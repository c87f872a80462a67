//! What tells a new phase of a guest while its working set is not tracked.
//!
//! Idea: figures that the host has of a guest's virtual processors at any time, for a few system calls: misses
//! of the data TLB where the processor counts them ([`DataTlb`]), page faults and context switches of their
//! threads where it does not ([`Activity`]). Traps of a tiny sample of pages are a third, which
//! [`Tracking`](crate::Tracking) gives; the referenced bits ([`referenced`](crate::referenced())) a fourth.
//! Which of them is gone by is for others to say.
//!
//! Source: MEB §3.5, IMT, for misses of the data TLB; the others are ours.

mod activity;
mod data_tlb;
mod threads;

pub use activity::{Activity, ActivityReader, parse_stat, parse_status};
pub use data_tlb::DataTlb;
