//! Values of a fleet's keys, with anything that other hosts may write: each is a record or a
//! one-line error, and the checker accepts the plan for the records admitted.
#![no_main]

use ballast_fleet::{FleetSettings, check, plan};
use ballast_fleet_move::Term;
use ballast_fleet_proto::{
    Entry, FleetKey, FleetView, Keyspace, Listing, Revision, VALUE_BYTES_MAX, leader_writes,
};
use ballast_fuzz::assert_harmless;
use ballast_model::Timestamp;

/// Longest reason, in characters: its text, and the fixed words around it.
const REASON_CHARS_MAX: usize = 600;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let keys: Keyspace = "fuzz".parse().expect("a name");
    // The values, one per line: six for the keys of the two hosts, and one for each key of the
    // fleet.
    let mut entries = Vec::new();
    for (at, value) in bytes.split(|byte| *byte == b'\n').take(10).enumerate() {
        let host = ["a", "b"][at / 3 % 2].parse().expect("a name");
        let key = match at {
            6 => FleetKey::Plan,
            7 => FleetKey::Leader,
            8 => FleetKey::Move("a-0".parse().expect("a name")),
            9 => FleetKey::Past("a-0".parse().expect("a name")),
            _ => match at % 3 {
                0 => FleetKey::Identity(host),
                1 => FleetKey::Slow(host),
                _ => FleetKey::Fast(host),
            },
        };
        assert!(value.len() <= VALUE_BYTES_MAX);
        let (value, written) = (value.to_vec(), Revision(at as u64 + 1));
        entries.push(Entry { key: keys.key(&key), value, written });
    }
    let view = FleetView::new(keys, Listing { entries, revision: Revision(11) });
    let now = Timestamp::from_millis(1);
    let (snapshot, refused) = view.snapshot(now);
    for record in refused {
        assert_harmless(&record.to_string(), REASON_CHARS_MAX);
    }
    let settings = FleetSettings::default();
    let plan = plan(&snapshot, &settings, now);
    assert!(check(&snapshot, &settings, &plan, now).is_ok());
    for (_, entry) in view.moves() {
        if let Err(why) = &entry.record {
            assert_harmless(why, REASON_CHARS_MAX);
        }
    }
    let due: Vec<_> = plan.migrations.iter().collect();
    // At most one write for the move's record, one for its past, and one for each planned move.
    let writes = leader_writes(&view, &due, Term(1), now);
    assert!(writes.len() <= 2 + plan.migrations.len());
});
