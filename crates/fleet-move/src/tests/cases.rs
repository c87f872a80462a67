//! One step of one role at a time, and records as JSON.

use std::time::Duration;

use ballast_fleet::HostId;
use ballast_model::{Bytes, GuestChange, Timestamp};
use proptest::prelude::*;

use crate::leader::MoveIntent;
use crate::*;

const TERM: Term = Term(5);
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const SIZE: Bytes = Bytes::gib(2);
const SMALL: Bytes = Bytes::gib(1);

fn host(name: &str) -> HostId {
    name.parse().unwrap()
}

fn carried() -> CarriedState {
    let thrashed =
        Some(CarriedThrash { least_bytes: SMALL.get(), left_ms: 5_000, pause_ms: 60_000 });
    CarriedState { limits: GuestChange::default(), credits: Some(12), thrashed }
}

fn record(phase: Phase) -> MoveRecord {
    MoveRecord {
        guest: "web".parse().unwrap(),
        from: host("a"),
        to: host("b"),
        term: TERM,
        ordered_at: Timestamp::ZERO,
        reserve: SIZE,
        shrink_to: Some(SMALL),
        shrink_until: NOW + Duration::from_secs(10),
        due: NOW + Duration::from_secs(60),
        phase,
        is_closed: false,
    }
}

fn address() -> std::net::SocketAddr {
    "192.0.2.7:4444".parse().unwrap()
}

fn phases() -> [Phase; 8] {
    [
        Phase::Ordered,
        Phase::Ready { address: address() },
        Phase::Copying { address: address(), ends_source: false },
        Phase::Copied { carried: Box::new(carried()) },
        Phase::Starting { carried: Box::new(carried()) },
        Phase::Moved,
        Phase::Abandoned { why: AbandonReason::NoRoom },
        Phase::Lost,
    ]
}

/// What a host sees that begins moves and has a part in this one: a small guest, no shrinking.
fn view(at: &str, process: Process, promise: Promise) -> HostView {
    HostView {
        host: host(at),
        now: NOW,
        term: TERM,
        process,
        promise,
        shrink: None,
        holds: Some(SMALL),
        has_part: true,
        is_taken_over: false,
        carried: carried(),
        ends_source: false,
        begins_moves: true,
    }
}

/// What a host does in `phase` when it sees all this.
fn next(
    phase: Phase,
    at: &str,
    process: Process,
    promise: Promise,
    shrink: Option<Shrink>,
) -> NextStep {
    let view = HostView { shrink, ..view(at, process, promise) };
    host_step(Some(&record(phase)), &view)
}

#[test]
fn only_records_of_finished_moves_may_be_removed() {
    let ending = Phase::Copying { address: address(), ends_source: true };
    for phase in phases().into_iter().chain([ending.clone()]) {
        let is_over = phase.is_over();
        let why = record(phase.clone()).why_kept();
        assert_eq!(why.is_none(), is_over, "{phase:?}");
        let code = format!("the move of web is in phase `{}`: ", phase.code());
        assert!(why.is_none_or(|why| why.starts_with(&code)), "{phase:?}");
    }
    let why = record(ending).why_kept().unwrap();
    assert!(why.contains("b may have the only copy"), "{why}");
}

const RESERVED: Promise = Promise::Reserved { size: SIZE, is_ready: true };

#[test]
fn a_reservation_of_another_size_is_made_again() {
    let promise = Promise::Reserved { size: SMALL, is_ready: true };
    let expected = NextStep::Act(HostAction::Reserve(SIZE));
    assert_eq!(next(Phase::Ordered, "b", Process::Absent, promise, None), expected);
}

#[test]
fn a_destination_without_its_reservation_abandons() {
    for phase in [
        Phase::Ready { address: address() },
        Phase::Copying { address: address(), ends_source: false },
    ] {
        let waiting = Process::Waiting(address());
        assert_eq!(next(phase.clone(), "b", waiting, RESERVED, None), NextStep::Wait);
        let expected = record(Phase::Abandoned { why: AbandonReason::NoRoom });
        let found = next(phase, "b", waiting, Promise::Nothing, None);
        assert_eq!(found, NextStep::Write(Box::new(expected)));
    }
}

#[test]
fn a_guest_that_does_not_run_is_not_moved() {
    for process in [Process::Paused, Process::Left, Process::Runs(CopyState::Partly)] {
        let expected = record(Phase::Abandoned { why: AbandonReason::NotRunning });
        let found = next(Phase::Ordered, "a", process, Promise::Entitled, None);
        assert_eq!(found, NextStep::Write(Box::new(expected)), "{process:?}");
    }
}

#[test]
fn a_copy_begins_once_the_guest_is_small() {
    let ready = Phase::Ready { address: address() };
    let runs = Process::Runs(CopyState::Nothing);
    let shrink = |is_done| Some(Shrink { to: SMALL, is_done });
    let found = |shrink| next(ready.clone(), "a", runs, Promise::Entitled, shrink);
    assert_eq!(found(None), NextStep::Act(HostAction::Shrink(SMALL)));
    assert_eq!(found(shrink(false)), NextStep::Wait);
    let copying = Phase::Copying { address: address(), ends_source: false };
    assert_eq!(found(shrink(true)), NextStep::Write(Box::new(record(copying.clone()))));
    assert_eq!(
        next(copying, "a", runs, Promise::Entitled, shrink(true)),
        NextStep::Act(HostAction::Copy(address()))
    );
}

/// What the source does next about a guest that holds this.
fn next_of_source(
    record: &MoveRecord,
    process: Process,
    shrink: Option<Shrink>,
    holds: Option<Bytes>,
    ends_source: bool,
) -> NextStep {
    let view = view("a", process, Promise::Entitled);
    host_step(Some(record), &HostView { shrink, holds, ends_source, ..view })
}

#[test]
fn a_guest_that_stays_too_large_is_not_copied() {
    let ready = record(Phase::Ready { address: address() });
    let late = MoveRecord { shrink_until: NOW, ..ready.clone() };
    let rigid = MoveRecord { shrink_to: None, ..ready };
    let stuck = Some(Shrink { to: SMALL, is_done: false });
    let runs = Process::Runs(CopyState::Nothing);
    for (record, shrink) in [(late, stuck), (rigid, None)] {
        let found = |holds| next_of_source(&record, runs, shrink, holds, false);
        assert_eq!(found(None), NextStep::Wait, "what it holds is unknown");
        let begins = record.at(Phase::Copying { address: address(), ends_source: false });
        let most = SIZE + SHRINK_TOLERANCE;
        for holds in [SMALL, SIZE, most] {
            assert_eq!(found(Some(holds)), NextStep::write(begins.clone()), "{holds}");
        }
        let stays = record.abandoned(AbandonReason::NoRoom);
        for holds in [most + Bytes::new(1), Bytes::gib(8)] {
            assert_eq!(found(Some(holds)), NextStep::write(stays.clone()), "{holds}");
        }
    }
}

#[test]
fn a_guest_that_grows_while_it_is_copied_stays() {
    let copying = |ends_source| record(Phase::Copying { address: address(), ends_source });
    let stays = NextStep::write(copying(false).abandoned(AbandonReason::NoRoom));
    let (rests, copies) = (Process::Runs(CopyState::Nothing), Process::Runs(CopyState::Partly));
    for (ends_source, process, expected) in [
        (false, rests, &stays),
        (false, copies, &stays),
        (false, Process::Left, &stays),
        (true, rests, &NextStep::Wait),
        (true, copies, &NextStep::Act(HostAction::CancelCopy)),
    ] {
        let record = copying(ends_source);
        let found = |holds| next_of_source(&record, process, None, Some(holds), ends_source);
        assert_eq!(found(SIZE + Bytes::gib(1)), *expected);
        assert_ne!(found(SIZE), *expected, "it fits");
    }
}

/// A host died between noting that the guest is about to start and starting it.
#[test]
fn a_guest_whose_start_was_interrupted_is_started() {
    let starting = Phase::Starting { carried: Box::new(carried()) };
    let found = next(starting, "b", Process::Paused, Promise::Entitled, None);
    assert_eq!(found, NextStep::Act(HostAction::Start));
}

#[test]
fn without_the_store_only_a_copy_is_cancelled() {
    for phase in phases() {
        for (at, process) in [
            ("a", Process::Runs(CopyState::Partly)),
            ("a", Process::Left),
            ("b", Process::Loaded),
            ("b", Process::Runs(CopyState::Partly)),
        ] {
            let view = HostView { is_taken_over: true, ..view(at, process, RESERVED) };
            let cancels = matches!(phase, Phase::Copying { .. })
                && (at, process) == ("a", Process::Runs(CopyState::Partly));
            let expected =
                if cancels { NextStep::Act(HostAction::CancelCopy) } else { NextStep::Wait };
            assert_eq!(host_step_without_store(&record(phase.clone()), &view), expected);
        }
    }
}

/// As after a change of mode. From then on the move goes on as a cancelled one does.
#[test]
fn a_host_that_begins_no_moves_abandons_uncopied_ones() {
    for phase in phases() {
        for (at, process) in [
            ("a", Process::Runs(CopyState::Nothing)),
            ("b", Process::Absent),
            ("b", Process::Waiting(address())),
            ("c", Process::Absent),
        ] {
            let begins = view(at, process, RESERVED);
            let view = HostView { begins_moves: false, ..begins.clone() };
            let record = record(phase.clone());
            let is_abandoned = at != "c" && matches!(phase, Phase::Ordered | Phase::Ready { .. });
            let expected = match is_abandoned {
                true => NextStep::write(record.abandoned(AbandonReason::Cancelled)),
                false => host_step(Some(&record), &begins),
            };
            assert_eq!(host_step(Some(&record), &view), expected, "{at} in {}", phase.code());
        }
    }
}

/// Another machine has the host's name, and the guest may be there.
#[test]
fn absence_says_nothing_to_a_machine_without_a_part() {
    let all = phases().into_iter().flat_map(|phase| [(phase.clone(), false), (phase, true)]);
    for (phase, ends_source) in all {
        let phase = match phase {
            Phase::Copying { address, .. } => Phase::Copying { address, ends_source },
            other => other,
        };
        let record = record(phase);
        for at in ["a", "b"] {
            let view = HostView {
                holds: None,
                has_part: false,
                ends_source,
                ..view(at, Process::Absent, Promise::Nothing)
            };
            let expected = match (&record.phase, at) {
                (Phase::Ordered | Phase::Ready { .. }, "a") => {
                    NextStep::write(record.abandoned(AbandonReason::GuestGone))
                }
                (Phase::Ordered, _) => NextStep::Act(HostAction::Reserve(SIZE)),
                _ => NextStep::Wait,
            };
            let found = host_step(Some(&record), &view);
            assert_eq!(found, expected, "{at} in {}", record.phase.code());
        }
    }
}

#[test]
fn hosts_without_a_part_in_a_move_do_nothing() {
    for process in [Process::Runs(CopyState::Partly), Process::Left, Process::Paused] {
        for promise in [Promise::Entitled, Promise::Nothing] {
            assert_eq!(next(Phase::Moved, "c", process, promise, None), NextStep::Wait);
        }
    }
}

#[test]
fn a_leader_orders_once_and_abandons_what_is_late() {
    let order = MoveIntent::Move(record(Phase::Ordered));
    let step = |record: Option<&MoveRecord>, intent| leader::step(record, intent, NOW);
    assert_eq!(step(None, &MoveIntent::Settle), NextStep::Wait);
    assert_eq!(step(None, &MoveIntent::Cancel), NextStep::Wait);
    assert_eq!(step(None, &order), NextStep::Write(Box::new(record(Phase::Ordered))));
    for phase in phases() {
        let found = record(phase.clone());
        assert_eq!(step(Some(&found), &order), NextStep::Wait, "{phase:?}");
        let can_be_cancelled =
            matches!(phase, Phase::Ordered | Phase::Ready { .. } | Phase::Copying { .. });
        let cancelled = record(Phase::Abandoned { why: AbandonReason::Cancelled });
        let expected =
            if can_be_cancelled { NextStep::Write(Box::new(cancelled)) } else { NextStep::Wait };
        assert_eq!(step(Some(&found), &MoveIntent::Cancel), expected, "{phase:?}");
        let late = MoveRecord { due: NOW, ..found };
        let is_abandoned = matches!(step(Some(&late), &MoveIntent::Settle), NextStep::Write(_));
        assert_eq!(is_abandoned, can_be_cancelled, "{phase:?}");
    }
    let closed = MoveRecord { is_closed: true, ..record(Phase::Moved) };
    assert_eq!(step(Some(&closed), &order), NextStep::Remove);
}

#[test]
fn records_survive_being_written_and_read() {
    for phase in phases() {
        let is_over = phase.is_over();
        let record = MoveRecord { is_closed: is_over, ..record(phase) };
        let json = record.to_json();
        assert!(json.len() < 1024, "{json}");
        assert_eq!(MoveRecord::parse(json.as_bytes()).unwrap(), record);
    }
}

#[test]
fn implausible_records_are_refused_with_what_was_expected() {
    let good = record(Phase::Ready { address: address() }).to_json();
    for (from, to, says) in [
        (r#""version":1"#, r#""version":2"#, "version 2: expected 1"),
        (r#""to":"b""#, r#""to":"a""#, "from a to itself"),
        (r#""to":"b""#, r#""to":"../b""#, "is no host name"),
        (r#""reserve_bytes":2147483648"#, r#""reserve_bytes":0"#, "reserves 0B"),
        (r#""reserve_bytes":2147483648"#, r#""reserve_bytes":18446744073709551615"#, "reserves"),
        (r#""reserve_bytes":2147483648"#, r#""reserve_bytes":4096"#, "no more than it reserves"),
        ("192.0.2.7:4444", "192.0.2.7:0", "expected a port"),
        ("192.0.2.7:4444", "exec:reboot", "no record of a move"),
        ("192.0.2.7:4444", "host.example:4444", "no record of a move"),
        (r#""version":1"#, r#""version":1,"closed":true"#, "closed while ready"),
        (r#""version":1"#, r#""version":1,"more":true"#, "unknown field `more`"),
    ] {
        let json = good.replace(from, to);
        assert_ne!(json, good, "{from}");
        let error = MoveRecord::parse(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}: expected {says}");
    }
    let long = vec![b' '; RECORD_BYTES_MAX + 1];
    assert!(matches!(MoveRecord::parse(&long), Err(RecordError::TooLong(_))));
}

proptest! {
    /// Whatever else the source sees. With a program that ends the source it learns too late what
    /// was copied.
    #[test]
    fn nothing_is_copied_beyond_what_is_reserved(
        which in 0..8_usize,
        process in 0..7_usize,
        holds in prop::option::of(0..Bytes::gib(4).get()),
        is_done: Option<bool>,
        can_shrink: bool,
        is_late: bool,
        ends_source: bool,
    ) {
        let phase = match phases()[which].clone() {
            Phase::Copying { address, .. } => Phase::Copying { address, ends_source },
            other => other,
        };
        let process = [
            Process::Runs(CopyState::Nothing),
            Process::Runs(CopyState::Partly),
            Process::Runs(CopyState::Failed),
            Process::Left,
            Process::Ended,
            Process::Paused,
            Process::Absent,
        ][process];
        let is_ready = matches!(phase, Phase::Ready { .. });
        let mut record = record(phase);
        record.shrink_to = record.shrink_to.filter(|_| can_shrink);
        if is_late {
            record.shrink_until = NOW;
        }
        let shrink = is_done.map(|is_done| Shrink { to: SMALL, is_done });
        let holds = holds.map(Bytes::new);
        let copies = match next_of_source(&record, process, shrink, holds, ends_source) {
            NextStep::Act(HostAction::Copy(_)) => true,
            NextStep::Write(next) => match next.phase {
                Phase::Copying { .. } => true,
                Phase::Copied { .. } => !ends_source,
                _ => false,
            },
            _ => false,
        };
        let fits = holds.map(|it| it <= SIZE + SHRINK_TOLERANCE);
        prop_assert!(!copies || fits != Some(false), "{holds:?}");
        prop_assert!(!copies || !is_ready || fits == Some(true), "{holds:?}");
    }

    /// Rubbish, and a good record with one byte changed: refused, or a record that can be written
    /// and read again.
    #[test]
    fn no_bytes_break_the_parser(rubbish: Vec<u8>, which in 0..8_usize, at: usize, byte: u8) {
        let mut json = record(phases()[which].clone()).to_json().into_bytes();
        let at = at % json.len();
        json[at] = byte;
        for bytes in [rubbish, json] {
            if let Ok(record) = MoveRecord::parse(&bytes) {
                prop_assert_eq!(MoveRecord::parse(record.to_json().as_bytes()).unwrap(), record);
            }
        }
    }
}
