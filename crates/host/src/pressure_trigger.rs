//! A PSI trigger: wakes the daemon as soon as tasks stall on memory, between two ticks.
//!
//! Idea: writing a threshold to `/proc/pressure/memory` turns the open file into a trigger. It
//! raises `POLLPRI`, at most once per window, when tasks stalled for longer than the threshold
//! within the window.
//! Cost: the kernel updates the trigger ten times per window.
//! Limits: Linux 5.2 with `CAP_SYS_RESOURCE`; without it Linux 6.5, and windows in multiples of two
//! seconds. Closing the file removes the trigger.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// An armed trigger; poll it for `POLLPRI`.
#[derive(Debug)]
pub struct PressureTrigger {
    file: File,
}

impl PressureTrigger {
    /// Windows to try, in this order: the one preferred, then the shortest that an unprivileged
    /// process may have. The kernel accepts 500 ms to 10 s.
    pub const WINDOWS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
    /// Stall time within a window that fires the trigger: a tenth of the first window, where
    /// workloads begin to suffer.
    pub const STALL: Duration = Duration::from_millis(100);

    /// Arms a trigger on `pressure/memory` in `proc`.
    ///
    /// # Errors
    /// The kernel has no such file, or refuses this process a trigger.
    pub fn arm(proc: &Path) -> io::Result<PressureTrigger> {
        let mut file =
            OpenOptions::new().read(true).write(true).open(proc.join("pressure/memory"))?;
        let mut arm = |window: Duration| {
            let (stall, window) = (Self::STALL.as_micros(), window.as_micros());
            file.write_all(format!("some {stall} {window}\0").as_bytes())
        };
        let [preferred, unprivileged] = Self::WINDOWS;
        match arm(preferred) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => arm(unprivileged)?,
            armed => armed?,
        }
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
    fn arming_writes_the_trigger_in_the_kernels_format() {
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
    fn this_kernel_arms_a_trigger_or_gives_a_known_error() {
        let proc = Path::new("/proc");
        match PressureTrigger::arm(proc) {
            Ok(trigger) => drop(trigger),
            Err(why) => assert!(
                crate::HostReader::new(proc).sample().0.pressure.is_none()
                    || why.kind() == io::ErrorKind::PermissionDenied
                    || why.kind() == io::ErrorKind::InvalidInput,
                "{why}"
            ),
        }
    }
}
