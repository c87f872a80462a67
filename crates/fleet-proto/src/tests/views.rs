//! What keys say of a fleet, and what is planned for it then.

use ballast_fleet::{FleetSettings, HostRecord};
use ballast_model::{Bytes, Timestamp};

use super::host;
use crate::{
    Author, Changes, Entry, FastPart, FleetKey, FleetView, Identity, KeyEvent, Keyspace, Listing,
    MODE_ADVISE, PlanRecord, Revision, SlowPart, decide, encode,
};

fn keys() -> Keyspace {
    "test".parse().unwrap()
}

fn entry(key: &FleetKey, value: Vec<u8>) -> Entry {
    Entry { key: keys().key(key), value, written: Revision(5) }
}

fn entries(record: &HostRecord) -> Vec<Entry> {
    let id = || record.id.clone();
    let identity = Identity { machine: "m".to_owned() };
    vec![
        entry(&FleetKey::Identity(id()), encode(&identity).unwrap()),
        entry(&FleetKey::Slow(id()), encode(&SlowPart::of(record, 1)).unwrap()),
        entry(&FleetKey::Fast(id()), encode(&FastPart::of(record, 1)).unwrap()),
    ]
}

/// Host `a` is short of its guests' floors and `b` has room; `more` is written besides.
pub(super) fn view(more: &[(FleetKey, Vec<u8>)], change: impl Fn(&mut HostRecord)) -> FleetView {
    let mut short = host("a", 3000, &[1024, 2048]);
    for guest in &mut short.guests {
        guest.floor = guest.allocation;
    }
    let mut roomy = host("b", 16384, &[512]);
    change(&mut short);
    change(&mut roomy);
    let mut all = entries(&short);
    all.extend(entries(&roomy));
    all.extend(more.iter().map(|(key, value)| entry(key, value.clone())));
    FleetView::new(keys(), Listing { entries: all, revision: Revision(9) })
}

fn short_and_roomy() -> FleetView {
    view(&[], |_| {})
}

fn planned(view: &FleetView) -> PlanRecord {
    decide(
        view,
        &FleetSettings::default(),
        "a",
        Revision(4),
        MODE_ADVISE,
        Timestamp::from_millis(50),
    )
    .record
}

fn change(view: &mut FleetView, event: KeyEvent) {
    view.apply(Changes { revision: Revision(view.revision().0 + 1), events: vec![event] });
}

#[test]
fn a_short_host_is_relieved_by_the_plan() {
    let plan = planned(&short_and_roomy());
    assert_eq!(
        (plan.hosts, plan.guests, plan.leader_revision, plan.planned_at_revision),
        (2, 3, 4, 9)
    );
    let [move_] = &plan.migrations[..] else { panic!("{plan:?}") };
    assert_eq!((&*move_.from, &*move_.to, &*move_.reason), ("a", "b", "floors"));
    assert!(plan.violations.is_empty() && plan.left_out.is_empty() && plan.unmet.is_empty());
    let value = encode(&plan).unwrap();
    assert_eq!(crate::decode::<PlanRecord>(&value).unwrap(), plan);
}

#[test]
fn a_pause_leaves_the_plan_empty() {
    let mut view = short_and_roomy();
    let value = encode(&Author { host: "ops".to_owned() }).unwrap();
    change(&mut view, KeyEvent::Written(entry(&FleetKey::Pause, value)));
    let plan = planned(&view);
    assert_eq!((plan.paused_by.as_deref(), plan.migrations.len()), (Some("ops"), 0));
    change(&mut view, KeyEvent::Deleted(keys().key(&FleetKey::Pause)));
    assert_eq!(planned(&view).migrations.len(), 1);
}

#[test]
fn a_drain_moves_all_guests() {
    let mut view = short_and_roomy();
    let drain = FleetKey::Drain("b".parse().unwrap());
    change(&mut view, KeyEvent::Written(entry(&drain, b"anything".to_vec())));
    assert_eq!(view.draining().count(), 1);
    let plan = planned(&view);
    assert!(plan.unmet.iter().any(|need| need.host == "b"), "a is too short to take it: {plan:?}");
    change(&mut view, KeyEvent::Deleted(keys().key(&drain)));
    assert_eq!(view.draining().count(), 0);
}

#[test]
fn a_host_without_lease_is_in_no_plan() {
    let mut view = short_and_roomy();
    let b = || "b".parse().unwrap();
    for key in [FleetKey::Identity(b()), FleetKey::Slow(b()), FleetKey::Fast(b())] {
        change(&mut view, KeyEvent::Deleted(keys().key(&key)));
    }
    let plan = planned(&view);
    assert_eq!((plan.hosts, plan.migrations.len(), plan.left_out.len()), (1, 0, 0));
    assert_eq!(view.hosts().count(), 1);
}

#[test]
fn a_host_that_cannot_be_read_is_left_out() {
    for (value, needle) in [
        (b"{\"v\":9}".to_vec(), "version 9"),
        (b"rubbish".to_vec(), "expected value"),
        (encode(&FastPart::of(&host("b", 1, &[512]), 8)).unwrap(), "list 8"),
        (encode(&FastPart::of(&host("b", 1, &[1, 1]), 1)).unwrap(), "sizes are for 2 guests"),
    ] {
        let mut view = short_and_roomy();
        let fast = FleetKey::Fast("b".parse().unwrap());
        change(&mut view, KeyEvent::Written(entry(&fast, value)));
        let plan = planned(&view);
        let [left_out] = &plan.left_out[..] else { panic!("{plan:?}") };
        assert!(left_out.host == "b" && left_out.text.contains(needle), "{left_out:?}");
        assert_eq!((plan.hosts, plan.migrations.len()), (1, 0));
    }
}

#[test]
fn a_claim_beyond_bounds_is_left_out() {
    let mut liar = host("b", 16384, &[512]);
    liar.budget = Bytes::gib(1 << 21);
    let mut view = short_and_roomy();
    for entry in entries(&liar) {
        change(&mut view, KeyEvent::Written(entry));
    }
    let plan = planned(&view);
    assert!(plan.left_out[0].text.contains("budget"), "{plan:?}");
}

#[test]
fn a_plan_equals_itself_at_another_revision() {
    let (mut view, b) = (short_and_roomy(), host("b", 16384, &[512]));
    let first = planned(&view);
    change(&mut view, KeyEvent::Written(entries(&b).remove(2)));
    let second = planned(&view);
    assert!(second != first && second.equals_apart_from_revision(&first));
    let later =
        decide(&view, &FleetSettings::default(), "a", Revision(8), MODE_ADVISE, Timestamp::ZERO)
            .record;
    assert!(!later.equals_apart_from_revision(&first), "another leadership is another plan");
}

#[test]
fn a_leader_is_known_by_the_revision_of_its_key() {
    let mut view = short_and_roomy();
    let value = encode(&Author { host: "b".to_owned() }).unwrap();
    change(&mut view, KeyEvent::Written(entry(&FleetKey::Leader, value)));
    assert_eq!(view.leader(), Some(("b", Revision(5))));
    change(&mut view, KeyEvent::Deleted(keys().key(&FleetKey::Leader)));
    assert_eq!(view.leader(), None);
}
