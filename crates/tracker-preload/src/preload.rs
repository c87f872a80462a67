//! Being loaded into a hypervisor.
//!
//! Idea: a library in `LD_PRELOAD` is set up before the program's `main`. If `BALLAST_TRACK_SOCKET` says
//! where, a tracker listens there from then on; otherwise nothing happens at all. Both variables are
//! taken out of the environment, as what the hypervisor starts itself is no hypervisor.
//!
//! A hypervisor that goes into the background (QEMU's `-daemonize`) forks twice before it is one, and threads
//! stay behind. So whichever process maps memory that is shared and can be written to, as guest memory is, is
//! the hypervisor: if that is a child of the one that was set up, it takes the socket over. Afterwards none of
//! its children does.
//!
//! Limits: a hypervisor in the background without shared memory has no tracker at all, rather than one that
//! says so.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ballast_track_wire::Address;

use crate::server::Tracker;

/// `SOCKET_VARIABLE` of the protocol as C has it; a test compares them.
const SOCKET_NAME: &CStr = c"BALLAST_TRACK_SOCKET";
const PRELOAD_NAME: &CStr = c"LD_PRELOAD";
/// What this library's file is called, whatever its folder.
const LIBRARY: &[u8] = b"libballast_track";

/// The tracker of this process, and the process in which its thread is: what is forked later must not
/// take the socket's file along when it ends.
static TRACKER: Mutex<Option<(u32, Tracker)>> = Mutex::new(None);

/// Whether there is a tracker, and guest memory is yet to come.
static IS_EARLY: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static SET_UP: extern "C" fn() = set_up;

#[used]
#[unsafe(link_section = ".fini_array")]
static TEAR_DOWN: extern "C" fn() = tear_down;

extern "C" fn set_up() {
    // SAFETY: before `main` there is one thread, so nobody changes the environment meanwhile.
    let address = unsafe { variable(SOCKET_NAME) };
    let Some(address) = address else { return };
    // SAFETY: as above.
    unsafe { clean_environment() };
    let Ok(address) = String::from_utf8(address) else {
        return complain(&"the socket's path is not UTF-8");
    };
    match Tracker::start(Address::parse(&address)) {
        Ok(tracker) => {
            if let Ok(mut place) = TRACKER.lock() {
                *place = Some((std::process::id(), tracker));
                IS_EARLY.store(true, SeqCst);
            }
        }
        Err(error) => complain(&format_args!("cannot listen at {address}: {error}")),
    }
}

extern "C" fn tear_down() {
    let Ok(mut place) = TRACKER.try_lock() else { return };
    match place.take() {
        // Another's, by now or all along.
        Some((process, tracker)) if process != std::process::id() || tracker.is_stopped() => {
            std::mem::forget(tracker);
        }
        tracker => drop(tracker),
    }
}

/// Memory that may be a guest's is about to be mapped: this process is the hypervisor, which its tracker
/// belongs in.
pub(crate) fn about_to_share() {
    if IS_EARLY.load(Relaxed) && IS_EARLY.swap(false, SeqCst) {
        move_here();
    }
}

#[cold]
fn move_here() {
    let Ok(mut place) = TRACKER.try_lock() else { return };
    *place = match place.take() {
        Some((process, tracker)) if process != std::process::id() => match tracker.take_over() {
            Ok(tracker) => Some((std::process::id(), tracker)),
            Err(error) => {
                complain(&format_args!("it went into the background: {error}"));
                None
            }
        },
        here => here,
    };
}

/// The guest goes on untracked, which is no reason not to start it.
fn complain(why: &dyn std::fmt::Display) {
    eprintln!("ballast-track: warning: this guest cannot be tracked: {why}");
}

/// # Safety
/// Nobody changes the environment meanwhile.
unsafe fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name ends with zero, and so does what it returns, which stays until it is changed.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec())
    }
}

/// # Safety
/// Nobody uses the environment meanwhile.
unsafe fn clean_environment() {
    // SAFETY: names and values end with zero.
    unsafe {
        libc::unsetenv(SOCKET_NAME.as_ptr());
        let Some(preload) = variable(PRELOAD_NAME) else { return };
        match CString::new(without_this(&preload)) {
            Ok(rest) if !rest.is_empty() => libc::setenv(PRELOAD_NAME.as_ptr(), rest.as_ptr(), 1),
            _ => libc::unsetenv(PRELOAD_NAME.as_ptr()),
        };
    }
}

/// The libraries of a list that are others than this.
fn without_this(list: &[u8]) -> Vec<u8> {
    let is_other = |path: &&[u8]| {
        let name = std::path::Path::new(OsStr::from_bytes(path)).file_name();
        !path.is_empty() && !name.is_some_and(|name| name.as_bytes().starts_with(LIBRARY))
    };
    let others: Vec<&[u8]> =
        list.split(|byte| matches!(byte, b':' | b' ')).filter(is_other).collect();
    others.join(&b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_that_of_the_protocol() {
        assert_eq!(SOCKET_NAME.to_str(), Ok(ballast_track_wire::SOCKET_VARIABLE));
    }

    #[test]
    fn other_preloaded_libraries_stay() {
        for (list, rest) in [
            ("/usr/lib/libballast_track.so", ""),
            ("/lib/a.so:/x/libballast_track.so:/lib/b.so", "/lib/a.so:/lib/b.so"),
            ("/lib/a.so libballast_track.so.1", "/lib/a.so"),
            ("", ""),
        ] {
            assert_eq!(without_this(list.as_bytes()), rest.as_bytes(), "{list}");
        }
    }
}
