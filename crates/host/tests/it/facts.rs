//! The kernel's settings, read from fake trees: present, missing, and rubbish.

use std::fs;
use std::path::Path;

use ballast_host::*;
use ballast_model::Bytes;
use tempfile::TempDir;

/// Every file that is read, with its content on some host.
const FILES: [(&str, &str); 18] = [
    ("proc/sys/kernel/osrelease", "6.12.48+deb13-amd64\n"),
    ("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n"),
    ("proc/pressure/memory", "some avg10=0.50\nfull avg10=0.00\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    (
        "sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise [never] deny force\n",
    ),
    (
        "proc/swaps",
        "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 1024 4 100\n\
         /dev/sda2 partition 2048 0 -2\n/swap\\040file file 4096 1 -3\n",
    ),
    ("sys/module/zswap/parameters/enabled", "Y\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/sys/vm/overcommit_memory", "2\n"),
    ("sys/devices/system/node/has_memory", "0-1,4\n"),
    ("proc/sys/vm/unprivileged_userfaultfd", "1\n"),
    ("sys/kernel/mm/ksm/run", "1\n"),
    ("sys/kernel/mm/ksm/pages_sharing", "256\n"),
    ("sys/kernel/mm/ksm/pages_shared", "16\n"),
    ("sys/kernel/mm/ksm/full_scans", "2\n"),
    ("sys/kernel/mm/ksm/pages_to_scan", "100\n"),
    ("sys/kernel/mm/ksm/sleep_millisecs", "20\n"),
    ("dev/userfaultfd", ""),
];

fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// The errors of all facts, as texts.
fn errors(facts: &HostFacts) -> Vec<String> {
    let all = [
        facts.kernel.as_ref().err(),
        facts.memory.as_ref().err(),
        facts.pressure.as_ref().err(),
        facts.huge_pages.as_ref().err(),
        facts.shared_huge_pages.as_ref().err(),
        facts.swaps.as_ref().err(),
        facts.zswap.as_ref().err(),
        facts.swappiness.as_ref().err(),
        facts.overcommit.as_ref().err(),
        facts.memory_nodes.as_ref().err(),
        facts.open_userfaultfd.as_ref().err(),
        facts.merging.as_ref().err(),
    ];
    all.into_iter().flatten().map(ToString::to_string).collect()
}

#[test]
fn facts_are_what_the_files_say() {
    let root = tree();
    let facts = HostFacts::read(root.path());
    assert_eq!(errors(&facts), Vec::<String>::new());
    let kernel = facts.kernel.unwrap().unwrap();
    assert_eq!((kernel.release.as_str(), kernel.number), ("6.12.48+deb13-amd64", (6, 12)));
    assert_eq!(facts.memory.unwrap().unwrap().available, Some(Bytes::gib(4)));
    assert_eq!(facts.pressure.unwrap().unwrap().some_basis_points, 50);
    let huge = (facts.huge_pages.unwrap(), facts.shared_huge_pages.unwrap());
    assert_eq!(huge, (Some("madvise"), Some("never")));
    let kinds: Vec<_> =
        facts.swaps.unwrap().unwrap().into_iter().map(|it| (it.kind, it.size, it.used)).collect();
    assert_eq!(
        kinds,
        [
            (SwapKind::Zram, Bytes::mib(1), Bytes::kib(4)),
            (SwapKind::Disk, Bytes::mib(2), Bytes::ZERO),
            (SwapKind::File, Bytes::mib(4), Bytes::kib(1)),
        ]
    );
    assert_eq!((facts.zswap.unwrap(), facts.swappiness.unwrap()), (Some(true), Some(60)));
    assert_eq!((facts.overcommit.unwrap(), facts.open_userfaultfd.unwrap()), (Some(2), Some(true)));
    assert_eq!((facts.userfaultfd_device, facts.memory_nodes.unwrap()), (Some(true), Some(3)));
    let merging = facts.merging.unwrap().unwrap();
    assert_eq!((merging.knobs.is_running, merging.saved), (true, Bytes::mib(1)));
}

#[test]
fn a_kernel_without_a_file_lacks_the_feature() {
    let root = tempfile::tempdir().unwrap();
    let facts = HostFacts::read(root.path());
    assert_eq!(errors(&facts), Vec::<String>::new());
    assert_eq!((facts.pressure.unwrap(), facts.huge_pages.unwrap()), (None, None));
    assert_eq!((facts.zswap.unwrap(), facts.userfaultfd_device), (None, None));
    assert_eq!(facts.merging.unwrap(), None);
}

#[test]
fn rubbish_in_a_file_is_an_error_that_names_it() {
    for (name, _) in FILES.into_iter().filter(|(name, _)| !name.starts_with("dev/")) {
        for rubbish in [&b"rubbish"[..], b"", b"[rubbish]\n", b"99999999999999999999", b"\xff\xfe"]
        {
            let root = tree();
            let path = root.path().join(name);
            fs::write(&path, rubbish).unwrap();
            let errors = errors(&HostFacts::read(root.path()));
            assert_eq!(errors.len(), 1, "{name}: {rubbish:?}: {errors:?}");
            assert!(errors[0].contains(path.to_str().unwrap()), "{errors:?}");
            assert!(errors[0].contains("expected"), "{errors:?}");
        }
    }
}

#[test]
fn rights_of_a_process_are_its_user_and_capabilities() {
    let text = "Name:\tballast\nUid:\t0\t107\t0\t0\nCapEff:\t0000000000880000\n";
    let rights = parse_rights(Path::new("status"), text.as_bytes()).unwrap();
    assert_eq!(rights.user, 107);
    let has: Vec<_> = ProcessCapability::ALL.into_iter().filter(|it| rights.has(*it)).collect();
    assert_eq!(has, [ProcessCapability::SysPtrace, ProcessCapability::SysNice]);
    for (text, expected) in [
        ("Uid:\tx\n", "status line 1: `Uid: x`: expected `Uid: 0 0 0 0`"),
        ("Uid:\t0\t0\t0\t0\n", "status: no line `CapEff:`"),
        ("Uid:\t0\t0\t0\t0\nCapEff:\tnone\n", "status line 2"),
    ] {
        let error = parse_rights(Path::new("status"), text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(ProcessRights::read(Path::new(PROC), "self").is_ok());
}

#[test]
fn the_facts_of_this_machine_can_be_read() {
    let facts = HostFacts::read(Path::new("/"));
    assert_eq!(errors(&facts), Vec::<String>::new());
    assert!(facts.memory.unwrap().is_some() && facts.kernel.unwrap().is_some());
}
