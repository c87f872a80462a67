//! Properties of records, and which parts are written again.

use std::time::Duration;

use ballast_fleet::{CompactCurve, FleetSnapshot, HostRecord, Label, PinnedBy, ReservationRecord};
use ballast_model::{Bytes, Timestamp};
use expect_test::expect;
use proptest::prelude::*;

use super::host;
use crate::{
    DueParts, FastPart, Identity, RecordError, SlowPart, VALUE_BYTES_MAX, WrittenParts, decode,
    encode, join,
};

const MIB: u64 = 1 << 20;

fn joined(record: &HostRecord) -> HostRecord {
    let slow = encode(&SlowPart::of(record, 3)).unwrap();
    let fast = encode(&FastPart::of(record, 3)).unwrap();
    let (slow, fast): (SlowPart, FastPart) = (decode(&slow).unwrap(), decode(&fast).unwrap());
    join(&record.id, &slow, &fast, record.seen_at, record.is_draining).unwrap()
}

#[test]
fn records_look_like_this() {
    let mut record = host("a", 8192, &[1024, 2048]);
    record.guests[1].pinned_by = Some(PinnedBy::Operator);
    let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
    expect![[r#"{"v":1,"number":3,"hypervisor":"qemu","hypervisor_version":[7,2,19],"cpu":"EPYC","storage":["ceph"],"networks":["br0"],"bandwidth":1024,"moves":true,"guests":[{"name":"a-0","floor":512,"curve":[[0,100],[1025,0]],"gives":true,"storage":["ceph"],"networks":["br0"]},{"name":"a-1","floor":1024,"curve":[[0,100],[2049,0]],"gives":true,"stays":"operator","storage":["ceph"],"networks":["br0"]}]}"#]].assert_eq(&text(encode(&SlowPart::of(&record, 3)).unwrap()));
    expect![[r#"{"v":1,"list":3,"host":[8192,512,3072,8192],"guests":"ggBAAggCAA"}"#]]
        .assert_eq(&text(encode(&FastPart::of(&record, 3)).unwrap()));
}

#[test]
fn whole_mebibytes_come_back_as_they_were() {
    let mut record = host("a", 8192, &[1024, 2048, 512]);
    record.guests[0].pinned_by = Some(PinnedBy::Unseen);
    record.guests[1].group = Some("pair".parse().unwrap());
    record.guests[1].misses_per_s_max = Some(7);
    record.guests[2].curve = None;
    record.guests[2].copied_resident = Bytes::mib(700);
    record.reservations.push(ReservationRecord {
        guest: "new".parse().unwrap(),
        size: Bytes::mib(256),
        resident: Bytes::mib(16),
        group: Some("pair".parse::<Label>().unwrap()),
    });
    record.committed += Bytes::mib(256);
    assert_eq!(joined(&record), record);
}

#[test]
fn other_versions_and_rubbish_are_refused_in_words() {
    for (value, needle) in [
        (&b"{\"v\":2,\"machine\":\"x\"}"[..], "version 2 of a record: this program reads 1"),
        (b"{\"machine\":\"x\"}", "missing field `v`"),
        (b"{\"v\":1}", "missing field `machine`"),
        (b"", "EOF"),
        (b"\xff\xfe", "line 1"),
    ] {
        let error = decode::<Identity>(value).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
    // Only two sizes; a negative one; one of 2^60; a character that is not a digit.
    for guests in ["BA", "BFA", "ggggggggggggBAA", "B A"] {
        let value = format!(r#"{{"v":1,"list":1,"host":[1,1,1,1],"guests":"{guests}"}}"#);
        let error = decode::<FastPart>(value.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("sizes of guests: expected three for each"), "{guests}: {error}");
    }
    let long = vec![b' '; VALUE_BYTES_MAX + 1];
    assert_eq!(decode::<Identity>(&long), Err(RecordError::TooLong(VALUE_BYTES_MAX + 1)));
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let record = host("a", 8192, &[1024, 2048]);
    let fewer = host("a", 8192, &[1024]);
    let join = |slow: &SlowPart, fast: &FastPart| {
        join(&record.id, slow, fast, Timestamp::ZERO, false).unwrap_err()
    };
    let slow = SlowPart::of(&record, 2);
    let apart = join(&slow, &FastPart::of(&record, 1));
    assert_eq!(apart, RecordError::OtherList(1, 2));
    let guests = join(&slow, &FastPart::of(&fewer, 2));
    assert_eq!(guests, RecordError::Guests(1, 2));
}

fn due(written: &mut WrittenParts, record: &HostRecord, s: u64) -> (bool, bool) {
    let now = Timestamp::from_millis(s * 1000);
    let due = written.due(record, now);
    let is_due = (due.slow.is_some(), due.fast.is_some());
    written.confirm(due, now);
    is_due
}

#[test]
fn only_what_changed_is_written_again() {
    let mut written = WrittenParts::new(Duration::from_secs(10));
    let mut record = host("a", 8192, &[1024, 2048]);
    assert_eq!(due(&mut written, &record, 0), (true, true));
    assert_eq!(due(&mut written, &record, 10), (false, false));
    record.free -= Bytes::mib(100);
    assert_eq!(due(&mut written, &record, 60), (false, false), "1/64 of 8 GiB is 128 MiB");
    record.free -= Bytes::mib(100);
    assert_eq!(due(&mut written, &record, 70), (false, true), "changes add up");
    record.guests[0].demand = Bytes::mib(1000);
    assert_eq!(due(&mut written, &record, 80), (false, false), "a small one waits");
    assert_eq!(due(&mut written, &record, 99), (false, true), "for three ticks, or nearly");
    record.guests[0].demand = Bytes::mib(800);
    assert_eq!(due(&mut written, &record, 109), (false, false), "a large one for two ticks");
    assert_eq!(due(&mut written, &record, 119), (false, true));
    record.guests[0].floor = Bytes::mib(600);
    assert_eq!(due(&mut written, &record, 120), (true, true), "a floor is never late");
    record.guests[0].curve = CompactCurve::new(vec![(Bytes::mib(64), 9)]).ok();
    assert_eq!(due(&mut written, &record, 130), (false, false), "curves wait");
    assert_eq!(due(&mut written, &record, 420), (true, true));
    record.reservations.push(ReservationRecord {
        guest: "new".parse().unwrap(),
        size: Bytes::mib(64),
        resident: Bytes::ZERO,
        group: None,
    });
    record.committed += Bytes::mib(64);
    assert_eq!(due(&mut written, &record, 430), (false, true), "a reservation is never late");
    record.guests.pop();
    record.committed = Bytes::mib(1024 + 64);
    assert_eq!(due(&mut written, &record, 431), (true, true));
}

#[test]
fn unconfirmed_writes_are_due_again() {
    let (written, record) = (WrittenParts::new(Duration::from_secs(10)), host("a", 8192, &[1024]));
    let first = written.due(&record, Timestamp::ZERO);
    assert!(!first.is_empty());
    assert_eq!(written.due(&record, Timestamp::ZERO), first);
    assert!(DueParts { slow: None, fast: None }.is_empty());
}

prop_compose! {
    fn records()(
        figures in prop::array::uniform4(0..=(1_u64 << 45)),
        guests in prop::collection::vec(
            (prop::array::uniform4(0..=(1_u64 << 45)), prop::collection::btree_map(0..(1_u64 << 45), 0..1000_u64, 0..16)),
            0..6,
        ),
        size in 0..(1_u64 << 45),
    ) -> HostRecord {
        let mut record = host("a", 0, &vec![0; guests.len()]);
        let [budget, reserve, committed, free] = figures.map(Bytes::new);
        (record.budget, record.reserve, record.free) = (budget, reserve, free);
        for (guest, ([floor, allocation, demand, resident], curve)) in record.guests.iter_mut().zip(guests) {
            (guest.floor, guest.allocation) = (Bytes::new(floor), Bytes::new(allocation));
            (guest.demand, guest.resident) = (Bytes::new(demand), Bytes::new(resident));
            let mut misses: Vec<u64> = curve.values().copied().collect();
            misses.sort_unstable_by(|a, b| b.cmp(a));
            guest.curve = CompactCurve::new(curve.into_keys().map(Bytes::new).zip(misses).collect()).ok();
        }
        record.reservations.push(ReservationRecord {
            guest: "r".parse().unwrap(), size: Bytes::new(size), resident: Bytes::ZERO, group: None,
        });
        let least: Bytes = record.guests.iter().map(|it| it.allocation).sum();
        record.committed = committed.max(least + Bytes::new(size));
        record
    }
}

proptest! {
    /// Rounded, no host seems to have more than it has, and no guest to need less.
    #[test]
    fn rounding_is_to_the_safe_side_and_admitted(record in records()) {
        let read = joined(&record);
        let near = |a: Bytes, b: Bytes| a.get().abs_diff(b.get()) < MIB;
        prop_assert!(read.budget <= record.budget && near(read.budget, record.budget));
        prop_assert!(read.free <= record.free && near(read.free, record.free));
        prop_assert!(read.reserve >= record.reserve && near(read.reserve, record.reserve));
        prop_assert!(read.committed >= record.committed);
        for (read, guest) in read.guests.iter().zip(&record.guests) {
            prop_assert!(read.floor >= guest.floor && near(read.floor, guest.floor));
            prop_assert!(read.demand >= guest.demand && near(read.demand, guest.demand));
            prop_assert!(read.allocation >= guest.allocation);
            prop_assert_eq!(read.curve.is_some(), guest.curve.is_some());
        }
        let (snapshot, refused) = FleetSnapshot::admit(vec![read]);
        prop_assert_eq!((snapshot.hosts().len(), refused), (1, Vec::new()));
    }

    /// Whatever happens, what others read is right within the margin now, or was a tick ago.
    #[test]
    fn what_is_written_stays_within_the_margin(steps in prop::collection::vec(records(), 1..8)) {
        let mut written = WrittenParts::new(Duration::from_secs(10));
        let (mut slow, mut fast) = (None, None);
        let mut before: Option<HostRecord> = None;
        for (at, mut record) in (0..).zip(steps) {
            record.guests.truncate(1);
            let now = Timestamp::from_millis(at * 10_000);
            let due = written.due(&record, now);
            slow = due.slow.clone().or(slow);
            fast = due.fast.clone().or(fast);
            written.confirm(due, now);
            let (Some(slow), Some(fast)) = (&slow, &fast) else { panic!("nothing was written") };
            let read = join(&record.id, slow, fast, now, false).unwrap();
            let near = |a: Bytes, b: Bytes| {
                a.get().abs_diff(b.get()) <= (129 * MIB).max(a.get() / 8 + 2 * MIB)
            };
            let is_near = |record: &HostRecord| {
                near(read.budget, record.budget)
                    && near(read.free, record.free)
                    && read.guests.len() == record.guests.len()
                    && read.guests.iter().zip(&record.guests).all(|(read, guest)| {
                        near(read.allocation, guest.allocation) && near(read.floor, guest.floor)
                    })
            };
            prop_assert!(is_near(&record) || before.as_ref().is_some_and(is_near));
            before = Some(record);
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_a_short_error(
        value in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "\\{\"v\":1,\"list\":[0-9]{1,20},\"host\":\\[[0-9]{1,22},1,1,1\\],\"guests\":\"[A-Za-f]{0,9}[A-Za-z0-9_-]{0,20}[A-Z]\"\\}"
                .prop_map(String::into_bytes),
        ],
    ) {
        let errors = [
            decode::<SlowPart>(&value).err(), decode::<FastPart>(&value).err(),
            decode::<Identity>(&value).err(),
        ];
        for error in errors.into_iter().flatten() {
            let text = error.to_string();
            prop_assert!(text.chars().count() <= 250 && !text.chars().any(char::is_control));
        }
    }
}
