//! Resets the tracker's state in children of the hypervisor.
//!
//! A child has a copy of the slots but none of the tracker's threads, and the kernel does not copy
//! registrations. A thread that was inside a slot never leaves the copy, so a child that unmapped
//! tracked memory would wait in vain. Therefore each child resets the slots first.
//!
//! Source: pthread_atfork(3). Limits: only atomic stores, because other threads may have held
//! locks.

use std::sync::Once;

use crate::give_way;
use crate::slots::SLOTS;

/// Makes every later child reset the state.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function makes atomic stores only, which is allowed in a child of a process
        // with threads. Registering fails only without memory.
        unsafe { libc::pthread_atfork(None, None, Some(reset)) };
    });
}

unsafe extern "C" fn reset() {
    SLOTS.reset();
    give_way::reset();
}
