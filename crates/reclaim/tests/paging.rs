//! Pages of a real process to a real swap file, and back.

// Shared with the other tests, which use all of it.
#[allow(dead_code)]
mod common;

use std::os::unix::fs::symlink;
use std::path::Path;

use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::*;
use common::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// The part of `range` from `from` MiB on, `len` MiB long.
fn part(range: AddressRange, from: u64, len: u64) -> AddressRange {
    AddressRange::new(range.start() + from * MIB, range.start() + (from + len) * MIB)
}

/// `bytes` is `mib` MiB, give or take a sixteenth: a kernel may always want to keep some, and the host may page out on its
/// own what nobody uses, as soon as there is swap.
fn is_about(bytes: Bytes, mib: u64) -> bool {
    bytes.abs_diff(Bytes::mib(mib)) <= Bytes::mib(mib).fraction(1, 16)
}

#[test]
fn pages_go_out_and_come_back_as_they_were() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(160) else { return };
    let child = Child::filled(48, 48);
    let paging = child.paging();
    let by_size = GuestRam::AtLeast(Bytes::mib(40));
    let by_size = Paging::open(Path::new(PROC), child.pid(), None, by_size).unwrap();
    let (by_size, told) = (by_size.regions().unwrap(), paging.regions().unwrap());
    assert!(told.iter().all(|region| by_size.contains(region)), "guest memory is told by its size");
    let is_full = || {
        let seen = paging.residency().unwrap();
        is_about(seen.resident, 96) && seen.swapped.unwrap() <= Bytes::mib(6)
    };
    assert!(is_full());
    for granule in [1, 16] {
        let (end, out) = page_out(&paging, Bytes::mib(32), Picker::new(7).granule_pages(granule));
        assert_eq!((end, out.moved), (Finish::Reached, Bytes::mib(32)), "{out:?}");
        let after = paging.residency().unwrap();
        assert!(is_about(after.resident, 64), "what is said to be gone is gone: {after:?}");
        assert!(is_about(after.swapped.unwrap(), 32), "{after:?}");
        let totals = paging.vmm().totals().unwrap();
        assert!(is_about(totals.resident, 64) && is_about(totals.swapped, 32), "{totals:?}");
        // Both kinds gave their part, by chance.
        assert!(
            is_about(child.resident(child.shared), 32)
                && is_about(child.resident(child.private), 32)
        );

        let (end, out) = page_out(&paging, Bytes::gib(1), Picker::new(8).granule_pages(granule));
        assert_eq!(end, Finish::Exhausted);
        assert!(is_about(out.moved, 64), "{out:?}");

        let (end, back) = page_in(&paging);
        assert_eq!(end, Finish::Exhausted);
        assert!(is_about(back.moved, 96), "{back:?}");
        assert!(is_full());
        assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    }
}

#[test]
fn what_the_guest_reads_back_itself_is_as_it_was() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(8, 8);
    let paging = child.paging();
    let (_, out) = page_out(&paging, Bytes::mib(16), Picker::new(1));
    assert!(is_about(out.moved, 16), "{out:?}");
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    assert!(is_about(paging.residency().unwrap().resident, 16));
}

#[test]
fn cold_pages_go_first_and_hot_ones_last() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(96) else { return };
    let child = Child::filled(16, 16);
    let paging = child.paging();
    let hot = [part(child.shared, 0, 8), part(child.private, 0, 8)];
    let cold = [part(child.private, 12, 2), part(child.shared, 8, 2)];
    // By their places in the file, as a tracker knows them.
    let shared = paging.regions().unwrap().into_iter().find(|it| it.is_shared).unwrap();
    let in_file = |range: &AddressRange| FilePart {
        device: shared.device,
        inode: shared.inode,
        offset: shared.offset + (range.start() - shared.range.start()),
        len: range.len(),
    };
    let known = Coldness { cold: vec![in_file(&cold[1])], hot: vec![in_file(&hot[0])] };
    let regions = paging.regions().unwrap();
    let (end, out) = page_out(&paging, Bytes::mib(2), known.tell(Picker::new(3), &regions));
    assert_eq!((end, out.moved), (Finish::Reached, Bytes::mib(2)));
    assert!(child.resident(cold[1]) < Bytes::kib(128));

    let picker = || Picker::new(3).cold(cold.to_vec()).hot(hot.to_vec());
    let (end, out) = page_out(&paging, Bytes::mib(2), picker());
    assert_eq!((end, out.moved), (Finish::Reached, Bytes::mib(2)));
    assert!(child.resident(cold[0]) < Bytes::kib(128));
    let (end, _) = page_out(&paging, Bytes::mib(12), picker());
    assert_eq!(end, Finish::Reached);
    for hot in hot {
        assert!(is_about(child.resident(hot), 8), "hot pages stay");
    }
    let (end, _) = page_out(&paging, Bytes::gib(1), picker());
    assert_eq!(end, Finish::Exhausted);
    assert!(paging.residency().unwrap().resident <= Bytes::mib(1), "when nothing else is left");
}

#[test]
fn pages_go_from_everywhere_and_in_no_order() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(32, 0);
    let paging = child.paging();
    let (end, out) = page_out(&paging, Bytes::mib(8), Picker::new(11));
    assert_eq!((end, out.moved), (Finish::Reached, Bytes::mib(8)));
    for slice in 0..16 {
        // 128 of its 512 pages, give or take 10.
        let left = child.resident(part(child.shared, slice * 2, 2));
        let gone = Bytes::mib(2).saturating_sub(left).to_pages();
        assert!((70..190).contains(&gone), "{gone} pages of slice {slice} have gone");
    }
}

#[test]
fn what_the_hypervisor_has_not_in_its_page_table_goes_too() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(16, 0);
    let paging = child.paging();
    assert_eq!(child.tell(Order::Forget, child.shared), 0);
    assert!(is_about(paging.residency().unwrap().resident, 16), "it is still in memory");
    let (_, out) = page_out(&paging, Bytes::mib(16), Picker::new(1).granule_pages(16));
    assert!(is_about(out.moved, 16), "{out:?}");
    assert!(paging.residency().unwrap().resident <= Bytes::mib(1));
    let before = paging.vmm().totals().unwrap().resident;
    let (_, back) = page_in(&paging);
    assert!(is_about(back.moved, 16), "{back:?}");
    let after = paging.vmm().totals().unwrap().resident;
    assert!(after < before + Bytes::mib(1), "a tracker sees no touch: {before} {after}");
    assert!(child.is_intact(child.shared));
}

#[test]
fn memory_that_goes_while_it_is_paged_out_is_passed_over() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(96) else { return };
    let child = Child::filled(16, 16);
    let paging = child.paging();
    let limits = PageOutLimits { step_bytes_max: Bytes::mib(2), ..OUT };
    let mut order = PageOut::new(Bytes::gib(1), Picker::new(2), limits);
    assert_eq!(order.step(&paging, at(0)).state, State::Going);
    assert_eq!(child.tell(Order::Unmap, part(child.private, 4, 8)), 0);
    assert_eq!(child.tell(Order::Unmap, part(child.shared, 8, 8)), 0);
    let end = (1..100).map(|second| order.step(&paging, at(second * 1000)));
    let end = end.map(|it| it.state).find(|state| *state != State::Going);
    assert_eq!(end, Some(State::Finished(Finish::Exhausted)));
    assert!(paging.residency().unwrap().resident <= Bytes::mib(1));
    for left in [part(child.private, 0, 4), part(child.private, 12, 4), part(child.shared, 0, 8)] {
        assert!(child.is_intact(left));
    }
}

#[test]
fn a_guest_that_ends_while_it_is_paged_is_gone() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(16, 16);
    let paging = child.paging();
    let limits = PageOutLimits { step_bytes_max: Bytes::mib(2), ..OUT };
    let mut out = PageOut::new(Bytes::mib(32), Picker::new(2), limits);
    let mut back = PageIn::new(None, PageInLimits { step_bytes_max: Bytes::mib(1), ..IN });
    assert_eq!(out.step(&paging, at(0)).state, State::Going);
    assert_eq!(back.step(&paging, at(0), Bytes::MAX).state, State::Going);
    child.kill();
    let gone = State::Refused(Refusal::Gone { pid: child.pid() });
    let last = out.step(&paging, at(1000));
    assert_eq!(last.state, gone);
    assert!(is_about(last.moved, 2), "memory of the dead is not counted");
    assert_eq!(back.step(&paging, at(1000), Bytes::MAX).state, gone);
    assert_eq!(paging.residency().unwrap_err().code(), "gone");
    let swap = capabilities(Path::new("/"), child.pid(), None, child.ram(), &BOUNDS);
    assert!(
        swap.all().iter().all(|(_, way)| way.as_ref().unwrap_err().code() == "gone"),
        "{swap:?}"
    );
}

#[test]
fn the_rate_is_kept_and_a_step_is_bounded() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(16, 0);
    let paging = child.paging();
    let limits = PageOutLimits { per_second: Bytes::mib(4), step_bytes_max: Bytes::mib(1), ..OUT };
    let mut order = PageOut::new(Bytes::mib(16), Picker::new(2), limits);
    let (mut waits, mut last) = (0, Bytes::ZERO);
    for ms in (0..2000).step_by(50) {
        let progress = order.step(&paging, at(ms));
        assert!(progress.tried.saturating_sub(last) <= Bytes::mib(1));
        last = progress.tried;
        assert!(progress.tried <= Bytes::mib(1) + Bytes::mib(4).fraction(ms, 1000), "{progress:?}");
        if let State::Waiting { until } = progress.state {
            assert!(until.unwrap() > at(ms));
            waits += 1;
        }
    }
    assert!(waits > 5 && is_about(order.step(&paging, at(2000)).moved, 9), "{waits} {order:?}");
    let never = PageOutLimits { per_second: Bytes::ZERO, ..limits };
    let mut order = PageOut::new(Bytes::mib(16), Picker::new(2), never);
    order.step(&paging, at(0));
    assert_eq!(order.step(&paging, at(9000)).state, State::Waiting { until: None });
}

#[test]
fn nothing_is_read_back_without_memory_to_spare_and_no_more_than_asked_for() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(8, 8);
    let paging = child.paging();
    let (_, out) = page_out(&paging, Bytes::mib(12), Picker::new(2));
    assert_eq!(out.moved, Bytes::mib(12));
    let mut order = PageIn::new(Some(Bytes::mib(5)), IN);
    let waiting = order.step(&paging, at(0), Bytes::new(4095));
    assert_eq!((waiting.state, waiting.tried), (State::Waiting { until: None }, Bytes::ZERO));
    let one = order.step(&paging, at(1), Bytes::mib(1));
    assert!(one.state == State::Going && is_about(one.moved, 1), "{one:?}");
    let all = order.step(&paging, at(2), Bytes::MAX);
    assert!(is_about(all.moved, 5) && all.tried <= Bytes::mib(5), "{all:?}");
    assert!(is_about(paging.residency().unwrap().resident, 9));
}

/// A process's own folder, in a `/proc` with other swap than the host has.
fn proc_with_swap(child: &Child, total_mib: u64, free_mib: u64) -> tempfile::TempDir {
    let meminfo = format!("SwapTotal: {} kB\nSwapFree: {} kB\n", total_mib * 1024, free_mib * 1024);
    let root = tree(&[("proc/meminfo", &meminfo)]);
    let pid = child.pid().to_string();
    symlink(Path::new(PROC).join(&pid), root.path().join("proc").join(pid)).unwrap();
    root
}

#[test]
fn without_swap_or_with_too_little_nothing_is_paged_out() {
    let child = Child::filled(8, 0);
    let bounds = SwapBounds { use_max_percent: 50, reserve: Bytes::mib(60) };
    for (total, free, code) in [(0, 0, "no-swap"), (100, 60, "swap-full"), (200, 99, "swap-full")] {
        let root = proc_with_swap(&child, total, free);
        let ram = child.ram();
        let paging =
            Paging::open(&root.path().join("proc"), child.pid(), None, ram.clone()).unwrap();
        let limits = PageOutLimits { swap: bounds, ..OUT };
        let progress = PageOut::new(Bytes::mib(1), Picker::new(1), limits).step(&paging, at(0));
        let State::Refused(refusal) = &progress.state else { panic!("{progress:?}") };
        assert_eq!((refusal.code(), progress.tried), (code, Bytes::ZERO));
        let ways = capabilities(root.path(), child.pid(), None, ram, &bounds);
        assert_eq!(ways.page_out.as_ref().unwrap_err(), refusal);
    }
    assert_eq!(child.resident(child.shared), Bytes::mib(8));
}

#[test]
fn locked_memory_is_said_to_stay() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(8, 0);
    assert_eq!(child.tell(Order::Lock, child.shared), 0);
    let paging = child.paging();
    let mut order = PageOut::new(Bytes::mib(1), Picker::new(1), OUT);
    let first = order.step(&paging, at(0));
    assert_eq!((first.state, first.moved), (State::Going, Bytes::ZERO));
    let unmovable = State::Refused(Refusal::Unmovable { pid: child.pid() });
    assert_eq!(order.step(&paging, at(1000)).state, unmovable);
}

#[test]
fn what_lies_between_locked_memory_goes() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(0, 12);
    assert_eq!(child.tell(Order::Lock, part(child.private, 4, 4)), 0);
    let (end, out) = page_out(&child.paging(), Bytes::mib(12), Picker::new(1));
    assert_eq!(end, Finish::Exhausted);
    assert!(is_about(out.moved, 8), "{out:?}");
    assert_eq!(child.resident(part(child.private, 4, 4)), Bytes::mib(4), "locked memory stays");
    assert!(child.is_intact(child.private));
}

/// Runs `work` as a user without rights, if this process is one with.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    const NOBODY: libc::uid_t = 65_534;
    if !rustix::process::geteuid().is_root() {
        println!("not tried: this process cannot become another user");
        return None;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Of this thread only: the C library would do it to all.
            // SAFETY: three numbers.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
            assert_eq!(done, 0);
            work()
        });
        Some(thread.join().unwrap())
    })
}

#[test]
fn without_permission_it_is_said_what_is_missing() {
    let child = Child::filled(8, 0);
    let paging = child.paging();
    let ram = || child.ram();
    let Some((ways, refused)) = as_nobody(|| {
        let ways = capabilities(Path::new("/"), child.pid(), None, ram(), &BOUNDS);
        (ways, paging.residency())
    }) else {
        return;
    };
    for refusal in
        [ways.page_out.unwrap_err(), ways.shared_files.unwrap_err(), refused.unwrap_err()]
    {
        assert_eq!(refusal.code(), "permission", "{refusal}");
        assert!(refusal.to_string().contains("expected permission to trace it"), "{refusal}");
    }
}

#[test]
fn what_can_be_done_is_found_by_trying_it_on_nothing() {
    let _turn = turn();
    let Some(_swap) = SwapFile::new(64) else { return };
    let child = Child::filled(8, 8);
    let ram = || child.ram();
    let ways = capabilities(Path::new("/"), child.pid(), None, ram(), &BOUNDS);
    assert_eq!(ways.page_out, Ok(()));
    assert_eq!(ways.page_in_private, Ok(()));
    assert_eq!(ways.shared_files, Ok(()));
    // It is in the group of this test, with which it must not be squeezed.
    for (name, way) in &ways.all()[3..] {
        let refusal = way.as_ref().unwrap_err();
        let codes = ["shared-cgroup", "no-cgroup"];
        assert!(codes.contains(&refusal.code()), "{name}: {refusal}");
    }
    assert!(child.is_intact(child.shared) && child.resident(child.private) == Bytes::mib(8));
    let of_another = capabilities(Path::new("/"), child.pid(), Some(1), ram(), &BOUNDS);
    assert_eq!(of_another.page_out.unwrap_err().code(), "reused");
    let huge = GuestRam::AtLeast(Bytes::gib(1));
    let of_none = capabilities(Path::new("/"), child.pid(), None, huge, &BOUNDS);
    assert_eq!(of_none.page_out.unwrap_err().code(), "no-guest-memory");
}
