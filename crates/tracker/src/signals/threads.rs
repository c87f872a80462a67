//! Finds the threads of a hypervisor that are virtual processors.
//!
//! QEMU names them on request (`-name …,debug-threads=on`, as libvirt does): `CPU 0/KVM`, `CPU
//! 0/TCG`, `ALL CPUs/TCG`. Without such names all threads are taken; the others do little while a
//! guest works.
//! Cost: a small file per thread. Limits: [`THREADS_MAX`] threads. A guest's process may give its
//! threads false names; that affects only the guest itself.

use std::fs;
use std::path::Path;

/// Most threads examined: more than QEMU's limit of virtual processors.
const THREADS_MAX: usize = 2048;

/// The threads of virtual processors in a process's `task` folder, sorted.
pub(super) fn virtual_processors(task: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(task) else { return Vec::new() };
    let tid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut all: Vec<u32> = entries.flatten().filter_map(tid).take(THREADS_MAX).collect();
    all.sort_unstable();
    let is_named = |tid: &u32| {
        let name = fs::read_to_string(task.join(tid.to_string()).join("comm"));
        name.is_ok_and(|name| is_virtual_processor(name.trim_end()))
    };
    let named: Vec<u32> = all.iter().copied().filter(is_named).collect();
    if named.is_empty() { all } else { named }
}

fn is_virtual_processor(name: &str) -> bool {
    let number = |rest: &str| rest.split_once('/').is_some_and(|(n, _)| n.parse::<u32>().is_ok());
    name.starts_with("ALL CPUs/") || name.strip_prefix("CPU ").is_some_and(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_thread_names_are_recognised() {
        for name in ["CPU 0/KVM", "CPU 17/TCG", "ALL CPUs/TCG"] {
            assert!(is_virtual_processor(name), "{name}");
        }
        for name in ["qemu-system-x86", "CPU", "CPU x/KVM", "IO mon_iothread", ""] {
            assert!(!is_virtual_processor(name), "{name}");
        }
    }

    #[test]
    fn without_thread_names_all_threads_count() {
        let task = tempfile::tempdir().unwrap();
        let thread = |tid: &str, name: &str| {
            fs::create_dir_all(task.path().join(tid)).unwrap();
            fs::write(task.path().join(tid).join("comm"), name).unwrap();
        };
        thread("30", "qemu-system-x86\n");
        thread("4", "call_rcu\n");
        assert_eq!(virtual_processors(task.path()), [4, 30]);
        thread("31", "CPU 0/TCG\n");
        assert_eq!(virtual_processors(task.path()), [31]);
        assert_eq!(virtual_processors(&task.path().join("none")), []);
    }
}
