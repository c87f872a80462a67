//! The page tracker inside a hypervisor: `libballast_track.so`.
//!
//! Idea: which of a guest's pages are used cannot be asked of anybody; it can be seen by taking the
//! permission to touch them away and noting who comes. MEB does that in a changed hypervisor (§3.1).
//! Here it is done from within the unchanged hypervisor's own process, with userfaultfd (see `minor`),
//! by this library, which is loaded into it with `LD_PRELOAD`.
//!
//! The library decides nothing. A daemon connects to its socket (`BALLAST_TRACK_SOCKET`), names the memory,
//! says what to watch and when to revoke, and reads what was touched from a ring
//! (`ballast_track_wire`). Two threads: one answers faults (`handler`), one takes commands (`server`).
//!
//! What must never happen is that a guest hangs because it is tracked. So:
//! - whoever steers is watched: when it is gone or silent for a second, all is restored (`server`);
//! - a fault that cannot be answered, or a thread that ends, restores all at once (`handler`);
//! - only memory that is shared, and certainly still a guest's, is ever revoked (`maps`, `slots`, `unmap`);
//! - where the hypervisor itself wants what the tracker has, it gets it (`give_way`).
//!
//! Limits: x86-64 and other 64-bit Linux, small pages; see `docs/tracking.md`.

#![deny(unsafe_op_in_unsafe_fn)]

mod after_fork;
mod give_way;
mod handler;
mod hot_set;
mod kernel;
mod maps;
mod minor;
mod preload;
mod probe;
mod ring_memory;
mod server;
mod session;
mod shared;
mod slots;
mod socket;
mod threads;
mod unmap;
mod watched;

pub use server::Tracker;
