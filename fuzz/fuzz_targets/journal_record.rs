//! A journal's row as JSON: any bytes are refused or give a tick or an event, which survives a
//! round trip and can be shown by every command.
#![no_main]

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use ballast_api::{ExplainReply, GuestsReply, PlanReply, Source, StatusReply, Tick};
use ballast_store::{Event, TickEntry};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(event) = serde_json::from_slice::<Event>(bytes) {
        let again = serde_json::to_vec(&event).expect("an event has a form");
        assert_eq!(serde_json::from_slice::<Event>(&again).ok(), Some(event));
    }
    let Ok(entry) = serde_json::from_slice::<TickEntry>(bytes) else { return };
    let again = serde_json::to_vec(&entry.at(UNIX_EPOCH)).expect("a tick has a form");
    match serde_json::from_slice::<TickEntry>(&again) {
        Ok(read) => assert_eq!(read, entry),
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&again)),
    }
    let ids: Vec<_> = entry.snapshot.guests().iter().map(|guest| &guest.id).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    show(&entry);
});

fn show(entry: &TickEntry) {
    let outcomes: BTreeMap<_, _> = entry
        .outcomes
        .iter()
        .map(|outcome| (outcome.guest.clone(), (UNIX_EPOCH, outcome.clone())))
        .collect();
    let tick = Tick {
        source: Source::Journal,
        now: UNIX_EPOCH,
        seen_at: UNIX_EPOCH,
        snapshot: &entry.snapshot,
        plan: &entry.plan,
        limits: &entry.limits,
        limit_sources: &BTreeMap::new(),
        outcomes: &outcomes,
        paused: entry.paused,
        mode: entry.mode.in_force(),
        decision_cost: entry.decision_cost,
        daemon: None,
    };
    let shown = [
        serde_json::to_value(StatusReply::from(&tick)),
        serde_json::to_value(GuestsReply::from(&tick)),
        serde_json::to_value(PlanReply::latest(&tick)),
    ];
    assert!(shown.iter().all(Result::is_ok));
    for guest in entry.snapshot.guests() {
        let _ = ExplainReply::new(&tick, &guest.id);
    }
}
