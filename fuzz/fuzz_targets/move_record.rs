//! The record of a move, with anything that a host may write to the store: it is refused, or it
//! survives a round trip, is bounded, and makes no host change a guest that only runs there.
#![no_main]

use ballast_fleet_move::{
    CarriedState, CopyState, HostAction, HostView, MoveRecord, NextStep, Process, Promise,
    RECORD_BYTES_MAX, Term, host_step,
};
use ballast_model::{GuestChange, Timestamp};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = MoveRecord::parse(bytes) else { return };
    assert!(bytes.len() <= RECORD_BYTES_MAX);
    let again = MoveRecord::parse(record.to_json().as_bytes()).expect("what was written");
    assert_eq!(again, record);
    let carried = CarriedState { limits: GuestChange::default(), credits: None, thrashed: None };
    for (host, begins) in
        [&record.from, &record.to].into_iter().flat_map(|host| [(host, true), (host, false)])
    {
        let view = HostView {
            begins_moves: begins,
            host: host.clone(),
            now: Timestamp::ZERO,
            term: Term(0),
            process: Process::Runs(CopyState::Nothing),
            promise: Promise::Entitled,
            shrink: None,
            holds: None,
            has_part: true,
            is_taken_over: false,
            carried: carried.clone(),
            ends_source: false,
        };
        let next = host_step(Some(&record), &view);
        let ends = matches!(next, NextStep::Act(HostAction::End | HostAction::Quit));
        assert!(!ends, "{record:?} ends a guest that runs");
    }
});
