//! Page touches of running guests, sampled by the kernel's DAMON (Data Access MONitor).
//!
//! Idea: DAMON clears the accessed bits of chosen pages and checks them a window later, also in
//! KVM's page tables, which the process's own files do not show. With regions of one page each,
//! chosen once ([`choose_pages`]), that is SHARDS without traps: a page is always or never
//! sampled, the guest does not stop, and the hypervisor needs no library, no shared memory and no
//! restart. [`DamonSession`] has one kdamond with a target for each guest and delivers each guest's
//! touches of a window; `ballast-working-set` estimates working sets from them.
//!
//! Start reading at `session.rs`, then `window.rs`.
//! Cost: the kernel walks to each sampled page twice per window, about a microsecond each. The
//! guest only pays for a page-table walk per sampled page.
//! Source: Linux, Documentation/admin-guide/mm/damon/usage.rst; Waldspurger 2015 (SHARDS).
//! Limits: root only. Touches within a window have no order. A huge page has one accessed bit for 2
//! MiB ([`HugeShare`]). DAMON's sysfs files have one user at a time; if another program uses them,
//! they are left alone.

mod error;
mod huge;
mod ownership;
mod pages;
mod paths;
mod session;
mod trace;
mod window;

pub use error::DamonError;
pub use huge::HugeShare;
pub use pages::{ChosenPages, choose_pages};
pub use paths::DamonPaths;
pub use session::{DamonSession, SAMPLES_MAX, WINDOW_MIN};
pub use trace::{RegionRecord, parse_record};
pub use window::{DamonTarget, DamonWindow, WindowReader};
