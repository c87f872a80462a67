//! Reasons why the page generations of a guest cannot be read. Whether they show what was touched
//! is tested with a guest under KVM (`crates/ballast/tests/real/sampled.rs`).

use std::fs;
use std::time::Duration;

use ballast_model::Bytes;
use ballast_reclaim::{PageGenerations, ReclaimError};

use crate::common::tree;

const ENABLED: &str = "sys/kernel/mm/lru_gen/enabled";
const LRU_GEN: &str = "sys/kernel/debug/lru_gen";

/// A host with the multi-generational LRU, where process 7 is a guest.
fn host() -> tempfile::TempDir {
    tree(&[
        ("proc/7/cgroup", "0::/vm/a\n"),
        ("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/vm/a/cgroup.procs", "7\n"),
        ("sys/fs/cgroup/vm/a/memory.current", "104857600\n"),
        (ENABLED, "0x0007\n"),
        (
            LRU_GEN,
            "memcg     9 /vm/a\n node     0\n          4        312       4891       8402 \n",
        ),
    ])
}

fn error(host: &tempfile::TempDir) -> ReclaimError {
    PageGenerations::find(host.path(), 7).unwrap_err()
}

#[test]
fn a_guest_alone_in_its_cgroup_has_generations() {
    assert!(PageGenerations::find(host().path(), 7).is_ok());
    let host = host();
    fs::write(host.path().join("sys/fs/cgroup/vm/a/cgroup.procs"), "7\n8\n").unwrap();
    assert_eq!((error(&host).code(), error(&host).is_lasting()), ("shared-cgroup", false));
}

#[test]
fn what_the_kernel_lacks_is_reported_with_what_to_do() {
    let lacking = |path: &str| {
        let host = host();
        fs::remove_file(host.path().join(path)).unwrap();
        assert!(PageGenerations::probe(host.path()).is_err());
        error(&host)
    };
    let reported = lacking(ENABLED);
    assert!(reported.is_lasting() && reported.to_string().contains("CONFIG_LRU_GEN"), "{reported}");
    let reported = lacking(LRU_GEN);
    assert!(
        !reported.is_lasting() && reported.to_string().contains("mount -t debugfs"),
        "{reported}"
    );
    for off in ["0x0000\n", "0\n"] {
        let host = host();
        fs::write(host.path().join(ENABLED), off).unwrap();
        let error = error(&host);
        assert!(!error.is_lasting(), "it can be turned on: {error}");
        let error = error.to_string();
        assert!(error.contains("turned off") && error.contains("`y`"), "{error}");
    }
}

#[test]
fn a_kernel_whose_agings_see_nothing_is_refused() {
    let host = host();
    fs::write(host.path().join(ENABLED), "0x0005\n").unwrap();
    let error = error(&host).to_string();
    assert!(error.contains("do not walk page tables"), "{error}");
}

#[test]
fn a_container_of_its_own_names_is_refused() {
    let host = host();
    let link = host.path().join("proc/self/ns/cgroup");
    fs::create_dir(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("cgroup:[4026531835]", &link).unwrap();
    assert!(PageGenerations::find(host.path(), 7).is_ok());
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("cgroup:[4026532440]", &link).unwrap();
    let reported = error(&host);
    assert!(
        reported.is_lasting() && reported.to_string().contains("cgroup namespace"),
        "{reported}"
    );
}

#[test]
fn an_aging_is_asked_of_each_node_by_its_youngest() {
    let host = host();
    let file = host.path().join(LRU_GEN);
    // The kernel's file takes commands; in this plain file a command overwrites the first bytes.
    let padding = "memcg     1 /                                  \n";
    let of_vm = "memcg     9 /vm/a\n node     1\n 5 0 3 0 \n 6 0 4 0 \n";
    fs::write(&file, format!("{padding}{of_vm}")).unwrap();
    let mut generations = PageGenerations::find(host.path(), 7).unwrap();
    assert_eq!(generations.listed(), Ok(Bytes::pages(7)));
    assert_eq!(generations.processor_time(), None);
    let usage = host.path().join("sys/fs/cgroup/vm/a/cpu.stat");
    fs::write(usage, "usage_usec 2500\nuser_usec 1500\n").unwrap();
    assert_eq!(generations.processor_time(), Some(Duration::from_micros(2500)));
    let aged = generations.age().unwrap();
    assert!(fs::read_to_string(&file).unwrap().starts_with("+ 9 1 6 1 1"));
    assert_eq!((aged.touched, aged.listed), (Some(Bytes::ZERO), Bytes::pages(7)));
}

#[test]
fn a_cgroup_without_generations_is_refused() {
    let host = host();
    fs::write(host.path().join(LRU_GEN), "memcg     1 /\n node     0\n 4 312 4891 8402 \n")
        .unwrap();
    assert!(error(&host).to_string().contains("no memcg `/vm/a`"));
    fs::write(host.path().join("proc/7/cgroup"), "3:memory:/vm/a\n").unwrap();
    let one = "35 31 0:32 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n";
    fs::write(host.path().join("proc/self/mountinfo"), one).unwrap();
    fs::write(host.path().join("sys/fs/cgroup/vm/a/memory.usage_in_bytes"), "4096\n").unwrap();
    assert!(error(&host).to_string().contains("version 1"));
}
