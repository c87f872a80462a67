//! Being woken when tasks wait for memory, instead of finding out at the next look.
//!
//! Idea: a line written to `/proc/pressure/memory` makes that open file a trigger: from then on it tells by `POLLPRI` when
//! tasks waited for longer than a threshold within a window, once a window at most.
//! Cost: the kernel's bookkeeping, ten times a window. Limits: Linux 5.2 and a process with `CAP_SYS_RESOURCE`; any other
//! gets one from 6.5 on, with windows of whole two seconds. The trigger ends with the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// An armed trigger; to be polled for `POLLPRI`.
#[derive(Debug)]
pub struct PressureTrigger {
    file: File,
}

impl PressureTrigger {
    /// The time looked at: the shortest that is worth waking anybody for, else what processes without privileges may
    /// have. The kernel takes 500 ms to 10 s.
    pub const WINDOWS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
    /// Time in which some task waited, of that: one in ten of the first, at which work begins to suffer.
    pub const STALL: Duration = Duration::from_millis(100);

    /// Arms a trigger with the file in `proc`.
    ///
    /// # Errors
    /// The kernel has no such file, or does not let this process watch it.
    pub fn arm(proc: &Path) -> io::Result<PressureTrigger> {
        let mut file =
            OpenOptions::new().read(true).write(true).open(proc.join("pressure/memory"))?;
        let mut arm = |window: Duration| {
            let (stall, window) = (Self::STALL.as_micros(), window.as_micros());
            file.write_all(format!("some {stall} {window}\0").as_bytes())
        };
        let [first, other] = Self::WINDOWS;
        arm(first).or_else(|why| match why.kind() {
            io::ErrorKind::InvalidInput => arm(other),
            _ => Err(why),
        })?;
        Ok(PressureTrigger { file })
    }
}

impl AsFd for PressureTrigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_the_kernel_takes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pressure/memory");
        assert_eq!(
            PressureTrigger::arm(folder.path()).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::fs::create_dir(folder.path().join("pressure")).unwrap();
        std::fs::write(&file, "").unwrap();
        PressureTrigger::arm(folder.path()).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"some 100000 1000000\0");
    }

    #[test]
    fn this_kernel_takes_it_or_says_why_not() {
        let proc = Path::new("/proc");
        match PressureTrigger::arm(proc) {
            Ok(trigger) => drop(trigger),
            Err(why) => assert!(
                crate::read_pressure(proc).is_ok_and(|it| it.is_none())
                    || why.kind() == io::ErrorKind::PermissionDenied
                    || why.kind() == io::ErrorKind::InvalidInput,
                "{why}"
            ),
        }
    }
}
