//! Incidents that an operator hears of: states that begin and end, found in successive ticks.
//!
//! Idea: in each tick some conditions hold: a guest holds less than its floor, is stuck, or
//! thrashes; the host is short of memory; the checker refused a plan. A condition that holds for a
//! while without a break is an incident. The incident is over once the condition has not held for
//! [`ENDS_AFTER`] without a break. So the operator hears twice of each incident, and a condition
//! that comes and goes is reported no more often than these times allow. The same snapshots and
//! plans give the same incidents.
//! Source: flexmemd §4 counts a guest that reads 90 pages a second from swap as in need of memory;
//! `SWAP_IN_BEGINS` is about three times that.
//! Cost: O(g log g) in a tick with g guests; an entry for each condition, and one for each guest
//! with statistics.
//! Limits: at most `CONDITIONS_MAX` conditions are remembered. Thrashing is seen in what a guest
//! reads from its own swap, not in what the host pages in for it.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{
    Bytes, Change, Compliance, GuestId, GuestPlan, GuestSample, HoldReason, Note, Plan,
    PressureLevel, Snapshot, Timestamp,
};

/// An incident is over once its condition has not held for this long.
pub const ENDS_AFTER: Duration = Duration::from_secs(30);
/// When a floor was raised, other guests need some seconds to make room for it.
const FLOOR_BEGINS_AFTER: Duration = Duration::from_secs(30);
/// A program that is started or woken reads much from swap, once.
const THRASHING_BEGINS_AFTER: Duration = Duration::from_secs(30);
/// Swap-in is averaged over at least this long: statistics come once a second or less often.
const SWAP_IN_WINDOW: Duration = Duration::from_secs(10);
/// A guest thrashes when it reads at least this much from swap in a second, and until it reads less
/// than [`SWAP_IN_ENDS`].
const SWAP_IN_BEGINS: Bytes = Bytes::mib(1);
/// A quarter of `SWAP_IN_BEGINS`.
const SWAP_IN_ENDS: Bytes = Bytes::kib(256);
/// Most conditions remembered at once; further ones are not reported.
const CONDITIONS_MAX: usize = 10_000;

/// What an incident is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncidentKind {
    /// A guest holds less than its floor.
    FloorViolated,
    /// A guest gives nothing of what it was asked for.
    GuestStuck,
    /// A guest keeps reading from its swap.
    GuestThrashing,
    /// The host pages guests out, or grants nothing.
    HostShort,
    /// The checker refused a plan.
    PlanRefused,
}

impl IncidentKind {
    /// Every kind.
    pub const ALL: [IncidentKind; 5] = [
        IncidentKind::FloorViolated,
        IncidentKind::GuestStuck,
        IncidentKind::GuestThrashing,
        IncidentKind::HostShort,
        IncidentKind::PlanRefused,
    ];

    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            IncidentKind::FloorViolated => "floor-violated",
            IncidentKind::GuestStuck => "guest-stuck",
            IncidentKind::GuestThrashing => "guest-thrashing",
            IncidentKind::HostShort => "host-short",
            IncidentKind::PlanRefused => "plan-refused",
        }
    }

    /// How long the condition holds before the operator hears of it. Zero where a wait is built in:
    /// the guard waits for a guest to move, the host's pressure level for pressure to last.
    pub const fn begins_after(self) -> Duration {
        match self {
            IncidentKind::FloorViolated => FLOOR_BEGINS_AFTER,
            IncidentKind::GuestThrashing => THRASHING_BEGINS_AFTER,
            IncidentKind::GuestStuck | IncidentKind::HostShort | IncidentKind::PlanRefused => {
                Duration::ZERO
            }
        }
    }
}

/// The beginning or the end of an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// What it is about.
    pub kind: IncidentKind,
    /// The guest; `None`: the host, or Ballast.
    pub guest: Option<GuestId>,
    /// Whether it is over.
    pub is_over: bool,
    /// What is the case or how long it lasted, as a clause for people.
    pub text: String,
}

/// What a condition is about.
type IncidentSubject = (IncidentKind, Option<GuestId>);

/// A condition that holds, or held a short while ago.
#[derive(Clone, Copy, Debug)]
struct Condition {
    since: Timestamp,
    /// Whether its beginning was reported to the operator.
    is_reported: bool,
    /// Since when it has not held any more.
    calm_since: Option<Timestamp>,
}

/// How fast a guest reads from swap.
#[derive(Clone, Copy, Debug)]
struct SwapIn {
    /// When the window began, and the total read by then.
    from: (Timestamp, Bytes),
    /// Bytes a second in the last whole window.
    rate: Bytes,
}

/// Watches ticks for incidents.
#[derive(Clone, Debug, Default)]
pub struct IncidentWatch {
    conditions: BTreeMap<IncidentSubject, Condition>,
    swap_in: BTreeMap<GuestId, SwapIn>,
}

impl IncidentWatch {
    /// Takes in a tick. Returns the incidents that begin or end with it, sorted by kind and guest.
    pub fn observe(&mut self, snapshot: &Snapshot, plan: &Plan) -> Vec<Incident> {
        let now = snapshot.taken_at;
        self.read_swap_in(snapshot);
        let holding = self.conditions_now(plan);
        let mut incidents = Vec::new();
        for (subject, text) in &holding {
            if !self.conditions.contains_key(subject) && self.conditions.len() >= CONDITIONS_MAX {
                continue;
            }
            let begun = Condition { since: now, is_reported: false, calm_since: None };
            let condition = self.conditions.entry(subject.clone()).or_insert(begun);
            condition.calm_since = None;
            let lasted = now.saturating_since(condition.since);
            if !condition.is_reported && lasted >= subject.0.begins_after() {
                condition.is_reported = true;
                let (kind, guest) = subject.clone();
                incidents.push(Incident { kind, guest, is_over: false, text: text.clone() });
            }
        }
        self.conditions.retain(|subject, condition| {
            if holding.contains_key(subject) {
                return true;
            }
            let calm_since = *condition.calm_since.get_or_insert(now);
            if condition.is_reported && now.saturating_since(calm_since) < ENDS_AFTER {
                return true;
            }
            if condition.is_reported {
                let lasted = calm_since.saturating_since(condition.since).as_secs();
                let (kind, guest) = subject.clone();
                let text = format!("over, after {lasted}s");
                incidents.push(Incident { kind, guest, is_over: true, text });
            }
            false
        });
        incidents.sort_by(|a, b| (a.kind, &a.guest).cmp(&(b.kind, &b.guest)));
        incidents
    }

    /// Every condition that holds in this tick, with its text.
    fn conditions_now(&self, plan: &Plan) -> BTreeMap<IncidentSubject, String> {
        let mut holding = BTreeMap::new();
        for guest in &plan.guests {
            let mut hold = |kind, text| holding.insert((kind, Some(guest.id.clone())), text);
            if let Some(text) = below_floor(guest) {
                hold(IncidentKind::FloorViolated, text);
            }
            if let Compliance::Stuck { .. } = guest.compliance {
                hold(IncidentKind::GuestStuck, guest.compliance.to_string());
            }
            if let Some(text) = self.thrashes(&guest.id) {
                hold(IncidentKind::GuestThrashing, text);
            }
        }
        if plan.host_pressure >= PressureLevel::ReclaimOwed {
            holding.insert((IncidentKind::HostShort, None), plan.host_pressure.to_string());
        }
        for note in &plan.notes {
            if let Note::Refused { violation } = note {
                holding.insert((IncidentKind::PlanRefused, None), violation.clone());
            }
        }
        holding
    }

    fn thrashes(&self, id: &GuestId) -> Option<String> {
        let rate = self.swap_in.get(id)?.rate;
        if rate < SWAP_IN_ENDS {
            return None;
        }
        let subject = (IncidentKind::GuestThrashing, Some(id.clone()));
        let is_reported = self.conditions.get(&subject).is_some_and(|it| it.is_reported);
        let holds = is_reported || rate >= SWAP_IN_BEGINS;
        holds.then(|| format!("reads {rate} a second from its swap"))
    }

    /// Updates each guest's swap-in rate. Guests without that figure are forgotten.
    fn read_swap_in(&mut self, snapshot: &Snapshot) {
        let mut known = std::mem::take(&mut self.swap_in);
        for sample in snapshot.guests() {
            let Some((at, total)) = swap_in_of(snapshot.taken_at, sample) else { continue };
            let begun = SwapIn { from: (at, total), rate: Bytes::ZERO };
            let known = known.remove_entry(&sample.id);
            let (id, mut swap_in) = known.unwrap_or_else(|| (sample.id.clone(), begun));
            let (from, before) = swap_in.from;
            let window = at.saturating_since(from);
            // The counter of a guest that was restarted begins at 0 again.
            if total < before {
                swap_in = begun;
            } else if window >= SWAP_IN_WINDOW {
                let read = total.saturating_sub(before).get();
                let ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
                let rate = u128::from(read) * 1000 / u128::from(ms.max(1));
                let rate = Bytes::new(u64::try_from(rate).unwrap_or(u64::MAX));
                swap_in = SwapIn { from: (at, total), rate };
            }
            self.swap_in.insert(id, swap_in);
        }
    }
}

/// What a guest has read from swap since its boot, and the moment of that figure.
fn swap_in_of(now: Timestamp, sample: &GuestSample) -> Option<(Timestamp, Bytes)> {
    let stats = sample.stats.as_ref()?;
    Some((now.saturating_sub(stats.age), stats.value.swap_in?))
}

/// How far a guest is below its floor. A guest that Ballast is to leave alone has no floor.
fn below_floor(guest: &GuestPlan) -> Option<String> {
    let (allocation, floor) = (guest.allocation?, guest.bounds?.floor);
    if matches!(guest.change, Change::Hold(HoldReason::OptedOut)) || allocation >= floor {
        return None;
    }
    Some(format!("holds {allocation}, less than its floor of {floor}"))
}

#[cfg(test)]
mod tests {
    use ballast_model::{
        Bounds, Budget, Generation, GuestStats, HostSample, LinkState, Measured, PolicyName,
    };
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The state of a host with one guest, `a`, in one tick.
    #[derive(Clone, Copy, Debug, Default)]
    struct State {
        is_below: bool,
        is_stuck: bool,
        is_short: bool,
        is_refused: bool,
        /// Read from swap since boot, in KiB.
        swap_in: u64,
    }

    fn plan(at: Timestamp, state: State) -> Plan {
        let floor = Bytes::mib(512);
        let allocation = if state.is_below { Bytes::mib(511) } else { floor };
        let idle = Duration::from_secs(20);
        let guest = GuestPlan {
            id: "a".parse().unwrap(),
            allocation: Some(allocation),
            bounds: Some(Bounds { floor, ceiling: Bytes::gib(1) }),
            estimate: None,
            desired: None,
            clamps: vec![],
            credits: None,
            compliance: if state.is_stuck {
                Compliance::Stuck { idle }
            } else {
                Compliance::Compliant
            },
            target: None,
            change: Change::Hold(HoldReason::OnTarget),
            moves: vec![],
            balloon_rate: None,
            regret: None,
        };
        let violation = "floors".to_owned();
        Plan {
            generation: Generation(1),
            decided_at: at,
            policy: PolicyName::Global,
            budget: Budget::default(),
            guests: vec![guest],
            actions: vec![],
            paging: vec![],
            host_pressure: match state.is_short {
                true => PressureLevel::ReclaimOwed,
                false => PressureLevel::BalloonOnly,
            },
            reservations: vec![],
            notes: state.is_refused.then_some(Note::Refused { violation }).into_iter().collect(),
        }
    }

    fn snapshot(at: Timestamp, state: State) -> Snapshot {
        let swap_in = Some(Bytes::kib(state.swap_in));
        let guest = GuestSample {
            stats: Some(Measured::fresh(GuestStats { swap_in, ..GuestStats::default() })),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        };
        Snapshot::new(at, HostSample::default(), vec![guest])
    }

    /// All incidents reported when ticks are a second apart, each with its second.
    fn reported(states: impl IntoIterator<Item = State>) -> Vec<(u64, Incident)> {
        let mut watch = IncidentWatch::default();
        let mut reported = Vec::new();
        for (second, state) in (0..).zip(states) {
            let at = Timestamp::ZERO + SECOND * second;
            let incidents = watch.observe(&snapshot(at, state), &plan(at, state));
            reported.extend(incidents.into_iter().map(|it| (second.into(), it)));
        }
        reported
    }

    fn short(incidents: &[(u64, Incident)]) -> Vec<(u64, &'static str, bool)> {
        incidents.iter().map(|(at, it)| (*at, it.kind.code(), it.is_over)).collect()
    }

    fn ticks(count: usize, state: State) -> impl Iterator<Item = State> {
        std::iter::repeat_n(state, count)
    }

    #[test]
    fn each_incident_is_reported_when_it_begins_and_ends() {
        let calm = State::default();
        for (kind, state, begins) in [
            (IncidentKind::FloorViolated, State { is_below: true, ..calm }, 30),
            (IncidentKind::GuestStuck, State { is_stuck: true, ..calm }, 0),
            (IncidentKind::HostShort, State { is_short: true, ..calm }, 0),
            (IncidentKind::PlanRefused, State { is_refused: true, ..calm }, 0),
        ] {
            let incidents = reported(ticks(40, state).chain(ticks(60, calm)));
            let expected = vec![(begins, kind.code(), false), (70, kind.code(), true)];
            assert_eq!(short(&incidents), expected);
            assert_eq!(incidents[1].1.text, "over, after 40s");
        }
    }

    #[test]
    fn a_state_that_passes_soon_is_not_reported() {
        let below = State { is_below: true, ..State::default() };
        let flaps = ticks(29, below).chain(ticks(1, State::default())).chain(ticks(29, below));
        assert_eq!(reported(flaps), []);
    }

    #[test]
    fn a_guest_thrashes_that_keeps_reading_from_swap() {
        let mut swap_in = 0;
        let mut reads = |count, kib: u64| -> Vec<State> {
            let state = |_| {
                swap_in += kib;
                State { swap_in, ..State::default() }
            };
            (0..count).map(state).collect()
        };
        // Begins above 1 MiB a second, goes on at half of that, and ends below a quarter.
        let phases = [reads(60, 2048), reads(60, 512), reads(90, 100)].concat();
        let incidents = reported(phases);
        let code = IncidentKind::GuestThrashing.code();
        assert!(
            matches!(short(&incidents)[..], [(40, a, false), (at, b, true)]
            if a == code && b == code && (150..170).contains(&at)),
            "{incidents:?}"
        );
        assert_eq!(incidents[0].1.text, "reads 2MiB a second from its swap");
    }

    #[test]
    fn a_burst_of_reading_and_a_reboot_are_no_thrashing() {
        let burst = |second: u64| State { swap_in: second.min(15) * 8192, ..State::default() };
        let rebooted = |second: u64| State { swap_in: 50 * (second % 50), ..State::default() };
        assert_eq!(reported((0..100).map(burst)), []);
        assert_eq!(reported((0..200).map(rebooted)), []);
    }

    #[test]
    fn an_incident_of_a_guest_that_went_is_over() {
        let mut watch = IncidentWatch::default();
        let stuck = State { is_stuck: true, ..State::default() };
        let at = |second: u32| Timestamp::ZERO + SECOND * second;
        assert_eq!(watch.observe(&snapshot(at(0), stuck), &plan(at(0), stuck)).len(), 1);
        let gone = |second| {
            let plan = Plan { guests: vec![], ..plan(at(second), State::default()) };
            (Snapshot::new(at(second), HostSample::default(), vec![]), plan)
        };
        let over = (1..60).flat_map(|second| {
            let (snapshot, plan) = gone(second);
            watch.observe(&snapshot, &plan)
        });
        assert!(over.map(|it| it.is_over).eq([true]));
        assert!(watch.conditions.is_empty() && watch.swap_in.is_empty());
    }

    prop_compose! {
        fn any_state()(
            is_below: bool, is_stuck: bool, is_short: bool, is_refused: bool, swap_in in 0..3000u64,
        ) -> State {
            State { is_below, is_stuck, is_short, is_refused, swap_in }
        }
    }

    proptest! {
        /// Whatever conditions come and go.
        #[test]
        fn beginnings_and_ends_alternate_with_a_pause_before_ends(
            runs in prop::collection::vec((any_state(), 1..50usize), 1..20),
        ) {
            let mut swap_in = 0;
            let states: Vec<State> = runs
                .into_iter()
                .flat_map(|(state, count)| ticks(count, state))
                .map(|state| {
                    swap_in += state.swap_in;
                    State { swap_in, ..state }
                })
                .collect();
            let incidents = reported(states.clone());
            for kind in IncidentKind::ALL {
                let of_kind: Vec<&(u64, Incident)> =
                    incidents.iter().filter(|(_, it)| it.kind == kind).collect();
                for (index, (at, incident)) in of_kind.iter().enumerate() {
                    prop_assert_eq!(incident.is_over, index % 2 == 1);
                    if incident.is_over {
                        let begun = of_kind[index - 1].0;
                        prop_assert!(at - begun >= ENDS_AFTER.as_secs());
                    }
                    let holds = |state: &State| match kind {
                        IncidentKind::FloorViolated => state.is_below,
                        IncidentKind::GuestStuck => state.is_stuck,
                        IncidentKind::HostShort => state.is_short,
                        IncidentKind::PlanRefused => state.is_refused,
                        // Thrashing goes by averages.
                        IncidentKind::GuestThrashing => !incident.is_over,
                    };
                    let lasts = if incident.is_over { ENDS_AFTER } else { kind.begins_after() };
                    let seen = &states[(at - lasts.as_secs()) as usize..=*at as usize];
                    prop_assert!(seen.iter().all(|state| holds(state) != incident.is_over));
                }
            }
        }
    }
}
