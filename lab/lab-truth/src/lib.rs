//! A QEMU plugin that records the pages a lab guest touches.
//!
//! Idea: QEMU's emulator (TCG) calls the plugin at every load and store of its guest. Each access
//! is reduced to its guest physical page and counted in the current interval; the sequence of pages
//! can be written too. Working sets estimated from outside are compared to this record, as the
//! papers used Pin inside a guest (MEB §5.2, IMT §5).
//!
//! Loaded with `-plugin libballast_lab_truth.so,rows=...`; its options are in `src/options.rs`, its
//! output in `src/output.rs`.
//!
//! Cost: a call per access, which mostly returns at once (`src/recent_pages.rs`), and 4 bytes per
//! page of the guest.
//! Source: QEMU 7.2, `include/qemu/qemu-plugin.h`, API version 1. Limits: only under emulation;
//! instruction fetches (the emulator translates them once) and accesses by devices are not
//! recorded.

mod options;
mod output;
// A test cannot be linked against the symbols of QEMU.
#[cfg(not(test))]
mod plugin;
// Only the plugin uses all of it.
#[cfg_attr(test, allow(dead_code))]
mod recent_pages;
mod recorder;
