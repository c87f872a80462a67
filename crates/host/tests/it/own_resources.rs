//! A process that raises its own limits: a child, so that the limits of the test process stay.

use std::process::Command;

use ballast_host::{keep_freed_memory, lock_memory, raise_open_files};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const ROLE: &str = "BALLAST_TEST_OWN_RESOURCES";

/// Runs `work` in a child process, which runs only the test of this name.
fn in_child(test: &str, work: impl FnOnce()) {
    if std::env::var_os(ROLE).is_some() {
        return work();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--nocapture"]).env(ROLE, "child").output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Memory of this process that is locked, in KiB.
fn locked_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn the_soft_limit_of_open_files_becomes_the_hard_one() {
    in_child("own_resources::the_soft_limit_of_open_files_becomes_the_hard_one", || {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
        assert_eq!(raise_open_files(), Ok(maximum));
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    });
}

#[test]
fn memory_is_locked_wholly_or_not_at_all() {
    in_child("own_resources::memory_is_locked_wholly_or_not_at_all", || {
        match lock_memory() {
            Ok(()) => assert!(locked_kib() > 0),
            Err(why) => {
                println!("SKIPPED: locking memory: {why}");
                assert_eq!(locked_kib(), 0);
            }
        }
        // Either way later allocations succeed.
        assert!(Vec::<u8>::new().try_reserve_exact(256 << 20).is_ok());
    });
}

/// Pages that the kernel has given to this process so far.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    // Minor faults are the tenth field of proc_pid_stat(5), the eighth after the name.
    after_name.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
#[cfg(target_env = "gnu")]
fn freed_memory_is_used_again_without_page_faults() {
    in_child("own_resources::freed_memory_is_used_again_without_page_faults", || {
        const PAGES: u64 = 4096;
        let faults = || {
            let before = page_faults();
            drop(std::hint::black_box(vec![1u8; PAGES as usize * 4096]));
            page_faults() - before
        };
        assert!(faults() >= PAGES / 2 && faults() >= PAGES / 2, "the kernel keeps nothing");
        keep_freed_memory();
        faults();
        let again = faults();
        assert!(again < PAGES / 16, "{again}");
    });
}
