//! A bound on the processor time of each guest.
//!
//! Idea: guests share few cores; when one waits for its swap disk the others would run faster, and
//! what is measured would be the neighbour. Each guest gets its share of three quarters of the cores
//! (1.5 of 2), never more, and the rest is for the host.
//! Source: cgroup v1 `cpu.cfs_quota_us`, v2 `cpu.max`.
//! Limits: needs a writable cgroup with a `cpu` controller; where there is none the guests go
//! without, and it is said.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::LabError;

/// Part of the host's cores that all guests together may take.
const CORES_FOR_GUESTS: f64 = 0.75;
/// Time over which the bound holds: long enough to leave the scheduler alone, short against a report.
const PERIOD_US: u64 = 50_000;
/// The kernel refuses less.
const QUOTA_US_MIN: u64 = 1_000;
/// How often, 10 ms apart, removing a group is tried: its processes may take a moment to go.
const REMOVE_ATTEMPTS: u32 = 100;

/// Where groups can be made, and of which kind.
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
    /// The controller of this process, as mounted in the usual place.
    pub(crate) fn find() -> Option<CpuController> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        CpuController::find_in(Path::new("/sys/fs/cgroup"), &cgroups)
    }

    /// As [`CpuController::find`], below `mount` and for the text of `/proc/self/cgroup`.
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
                // A group with processes cannot have children with controllers: go up to one that
                // hands `cpu` on.
                let found = mount
                    .join(path)
                    .ancestors()
                    .take_while(|folder| folder.starts_with(mount))
                    .find(|folder| hands_cpu_on(folder))
                    .map(Path::to_owned);
                if let Some(parent) = found {
                    return Some(CpuController { parent, version: Version::Two });
                }
            }
        }
        None
    }

    /// Where the group `name` would be.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.parent.join(name)
    }

    /// Makes the group `name`, which may use `cores` cores. A group that cannot be set up is removed.
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
        // Rounded down: the bound is a bound.
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

fn hands_cpu_on(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.subtree_control"))
        .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
}

/// What one of `guests` guests may use on a host with `cores` cores.
pub(crate) fn share_of_cores(cores: usize, guests: usize) -> f64 {
    CORES_FOR_GUESTS * cores as f64 / guests.max(1) as f64
}

/// One guest's group; it stays until [`remove`] is called with its path.
#[derive(Debug)]
pub(crate) struct CpuGroup {
    pub(crate) path: PathBuf,
}

impl CpuGroup {
    /// Moves a process with all its threads in.
    pub(crate) fn add(&self, pid: u32) -> Result<(), LabError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<(), LabError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(LabError::io("write", path))
    }
}

/// Removes a group whose processes are ending. True when it is gone.
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
    fn version_one_gets_a_quota_of_a_period() {
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
    fn version_two_uses_the_nearest_group_that_hands_cpu_on() {
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
    fn without_a_controller_there_is_none() {
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
