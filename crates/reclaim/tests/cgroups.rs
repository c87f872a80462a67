//! Groups: version 2 and 1 with files of our own, and version 1 with a real group where there is one.

// Shared with the other tests, which use all of it.
#[allow(dead_code)]
mod common;

use std::fs;
use std::path::Path;

use ballast_model::Bytes;
use ballast_reclaim::*;
use common::*;

const MOUNT_TWO: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const MOUNT_ONE: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const SWAP: &str = "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB\n";

/// A host with a guest of version 2.
fn version_two(files: &[(&str, &str)]) -> tempfile::TempDir {
    let host = tree(&[
        ("proc/7/cgroup", "0::/vm/a\n"),
        ("proc/self/mountinfo", MOUNT_TWO),
        ("proc/meminfo", SWAP),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/vm/a/cgroup.procs", "7\n"),
        ("sys/fs/cgroup/vm/a/memory.current", "104857600\n"),
        ("sys/fs/cgroup/vm/a/memory.high", "max\n"),
        ("sys/fs/cgroup/vm/a/memory.reclaim", ""),
    ]);
    for (name, text) in files {
        let path = host.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    host
}

fn refusal(host: &tempfile::TempDir) -> Refusal {
    MemoryCgroup::find(host.path(), 7).unwrap_err()
}

fn read(group: &Path, name: &str) -> String {
    fs::read_to_string(group.join(name)).unwrap()
}

#[test]
fn a_group_of_version_two_is_found_and_asked() {
    let host = version_two(&[]);
    let group = MemoryCgroup::find(host.path(), 7).unwrap();
    assert_eq!(group.version(), CgroupVersion::Two);
    assert_eq!(group.folder(), host.path().join("sys/fs/cgroup/vm/a"));
    assert_eq!((group.usage(), group.limit()), (Ok(Bytes::mib(100)), Ok(None)));
    let done = group.reclaim(Bytes::gib(1)).unwrap();
    assert_eq!((done.asked, done.is_complete), (RECLAIM_BYTES_MAX, true));
    assert_eq!(read(group.folder(), "memory.reclaim"), "67108864");
    fs::remove_file(group.folder().join("memory.reclaim")).unwrap();
    let lacks = group.reclaim(Bytes::mib(1)).unwrap_err();
    assert_eq!(lacks.code(), "cgroup-lacks");
    assert!(lacks.to_string().contains("Linux 5.19"), "{lacks}");
}

#[test]
fn a_bound_of_version_two_is_put_back() {
    let bounds = SwapBounds::default();
    for before in ["max", "209715200"] {
        let host = version_two(&[("sys/fs/cgroup/vm/a/memory.high", before)]);
        let group = MemoryCgroup::find(host.path(), 7).unwrap();
        let folder = group.folder().to_owned();
        let mut squeeze = group.clone().squeeze().unwrap();
        // What a kernel would have reclaimed by then.
        fs::write(folder.join("memory.current"), "62914560").unwrap();
        let step = squeeze.step(Bytes::mib(50), &bounds).unwrap();
        let reached = Squeezed {
            step: SqueezeStep::Floor,
            usage: Bytes::mib(60),
            limit: group.limit().unwrap(),
        };
        assert_eq!(step, reached, "files do not reclaim: this one would not go below 60 MiB");
        assert_eq!(read(&folder, "memory.high"), before);
        let step = squeeze.step(Bytes::mib(60), &bounds).unwrap();
        assert_eq!((step.step, step.limit), (SqueezeStep::Reached, Some(Bytes::mib(60))));
        assert_eq!(read(&folder, "memory.high"), "62914560");
        drop(squeeze);
        assert_eq!(read(&folder, "memory.high"), before);
        let mut squeeze = group.squeeze().unwrap();
        squeeze.step(Bytes::mib(60), &bounds).unwrap();
        squeeze.release().unwrap();
        assert_eq!(read(&folder, "memory.high"), before);
    }
}

#[test]
fn a_bound_of_version_one_is_lowered_in_steps() {
    let host = tree(&[
        ("proc/7/cgroup", "4:memory:/vm\n0::/\n"),
        ("proc/self/mountinfo", &(MOUNT_ONE.to_owned() + MOUNT_TWO)),
        ("proc/meminfo", SWAP),
        ("sys/fs/cgroup/memory/vm/cgroup.procs", "7\n"),
        ("sys/fs/cgroup/memory/vm/memory.usage_in_bytes", "20971521\n"),
        ("sys/fs/cgroup/memory/vm/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    let group = MemoryCgroup::find(host.path(), 7).unwrap();
    assert_eq!((group.version(), group.limit()), (CgroupVersion::One, Ok(None)));
    let folder = group.folder().to_owned();
    let mut squeeze = group.clone().squeeze().unwrap();
    // Above what is asked for by less than a step: set at once, whatever the group has.
    let step = squeeze.step(Bytes::mib(30), &SwapBounds::default()).unwrap();
    assert_eq!((step.step, step.limit), (SqueezeStep::Reached, Some(Bytes::mib(30))));
    assert_eq!(read(&folder, "memory.limit_in_bytes"), "31457280");
    squeeze.release().unwrap();
    assert_eq!(read(&folder, "memory.limit_in_bytes"), "-1");
    let lacks = group.reclaim(Bytes::mib(1)).unwrap_err();
    assert_eq!(lacks.code(), "cgroup-lacks");
}

#[test]
fn without_swap_no_bound_is_set() {
    let host = version_two(&[("proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB\n")]);
    let group = MemoryCgroup::find(host.path(), 7).unwrap();
    let folder = group.folder().to_owned();
    let mut squeeze = group.squeeze().unwrap();
    let refused = squeeze.step(Bytes::mib(50), &SwapBounds::default());
    assert_eq!(refused, Err(Refusal::NoSwap));
    assert_eq!(read(&folder, "memory.high"), "max\n");
}

#[test]
fn threads_in_groups_of_their_own_are_counted_where_their_process_is() {
    let threads = version_two(&[
        ("proc/7/cgroup", "0::/vm/a/libvirt/emulator\n"),
        ("sys/fs/cgroup/vm/a/libvirt/emulator/cgroup.procs", ""),
    ]);
    let group = MemoryCgroup::find(threads.path(), 7).unwrap();
    assert_eq!(group.folder(), threads.path().join("sys/fs/cgroup/vm/a"));
    let part = version_two(&[
        ("proc/self/mountinfo", "41 31 0:38 /vm /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/a/cgroup.procs", "7\n"),
        ("sys/fs/cgroup/a/memory.current", "1\n"),
    ]);
    let group = MemoryCgroup::find(part.path(), 7).unwrap();
    assert_eq!(group.folder(), part.path().join("sys/fs/cgroup/a"));
}

#[test]
fn groups_that_may_not_be_squeezed_are_refused() {
    for (name, text, code, why) in [
        (
            "sys/fs/cgroup/vm/a/cgroup.procs",
            "7\n8\n9\n",
            "shared-cgroup",
            "2 processes other than 7",
        ),
        ("proc/7/cgroup", "0::/\n", "no-cgroup", "below the root group"),
        ("proc/7/cgroup", "0::/elsewhere\n", "no-cgroup", "below the root group"),
        ("proc/7/cgroup", "0::/../vm/a\n", "no-cgroup", "expected one"),
        ("proc/7/cgroup", "4:memory:/x\n", "no-cgroup", "no hierarchy"),
        ("proc/7/cgroup", "rubbish\n", "unreadable", "/cgroup: line 1: `rubbish`: expected"),
        ("proc/self/mountinfo", "", "no-cgroup", "no hierarchy"),
        (
            "proc/self/mountinfo",
            "rubbish\n",
            "unreadable",
            "/mountinfo: line 1: `rubbish`: expected",
        ),
    ] {
        let refusal = refusal(&version_two(&[(name, text)]));
        assert_eq!(refusal.code(), code, "{refusal}");
        assert!(refusal.to_string().contains(why), "{refusal}");
    }
    let gone = MemoryCgroup::find(version_two(&[]).path(), 8);
    assert_eq!(gone, Err(Refusal::Gone { pid: 8 }));
    let group = MemoryCgroup::find(version_two(&[]).path(), 7).unwrap();
    assert_eq!(group.usage().unwrap_err().code(), "unreadable", "its folder is gone");
}

#[test]
fn a_real_group_of_version_one_is_squeezed_to_what_cannot_go() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(160) else { return };
    let Some(group) = Group::new() else { return };
    let child = Child::new(32, 48);
    group.add(&child);
    child.fill();
    assert_eq!(child.tell(Order::Lock, child.shared), 0);

    let found = MemoryCgroup::find(Path::new("/"), child.pid()).unwrap();
    assert_eq!((found.folder(), found.version()), (group.0.as_path(), CgroupVersion::One));
    assert!(found.usage().unwrap() >= Bytes::mib(80) && found.limit() == Ok(None));
    let ways = capabilities(Path::new("/"), child.pid(), None, child.ram(), &BOUNDS);
    assert_eq!(ways.cgroup_limit, Ok(()));
    assert_eq!(ways.cgroup_high.unwrap_err().code(), "cgroup-lacks");

    let mut squeeze = found.clone().squeeze().unwrap();
    let to = |squeeze: &mut Squeeze, mib: u64| {
        for _ in 0..20 {
            let step = squeeze.step(Bytes::mib(mib), &BOUNDS).unwrap();
            if step.step != SqueezeStep::Going {
                return step;
            }
            assert_eq!(found.limit().unwrap(), step.limit);
        }
        panic!("not finished after 20 steps");
    };
    let reached = to(&mut squeeze, 50);
    assert_eq!((reached.step, reached.limit), (SqueezeStep::Reached, Some(Bytes::mib(50))));
    assert!(found.usage().unwrap() <= Bytes::mib(50));
    assert!(child.resident(child.private) <= Bytes::mib(20));
    // Below what is locked nothing goes.
    let floor = to(&mut squeeze, 16);
    assert_eq!((floor.step, floor.limit), (SqueezeStep::Floor, None));
    assert!(found.usage().unwrap() >= Bytes::mib(32));
    assert_eq!(found.limit(), Ok(None), "the bound from before is back");

    assert_eq!(to(&mut squeeze, 60).step, SqueezeStep::Reached);
    assert_eq!(found.limit(), Ok(Some(Bytes::mib(60))));
    drop(squeeze);
    assert_eq!(found.limit(), Ok(None), "dropped, it puts back the bound from before");
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    // The process first: a group with one stays.
    drop(child);
}

#[test]
fn what_was_paged_out_and_waits_in_memory_goes_first_when_its_group_is_squeezed() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(160) else { return };
    let Some(group) = Group::new() else { return };
    let child = Child::new(32, 32);
    group.add(&child);
    child.fill();
    let paging = child.paging();
    let (end, out) = page_out(&paging, Bytes::mib(40), Picker::new(5));
    assert_eq!((end, out.moved), (Finish::Reached, Bytes::mib(40)));
    assert!(paging.residency().unwrap().resident <= Bytes::mib(24));

    let found = MemoryCgroup::find(Path::new("/"), child.pid()).unwrap();
    let mut squeeze = found.clone().squeeze().unwrap();
    let last = (0..20).find_map(|_| {
        let step = squeeze.step(Bytes::mib(30), &BOUNDS).unwrap();
        (step.step != SqueezeStep::Going).then_some(step.step)
    });
    assert_eq!(last, Some(SqueezeStep::Reached));
    assert!(found.usage().unwrap() <= Bytes::mib(30));
    let left = paging.residency().unwrap().resident;
    assert!(left >= Bytes::mib(20), "{left} of the 24MiB that were not paged out are left");
    drop(squeeze);
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    drop(child);
}
