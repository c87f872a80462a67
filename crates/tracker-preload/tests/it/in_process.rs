//! The tracker sees exactly the touched pages, and harms nothing.
//!
//! Limits: needs a kernel with minor faults and the privilege to use them.

use crate::common;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use ballast_tracker::{TrackerClient, TrackerError};
use ballast_tracker_proto::{
    CAPACITY_MIN, Frame, Granule, GranuleSample, HashKind, MESSAGE_MAX, RefusalReason, RingEntry,
    TrackerAddress, TrackerRefusal, TrackerReply, TrackerRequest, VERSION, WatchMode,
};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};

const FIRST: u64 = 1 << 20;

fn tracked(memory: &Memory, mode: WatchMode) -> (ballast_track::Tracker, TrackerClient) {
    let (tracker, address) = tracker();
    let mut client = client(&address);
    client.set_mode(mode).unwrap();
    client.add_region(memory.region(0, FIRST)).unwrap();
    (tracker, client)
}

fn refusal(result: Result<impl Sized, TrackerError>) -> RefusalReason {
    match result.err() {
        Some(TrackerError::Refused(refused)) => refused.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_interval_sees_exactly_the_touched_pages() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(16_384);
    let (_tracker, mut client) = tracked(&memory, all_of(1));
    let first: Vec<usize> = [3, 7, 16_383, 0].into_iter().chain(100..400).collect();
    assert_eq!(client.revoke(1).unwrap().granules, 16_384);
    memory.touch(first.clone());
    // Accessible now, so not seen again.
    memory.touch(first.clone());
    let seen = entries(&mut client);
    assert_eq!(seen[0], RingEntry::Interval(1));
    let expected: Vec<u64> = first.iter().map(|page| FIRST + *page as u64).collect();
    assert_eq!(pages(&seen), expected, "in the order of the touches");
    client.revoke(2).unwrap();
    memory.write(5, 5);
    memory.touch([6]);
    let touch = |page, is_write| RingEntry::Touch { page: FIRST + page, is_write };
    assert_eq!(entries(&mut client), [RingEntry::Interval(2), touch(5, true), touch(6, false)]);
    let counters = client.heartbeat().unwrap();
    assert_eq!((counters.traps, counters.strays, counters.dropped), (306, 0, 0));
    assert_eq!(counters.granules_revoked, 2 * 16_384);
    // The last one is counted after its thread has continued.
    wait_until("all are counted", || client.heartbeat().unwrap().pages_restored == 306);
    assert!(counters.trap_ns > 0 && counters.handler_ns > 0 && counters.is_active == 1);
    // No data is lost.
    client.rest().unwrap();
    assert!(!memory.is_registered());
    memory.touch(0..16_384);
}

#[test]
fn a_touch_restores_the_whole_granule() {
    let Some(_turn) = turn() else { return };
    // The last granule is incomplete.
    let memory = Memory::new(512 * 5 + 7);
    for granule_pages in [8, 32, 512, 1024] {
        let (_tracker, mut client) = tracked(&memory, all_of(granule_pages));
        let granule = Granule::new(granule_pages).unwrap();
        client.revoke(1).unwrap();
        let touched = [1, 2, 600, 601, 2566];
        memory.touch(touched);
        let expected: Vec<u64> =
            touched.iter().map(|page| granule.of(FIRST + *page as u64)).collect();
        let seen = pages(&entries(&mut client));
        let seen: Vec<u64> = seen.into_iter().map(|page| granule.of(page)).collect();
        assert_eq!((seen.len(), set(&seen)), (set(&expected).len(), set(&expected)));
        memory.touch(touched.map(|page| page ^ 1).into_iter().filter(|page| *page < 2567));
        assert_eq!(entries(&mut client), []);
    }
}

#[test]
fn only_touches_of_sampled_granules_are_seen() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(32_768);
    for (granule, hash) in [
        (1, HashKind::multiply_add(5)),
        (1, HashKind::Mix { seed: 1 }),
        (8, HashKind::Mix { seed: 9 }),
    ] {
        let granule = Granule::new(granule).unwrap();
        let sample = GranuleSample::rate(hash, 0.05);
        let (_tracker, mut client) = tracked(&memory, WatchMode { granule, sample });
        let granules = client.revoke(1).unwrap().granules;
        memory.touch(1000..9000);
        let expected: std::collections::BTreeSet<u64> = (1000..9000)
            .map(|page| granule.of(FIRST + page))
            .filter(|it| sample.has(*it))
            .collect();
        let seen = pages(&entries(&mut client));
        let seen: Vec<u64> = seen.into_iter().map(|page| granule.of(page)).collect();
        assert_eq!((seen.len(), set(&seen)), (expected.len(), expected));
        let counters = client.heartbeat().unwrap();
        assert_eq!((counters.granules_watched, counters.strays), (granules, 0));
    }
}

#[test]
fn an_exact_number_of_granules_can_be_sampled() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(8192);
    let sample = GranuleSample::exactly(HashKind::Mix { seed: 3 }, 100, FIRST..FIRST + 8192);
    let (_tracker, mut client) = tracked(&memory, WatchMode { granule: Granule::PAGE, sample });
    assert_eq!(client.revoke(1).unwrap().granules, 100);
    memory.touch(0..8192);
    assert_eq!(pages(&entries(&mut client)).len(), 100);
}

#[test]
fn the_hot_set_is_first_in_first_out() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(4096);
    let (_tracker, mut client) = tracked(&memory, all_of(1));
    client.set_hot_set(3).unwrap();
    client.revoke(1).unwrap();
    let mut touch = |memory_pages: &[usize]| {
        for page in memory_pages {
            memory.touch([*page]);
            // The toucher continues before the oldest granule is revoked.
            wait_until("evicted granules are revoked", || {
                let counters = client.heartbeat().unwrap();
                counters.granules_revoked == 4096 + counters.traps.saturating_sub(3)
            });
        }
        pages(&entries(&mut client)).iter().map(|page| (page - FIRST) as usize).collect::<Vec<_>>()
    };
    assert_eq!(touch(&[10, 11, 12, 10]), [10, 11, 12], "10 is hot");
    // 10 entered first; touching it again does not keep it.
    assert_eq!(touch(&[13, 11, 12, 10]), [13, 10]);
    assert_eq!(touch(&[12, 13, 11]), [11], "11 left when 10 came");
    // A revocation empties the hot set.
    client.revoke(2).unwrap();
    memory.touch([10, 11]);
    let seen = entries(&mut client);
    assert_eq!(pages(&seen), [FIRST + 10, FIRST + 11]);
}

#[test]
fn system_calls_into_revoked_memory_work() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(1024);
    let (_tracker, mut client) = tracked(&memory, all_of(1));
    let file = tempfile::tempfile().unwrap();
    let data: Vec<u8> = (0..64 * PAGE).map(|byte| (byte % 251) as u8).collect();
    rustix::io::pwrite(&file, &data, 0).unwrap();
    for round in 0..20 {
        client.revoke(round).unwrap();
        // SAFETY: 64 pages from page 100 on are within the mapping.
        let read = unsafe {
            libc::pread(file.as_raw_fd(), memory.start().add(100 * PAGE).cast(), data.len(), 0)
        };
        assert_eq!(read, data.len() as isize, "{}", std::io::Error::last_os_error());
        client.revoke(round).unwrap();
        // SAFETY: as above.
        let written = unsafe {
            libc::pwrite(file.as_raw_fd(), memory.start().add(100 * PAGE).cast(), data.len(), 0)
        };
        assert_eq!(written, data.len() as isize);
        let seen = set(&pages(&entries(&mut client)));
        assert_eq!(seen, (FIRST + 100..FIRST + 164).collect());
    }
    let mut back = vec![0; data.len()];
    rustix::io::pread(&file, &mut back, 0).unwrap();
    assert_eq!(back, data);
}

#[test]
fn a_full_ring_drops_and_counts_without_blocking() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(4096);
    let (_tracker, address) = tracker();
    let mut client = common::connect(&address, CAPACITY_MIN).unwrap();
    client.add_region(memory.region(0, FIRST)).unwrap();
    client.revoke(1).unwrap();
    memory.touch(0..4096);
    client.heartbeat().unwrap();
    // Times take some of the slots.
    let first = pages(&entries(&mut client));
    assert!((900..1024).contains(&first.len()), "{}", first.len());
    client.revoke(2).unwrap();
    memory.touch([7]);
    let second = entries(&mut client);
    let missing: u64 = second
        .iter()
        .map(|entry| if let RingEntry::Gap(missing) = entry { *missing } else { 0 })
        .sum();
    assert_eq!(pages(&second), [FIRST + 7]);
    assert!(missing >= 4096 - first.len() as u64, "{missing}");
    assert_eq!(client.heartbeat().unwrap().dropped, missing);
}

#[test]
fn permissions_are_restored_when_the_client_is_silent() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(4096);
    let (_tracker, address) = tracker();
    let mut client = client(&address);
    client.add_region(memory.region(0, FIRST)).unwrap();
    client.revoke(1).unwrap();
    assert!(memory.is_registered());
    wait_until("permissions are restored", || !memory.is_registered());
    memory.touch(0..4096);
    assert_eq!(refusal(client.heartbeat()), RefusalReason::Silent);
    assert!(matches!(client.heartbeat(), Err(TrackerError::Closed)));
    // Another client can attach.
    let mut next = common::client(&address);
    next.add_region(memory.region(0, FIRST)).unwrap();
    next.revoke(1).unwrap();
    memory.touch([1]);
    assert_eq!(pages(&entries(&mut next)), [FIRST + 1]);
    drop(next);
    wait_until("permissions are restored", || !memory.is_registered());
}

#[test]
fn regions_can_be_added_and_removed() {
    let Some(_turn) = turn() else { return };
    let boot = Memory::new(2048);
    let (_tracker, mut client) = tracked(&boot, all_of(1));
    client.revoke(1).unwrap();
    let plugged = Memory::new(1024);
    client.add_region(plugged.region(1, FIRST + 2048)).unwrap();
    client.revoke(2).unwrap();
    boot.touch([9]);
    plugged.touch([9]);
    assert_eq!(pages(&entries(&mut client)), [FIRST + 9, FIRST + 2048 + 9]);
    // The hypervisor unmaps it and reuses the address: that memory must never be revoked.
    plugged.unmap();
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let heap = map(plugged.start(), 1024 * PAGE, anonymous, -1);
    // SAFETY: the mapping just made.
    unsafe { heap.write_bytes(77, 1024 * PAGE) };
    client.revoke(3).unwrap();
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(heap, 1024 * PAGE) };
    assert!(bytes.iter().all(|byte| *byte == 77));
    wait_until("the client is notified", || {
        client.heartbeat().unwrap();
        client.take_unmapped_region() == Some(1)
    });
    assert_eq!(refusal(client.remove_region(1)), RefusalReason::NoRegion);
    // Its number and its page numbers are free again.
    let again = Memory::new(1024);
    client.add_region(again.region(1, FIRST + 2048)).unwrap();
    client.remove_region(0).unwrap();
    client.revoke(4).unwrap();
    boot.touch([1]);
    again.touch([1]);
    assert_eq!(pages(&entries(&mut client)), [FIRST + 2049]);
    assert!(!boot.is_registered());
}

#[test]
fn memory_mapped_over_is_not_revoked() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(1024);
    let (_tracker, mut client) = tracked(&memory, all_of(1));
    client.revoke(1).unwrap();
    let over = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: 16 pages within the mapping.
    let place = unsafe { memory.start().add(512 * PAGE) };
    let heap = map(place, 16 * PAGE, over, -1);
    // SAFETY: the mapping just made.
    unsafe { heap.write_bytes(77, 16 * PAGE) };
    client.revoke(2).unwrap();
    // SAFETY: as above.
    assert!(unsafe { std::slice::from_raw_parts(heap, 16 * PAGE) }.iter().all(|it| *it == 77));
    // Faults in the rest of the region are still answered.
    memory.touch((0..512).chain(528..1024));
    wait_until("the client is notified", || {
        client.heartbeat().unwrap();
        client.take_unmapped_region() == Some(0)
    });
}

#[test]
fn holes_punched_by_a_balloon_are_tolerated() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(8192);
    let (_tracker, mut client) = tracked(&memory, all_of(32));
    let is_over = AtomicBool::new(false);
    let touches = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for first in 0..2 {
            let (memory, is_over, touches) = (&memory, &is_over, &touches);
            scope.spawn(move || {
                let mut page = first * 3000;
                while !is_over.load(Ordering::Relaxed) {
                    page = (page * 5 + 77) % 8192;
                    let value = memory.read(page);
                    assert!(value == page as u8 || value == 0, "page {page}: {value}");
                    touches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for round in 0..100_u32 {
            client.revoke(round).unwrap();
            let at = u64::from(round) * 37 % 8000;
            fallocate(memory.as_fd(), flags, at * 4096, 100 * 4096).unwrap();
            let before = touches.load(Ordering::Relaxed);
            wait_until("touches go on", || touches.load(Ordering::Relaxed) > before + 100);
            entries(&mut client);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // A touch creates a missing page unseen; later touches of it are seen.
    fallocate(memory.as_fd(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
        .unwrap();
    client.revoke(200).unwrap();
    assert_eq!(memory.read(0), 0);
    client.revoke(201).unwrap();
    entries(&mut client);
    memory.write(0, 0);
    assert_eq!(pages(&entries(&mut client)), [FIRST]);
}

#[test]
fn a_child_of_the_hypervisor_is_not_tracked() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(1024);
    let (_tracker, mut client) = tracked(&memory, all_of(1));
    client.revoke(1).unwrap();
    // SAFETY: the child only reads memory and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let sum: u32 = (0..1024).map(|page| u32::from(memory.read(page))).sum();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(sum != 4 * (255 * 128))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(pages(&entries(&mut client)), []);
    // Programs started by the hypervisor inherit no userfaultfd.
    let output = std::process::Command::new("ls").arg("-l").arg("/proc/self/fd").output().unwrap();
    let files = String::from_utf8_lossy(&output.stdout);
    assert!(!files.contains("userfaultfd") && !files.contains("memfd"), "{files}");
}

#[test]
fn untrackable_memory_is_refused_with_the_reason() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(1024);
    let (_tracker, mut client) = tracked(&memory, all_of(1));
    let private = Memory::mapped(16, libc::MAP_PRIVATE);
    let other = Memory::new(16);
    let mut nowhere = other.region(1, 0);
    nowhere.inode += 1_000_000;
    let mut longer = other.region(1, 0);
    longer.len += 4096;
    for (region, expected) in [
        (private.region(1, 0), RefusalReason::Private),
        (nowhere, RefusalReason::NoMapping),
        (longer, RefusalReason::NoMapping),
        (memory.region(1, 0), RefusalReason::RegionTaken),
        (other.region(0, 0), RefusalReason::RegionTaken),
        (other.region(1, FIRST), RefusalReason::RegionTaken),
    ] {
        assert_eq!(refusal(client.add_region(region)), expected);
    }
    let twice = map(std::ptr::null_mut(), 16 * PAGE, libc::MAP_SHARED, other.file.as_raw_fd());
    assert_eq!(refusal(client.add_region(other.region(1, 0))), RefusalReason::MappedTwice);
    // SAFETY: the mapping made two lines above.
    unsafe { libc::munmap(twice.cast(), 16 * PAGE) };
    // SAFETY: memory of this test's own.
    assert_eq!(unsafe { libc::mlock(other.start().cast(), 16 * PAGE) }, 0);
    client.add_region(other.region(1, 0)).unwrap();
    assert_eq!(refusal(client.revoke(1)), RefusalReason::Revoke);
    // Without that region tracking works.
    client.remove_region(1).unwrap();
    client.revoke(2).unwrap();
    memory.touch([4]);
    assert_eq!(pages(&entries(&mut client)), [FIRST + 4]);
}

#[test]
fn a_client_of_another_version_is_refused() {
    let Some(_turn) = turn() else { return };
    let (_tracker, address) = tracker();
    let socket = connected(&address);
    let (mut hello, len) = Frame { number: 1, message: TrackerRequest::Hello }.encode();
    hello[..2].copy_from_slice(&(VERSION + 1).to_le_bytes());
    rustix::net::send(&socket, &hello[..len], SendFlags::NOSIGNAL).unwrap();
    let mut reply = [0; MESSAGE_MAX];
    let (len, _) = rustix::net::recv(&socket, &mut reply, RecvFlags::empty()).unwrap();
    let reply = Frame::<TrackerReply>::decode(&reply[..len]).unwrap();
    let version =
        TrackerReply::Refused(TrackerRefusal { reason: RefusalReason::Version, errno: 0 });
    assert_eq!(reply, Frame { number: 0, message: version });
}

/// A raw connection, to send anything.
fn connected(address: &TrackerAddress) -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(address.path()).unwrap()).unwrap();
    socket
}

/// The answer to a hello from a thread of this process that acts as user `user`.
fn greeted_as(user: u32, address: &TrackerAddress) -> TrackerReply {
    let address = address.clone();
    let hello = std::thread::spawn(move || {
        let user = rustix::process::Uid::from_raw(user);
        // The thread keeps root's group, which is the socket's.
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let socket = connected(&address);
        let (hello, len) = Frame { number: 1, message: TrackerRequest::Hello }.encode();
        let _ = rustix::net::send(&socket, &hello[..len], SendFlags::NOSIGNAL);
        let mut reply = [0; MESSAGE_MAX];
        let mut receive = || rustix::net::recv(&socket, &mut reply, RecvFlags::empty());
        // A refused client gets the refusal, and is disconnected before its hello is read.
        let (len, _) = receive().or_else(|_| receive()).unwrap();
        Frame::<TrackerReply>::decode(&reply[..len]).unwrap().message
    });
    hello.join().unwrap()
}

#[test]
fn root_and_the_named_user_are_answered_nobody_else() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root can become another user");
    }
    let Some(_turn) = turn() else { return };
    // Reachable by other users, unlike the folder of a test run.
    let folder = tempfile::Builder::new().prefix("track").tempdir_in("/tmp").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    let address = TrackerAddress::new(folder.path().join("a.sock"));
    let _tracker = ballast_track::Tracker::start(&address, Some(4321)).unwrap();
    assert!(matches!(greeted_as(4321, &address), TrackerReply::Hello { .. }));
    let peer = TrackerRefusal { reason: RefusalReason::Peer, errno: 0 };
    assert_eq!(greeted_as(4322, &address), TrackerReply::Refused(peer));
    assert!(common::connect(&address, CAPACITY_MIN).is_ok());
}

#[test]
fn garbage_ends_the_session_and_harms_nothing() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(64);
    let (_tracker, address) = tracker();
    let mut state = 1_u64;
    for round in 0..200 {
        let socket = connected(&address);
        let packet: Vec<u8> = (0..round * 2)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        // Attaching without a ring; then a valid header followed by garbage.
        let mut headed = vec![1, 0, (round % 12) as u8, 0, 1, 0, 0, 0];
        headed.extend(&packet);
        for packet in [vec![1, 0, 2, 0, 1, 0, 0, 0], headed, packet] {
            let _ = rustix::net::send(&socket, &packet, SendFlags::NOSIGNAL);
        }
    }
    wait_until("the last is gone", || {
        common::connect(&address, CAPACITY_MIN).is_ok_and(|mut client| {
            client.add_region(memory.region(0, FIRST)).unwrap();
            client.revoke(1).unwrap();
            memory.touch([1]);
            pages(&entries(&mut client)) == [FIRST + 1]
        })
    });
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(1024);
    let (_tracker, address) = tracker();
    let flood = connected(&address);
    let (hello, len) = Frame { number: 1, message: TrackerRequest::Hello }.encode();
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                (0..1024).for_each(|page| assert_eq!(memory.read(page), page as u8));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_until("the tracker to close", || {
            (0..1000)
                .any(|_| rustix::net::send(&flood, &hello[..len], SendFlags::NOSIGNAL).is_err())
        });
        // The thread that uses the memory is served to the end, and afterwards.
        let before = rounds.load(Ordering::Relaxed);
        wait_until("a round of touches", || rounds.load(Ordering::Relaxed) > before);
        is_over.store(true, Ordering::Relaxed);
    });
    // The next client is served, and may add the maximum number of regions.
    let mut client = client(&address);
    let more: Vec<Memory> = (0..65).map(|_| Memory::new(1)).collect();
    for (id, memory) in more.iter().enumerate().take(64) {
        client.add_region(memory.region(id as u8, FIRST + id as u64 * 1024)).unwrap();
    }
    let beyond = client.add_region(more[64].region(63, FIRST + 64 * 1024));
    assert_eq!(refusal(beyond), RefusalReason::RegionTaken);
    client.revoke(1).unwrap();
    more.iter().for_each(|memory| memory.touch([0]));
    assert_eq!(pages(&entries(&mut client)).len(), 64);
}

#[test]
fn a_library_of_another_version_is_reported() {
    let address = common::address();
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    let at = SocketAddrUnix::new(address.path()).unwrap();
    rustix::net::bind(&socket, &at).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let library = std::thread::spawn(move || {
        let peer = rustix::net::accept(&socket).unwrap();
        let mut hello = [0; MESSAGE_MAX];
        rustix::net::recv(&peer, &mut hello, RecvFlags::empty()).unwrap();
        let refused = TrackerRefusal { reason: RefusalReason::Version, errno: 0 };
        let (mut reply, len) =
            Frame { number: 0, message: TrackerReply::Refused(refused) }.encode();
        reply[..2].copy_from_slice(&(VERSION + 1).to_le_bytes());
        rustix::net::send(&peer, &reply[..len], SendFlags::NOSIGNAL).unwrap();
    });
    let error = common::connect(&address, CAPACITY_MIN).unwrap_err();
    assert!(error.is_lasting(), "{error}");
    assert!(error.to_string().contains("restart the guest with the library of this"), "{error}");
    library.join().unwrap();
    std::fs::remove_file(address.path()).unwrap();
}

#[test]
fn a_second_client_is_refused() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(64);
    let (_tracker, address) = tracker();
    let mut first = client(&address);
    first.add_region(memory.region(0, FIRST)).unwrap();
    for _ in 0..10 {
        assert_eq!(refusal(common::connect(&address, CAPACITY_MIN)), RefusalReason::Busy);
    }
    first.revoke(1).unwrap();
    memory.touch([1]);
    assert_eq!(pages(&entries(&mut first)), [FIRST + 1]);
}

#[test]
fn a_client_can_connect_right_after_another_disconnects() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(64);
    let (_tracker, address) = tracker();
    for _ in 0..100 {
        let mut next = common::connect(&address, CAPACITY_MIN).unwrap();
        next.add_region(memory.region(0, FIRST)).unwrap();
        next.revoke(1).unwrap();
    }
}

#[test]
fn dropping_the_tracker_restores_all_permissions() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(4096);
    let (tracker, mut client) = tracked(&memory, all_of(1));
    client.revoke(1).unwrap();
    memory.touch([1]);
    drop(tracker);
    assert!(!memory.is_registered());
    memory.touch(0..4096);
    assert!(client.heartbeat().is_err());
}

#[test]
fn many_threads_and_intervals_lose_no_data() {
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(4096);
    let (_tracker, mut client) = tracked(&memory, all_of(8));
    client.set_hot_set(64).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (memory, is_over) = (&memory, &is_over);
            scope.spawn(move || {
                let mut values = vec![None; 1024];
                let mut at = part;
                while !is_over.load(Ordering::Relaxed) {
                    at = (at * 1_103_515_245 + 12_345) % 1024;
                    let page = part * 1024 + at;
                    let expected = values[at].unwrap_or(page as u8);
                    assert_eq!(memory.read(page), expected);
                    let next = expected.wrapping_add(1);
                    memory.write(page, next);
                    values[at] = Some(next);
                }
            });
        }
        for round in 0..150 {
            if round % 10 == 9 {
                client.rest().unwrap();
            }
            if round % 25 == 24 {
                client.set_mode(all_of(if round % 50 == 24 { 1 } else { 32 })).unwrap();
            }
            client.revoke(round).unwrap();
            client.set_hot_set(round * 3 % 100).unwrap();
            entries(&mut client);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let counters = client.heartbeat().unwrap();
    assert!(counters.traps > 100, "{counters:?}");
}
