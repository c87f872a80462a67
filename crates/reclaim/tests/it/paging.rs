//! Pages a real process out to a real swap file, and back in.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::*;
use rustix::mm::{MlockAllFlags, mlockall};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// The part of `range` from `from` MiB on, `len` MiB long.
fn part(range: AddressRange, from: u64, len: u64) -> AddressRange {
    AddressRange::new(range.start() + from * MIB, range.start() + (from + len) * MIB)
}

/// Waits until `check` holds; it also says what it saw.
fn eventually(what: &str, check: impl Fn() -> (bool, String)) {
    let mut seen = String::new();
    for _ in 0..200 {
        let (holds, found) = check();
        if holds {
            return;
        }
        seen = found;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{what}: {seen}");
}

/// Whether `bytes` is `mib` MiB within a sixteenth: the kernel may keep some pages, and may page
/// out unused memory on its own as soon as there is swap.
fn is_about(bytes: Bytes, mib: u64) -> bool {
    bytes.abs_diff(Bytes::mib(mib)) <= Bytes::mib(mib).fraction(1, 16)
}

#[test]
fn pages_come_back_from_swap_unchanged() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(48, 48);
    let memory = child.open();
    let by_size = GuestRam::AtLeast(Bytes::mib(40));
    let by_size = GuestMemory::open(Path::new(PROC), child.pid(), None, by_size).unwrap();
    let (by_size, by_address) = (by_size.regions().unwrap(), memory.regions().unwrap());
    assert!(by_address.iter().all(|region| by_size.contains(region)), "found by its size");
    let is_full = || {
        let residency = memory.residency().unwrap();
        is_about(residency.resident, 96) && residency.swapped.unwrap() <= Bytes::mib(6)
    };
    assert!(is_full());
    // The child is a copy of the test process, which may be large.
    let others = memory.vmm().totals().unwrap().resident.saturating_sub(Bytes::mib(96));
    for granule in [1, 16] {
        let (end, out) = page_out(&memory, Bytes::mib(32), Picker::new(7).granule_pages(granule));
        assert_eq!((end, out.moved), (FinishReason::Reached, Bytes::mib(32)), "{out:?}");
        // A page of shared memory can stay until its copy is written, on a busy disk for a while.
        eventually("as much is gone as was reported", || {
            let (after, totals) = (memory.residency().unwrap(), memory.vmm().totals().unwrap());
            let resident = totals.resident.saturating_sub(others);
            let is_gone = is_about(after.resident, 64) && is_about(after.swapped.unwrap(), 32);
            let is_counted = is_about(resident, 64) && is_about(totals.swapped, 32);
            (is_gone && is_counted, format!("{after:?}, {others}, {totals:?}"))
        });
        // By chance half of what is gone is shared, half private.
        assert!(
            is_about(child.resident(child.shared), 32)
                && is_about(child.resident(child.private), 32)
        );

        let (end, out) = page_out(&memory, Bytes::gib(1), Picker::new(8).granule_pages(granule));
        assert_eq!(end, FinishReason::Exhausted);
        assert!(is_about(out.moved, 64), "{out:?}");

        let (end, back) = page_in(&memory);
        assert_eq!(end, FinishReason::Exhausted);
        assert!(is_about(back.moved, 96), "{back:?}");
        assert!(is_full());
        assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    }
}

#[test]
fn pages_faulted_in_by_the_guest_are_unchanged() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(8, 8);
    let memory = child.open();
    let (_, out) = page_out(&memory, Bytes::mib(16), Picker::new(1));
    assert!(is_about(out.moved, 16), "{out:?}");
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    assert!(is_about(memory.residency().unwrap().resident, 16));
}

#[test]
fn cold_pages_go_first_and_hot_pages_last() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(16, 16);
    let memory = child.open();
    let hot = [part(child.shared, 0, 8), part(child.private, 0, 8)];
    let cold = [part(child.private, 12, 2), part(child.shared, 8, 2)];
    // By file offset, as a tracker names them.
    let shared = memory.regions().unwrap().into_iter().find(|it| it.is_shared).unwrap();
    let in_file = |range: &AddressRange| FilePart {
        device: shared.device,
        inode: shared.inode,
        offset: shared.offset + (range.start() - shared.range.start()),
        len: range.len(),
    };
    let known = Coldness { cold: vec![in_file(&cold[1])], hot: vec![in_file(&hot[0])] };
    let regions = memory.regions().unwrap();
    let (end, out) = page_out(&memory, Bytes::mib(2), known.apply_to(Picker::new(3), &regions));
    assert_eq!((end, out.moved), (FinishReason::Reached, Bytes::mib(2)));
    assert!(child.resident(cold[1]) < Bytes::kib(128));

    let picker = || Picker::new(3).cold(cold.to_vec()).hot(hot.to_vec());
    let (end, out) = page_out(&memory, Bytes::mib(2), picker());
    assert_eq!((end, out.moved), (FinishReason::Reached, Bytes::mib(2)));
    assert!(child.resident(cold[0]) < Bytes::kib(128));
    let (end, _) = page_out(&memory, Bytes::mib(12), picker());
    assert_eq!(end, FinishReason::Reached);
    for hot in hot {
        assert!(is_about(child.resident(hot), 8), "hot pages stay");
    }
    let (end, _) = page_out(&memory, Bytes::gib(1), picker());
    assert_eq!(end, FinishReason::Exhausted);
    assert!(memory.residency().unwrap().resident <= Bytes::mib(1), "hot pages went last");
}

#[test]
fn pages_are_taken_evenly_from_all_memory() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(32, 0);
    let memory = child.open();
    let (end, out) = page_out(&memory, Bytes::mib(8), Picker::new(11));
    assert_eq!((end, out.moved), (FinishReason::Reached, Bytes::mib(8)));
    for slice in 0..16 {
        // 128 of its 512 pages, give or take 10.
        let left = child.resident(part(child.shared, slice * 2, 2));
        let gone = Bytes::mib(2).saturating_sub(left).to_pages();
        assert!((70..190).contains(&gone), "{gone} pages of slice {slice} have gone");
    }
}

#[test]
fn pages_missing_from_the_page_table_are_paged_out_too() {
    page_out_what_the_page_table_lacks();
}

#[test]
fn a_pager_whose_own_memory_is_locked_evicts_too() {
    const NAME: &str = "paging::a_pager_whose_own_memory_is_locked_evicts_too";
    const ROLE: &str = "BALLAST_TEST_LOCKED";
    if std::env::var_os(ROLE).is_some() {
        let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        match mlockall(flags) {
            Ok(()) => page_out_what_the_page_table_lacks(),
            Err(error) => println!("SKIPPED: this process cannot lock its memory: {error}"),
        }
        return;
    }
    let _turn = turn();
    // `mlockall` affects the whole process, so the test runs in a process of its own.
    let mut own = Command::new(std::env::current_exe().unwrap());
    let output = own.args(["--exact", NAME, "--nocapture"]).env(ROLE, "child").output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn page_out_what_the_page_table_lacks() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(16, 0);
    let memory = child.open();
    assert_eq!(child.run(ChildCommand::Forget, child.shared), 0);
    assert!(is_about(memory.residency().unwrap().resident, 16), "it is still in memory");
    let (_, out) = page_out(&memory, Bytes::mib(16), Picker::new(1).granule_pages(16));
    assert!(is_about(out.moved, 16), "{out:?}");
    assert!(memory.residency().unwrap().resident <= Bytes::mib(1));
    let before = memory.vmm().totals().unwrap().resident;
    let (_, back) = page_in(&memory);
    assert!(is_about(back.moved, 16), "{back:?}");
    let after = memory.vmm().totals().unwrap().resident;
    assert!(after < before + Bytes::mib(1), "the page table stays empty: {before} {after}");
    assert!(child.is_intact(child.shared));
}

#[test]
fn memory_unmapped_during_the_job_is_skipped() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(16, 16);
    let memory = child.open();
    let limits = PageOutLimits { step_bytes_max: Bytes::mib(2), ..OUT };
    let mut job = PageOut::new(Bytes::gib(1), Picker::new(2), limits);
    assert_eq!(job.step(&memory, at(0)).state, PagingState::InProgress);
    assert_eq!(child.run(ChildCommand::Unmap, part(child.private, 4, 8)), 0);
    assert_eq!(child.run(ChildCommand::Unmap, part(child.shared, 8, 8)), 0);
    let end = (1..100).map(|second| job.step(&memory, at(second * 1000)));
    let end = end.map(|it| it.state).find(|state| *state != PagingState::InProgress);
    assert_eq!(end, Some(PagingState::Finished(FinishReason::Exhausted)));
    assert!(memory.residency().unwrap().resident <= Bytes::mib(1));
    for left in [part(child.private, 0, 4), part(child.private, 12, 4), part(child.shared, 0, 8)] {
        assert!(child.is_intact(left));
    }
}

#[test]
fn a_guest_that_ends_during_the_job_is_gone() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(16, 16);
    let memory = child.open();
    let limits = PageOutLimits { step_bytes_max: Bytes::mib(2), ..OUT };
    let mut out = PageOut::new(Bytes::mib(32), Picker::new(2), limits);
    let mut back = PageIn::new(None, PageInLimits { step_bytes_max: Bytes::mib(1), ..IN });
    assert_eq!(out.step(&memory, at(0)).state, PagingState::InProgress);
    assert_eq!(back.step(&memory, at(0), Bytes::MAX).state, PagingState::InProgress);
    child.kill();
    let gone = PagingState::Failed(ReclaimError::Gone { pid: child.pid() });
    let last = out.step(&memory, at(1000));
    assert_eq!(last.state, gone);
    assert!(is_about(last.moved, 2), "memory freed by the exit does not count");
    assert_eq!(back.step(&memory, at(1000), Bytes::MAX).state, gone);
    assert_eq!(memory.residency().unwrap_err().code(), "gone");
    let methods = capabilities(Path::new("/"), child.pid(), None, child.ram(), &BOUNDS);
    for (name, result) in methods.all() {
        assert_eq!(result.as_ref().unwrap_err().code(), "gone", "{name}");
    }
}

#[test]
fn rate_and_step_size_stay_within_limits() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(16, 0);
    let memory = child.open();
    let limits = PageOutLimits { per_second: Bytes::mib(4), step_bytes_max: Bytes::mib(1), ..OUT };
    let mut job = PageOut::new(Bytes::mib(16), Picker::new(2), limits);
    let (mut waits, mut last) = (0, Bytes::ZERO);
    for ms in (0..2000).step_by(50) {
        let progress = job.step(&memory, at(ms));
        assert!(progress.tried.saturating_sub(last) <= Bytes::mib(1));
        last = progress.tried;
        assert!(progress.tried <= Bytes::mib(1) + Bytes::mib(4).fraction(ms, 1000), "{progress:?}");
        if let PagingState::Waiting { until } = progress.state {
            assert!(until.unwrap() > at(ms));
            waits += 1;
        }
    }
    assert!(waits > 5 && is_about(job.step(&memory, at(2000)).moved, 9), "{waits} {job:?}");
    let never = PageOutLimits { per_second: Bytes::ZERO, ..limits };
    let mut job = PageOut::new(Bytes::mib(16), Picker::new(2), never);
    job.step(&memory, at(0));
    assert_eq!(job.step(&memory, at(9000)).state, PagingState::Waiting { until: None });
}

#[test]
fn paging_in_is_bounded_by_spare_memory_and_amount() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(8, 8);
    let memory = child.open();
    let (_, out) = page_out(&memory, Bytes::mib(12), Picker::new(2));
    assert_eq!(out.moved, Bytes::mib(12));
    let mut job = PageIn::new(Some(Bytes::mib(5)), IN);
    let waiting = job.step(&memory, at(0), Bytes::new(4095));
    assert_eq!((waiting.state, waiting.tried), (PagingState::Waiting { until: None }, Bytes::ZERO));
    let one = job.step(&memory, at(1), Bytes::mib(1));
    assert!(one.state == PagingState::InProgress && is_about(one.moved, 1), "{one:?}");
    let all = job.step(&memory, at(2), Bytes::MAX);
    assert!(is_about(all.moved, 5) && all.tried <= Bytes::mib(5), "{all:?}");
    assert!(is_about(memory.residency().unwrap().resident, 9));
}

/// A `/proc` with this child's folder and these swap figures.
fn proc_with_swap(child: &Child, total_mib: u64, free_mib: u64) -> tempfile::TempDir {
    let meminfo = format!("SwapTotal: {} kB\nSwapFree: {} kB\n", total_mib * 1024, free_mib * 1024);
    let root = tree(&[("proc/meminfo", &meminfo)]);
    let pid = child.pid().to_string();
    symlink(Path::new(PROC).join(&pid), root.path().join("proc").join(pid)).unwrap();
    root
}

#[test]
fn without_enough_swap_nothing_is_paged_out() {
    let child = Child::filled(8, 0);
    let bounds = SwapBounds { use_max_percent: 50, reserve: Bytes::mib(60) };
    for (total, free, code) in [(0, 0, "no-swap"), (100, 60, "swap-full"), (200, 99, "swap-full")] {
        let root = proc_with_swap(&child, total, free);
        let ram = child.ram();
        let memory =
            GuestMemory::open(&root.path().join("proc"), child.pid(), None, ram.clone()).unwrap();
        let limits = PageOutLimits { swap: bounds, ..OUT };
        let progress = PageOut::new(Bytes::mib(1), Picker::new(1), limits).step(&memory, at(0));
        let PagingState::Failed(error) = &progress.state else { panic!("{progress:?}") };
        assert_eq!((error.code(), progress.tried), (code, Bytes::ZERO));
        let methods = capabilities(root.path(), child.pid(), None, ram, &bounds);
        let refusal = methods.page_out.unwrap_err();
        // An ordinary user lacks the permission before swap matters.
        let lacks_permission = !rustix::process::geteuid().is_root()
            && matches!(refusal, ReclaimError::Permission { .. });
        assert!(lacks_permission || refusal == *error, "{refusal}");
    }
    assert_eq!(child.resident(child.shared), Bytes::mib(8));
}

#[test]
fn a_fully_locked_guest_is_unmovable() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(8, 0);
    assert_eq!(child.run(ChildCommand::Lock, child.shared), 0);
    let memory = child.open();
    let mut job = PageOut::new(Bytes::mib(1), Picker::new(1), OUT);
    let first = job.step(&memory, at(0));
    assert_eq!((first.state, first.moved), (PagingState::InProgress, Bytes::ZERO));
    let unmovable = PagingState::Failed(ReclaimError::Unmovable { pid: child.pid() });
    assert_eq!(job.step(&memory, at(1000)).state, unmovable);
}

#[test]
fn unlocked_memory_around_locked_memory_is_paged_out() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(0, 12);
    assert_eq!(child.run(ChildCommand::Lock, part(child.private, 4, 4)), 0);
    let (end, out) = page_out(&child.open(), Bytes::mib(12), Picker::new(1));
    assert_eq!(end, FinishReason::Exhausted);
    assert!(is_about(out.moved, 8), "{out:?}");
    assert_eq!(child.resident(part(child.private, 4, 4)), Bytes::mib(4), "locked memory stays");
    assert!(child.is_intact(child.private));
}

/// Runs `work` as an unprivileged user; `None` if this process is not root.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    const NOBODY: libc::uid_t = 65_534;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this process cannot become another user");
        return None;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // A raw system call changes this thread only; the C library would change all threads.
            // SAFETY: the arguments are three numbers.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
            assert_eq!(done, 0);
            work()
        });
        Some(thread.join().unwrap())
    })
}

#[test]
fn permission_errors_name_the_missing_permission() {
    let child = Child::filled(8, 0);
    let memory = child.open();
    let ram = || child.ram();
    let Some((methods, residency)) = as_nobody(|| {
        let methods = capabilities(Path::new("/"), child.pid(), None, ram(), &BOUNDS);
        (methods, memory.residency())
    }) else {
        return;
    };
    for error in
        [methods.page_out.unwrap_err(), methods.shared_files.unwrap_err(), residency.unwrap_err()]
    {
        assert_eq!(error.code(), "permission", "{error}");
        assert!(error.to_string().contains("expected permission to trace it"), "{error}");
    }
}

#[test]
fn capabilities_are_found_without_moving_memory() {
    let Some(_swap) = SwapFile::new() else { return };
    let child = Child::filled(8, 8);
    let ram = || child.ram();
    let methods = capabilities(Path::new("/"), child.pid(), None, ram(), &BOUNDS);
    assert_eq!(methods.page_out, Ok(()));
    assert_eq!(methods.page_in_private, Ok(()));
    assert_eq!(methods.shared_files, Ok(()));
    // The child shares this test's cgroup, which must not be squeezed.
    for (name, result) in &methods.all()[3..] {
        let error = result.as_ref().unwrap_err();
        let codes = ["shared-cgroup", "no-cgroup"];
        assert!(codes.contains(&error.code()), "{name}: {error}");
    }
    assert!(child.is_intact(child.shared) && child.resident(child.private) == Bytes::mib(8));
    let reused = capabilities(Path::new("/"), child.pid(), Some(1), ram(), &BOUNDS);
    assert_eq!(reused.page_out.unwrap_err().code(), "reused");
    let huge = GuestRam::AtLeast(Bytes::gib(1));
    let no_memory = capabilities(Path::new("/"), child.pid(), None, huge, &BOUNDS);
    assert_eq!(no_memory.page_out.unwrap_err().code(), "no-guest-memory");
}
