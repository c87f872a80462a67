//! Whatever the model can say, a record says without loss; the words for machines are the model's.

mod support;

use std::collections::BTreeMap;

use ballast_model::{Held, Note, Plan, Reason, Snapshot};
use ballast_store::record::{
    HeldRecord, NoteRecord, PlanRecord, ReasonRecord, SampleRecord, TickRecord,
};
use ballast_store::{Range, Reader, TickEntry, What, Writer};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn through_json<T: Serialize + DeserializeOwned>(record: &T) -> T {
    serde_json::from_slice(&serde_json::to_vec(record).unwrap()).unwrap()
}

fn code(record: impl Serialize) -> String {
    serde_json::to_value(record).unwrap()["code"].as_str().unwrap().to_owned()
}

proptest! {
    #[test]
    fn a_snapshot_survives(snapshot in support::snapshot()) {
        let record = SampleRecord::from(&snapshot);
        prop_assert_eq!(Snapshot::try_from(through_json(&record)), Ok(snapshot));
    }

    #[test]
    fn a_plan_survives_byte_for_byte(plan in support::plan()) {
        let record = PlanRecord::from(&plan);
        let back = Plan::try_from(through_json(&record)).unwrap();
        prop_assert_eq!(
            serde_json::to_vec(&PlanRecord::from(&back)).unwrap(),
            serde_json::to_vec(&record).unwrap()
        );
        prop_assert_eq!(back, plan);
    }

    #[test]
    fn a_tick_survives(whole in support::whole()) {
        let record = TickRecord::from(&whole.tick());
        let back = TickEntry::try_from(through_json(&record)).unwrap();
        prop_assert_eq!(&back.snapshot, &whole.snapshot);
        prop_assert_eq!(&back.plan, &whole.plan);
        prop_assert_eq!(&back.outcomes, &whole.outcomes);
        prop_assert_eq!((back.paused, back.decision_cost), (whole.paused, whole.decision_cost));
        for (id, limits) in &whole.limits {
            prop_assert_eq!(&back.limits_of(id), limits);
        }
    }

    #[test]
    fn codes_are_those_of_the_model(held in support::held(), reason in support::reason()) {
        prop_assert_eq!(code(HeldRecord::from(&held)), held.code());
        prop_assert_eq!(code(ReasonRecord::from(&reason)), reason.code());
    }

    #[test]
    fn garbage_records_are_refused_without_panic(text in ".{0,60}") {
        let _ = serde_json::from_str::<TickRecord>(&text);
    }
}

proptest! {
    // Each case opens a file.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_journal_gives_back_what_it_was_given(wholes in prop::collection::vec(support::whole(), 1..6)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let keep_all = ballast_store::JournalConfig {
            age_max: std::time::Duration::MAX,
            ..Default::default()
        };
        let mut writer = Writer::open(&path, keep_all, support::start()).unwrap();
        // Each twice: what is as it was a tick ago is not written again, and has to be there.
        let wholes: Vec<_> = wholes.iter().flat_map(|whole| [whole, whole]).collect();
        for whole in &wholes {
            writer.record(&whole.tick()).unwrap();
        }
        let reader = Reader::open(&path).unwrap();
        let entries: Vec<_> = reader.ticks(Range::default()).map(Result::unwrap).collect();
        prop_assert_eq!(entries.len(), wholes.len());
        for (entry, whole) in entries.iter().zip(&wholes) {
            let What::Tick(tick) = &entry.what else { panic!("{entry:?}") };
            prop_assert_eq!(&tick.snapshot, &whole.snapshot);
            prop_assert_eq!(&tick.plan, &whole.plan);
            prop_assert_eq!((entry.wall_ms, entry.wall()), (whole.wall_ms, support::wall(whole.wall_ms)));
        }
    }
}

#[test]
fn notes_have_the_codes_of_the_model() {
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
        assert_eq!(code(NoteRecord::from(&note)), note.code());
        seen.insert(note.code(), ());
    }
    assert_eq!(seen.len(), 7);
    assert_eq!(code(HeldRecord::from(&Held::OnTarget)), "on-target");
    assert_eq!(
        code(ReasonRecord::from(&Reason::Bound(ballast_model::Clamped::Floor {
            floor: ballast_model::Bytes::ZERO
        }))),
        "floor"
    );
}
