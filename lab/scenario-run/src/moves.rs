//! Memory moved in a run, by guest and mechanism, with rates and reasons, from the daemon's
//! journal.
//!
//! Idea: an order is a [`Move`] of a plan that the previous plan did not have. Its result is the
//! change that the next snapshots show in what its mechanism governs: the balloon's size, plugged
//! memory, or for paging the resident memory of the guest's process while an order is in force.
//! Limits: rates count only the time between ticks that showed a change. While a process is paged,
//! other reasons for its growing or shrinking cannot be told apart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ballast_model::{
    Bytes, GuestId, GuestSample, HotplugKind, Mechanism, Move, Note, Plan, Snapshot, Timestamp,
};
use ballast_store::{EntryContent, Range, Reader};

use super::record::{MoveReason, MoveRecord};

/// Reads what was moved since `since` from the journal at `path`.
///
/// # Errors
/// The journal cannot be read.
pub(super) fn read(path: &Path, since: SystemTime) -> anyhow::Result<Vec<MoveRecord>> {
    let context = || format!("cannot read what was moved from {}", path.display());
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let range = Range { from_wall_ms: i64::try_from(since).ok(), ..Range::default() };
    let mut moves = Moves::default();
    for entry in Reader::open(path).with_context(context)?.ticks(range) {
        if let EntryContent::Tick(tick) = entry.with_context(context)?.content {
            moves.tick(&tick.snapshot, &tick.plan);
        }
    }
    Ok(moves.finish())
}

/// Everything moved so far.
#[derive(Default)]
struct Moves {
    rows: BTreeMap<(GuestId, Mechanism), MechanismMoves>,
    previous: BTreeMap<GuestId, PreviousTick>,
}

/// What one mechanism of one guest moved.
#[derive(Default)]
struct MechanismMoves {
    orders: u64,
    to_host: Bytes,
    to_guest: Bytes,
    moving_s: f64,
    reasons: Vec<MoveReason>,
}

/// The guest at the previous tick.
struct PreviousTick {
    at: Timestamp,
    amounts: GovernedAmounts,
    ordered: BTreeSet<(Mechanism, Bytes)>,
    paging: Option<Mechanism>,
}

/// The amounts of one guest that mechanisms govern.
#[derive(Clone, Copy, Default)]
struct GovernedAmounts {
    balloon: Option<Bytes>,
    plugged: Option<(Mechanism, Bytes)>,
    resident: Option<Bytes>,
}

impl GovernedAmounts {
    fn of(guest: &GuestSample) -> GovernedAmounts {
        let plugged = guest.hotplug.map(|hotplug| {
            let mechanism = match hotplug.kind {
                HotplugKind::VirtioMem => Mechanism::VirtioMem,
                HotplugKind::Dimm => Mechanism::Dimm,
            };
            (mechanism, hotplug.plugged)
        });
        let all = |boot: Bytes| boot.saturating_add(plugged.map_or(Bytes::ZERO, |(_, size)| size));
        let held = guest.allocation.map(|measured| measured.value);
        GovernedAmounts {
            balloon: guest.boot_memory.zip(held).map(|(boot, held)| all(boot).saturating_sub(held)),
            plugged,
            resident: guest.resident.map(|measured| measured.value),
        }
    }

    /// What each mechanism moved since `earlier`: (mechanism, to the host, to the guest).
    fn since(
        self,
        earlier: GovernedAmounts,
        paging: Option<Mechanism>,
    ) -> Vec<(Mechanism, Bytes, Bytes)> {
        let mut moved = Vec::new();
        if let (Some(before), Some(now)) = (earlier.balloon, self.balloon) {
            moved.push((
                Mechanism::Balloon,
                now.saturating_sub(before),
                before.saturating_sub(now),
            ));
        }
        if let (Some((kind, before)), Some((_, now))) = (earlier.plugged, self.plugged) {
            moved.push((kind, before.saturating_sub(now), now.saturating_sub(before)));
        }
        if let (Some(kind), Some(before), Some(now)) = (paging, earlier.resident, self.resident) {
            let (fell, rose) = (before.saturating_sub(now), now.saturating_sub(before));
            moved.push(match kind {
                Mechanism::PageOut => (kind, fell, Bytes::ZERO),
                _ => (kind, Bytes::ZERO, rose),
            });
        }
        moved
    }
}

impl Moves {
    fn tick(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let is_refused = plan.notes.iter().any(|note| matches!(note, Note::Refused { .. }));
        for guest in snapshot.guests() {
            let amounts = GovernedAmounts::of(guest);
            if let Some(previous) = self.previous.get(&guest.id) {
                let span_s = snapshot.taken_at.saturating_since(previous.at).as_secs_f64();
                for (mechanism, to_host, to_guest) in
                    amounts.since(previous.amounts, previous.paging)
                {
                    if to_host.max(to_guest) > Bytes::ZERO {
                        let row = self.rows.entry((guest.id.clone(), mechanism)).or_default();
                        row.to_host = row.to_host.saturating_add(to_host);
                        row.to_guest = row.to_guest.saturating_add(to_guest);
                        row.moving_s += span_s;
                    }
                }
            }
            let moves = plan.guest(&guest.id).filter(|_| !is_refused);
            let moves = moves.map_or(&[][..], |planned| planned.moves.as_slice());
            let ordered: BTreeSet<_> = moves.iter().map(|it| (it.mechanism, it.to)).collect();
            let earlier = self.previous.remove(&guest.id).map(|it| it.ordered).unwrap_or_default();
            for order in moves.iter().filter(|it| !earlier.contains(&(it.mechanism, it.to))) {
                self.rows.entry((guest.id.clone(), order.mechanism)).or_default().order(order);
            }
            let paging = plan.paging.iter().find(|it| it.guest == guest.id);
            let paging = paging.map(|paging| paging.mechanism);
            let now = PreviousTick { at: snapshot.taken_at, amounts, ordered, paging };
            self.previous.insert(guest.id.clone(), now);
        }
    }

    fn finish(self) -> Vec<MoveRecord> {
        let record =
            |((guest, mechanism), row): ((GuestId, Mechanism), MechanismMoves)| MoveRecord {
                guest: guest.to_string(),
                mechanism: mechanism.code().to_owned(),
                orders: row.orders,
                to_host_bytes: row.to_host.get(),
                to_guest_bytes: row.to_guest.get(),
                moving_s: row.moving_s,
                reasons: row.reasons,
            };
        self.rows.into_iter().map(record).collect()
    }
}

impl MechanismMoves {
    fn order(&mut self, order: &Move) {
        self.orders += 1;
        let code = order.why.code();
        match self.reasons.iter_mut().find(|reason| reason.code == code) {
            Some(reason) => reason.count += 1,
            None => self.reasons.push(MoveReason {
                code: code.to_owned(),
                text: order.why.to_string(),
                count: 1,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_model::{
        Budget, Change, Compliance, Generation, GuestPlan, HoldReason, HostSample, Hotplug,
        LinkState, Measured, MechanismReason, Paging, PolicyName, PressureLevel,
    };

    use super::*;

    const PAGE_OUT: MechanismReason =
        MechanismReason::NotGiven { left: Bytes::mib(80), asked: Duration::from_secs(15) };

    fn id() -> GuestId {
        "a".parse().unwrap()
    }

    /// A guest of 512 MiB boot memory: what it holds, its plugged memory and its resident memory,
    /// in MiB.
    fn snapshot(at_s: u64, holds: u64, plugged: u64, resident: u64) -> Snapshot {
        let hotplug = Hotplug {
            kind: HotplugKind::VirtioMem,
            plugged: Bytes::mib(plugged),
            requested: Bytes::mib(plugged),
            max: Bytes::gib(1),
            block: Bytes::mib(2),
        };
        let guest = GuestSample {
            allocation: Some(Measured::fresh(Bytes::mib(holds))),
            boot_memory: Some(Bytes::mib(512)),
            hotplug: Some(hotplug),
            resident: Some(Measured::fresh(Bytes::mib(resident))),
            ..GuestSample::unknown(id(), LinkState::Up)
        };
        let at = Timestamp::from_millis(1000 * at_s);
        Snapshot::new(at, HostSample::default(), vec![guest])
    }

    fn plan(moves: &[(Mechanism, u64, MechanismReason)], paging: Option<Mechanism>) -> Plan {
        let generation = Generation(1);
        let moves = moves.iter().map(|(mechanism, to, why)| Move {
            mechanism: *mechanism,
            from: Bytes::mib(512),
            to: Bytes::mib(*to),
            why: why.clone(),
        });
        let guest = GuestPlan {
            id: id(),
            allocation: None,
            bounds: None,
            estimate: None,
            desired: None,
            clamps: Vec::new(),
            credits: None,
            compliance: Compliance::Compliant,
            target: None,
            change: Change::Hold(HoldReason::OptedOut),
            moves: moves.collect(),
            balloon_rate: None,
            regret: None,
        };
        let paging = paging.map(|mechanism| Paging {
            guest: id(),
            mechanism,
            resident: Bytes::mib(200),
            generation,
            deadline: Timestamp::ZERO,
        });
        Plan {
            generation,
            decided_at: Timestamp::ZERO,
            policy: PolicyName::Global,
            budget: Budget::default(),
            guests: vec![guest],
            actions: Vec::new(),
            paging: paging.into_iter().collect(),
            host_pressure: PressureLevel::Normal,
            reservations: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn move_lines(ticks: &[(Snapshot, Plan)]) -> Vec<String> {
        let mut moves = Moves::default();
        ticks.iter().for_each(|(snapshot, plan)| moves.tick(snapshot, plan));
        let line = |it: MoveRecord| {
            let reasons: Vec<String> =
                it.reasons.iter().map(|why| format!("{} {}", why.code, why.count)).collect();
            let (out, back) = (it.to_host_bytes >> 20, it.to_guest_bytes >> 20);
            format!(
                "{} {} {out} {back} {} s: {}",
                it.mechanism,
                it.orders,
                it.moving_s,
                reasons.join(", ")
            )
        };
        moves.finish().into_iter().map(line).collect()
    }

    #[test]
    fn what_each_mechanism_moved_is_read_off_what_it_governs() {
        let takes = || [(Mechanism::Balloon, 400, MechanismReason::BalloonTakesIt)];
        let nothing = || plan(&[], None);
        let ticks = [
            (snapshot(0, 512, 0, 500), plan(&takes(), None)),
            (snapshot(1, 450, 0, 438), plan(&takes(), None)),
            (
                snapshot(2, 400, 0, 390),
                plan(&[(Mechanism::Balloon, 512, MechanismReason::BalloonHasIt)], None),
            ),
            (snapshot(3, 512, 0, 400), nothing()),
            (snapshot(4, 512, 0, 500), plan(&[(Mechanism::VirtioMem, 128, PAGE_OUT)], None)),
            // Plugged in, and held by the guest: the balloon has not moved.
            (snapshot(6, 640, 128, 500), nothing()),
        ];
        assert_eq!(
            move_lines(&ticks),
            [
                "balloon 2 112 112 3 s: balloon-takes-it 1, balloon-has-it 1",
                "virtio-mem 1 0 128 2 s: not-given 1",
            ]
        );
    }

    #[test]
    fn a_standing_order_counts_once_and_paging_while_it_stands() {
        let pages = || plan(&[(Mechanism::PageOut, 200, PAGE_OUT)], Some(Mechanism::PageOut));
        let ticks = [
            (snapshot(0, 512, 0, 500), pages()),
            (snapshot(1, 512, 0, 400), pages()),
            (snapshot(2, 512, 0, 410), pages()),
            (snapshot(3, 512, 0, 210), plan(&[], None)),
            // Paging has ended.
            (snapshot(4, 512, 0, 100), pages()),
        ];
        assert_eq!(move_lines(&ticks), ["page-out 2 300 0 2 s: not-given 2"]);
        let mut refused = pages();
        refused.notes.push(Note::Refused { violation: "why".to_owned() });
        assert_eq!(move_lines(&[(snapshot(0, 512, 0, 500), refused)]), Vec::<String>::new());
    }
}
