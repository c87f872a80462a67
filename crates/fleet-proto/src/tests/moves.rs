//! What the leader writes about moves, and what moves say of their hosts.

use ballast_fleet::{FleetSettings, HostRecord};
use ballast_fleet_move::{AbandonReason, MoveRecord, Phase, Term};
use ballast_model::{Bytes, GuestId, Timestamp};

use super::views::view;
use crate::{
    Author, Decision, FleetKey, FleetView, LeaderWrite, MODE_MOVE, PastMoves, Revision, decide,
    encode, leader_writes,
};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const TERM: Term = Term(4);

fn guest() -> GuestId {
    "a-0".parse().unwrap()
}

fn decided(view: &FleetView) -> Decision {
    decide(view, &FleetSettings::default(), "a", Revision(TERM.0), MODE_MOVE, NOW)
}

fn writes(view: &FleetView, may_order: bool) -> Vec<LeaderWrite> {
    let plan = decided(view).plan;
    let due: Vec<_> = plan.migrations.iter().filter(|_| may_order).collect();
    leader_writes(view, &due, TERM, NOW)
}

/// The order that the plan of these hosts leads to.
fn ordered() -> MoveRecord {
    let writes = writes(&view(&[], |_| {}), true);
    let [LeaderWrite::Put { record, found: None }] = &writes[..] else { panic!("{writes:?}") };
    (**record).clone()
}

fn at(phase: Phase) -> (FleetKey, Vec<u8>) {
    let is_closed = matches!(phase, Phase::Moved | Phase::Abandoned { .. });
    let record = MoveRecord { phase, is_closed, ..ordered() };
    (FleetKey::Move(record.guest.clone()), record.to_json().into_bytes())
}

#[test]
fn a_planned_move_is_ordered_once() {
    let record = ordered();
    assert_eq!((record.guest.clone(), record.phase.clone()), (guest(), Phase::Ordered));
    assert_eq!((record.from.as_str(), record.to.as_str()), ("a", "b"));
    assert!(record.ordered_at == NOW && record.shrink_until < record.due);
    assert_eq!(writes(&view(&[], |_| {}), false), []);
    // While it is under way nothing more is planned, as it will meet the need.
    let under_way = view(&[at(Phase::Ordered)], |_| {});
    assert_eq!(writes(&under_way, true), []);
    assert_eq!(decided(&under_way).plan.migrations, []);
    let only = |name: &'static str| {
        move |host: &mut HostRecord| host.executes_moves = host.id.as_str() == name
    };
    for carries in ["a", "b", "neither"] {
        let view = view(&[], only(carries));
        assert_eq!(writes(&view, true), [], "{carries}");
        assert!(decided(&view).record.migrations[0].by_hand);
    }
    assert!(!decided(&view(&[], |_| {})).record.migrations[0].by_hand);
}

#[test]
fn the_destination_of_an_order_has_that_room_no_more() {
    let (snapshot, _) = view(&[at(Phase::Ordered)], |_| {}).snapshot(NOW);
    let [a, b] = snapshot.hosts() else { panic!() };
    assert_eq!(a.guests[0].moving_to.as_ref().map(|it| it.as_str()), Some("b"));
    assert_eq!((b.reservations.len(), b.reservations[0].size), (1, ordered().reserve));
    assert_eq!(b.committed, Bytes::mib(512).saturating_add(ordered().reserve));
    let (snapshot, _) =
        view(&[at(Phase::Abandoned { why: AbandonReason::NoRoom })], |_| {}).snapshot(NOW);
    let [a, b] = snapshot.hosts() else { panic!() };
    assert_eq!((&a.guests[0].moving_to, b.reservations.len()), (&None, 0));
    assert!(a.guests[0].last_move.is_some(), "what has just failed is not tried again");
}

#[test]
fn a_move_that_is_over_makes_its_guest_rest() {
    for (phase, moves) in
        [(Phase::Moved, 1), (Phase::Abandoned { why: AbandonReason::CopyFailed }, 1)]
    {
        let over = view(&[at(phase)], |_| {});
        let writes = writes(&over, false);
        let [LeaderWrite::Close { guest: of, past, .. }] = &writes[..] else {
            panic!("{writes:?}")
        };
        assert_eq!(*of, guest());
        let rests = view(&[(FleetKey::Past(guest()), encode(past).unwrap())], |_| {});
        let (snapshot, _) = rests.snapshot(NOW);
        assert_eq!(snapshot.hosts()[0].guests[0].moves_in_24h, moves);
        let planned = decided(&rests).plan.migrations;
        assert!(planned.iter().all(|it| it.guest != guest()), "{planned:?}");
    }
}

#[test]
fn moves_of_a_day_ago_are_forgotten() {
    let past = PastMoves::default().with(&ordered(), NOW);
    let day = std::time::Duration::from_secs(24 * 3600);
    assert!(!past.are_expired(NOW) && past.are_expired(NOW + day));
    let mut often = past;
    for _ in 0..100 {
        often = often.with(&ordered(), NOW);
    }
    assert!(encode(&often).unwrap().len() < 4096);
    let long_ago = PastMoves::default().with(&ordered(), Timestamp::ZERO);
    let view = view(&[(FleetKey::Past(guest()), encode(&long_ago).unwrap())], |_| {});
    assert!(writes(&view, false).contains(&LeaderWrite::Forget(guest())));
}

#[test]
fn a_pause_cancels_and_orders_nothing() {
    let pause = (FleetKey::Pause, encode(&Author { host: "z".to_owned() }).unwrap());
    assert_eq!(writes(&view(std::slice::from_ref(&pause), |_| {}), true), []);
    let writes = writes(&view(&[pause, at(Phase::Ordered)], |_| {}), true);
    let [LeaderWrite::Put { record, found: Some(_) }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(record.phase, Phase::Abandoned { why: AbandonReason::Cancelled });
}

#[test]
fn a_record_of_another_version_is_left_alone() {
    let unreadable = (FleetKey::Move(guest()), br#"{"version":9}"#.to_vec());
    let view = view(&[unreadable], |_| {});
    assert!(view.move_of(&guest()).unwrap().record.is_err());
    let writes = writes(&view, true);
    let is_about_it = |write: &LeaderWrite| match write {
        LeaderWrite::Put { record, .. } => record.guest == guest(),
        LeaderWrite::Close { guest: of, .. } | LeaderWrite::Forget(of) => *of == guest(),
    };
    assert!(!writes.iter().any(is_about_it), "{writes:?}");
}
