//! What a child of the hypervisor does first.
//!
//! Idea: a child has a copy of what is tracked, and none of the threads: nothing of it is tracked (the
//! kernel leaves registrations behind), and somebody who was inside a slot never comes out. Were the
//! child to unmap that memory, it would wait for ever. So it forgets the slots before anything else.
//!
//! Source: pthread_atfork(3). Limits: atomic stores only, as other threads may have held any lock.

use std::sync::Once;

use crate::give_way;
use crate::slots::SLOTS;

/// Has every child from now on forget.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function does what is allowed in a child of a process with threads. Without the
        // memory to register it there is little that a hypervisor could do anyway.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    });
}

unsafe extern "C" fn forget() {
    SLOTS.forget_all();
    give_way::forget();
}
