//! Starts the tracker when the library is loaded into a hypervisor.
//!
//! A library in `LD_PRELOAD` is initialised before the program's `main`. If `BALLAST_TRACK_SOCKET`
//! is set, a tracker listens at that path; otherwise nothing happens. `BALLAST_TRACK_USER` is the
//! number of the daemon's user, if that is neither root nor the hypervisor's user. Both variables,
//! and this library's entry in `LD_PRELOAD`, are removed from the environment, so that programs
//! that the hypervisor starts are not tracked.
//!
//! A hypervisor that goes into the background (QEMU's `-daemonize`) forks twice, and threads do not
//! survive a fork. The process that maps shared writable memory, as guest memory is, is the
//! hypervisor: if it is a child of the initialised process, it takes over the socket. Later
//! children do not.
//!
//! Limits: a hypervisor in the background without shared memory has no tracker at all, so clients
//! get no explanation.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ballast_tracker_proto::TrackerAddress;

use crate::server::Tracker;

/// `SOCKET_VARIABLE` of the protocol as a C string; a test compares them.
const SOCKET_NAME: &CStr = c"BALLAST_TRACK_SOCKET";
/// `USER_VARIABLE` of the protocol, likewise.
const USER_NAME: &CStr = c"BALLAST_TRACK_USER";
const PRELOAD_NAME: &CStr = c"LD_PRELOAD";
/// Prefix of this library's file name.
const LIBRARY: &[u8] = b"libballast_track";

/// The tracker, and the process that runs its thread: a child that ends must not remove the
/// socket's file.
static TRACKER: Mutex<Option<(u32, Tracker)>> = Mutex::new(None);

/// Whether there is a tracker and no guest memory has been mapped yet.
static IS_EARLY: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static SET_UP: extern "C" fn() = set_up;

#[used]
#[unsafe(link_section = ".fini_array")]
static TEAR_DOWN: extern "C" fn() = tear_down;

extern "C" fn set_up() {
    // SAFETY: before `main` there is one thread, so nothing changes the environment meanwhile.
    let (address, user) = unsafe { (variable(SOCKET_NAME), variable(USER_NAME)) };
    let Some(address) = address else { return };
    // SAFETY: as above.
    unsafe { clean_environment() };
    let Ok(address) = String::from_utf8(address) else {
        return warn(&"the socket's path is not UTF-8");
    };
    let address = match TrackerAddress::parse(&address) {
        Ok(address) => address,
        Err(error) => return warn(&error),
    };
    let number = user.as_deref().and_then(user_number);
    if user.is_some() && number.is_none() {
        return warn(&"BALLAST_TRACK_USER is not the number of a user");
    }
    match Tracker::start(&address, number) {
        Ok(tracker) => {
            if let Ok(mut place) = TRACKER.lock() {
                *place = Some((std::process::id(), tracker));
                IS_EARLY.store(true, SeqCst);
            }
        }
        Err(error) => warn(&format_args!("cannot listen at {address}: {error}")),
    }
}

extern "C" fn tear_down() {
    let Ok(mut place) = TRACKER.try_lock() else { return };
    match place.take() {
        // The tracker belongs to another process.
        Some((process, tracker)) if process != std::process::id() || tracker.is_stopped() => {
            std::mem::forget(tracker);
        }
        tracker => drop(tracker),
    }
}

/// Shared memory is about to be mapped: this process is the hypervisor, and the tracker moves here.
pub(crate) fn about_to_share() {
    if IS_EARLY.load(Relaxed) && IS_EARLY.swap(false, SeqCst) {
        take_over_tracker();
    }
}

#[cold]
fn take_over_tracker() {
    let Ok(mut place) = TRACKER.try_lock() else { return };
    *place = match place.take() {
        Some((process, tracker)) if process != std::process::id() => match tracker.take_over() {
            Ok(tracker) => Some((std::process::id(), tracker)),
            Err(error) => {
                warn(&format_args!("cannot continue in the background process: {error}"));
                None
            }
        },
        here => here,
    };
}

/// Warns and continues: a guest that cannot be tracked must start all the same.
fn warn(why: &dyn std::fmt::Display) {
    use std::io::Write;
    // Standard error may be closed, which must not end the hypervisor.
    let _ =
        writeln!(std::io::stderr(), "ballast-track: warning: this guest cannot be tracked: {why}");
}

/// # Safety
/// Nothing changes the environment during the call.
unsafe fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name ends with zero, and so does the value, which stays valid until it is
    // changed.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec())
    }
}

/// # Safety
/// Nothing else uses the environment during the call.
unsafe fn clean_environment() {
    // SAFETY: names and values end with zero.
    unsafe {
        libc::unsetenv(SOCKET_NAME.as_ptr());
        libc::unsetenv(USER_NAME.as_ptr());
        let Some(preload) = variable(PRELOAD_NAME) else { return };
        match CString::new(without_this_library(&preload)) {
            Ok(rest) if !rest.is_empty() => libc::setenv(PRELOAD_NAME.as_ptr(), rest.as_ptr(), 1),
            _ => libc::unsetenv(PRELOAD_NAME.as_ptr()),
        };
    }
}

/// The number of a user in decimal digits.
fn user_number(text: &[u8]) -> Option<u32> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let user: u32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // To the kernel the largest number means no user.
    (user != u32::MAX).then_some(user)
}

/// `list` without this library.
fn without_this_library(list: &[u8]) -> Vec<u8> {
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
    fn the_variables_match_the_protocol() {
        assert_eq!(SOCKET_NAME.to_str(), Ok(ballast_tracker_proto::SOCKET_VARIABLE));
        assert_eq!(USER_NAME.to_str(), Ok(ballast_tracker_proto::USER_VARIABLE));
    }

    #[test]
    fn users_are_plain_numbers() {
        assert_eq!((user_number(b"0"), user_number(b"64055")), (Some(0), Some(64_055)));
        for bad in ["", "-1", "+1", "root", "4294967295", "4294967296", " 1"] {
            assert_eq!(user_number(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn other_preloaded_libraries_are_kept() {
        for (list, rest) in [
            ("/usr/lib/libballast_track.so", ""),
            ("/lib/a.so:/x/libballast_track.so:/lib/b.so", "/lib/a.so:/lib/b.so"),
            ("/lib/a.so libballast_track.so.1", "/lib/a.so"),
            ("", ""),
        ] {
            assert_eq!(without_this_library(list.as_bytes()), rest.as_bytes(), "{list}");
        }
    }
}
