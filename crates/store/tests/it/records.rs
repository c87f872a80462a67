//! Any value of the model reads back from its row without loss, under the model's codes.

use crate::support;

use std::collections::BTreeMap;

use ballast_model::{HoldReason, Note, Plan, Reason, Snapshot};
use ballast_store::{EntryContent, Range, Reader, TickEntry, Writer};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

fn read<T: DeserializeOwned>(json: &[u8]) -> T {
    serde_json::from_slice(json).unwrap()
}

fn code(value: impl Serialize) -> String {
    serde_json::to_value(value).unwrap()["code"].as_str().unwrap().to_owned()
}

proptest! {
    #[test]
    fn a_snapshot_reads_back(snapshot in support::snapshot()) {
        prop_assert_eq!(read::<Snapshot>(&json(&snapshot)), snapshot);
    }

    #[test]
    fn a_plan_reads_back_byte_for_byte(plan in support::plan()) {
        let back: Plan = read(&json(&plan));
        prop_assert_eq!(json(&back), json(&plan));
        prop_assert_eq!(back, plan);
    }

    #[test]
    fn a_tick_reads_back(owned in support::tick()) {
        let back: TickEntry = read(&json(&owned.tick()));
        prop_assert_eq!(&back.snapshot, &owned.snapshot);
        prop_assert_eq!(&back.plan, &owned.plan);
        prop_assert_eq!(&back.answer, &owned.answer);
        prop_assert_eq!(&back.outcomes, &owned.outcomes);
        prop_assert_eq!(&back.handovers, &owned.handovers);
        prop_assert_eq!(&back.carried, &owned.carried);
        prop_assert_eq!((back.paused, back.mode), (owned.paused, owned.mode));
        prop_assert_eq!(back.decision_cost, owned.decision_cost);
        for (id, limits) in &owned.limits {
            prop_assert_eq!(&back.limits_of(id), limits);
        }
    }

    #[test]
    fn rows_use_the_codes_of_the_model(
        held in support::held(),
        reason in support::reason(),
        note in support::note(),
    ) {
        prop_assert_eq!(code(&held), held.code());
        prop_assert_eq!(code(&reason), reason.code());
        prop_assert_eq!(code(&note), note.code());
    }

    #[test]
    fn garbage_rows_are_refused_without_panic(text in ".{0,60}") {
        let _ = serde_json::from_str::<TickEntry>(&text);
    }
}

proptest! {
    // Each case opens a file.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_journal_returns_the_recorded_ticks(ticks in prop::collection::vec(support::tick(), 1..6)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let keep_all = ballast_store::JournalConfig {
            age_max: std::time::Duration::MAX,
            ..Default::default()
        };
        let mut writer = Writer::open(&path, keep_all, support::start()).unwrap();
        // Each tick twice: an unchanged curve is not written again, and must still read back.
        let ticks: Vec<_> = ticks.iter().flat_map(|owned| [owned, owned]).collect();
        for owned in &ticks {
            writer.record(&owned.tick()).unwrap();
        }
        let reader = Reader::open(&path).unwrap();
        let entries: Vec<_> = reader.ticks(Range::default()).map(Result::unwrap).collect();
        prop_assert_eq!(entries.len(), ticks.len());
        for (entry, owned) in entries.iter().zip(&ticks) {
            let EntryContent::Tick(tick) = &entry.content else { panic!("{entry:?}") };
            prop_assert_eq!(&tick.snapshot, &owned.snapshot);
            prop_assert_eq!(&tick.plan, &owned.plan);
            prop_assert_eq!(entry.wall_ms, owned.wall_ms);
            prop_assert_eq!(entry.wall(), support::wall(owned.wall_ms));
        }
    }
}

#[test]
fn every_note_has_its_own_code() {
    let mut seen = BTreeMap::new();
    for note in [
        Note::Infeasible { shortfall: ballast_model::Bytes::mib(1) },
        Note::BudgetReduced {
            configured: ballast_model::Bytes::mib(2),
            present: ballast_model::Bytes::mib(1),
        },
        Note::HostUnknown,
        Note::Uncounted { guests: 3 },
        Note::Newcomers { guests: 3 },
        Note::ObjectiveViolated {
            guest: "a".parse().unwrap(),
            misses_per_s_max: 7,
            misses_per_s: None,
        },
        Note::Refused { violation: "x".into() },
    ] {
        assert_eq!(code(&note), note.code());
        seen.insert(note.code(), ());
    }
    assert_eq!(seen.len(), 7);
    assert_eq!(code(HoldReason::OnTarget), "on-target");
    assert_eq!(
        code(Reason::Bound(ballast_model::Clamped::Floor { floor: ballast_model::Bytes::ZERO })),
        "floor"
    );
}
