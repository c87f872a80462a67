//! The limit on each guest's processor time.
//!
//! Idea: guests share few cores. Without a limit, a guest would run faster whenever another waits
//! for its swap disk, and measurements would show the neighbour. Each guest gets at most its share
//! of three quarters of the cores (1.5 of 2); the rest is for the host.
//! Source: cgroup v1 `cpu.cfs_quota_us`, v2 `cpu.max`.
//! Limits: needs a writable cgroup with a `cpu` controller; without one the guests are not limited,
//! and a message says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::LabError;

/// Share of the host's cores that all guests together may use.
const CORES_FOR_GUESTS: f64 = 0.75;
/// Period of the limit: long enough to cause little scheduling, short compared to a report.
const PERIOD_US: u64 = 50_000;
/// The kernel's minimum.
const QUOTA_US_MIN: u64 = 1_000;
/// Attempts, 10 ms apart, to remove a group: its processes may take a moment to exit.
const REMOVE_ATTEMPTS: u32 = 100;

/// Where groups can be created, and which version they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuController {
    parent: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl CpuController {
    /// Finds the controller of this process at the usual mount point.
    pub(crate) fn find() -> Option<CpuController> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        CpuController::find_in(Path::new("/sys/fs/cgroup"), &cgroups)
    }

    /// Like [`CpuController::find`], for a mount point and the text of `/proc/self/cgroup`.
    fn find_in(mount: &Path, cgroups: &str) -> Option<CpuController> {
        for line in cgroups.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let path = path.trim_start_matches('/');
            if controllers.split(',').any(|name| name == "cpu") {
                let parent = mount.join(controllers).join(path);
                if parent.join("cpu.cfs_quota_us").exists() || parent.join("cpu.shares").exists() {
                    return Some(CpuController { parent, version: Version::One });
                }
            }
            if controllers.is_empty() {
                // A group with processes cannot have children with controllers: go up to a group
                // that delegates `cpu`.
                let found = mount
                    .join(path)
                    .ancestors()
                    .take_while(|folder| folder.starts_with(mount))
                    .find(|folder| delegates_cpu(folder))
                    .map(Path::to_owned);
                if let Some(parent) = found {
                    return Some(CpuController { parent, version: Version::Two });
                }
            }
        }
        None
    }

    /// The path of the group `name`.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.parent.join(name)
    }

    /// Creates the group `name`, limited to `cores` cores. If its set-up fails, the group is
    /// removed.
    pub(crate) fn create(&self, name: &str, cores: f64) -> Result<CpuGroup, LabError> {
        let path = self.path_of(name);
        fs::create_dir(&path).map_err(LabError::io("create", &path))?;
        let group = CpuGroup { path };
        self.set(&group, cores).inspect_err(|_| {
            remove(&group.path);
        })?;
        Ok(group)
    }

    fn set(&self, group: &CpuGroup, cores: f64) -> Result<(), LabError> {
        // Rounded down, so that the limit is never exceeded.
        let quota = ((PERIOD_US as f64 * cores) as u64).max(QUOTA_US_MIN);
        match self.version {
            Version::One => {
                group.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                group.write("cpu.cfs_quota_us", &quota.to_string())
            }
            Version::Two => group.write("cpu.max", &format!("{quota} {PERIOD_US}")),
        }
    }
}

fn delegates_cpu(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.subtree_control"))
        .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
}

/// Cores for each of `guests` guests on a host with `cores` cores.
pub(crate) fn share_of_cores(cores: usize, guests: usize) -> f64 {
    CORES_FOR_GUESTS * cores as f64 / guests.max(1) as f64
}

/// One guest's group; it exists until [`remove`] is called with its path.
#[derive(Debug)]
pub(crate) struct CpuGroup {
    pub(crate) path: PathBuf,
}

impl CpuGroup {
    /// Moves a process with all its threads into the group.
    pub(crate) fn add(&self, pid: u32) -> Result<(), LabError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<(), LabError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(LabError::io("write", path))
    }
}

/// Removes a group whose processes are exiting; true on success.
pub(crate) fn remove(path: &Path) -> bool {
    for _ in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir(path) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(files: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = mount.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        mount
    }

    #[test]
    fn cgroup_v1_gets_quota_and_period() {
        let mount = fake(&[("cpu/us/cpu.cfs_quota_us", "-1")]);
        let controller =
            CpuController::find_in(mount.path(), "4:memory:/us\n1:cpu:/us\n0::/\n").unwrap();
        let group = controller.create("g", 0.75).unwrap();
        group.add(4711).unwrap();
        let read = |file: &str| fs::read_to_string(group.path.join(file)).unwrap();
        assert_eq!(group.path, mount.path().join("cpu/us/g"));
        assert_eq!(read("cpu.cfs_period_us"), "50000");
        assert_eq!(read("cpu.cfs_quota_us"), "37500");
        assert_eq!(read("cgroup.procs"), "4711");
    }

    #[test]
    fn cgroup_v2_uses_the_nearest_delegating_group() {
        let mount = fake(&[
            ("cgroup.subtree_control", "cpu memory"),
            ("a/cgroup.subtree_control", "memory cpu"),
            ("a/b/cgroup.subtree_control", "memory"),
        ]);
        let controller = CpuController::find_in(mount.path(), "0::/a/b\n").unwrap();
        let group = controller.create("g", 0.5).unwrap();
        assert_eq!(group.path, mount.path().join("a/g"));
        assert_eq!(fs::read_to_string(group.path.join("cpu.max")).unwrap(), "25000 50000");
    }

    #[test]
    fn missing_controller_is_not_found() {
        let mount = fake(&[("cgroup.subtree_control", "memory")]);
        for text in ["0::/a/b\n", "", "rubbish", "1:cpu:/nowhere\n"] {
            assert_eq!(CpuController::find_in(mount.path(), text), None, "{text}");
        }
    }

    #[test]
    fn guests_share_three_quarters_of_the_cores() {
        assert_eq!(share_of_cores(2, 2), 0.75);
        assert_eq!(share_of_cores(2, 1), 1.5);
        assert_eq!(share_of_cores(2, 0), 1.5);
    }
}
