//! Cgroups of versions 2 and 1 as plain files, and real cgroups of the version that the host has.

use std::fs;
use std::path::Path;

use crate::common::*;
use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::*;

const MOUNT_TWO: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const MOUNT_ONE: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const SWAP: &str = "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB\n";

/// A host with cgroup version 2, where process 7 is a guest.
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

fn find_error(host: &tempfile::TempDir) -> ReclaimError {
    MemoryCgroup::find(host.path(), 7).unwrap_err()
}

fn read(group: &Path, name: &str) -> String {
    fs::read_to_string(group.join(name)).unwrap()
}

#[test]
fn a_version_two_cgroup_is_found_and_reclaims() {
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
fn a_version_two_limit_is_restored() {
    let bounds = SwapBounds::default();
    for before in ["max", "209715200"] {
        let host = version_two(&[("sys/fs/cgroup/vm/a/memory.high", before)]);
        let group = MemoryCgroup::find(host.path(), 7).unwrap();
        let folder = group.folder().to_owned();
        let mut squeeze = Squeeze::new(group.clone()).unwrap();
        // As if a kernel had reclaimed.
        fs::write(folder.join("memory.current"), "62914560").unwrap();
        let step = squeeze.step(Bytes::mib(50), &bounds).unwrap();
        let floor = SqueezeStep {
            state: SqueezeState::Floor,
            usage: Bytes::mib(60),
            limit: group.limit().unwrap(),
        };
        assert_eq!(step, floor, "usage in a plain file stays at 60 MiB");
        assert_eq!(read(&folder, "memory.high"), before);
        let step = squeeze.step(Bytes::mib(60), &bounds).unwrap();
        assert_eq!((step.state, step.limit), (SqueezeState::Reached, Some(Bytes::mib(60))));
        assert_eq!(read(&folder, "memory.high"), "62914560");
        drop(squeeze);
        assert_eq!(read(&folder, "memory.high"), before);
        let mut squeeze = Squeeze::new(group).unwrap();
        squeeze.step(Bytes::mib(60), &bounds).unwrap();
        squeeze.release().unwrap();
        assert_eq!(read(&folder, "memory.high"), before);
    }
}

#[test]
fn a_version_one_limit_is_lowered_and_restored() {
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
    let mut squeeze = Squeeze::new(group.clone()).unwrap();
    // Usage is less than a step above the target: one step suffices.
    let step = squeeze.step(Bytes::mib(30), &SwapBounds::default()).unwrap();
    assert_eq!((step.state, step.limit), (SqueezeState::Reached, Some(Bytes::mib(30))));
    assert_eq!(read(&folder, "memory.limit_in_bytes"), "31457280");
    squeeze.release().unwrap();
    assert_eq!(read(&folder, "memory.limit_in_bytes"), "-1");
    let lacks = group.reclaim(Bytes::mib(1)).unwrap_err();
    assert_eq!(lacks.code(), "cgroup-lacks");
}

#[test]
fn without_swap_no_limit_is_set() {
    let host = version_two(&[("proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB\n")]);
    let group = MemoryCgroup::find(host.path(), 7).unwrap();
    let folder = group.folder().to_owned();
    let mut squeeze = Squeeze::new(group).unwrap();
    let refused = squeeze.step(Bytes::mib(50), &SwapBounds::default());
    assert_eq!(refused, Err(ReclaimError::NoSwap));
    assert_eq!(read(&folder, "memory.high"), "max\n");
}

#[test]
fn a_cgroup_for_threads_resolves_to_its_charged_parent() {
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
fn shared_root_and_unreadable_cgroups_are_rejected() {
    for (name, text, code, why) in [
        (
            "sys/fs/cgroup/vm/a/cgroup.procs",
            "7\n8\n9\n",
            "shared-cgroup",
            "2 processes other than 7",
        ),
        ("proc/7/cgroup", "0::/\n", "no-cgroup", "below the root cgroup"),
        ("proc/7/cgroup", "0::/elsewhere\n", "no-cgroup", "below the root cgroup"),
        ("proc/7/cgroup", "0::/../vm/a\n", "no-cgroup", "expected one"),
        ("proc/7/cgroup", "4:memory:/x\n", "no-cgroup", "no cgroup hierarchy"),
        ("proc/7/cgroup", "rubbish\n", "unreadable", "/cgroup: line 1: `rubbish`: expected"),
        ("proc/self/mountinfo", "", "no-cgroup", "no cgroup hierarchy"),
        (
            "proc/self/mountinfo",
            "rubbish\n",
            "unreadable",
            "/mountinfo: line 1: `rubbish`: expected",
        ),
    ] {
        let error = find_error(&version_two(&[(name, text)]));
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let gone = MemoryCgroup::find(version_two(&[]).path(), 8);
    assert_eq!(gone, Err(ReclaimError::Gone { pid: 8 }));
    let group = MemoryCgroup::find(version_two(&[]).path(), 7).unwrap();
    assert_eq!(group.usage().unwrap_err().code(), "unreadable", "its folder is gone");
}

#[test]
fn squeezing_a_real_cgroup_stops_at_locked_memory() {
    let Some(_swap) = SwapFile::new() else { return };
    let Some(group) = TestCgroup::new() else { return };
    let child = Child::new(32, 48);
    group.add(&child);
    child.fill();
    assert_eq!(child.run(ChildCommand::Lock, child.shared), 0);

    let found = MemoryCgroup::find(Path::new("/"), child.pid()).unwrap();
    assert_eq!((found.folder(), found.version()), (group.folder.as_path(), group.version));
    assert!(found.usage().unwrap() >= Bytes::mib(80) && found.limit() == Ok(None));
    let ways = capabilities(Path::new("/"), child.pid(), None, child.ram(), &BOUNDS);
    let (has, lacks) = match group.version {
        CgroupVersion::One => (ways.cgroup_limit, ways.cgroup_high),
        CgroupVersion::Two => (ways.cgroup_high, ways.cgroup_limit),
    };
    assert_eq!((has, lacks.unwrap_err().code()), (Ok(()), "cgroup-lacks"));

    let mut squeeze = Squeeze::new(found.clone()).unwrap();
    let to = |squeeze: &mut Squeeze, mib: u64| {
        for _ in 0..20 {
            let step = squeeze.step(Bytes::mib(mib), &BOUNDS).unwrap();
            if step.state != SqueezeState::InProgress {
                return step;
            }
            assert_eq!(found.limit().unwrap(), step.limit);
        }
        panic!("not finished after 20 steps");
    };
    let reached = to(&mut squeeze, 50);
    assert_eq!((reached.state, reached.limit), (SqueezeState::Reached, Some(Bytes::mib(50))));
    assert!(found.usage().unwrap() <= Bytes::mib(50));
    assert!(child.resident(child.private) <= Bytes::mib(20));
    // 32 MiB are locked.
    let floor = to(&mut squeeze, 16);
    assert_eq!((floor.state, floor.limit), (SqueezeState::Floor, None));
    assert!(found.usage().unwrap() >= Bytes::mib(32));
    assert_eq!(found.limit(), Ok(None), "the old limit is restored");

    assert_eq!(to(&mut squeeze, 60).state, SqueezeState::Reached);
    assert_eq!(found.limit(), Ok(Some(Bytes::mib(60))));
    drop(squeeze);
    assert_eq!(found.limit(), Ok(None), "dropping restores the old limit");
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    // Dropped before the cgroup: only an empty cgroup can be removed.
    drop(child);
}

#[test]
fn squeezing_a_cgroup_frees_swap_cache_first() {
    let Some(_swap) = SwapFile::new() else { return };
    let Some(group) = TestCgroup::new() else { return };
    let child = Child::new(64, 64);
    group.add(&child);
    child.fill();
    let memory = child.open();
    let (end, out) = page_out(&memory, Bytes::mib(40), Picker::new(5));
    assert_eq!((end, out.moved), (FinishReason::Reached, Bytes::mib(40)));
    // 88 MiB, and what a loaded machine has mapped again by now.
    assert!(memory.residency().unwrap().resident <= Bytes::mib(96));

    let found = MemoryCgroup::find(Path::new("/"), child.pid()).unwrap();
    let mut squeeze = Squeeze::new(found.clone()).unwrap();
    let last = (0..20).find_map(|_| {
        let step = squeeze.step(Bytes::mib(90), &BOUNDS).unwrap();
        (step.state != SqueezeState::InProgress).then_some(step.state)
    });
    assert_eq!(last, Some(SqueezeState::Reached));
    assert!(found.usage().unwrap() <= Bytes::mib(90));
    let left = memory.residency().unwrap().resident;
    // The kernel unmaps some pages in vain while the swap of a loaded machine is slow. Without the
    // swap cache, all of the squeeze would be the child's.
    assert!(left >= Bytes::mib(70), "{left} left of the 88MiB that were not paged out");
    drop(squeeze);
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    drop(child);
}

/// A host with cgroup version 2, where this process is a guest with 128 MiB in memory.
fn with_this_process(files: &[(&str, &str)]) -> tempfile::TempDir {
    let pid = std::process::id();
    let stat = format!("{pid} (qemu) S{}\n", " 1".repeat(30));
    let host = version_two(&[
        (&format!("proc/{pid}/stat"), &stat),
        (&format!("proc/{pid}/status"), "Name:\tqemu\nVmRSS:\t  131072 kB\n"),
        (&format!("proc/{pid}/cgroup"), "0::/vm/a\n"),
        ("sys/fs/cgroup/vm/a/cgroup.procs", &format!("{pid}\n")),
    ]);
    for (name, text) in files {
        fs::write(host.path().join(name), text).unwrap();
    }
    host
}

fn open_job(
    host: &tempfile::TempDir,
    to: Bytes,
    limits: PageOutLimits,
) -> Result<CgroupPageOut, ReclaimError> {
    CgroupPageOut::open(host.path(), std::process::id(), None, to, limits)
}

const GROUP: &str = "sys/fs/cgroup/vm/a";

#[test]
fn a_step_requests_no_more_than_is_missing() {
    let host = with_this_process(&[]);
    let group = host.path().join(GROUP);
    for (to, step_bytes_max, asked) in [
        (Bytes::mib(64), OUT.step_bytes_max, Bytes::mib(8)),
        (Bytes::mib(127), OUT.step_bytes_max, Bytes::mib(1)),
        (Bytes::ZERO, Bytes::gib(1), LIMIT_STEP),
        (Bytes::ZERO, Bytes::new(1), Bytes::pages(1)),
    ] {
        let mut out = open_job(&host, to, PageOutLimits { step_bytes_max, ..OUT }).unwrap();
        assert_eq!(out.method(), CgroupMethod::Reclaim);
        let progress = out.step(Timestamp::ZERO);
        assert_eq!((progress.tried, progress.moved), (asked, Bytes::ZERO));
        assert_eq!(read(&group, "memory.reclaim"), asked.get().to_string());
        assert_eq!(read(&group, "memory.high"), "max\n");
        fs::write(group.join("memory.reclaim"), "").unwrap();
    }
    // Plain files shrink by nothing: the job gives up after 16 MiB.
    let mut out = open_job(&host, Bytes::mib(64), OUT).unwrap();
    let second = |second: u64| Timestamp::from_millis(second * 1000);
    assert_eq!(out.step(second(0)).state, PagingState::InProgress);
    assert_eq!(out.step(second(1)).state, PagingState::Finished(FinishReason::Stuck));
    assert_eq!(out.step(second(2)).tried, Bytes::mib(16), "nothing more is tried");
    // A process at its target is left alone.
    fs::write(group.join("memory.reclaim"), "").unwrap();
    let mut out = open_job(&host, Bytes::mib(128), OUT).unwrap();
    assert_eq!(out.step(Timestamp::ZERO).state, PagingState::Finished(FinishReason::Reached));
    assert_eq!(read(&group, "memory.reclaim"), "");
}

#[test]
fn without_memory_reclaim_a_limit_lasts_one_step() {
    let host = with_this_process(&[("sys/fs/cgroup/vm/a/memory.high", "209715200")]);
    let group = host.path().join(GROUP);
    fs::remove_file(group.join("memory.reclaim")).unwrap();
    let mut out = open_job(&host, Bytes::mib(64), OUT).unwrap();
    assert_eq!(out.method(), CgroupMethod::High);
    assert_eq!(out.step(Timestamp::ZERO).state, PagingState::InProgress);
    assert_eq!(read(&group, "memory.high"), "209715200");
    fs::remove_file(group.join("memory.high")).unwrap();
    assert_eq!(
        out.step(Timestamp::ZERO).state,
        PagingState::Failed(ReclaimError::CgroupLacks {
            path: group.join("memory.high"),
            needs: "version 2 of cgroups",
        })
    );
}

#[test]
fn a_failing_step_requests_nothing() {
    let group = |name: &str| format!("{GROUP}/{name}");
    let pid = std::process::id();
    let shared = format!("{pid}\n8\n");
    for (name, text, code) in [
        ("proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB\n", "no-swap"),
        ("proc/meminfo", "SwapTotal: 4096 kB\nSwapFree: 0 kB\n", "swap-full"),
        (&group("cgroup.procs"), &shared, "shared-cgroup"),
        (&format!("proc/{pid}/cgroup"), "0::/\n", "no-cgroup"),
        (&group("memory.current"), "max\n", "unreadable"),
        (&format!("proc/{pid}/status"), "State:\tZ (zombie)\n", "gone"),
        (&format!("proc/{pid}/status"), "VmRSS: 1\n", "unreadable"),
    ] {
        let host = with_this_process(&[]);
        let mut out = open_job(&host, Bytes::mib(64), OUT).unwrap();
        fs::write(host.path().join(name), text).unwrap();
        let PagingState::Failed(refusal) = out.step(Timestamp::ZERO).state else {
            panic!("{name}")
        };
        assert_eq!(refusal.code(), code, "{refusal}");
        assert_eq!(read(&host.path().join(GROUP), "memory.reclaim"), "", "{name}");
    }
    let host = with_this_process(&[("sys/fs/cgroup/vm/a/cgroup.procs", &shared)]);
    assert_eq!(open_job(&host, Bytes::ZERO, OUT).unwrap_err().code(), "shared-cgroup");
    let slow = PageOutLimits { per_second: Bytes::ZERO, ..OUT };
    let host = with_this_process(&[]);
    let mut out = open_job(&host, Bytes::mib(64), slow).unwrap();
    assert_eq!(out.step(Timestamp::ZERO).state, PagingState::InProgress, "the initial burst");
    assert_eq!(out.step(Timestamp::from_millis(9_000)).state, PagingState::Waiting { until: None });
}

/// Takes steps until the job ends; after each step the cgroup has no limit.
fn finish_job(out: &mut CgroupPageOut, group: &MemoryCgroup) -> (FinishReason, PagingProgress) {
    finish(|now| {
        let progress = out.step(now);
        assert_eq!(group.limit(), Ok(None), "the limit is restored after each step");
        progress
    })
}

/// How much more than asked a cgroup's reclaim may take: the kernel goes through the pages in
/// batches, which are larger while pages wait to be written.
const BELOW: Bytes = Bytes::mib(16);

#[test]
fn a_real_cgroup_pages_out_to_the_target() {
    let Some(_swap) = SwapFile::new() else { return };
    let Some(group) = TestCgroup::new() else { return };
    let child = Child::new(32, 48);
    group.add(&child);
    child.fill();
    let found = MemoryCgroup::find(Path::new("/"), child.pid()).unwrap();
    let vmm = VmmProcess::open(Path::new(PROC), child.pid(), None).unwrap();
    let before = vmm.resident().unwrap();
    let to = before.saturating_sub(Bytes::mib(40));
    let open =
        |to, limits| CgroupPageOut::open(Path::new("/"), child.pid(), None, to, limits).unwrap();

    // The kernel charges a cgroup in batches per processor: a job may see the cgroup shrink by its
    // amount while the process is a little above its target. The next job continues from there.
    let method = match group.version {
        CgroupVersion::One => CgroupMethod::Limit,
        CgroupVersion::Two => CgroupMethod::Reclaim,
    };
    let mut moved = Bytes::ZERO;
    let mut jobs = Vec::new();
    while jobs.last() != Some(&FinishReason::Reached) {
        let mut out = open(to, OUT);
        assert_eq!(out.method(), method);
        let (end, progress) = finish_job(&mut out, &found);
        moved += progress.moved;
        jobs.push(end);
        println!("{before} before, {} after, target {to}: {progress:?}", vmm.resident().unwrap());
        assert!(moved >= Bytes::mib(32), "the first job takes most of it: {jobs:?}, {progress:?}");
        assert!(jobs.len() <= 3, "{jobs:?}");
    }
    let left = vmm.resident().unwrap();
    assert!(left <= to.saturating_add(Bytes::mib(1)) && left >= to.saturating_sub(BELOW), "{left}");
    assert!(moved >= Bytes::mib(39), "{moved}");

    // Within a second: at most the rate and one step.
    let slow = PageOutLimits { per_second: Bytes::mib(2), step_bytes_max: Bytes::mib(1), ..OUT };
    let mut out = open(Bytes::ZERO, slow);
    let last = (0..=1000).map(|ms| out.step(Timestamp::from_millis(ms))).last().unwrap();
    assert!(
        last.tried <= Bytes::mib(3) && last.moved <= Bytes::mib(3).saturating_add(BELOW),
        "{last:?}"
    );

    // Locked memory stays.
    assert_eq!(child.run(ChildCommand::Lock, child.shared), 0);
    let (end, _) = finish_job(&mut open(Bytes::mib(4), OUT), &found);
    assert_eq!(end, FinishReason::Stuck);
    assert!(child.resident(child.shared) == Bytes::mib(32));
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    drop(child);
}

#[test]
fn page_cache_counts_towards_the_amount_taken_from_a_cgroup() {
    let Some(_swap) = SwapFile::new() else { return };
    let Some(group) = TestCgroup::new() else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (procs, file) = (group.folder.join("cgroup.procs"), folder.path().join("disk"));
    let script = format!(
        "echo $$ > {} && head -c 25165824 /dev/zero > {file} && sync {file}",
        procs.display(),
        file = file.display(),
    );
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let child = Child::new(0, 48);
    group.add(&child);
    child.fill();
    let found = MemoryCgroup::find(Path::new("/"), child.pid()).unwrap();
    let usage = found.usage().unwrap();
    assert!(usage >= Bytes::mib(70), "{usage}: the cgroup is charged for the file");
    let to = VmmProcess::open(Path::new(PROC), child.pid(), None).unwrap().resident().unwrap();
    let to = to.saturating_sub(Bytes::mib(16));
    let mut out = CgroupPageOut::open(Path::new("/"), child.pid(), None, to, OUT).unwrap();
    let (end, progress) = finish_job(&mut out, &found);
    let given = usage.saturating_sub(found.usage().unwrap());
    println!("{given} from the cgroup, {} from the process", progress.moved);
    assert_eq!(end, FinishReason::GaveOther);
    assert!(given >= Bytes::mib(15) && given <= Bytes::mib(16).saturating_add(BELOW), "{given}");
    assert!(child.is_intact(child.private));
    drop(child);
}
