//! A cgroup for the process of one guest, so that it can have a fence.

use std::path::PathBuf;

use ballast_model::Bytes;
use ballast_reclaim::{CgroupMount, CgroupVersion, parse_amount, parse_mountinfo};

/// A memory cgroup for one process. When it is dropped, the process is moved out of it.
pub struct OwnCgroup {
    folder: PathBuf,
    version: CgroupVersion,
}

impl OwnCgroup {
    /// Makes a cgroup around the process `pid`. Prints a message and returns `None` if it cannot be
    /// made.
    pub fn around(pid: u32) -> Option<OwnCgroup> {
        let mounts = parse_mountinfo(&std::fs::read("/proc/self/mountinfo").unwrap()).unwrap();
        let Some(mount) = mounts.into_iter().find(has_memory) else {
            println!(
                "SKIPPED: no memory controller is mounted, or none for cgroups below the root"
            );
            return None;
        };
        let folder = mount.point.join(format!("ballast-fence-{pid}"));
        if let Err(error) = std::fs::create_dir(&folder) {
            println!("SKIPPED: {}: {error}", folder.display());
            return None;
        }
        let cgroup = OwnCgroup { folder, version: mount.version };
        cgroup.take_in(pid);
        Some(cgroup)
    }

    /// Moves a process into it.
    pub fn take_in(&self, pid: u32) {
        std::fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Makes a cgroup around this process, so that processes that it starts are charged there from
    /// the beginning.
    pub fn around_myself() -> Option<OwnCgroup> {
        OwnCgroup::around(std::process::id())
    }

    /// Moves every process out of it except `pid`.
    pub fn leave_only(&self, pid: u32) {
        let pid = pid.to_string();
        let inside = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap();
        for other in inside.lines().filter(|other| *other != pid) {
            std::fs::write(self.folder.join("../cgroup.procs"), other).unwrap();
        }
    }

    /// The amount in one of its files.
    fn bytes(&self, name: &str) -> Option<Bytes> {
        parse_amount(&std::fs::read(self.folder.join(name)).unwrap()).unwrap()
    }

    /// The limit of a fence around it; `None`: there is none.
    pub fn limit(&self) -> Option<Bytes> {
        self.bytes(match self.version {
            CgroupVersion::One => "memory.limit_in_bytes",
            CgroupVersion::Two => "memory.high",
        })
    }

    /// The memory charged to it.
    pub fn charged(&self) -> Bytes {
        let name = match self.version {
            CgroupVersion::One => "memory.usage_in_bytes",
            CgroupVersion::Two => "memory.current",
        };
        self.bytes(name).unwrap()
    }
}

/// Whether cgroups directly below this hierarchy's root have the memory controller.
fn has_memory(mount: &CgroupMount) -> bool {
    let controllers = std::fs::read_to_string(mount.point.join("cgroup.subtree_control"));
    mount.version == CgroupVersion::One
        || controllers.is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"))
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let inside = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            let _ = std::fs::write(self.folder.join("../cgroup.procs"), pid);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}
