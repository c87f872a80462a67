//! The page tracker inside a hypervisor: `libballast_track.so`.
//!
//! Nothing reports which pages a guest uses; the tracker finds out by revoking the permission to
//! touch them and recording the faults. MEB does that in a modified hypervisor (§3.1). This library
//! does it inside the process of an unmodified hypervisor, with userfaultfd (see `minor`); it is
//! loaded with `LD_PRELOAD`.
//!
//! The library decides nothing. A daemon connects to its socket (`BALLAST_TRACK_SOCKET`), which is
//! open to root and one user (`BALLAST_TRACK_USER`). The daemon names the memory, says what to
//! watch and when to revoke, and reads touches from a ring (`ballast_tracker_proto`). There are
//! three threads: one answers faults (`handler`), one takes requests (`server`), one measures traps
//! (`probe`).
//!
//! A guest must never hang because it is tracked, nor wait for longer than a second:
//! - if the client is gone or silent for a second, all permissions are restored (`server`);
//! - if a fault cannot be answered, or a thread ends, all permissions are restored (`handler`);
//! - if a thread does not go on, the other one restores them (`handler`, `session`);
//! - a thread that unmaps memory sleeps while it waits, and only for a bounded time (`slots`);
//! - only shared memory that certainly still belongs to the guest is revoked (`maps`, `slots`,
//!   `unmap`);
//! - if the hypervisor needs userfaultfd for itself, the tracker gives way (`give_way`).
//!
//! Begin here: `server.rs`, then `session.rs`, `handler.rs`, `minor.rs`.
//! Limits: 64-bit Linux, small pages; see `docs/tracking.md`.

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
