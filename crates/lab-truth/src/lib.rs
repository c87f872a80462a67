//! What a lab guest really touches, page by page.
//!
//! Idea: QEMU's emulator (TCG) calls a plugin at every load and store of its guest. Each is reduced to
//! its guest physical page and counted in the current interval; the pages in order can be written too.
//! This is the truth that working sets seen from outside are measured against, as the papers used Pin
//! inside of a guest (MEB §5.2, IMT §5).
//!
//! Loaded with `-plugin libballast_lab_truth.so,rows=...`; what it takes is in `src/options.rs`, what
//! it writes in `src/output.rs`.
//!
//! Cost: a call for each access, of which most end at once (`src/known.rs`). 4 bytes for each page of the
//! guest.
//! Source: QEMU 7.2, `include/qemu/qemu-plugin.h`, API version 1. Limits: only under emulation; not
//! seen are instructions fetched (the emulator translates them once) and what devices read and write.

// What only the plugin calls.
#[cfg_attr(test, allow(dead_code))]
mod known;
mod options;
mod output;
// A test is no QEMU: what is imported from there would be missing.
#[cfg(not(test))]
mod plugin;
mod recorder;
