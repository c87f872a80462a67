//! Decides whether DAMON is free, ours, or in use by others.
//!
//! Idea: DAMON's sysfs files have one user, and do not show who that is. A program of Ballast locks
//! `nr_kdamonds` (`flock`) as long as it uses them; the lock ends with its process. It also signs
//! its set-up: `fvaddr` does not use `update_us`, so that file holds a number that no other program
//! writes. A signed set-up without a lock was left by a killed daemon, and is stopped; one without
//! the signature belongs to another program, and is left alone.
//! Limits: a daemon killed between its first three writes leaves a kdamond that is not signed and
//! does not run. It must be removed by hand; the error says how.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::DamonError;
use crate::paths::{DamonPaths, read, read_number, write};

/// Signs a context: its `update_us`, about three minutes.
pub(crate) const SIGNATURE_US: u64 = 195_107_415;

/// Parent of all kernel threads.
const KTHREADD: &str = "2";

/// Locks DAMON's sysfs files and stops what a killed daemon left in them.
///
/// # Errors
/// [`DamonError::Absent`]; if it is in use, [`DamonError::Ours`], [`DamonError::Foreign`] or
/// [`DamonError::Kernel`]; the system's errors.
pub(crate) fn claim(paths: &DamonPaths) -> Result<File, DamonError> {
    let count = paths.kdamonds.join("nr_kdamonds");
    if !count.exists() {
        return Err(DamonError::Absent(count));
    }
    let lock = File::open(&count).map_err(DamonError::system("open", &count))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(DamonError::Ours),
        Err(error) => return Err(DamonError::system("lock", &count)(error.into())),
    }
    match read_number(&count)? {
        0 => {}
        1 if is_signed(paths) => release(paths)?,
        kdamonds => return Err(DamonError::Foreign { kdamonds, admin: paths.kdamonds.clone() }),
    }
    // The kdamonds of kernel modules are not in sysfs.
    if has_kdamond(paths) { Err(DamonError::Kernel) } else { Ok(lock) }
}

/// Stops the kdamond, if it runs, and removes it.
pub(crate) fn release(paths: &DamonPaths) -> Result<(), DamonError> {
    let state = paths.kdamonds.join("0/state");
    if read(&state).is_ok_and(|state| state == "on") {
        // It may have ended by itself meanwhile.
        let _ = write(&state, "off");
    }
    write(&paths.kdamonds.join("nr_kdamonds"), "0")
}

fn is_signed(paths: &DamonPaths) -> bool {
    let update = paths.kdamonds.join("0/contexts/0/monitoring_attrs/intervals/update_us");
    read_number(&update).is_ok_and(|found| found == SIGNATURE_US)
}

/// Whether a thread of DAMON runs on this kernel, as far as this process sees its threads.
fn has_kdamond(paths: &DamonPaths) -> bool {
    let Ok(processes) = fs::read_dir(&paths.proc) else { return false };
    processes.flatten().any(|process| {
        let text = read(&process.path().join("stat")).unwrap_or_default();
        // `77 (kdamond.0) S 2 …`
        let Some((name, rest)) = text.rsplit_once(')') else { return false };
        let is_damon = name.split_once('(').is_some_and(|(_, name)| name.starts_with("kdamond"));
        is_damon && rest.split_ascii_whitespace().nth(1) == Some(KTHREADD)
    })
}
