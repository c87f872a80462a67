//! When memory is plugged into a guest, and out again.
//!
//! Idea (flexmemd §3.1.3): the balloon moves memory up to what is present. Before that runs out,
//! more is plugged in, some of it ahead of need and held in the balloon. Memory that stays idle is
//! unplugged. One [`Actuator`] per guest turns the guard's target into the order that is sent:
//!
//! ```text
//!         balloon would run out          seen plugged           its kernel uses it
//!  rest ────────────────────────▶ plugging ──────────▶ unproven ──────────────────▶ rest: balloon takes
//!   │                                │  gives nothing      │  does not                     what was lent
//!   │ idle for a while               ▼                     ▼
//!   └──────────▶ lending ──▶ unplugging ◀──────────── undo, pause
//! ```
//!
//! One order never moves the balloon's part and the plugged part in opposite directions. The guest
//! moves each at its own pace, so only then is its size always between the old and the new one. For
//! that reason, plugging ahead first grants a chunk and then lets the balloon take it, and
//! unplugging first lets the balloon give the chunk. Memory granted on top of a target in this way
//! is a *transient grant* ([`Actuator::transient_grant`]): it comes from spare memory, counts as
//! promised, and is the only memory that an actuator ever adds.
//!
//! Cost: O(1) per guest and tick. Limits: a guest at its ceiling gets no transient grant, so only
//! what the balloon cannot take is unplugged from it. Memory that stays plugged in and unused after
//! a failed undo stays granted.

mod act;
mod layout;
mod online;
mod restart;
mod settings;
mod wait;

use std::time::Duration;

use ballast_model::{
    Bounds, Bytes, GuestSample, LinkState, Mechanism, MechanismReason, Move, Timestamp,
};

pub use layout::Range;
use layout::{Layout, mechanism_of, why_plug_only};
use online::{Gap, Unproven};
pub use settings::HotplugSettings;
use wait::{Pause, Wait};

/// Input of the order for one guest.
#[derive(Clone, Copy, Debug)]
pub struct ActuationInput<'a> {
    /// The moment of the decision.
    pub now: Timestamp,
    /// What was seen of the guest.
    pub sample: &'a GuestSample,
    /// The target in force, without the transient grant; `None`: it never had one.
    pub in_force: Option<Bytes>,
    /// The target that the guard sends in this tick; replaces `in_force`.
    pub send: Option<Bytes>,
    /// Floor and ceiling; `None` while unknown.
    pub bounds: Option<Bounds>,
    /// Limits of an order that is not the one of the guard.
    pub band: Band,
    /// An order up to this size gives the guest nothing new.
    pub owned: Bytes,
    /// Memory that may be granted in this tick beyond all grants of the guard.
    pub spare: Bytes,
    /// The operator's settings.
    pub settings: &'a HotplugSettings,
}

/// The sizes that the guard allows one guest in one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// The least that it may be shrunk to.
    pub least: Bytes,
    /// The most that it may be given.
    pub most: Bytes,
    /// The most that it may grow at once.
    pub step_up_max: Option<Bytes>,
    /// The most that it may shrink at once.
    pub step_down_max: Option<Bytes>,
}

impl Band {
    /// No limits.
    pub const OPEN: Band =
        Band { least: Bytes::ZERO, most: Bytes::MAX, step_up_max: None, step_down_max: None };
}

/// The order of one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actuation {
    /// The allocation to request, including the transient grant, in whole pages; `None`: nothing is
    /// ordered.
    pub target: Option<Bytes>,
    /// Memory to be plugged in, in whole blocks; `None`: unchanged.
    pub plug: Option<Bytes>,
    /// How the guest's memory is moved, and why that way.
    pub moves: Vec<Move>,
    /// The part of `target` that comes from spare memory.
    pub from_spare: Bytes,
}

/// The last order, which is still in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ordered {
    total: Bytes,
    plugged: Bytes,
}

/// The state of one guest's plugged memory.
#[derive(Clone, Copy, Debug, Default)]
enum HotplugPhase {
    #[default]
    Rest,
    Plugging(Plugging),
    Lending(Lending),
    Unplugging(Unplugging),
    ForeignRequest(ForeignRequest),
}

/// The guest is plugging memory in.
#[derive(Clone, Copy, Debug)]
struct Plugging {
    to: Bytes,
    wait: Wait,
    begun: Timestamp,
    /// The target when plugging began.
    wanted: Bytes,
}

/// The balloon lends `chunk` before that much is unplugged.
#[derive(Clone, Copy, Debug)]
struct Lending {
    chunk: Bytes,
    begun: Timestamp,
    wanted: Bytes,
}

/// The guest is unplugging memory.
#[derive(Clone, Copy, Debug)]
struct Unplugging {
    to: Bytes,
    wait: Wait,
    wanted: Bytes,
}

/// A size other than the plugged one was requested: by another client, or before the guest or the
/// daemon restarted.
#[derive(Clone, Copy, Debug)]
struct ForeignRequest {
    requested: Bytes,
    wait: Wait,
}

/// Input of an order.
#[derive(Clone, Copy, Debug)]
struct Tick<'a> {
    layout: &'a Layout,
    wanted: Bytes,
    /// The size that counts as promised without a new order.
    promised: Bytes,
    ceiling: Bytes,
    input: &'a ActuationInput<'a>,
}

impl Tick<'_> {
    /// Whether an order is within the guard's limits, the free memory and the devices (which may
    /// have changed since it was begun), and does not move the balloon against the plugged memory.
    fn allows(&self, order: &HotplugOrder) -> bool {
        let Tick { layout, promised, input, .. } = *self;
        let Band { least, most, step_up_max, step_down_max } = input.band;
        let in_force = input.in_force.unwrap_or(layout.total);
        let (low, high) = (layout.total.min(in_force), layout.total.max(in_force));
        let target = order.target;
        let down = low.saturating_sub(target);
        let up = target.saturating_sub(high);
        let plug = order.plug.unwrap_or(layout.plugged);
        let by_balloon = target.saturating_sub(plug);
        let now = layout.total.saturating_sub(layout.plugged);
        let asked = in_force.saturating_sub(layout.requested);
        let inflates = by_balloon < now.min(asked);
        let deflates = by_balloon > now.max(asked);
        let moves_apart = inflates && plug > layout.plugged.max(layout.requested)
            || deflates && plug < layout.plugged.min(layout.requested);
        !moves_apart
            && layout.can_plug(plug)
            && target >= least.min(low)
            && target <= most.max(promised)
            && step_down_max.is_none_or(|limit| down <= limit)
            && step_up_max.is_none_or(|limit| up <= limit)
            && target.saturating_sub(promised) <= input.spare
    }
}

/// An order under construction.
#[derive(Clone, Debug)]
struct HotplugOrder {
    target: Bytes,
    /// Memory to be plugged in; `None`: unchanged.
    plug: Option<Bytes>,
    why: Option<MechanismReason>,
}

/// Turns targets into orders to balloon and plugged memory, for one guest.
#[derive(Clone, Debug, Default)]
pub struct Actuator {
    phase: HotplugPhase,
    /// `None`: no order holds any more.
    last: Option<Ordered>,
    unproven: Option<Unproven>,
    gap: Gap,
    idle_since: Option<Timestamp>,
    plug_pause: Pause,
    unplug_pause: Pause,
    /// The plugged size at the last sample.
    last_plugged: Bytes,
    /// The most that it may come to hold by the orders and requests in force.
    reach: Bytes,
    transient_grant: Bytes,
}

impl Actuator {
    /// What the guest is promised beyond its target. Counts as committed, as the target does.
    pub fn transient_grant(&self) -> Bytes {
        self.transient_grant
    }

    /// The least and the most that the guest can be made to hold by balloon and plugging together,
    /// regardless of its bounds; a smaller range while plugging pauses. `None`: unknown.
    pub fn range(
        &self,
        now: Timestamp,
        sample: &GuestSample,
        settings: &HotplugSettings,
    ) -> Option<Range> {
        range(sample, self.plug_pause.is_over(now), settings)
    }

    /// The order of this tick. Call once for every snapshot.
    pub fn actuate(&mut self, input: &ActuationInput<'_>) -> Actuation {
        if input.sample.hotplug.is_none() || matches!(input.sample.link, LinkState::Down(_)) {
            *self = Actuator::default();
            return balloon_only(input.sample, input.send);
        }
        let layout = Layout::of(input.sample, input.settings.stale_after);
        let before = input.in_force.unwrap_or_default().saturating_add(self.transient_grant);
        let (Some(layout), Some(Bounds { ceiling, .. }), Some(wanted)) =
            (layout, input.bounds, input.send.or(input.in_force))
        else {
            let order = balloon_only(input.sample, input.send);
            match (input.send, order.target) {
                (Some(_), Some(_)) => self.last = None,
                // What was in force stays in force.
                (Some(send), None) => {
                    self.reach = before;
                    self.transient_grant = before.saturating_sub(send);
                }
                (None, _) => {}
            }
            return order;
        };
        let promised = layout.total.min(input.owned).max(wanted).max(before);
        let tick = Tick { layout: &layout, wanted, promised, ceiling, input };
        let unchanged = self.clone();
        let rebooted = self.observe(&tick);
        let order =
            if rebooted { Some(order_after_restart(&tick)) } else { self.next_order(&tick) };
        let order = order.and_then(|order| {
            if tick.allows(&order) {
                return Some(order);
            }
            *self = Actuator { phase: HotplugPhase::Rest, ..unchanged };
            leave_plugged(&tick).filter(|order| tick.allows(order))
        });
        // An order may still be on its way when the next snapshot is taken. Until then the previous
        // one counts too.
        let mut lingers = Bytes::ZERO;
        if order.is_some() {
            let reach = if self.transient_grant > Bytes::ZERO { self.reach } else { Bytes::ZERO };
            lingers = reach.max(self.most_by_requests(&tick));
        }
        if let Some(order) = &order {
            let plugged = order.plug.unwrap_or(layout.plugged);
            self.last = Some(Ordered { total: order.target, plugged });
        }
        // Without an order of this actuator, the previous target is in force.
        let ordered = self.last.map_or(before, |last| last.total);
        self.reach = ordered.max(self.most_by_requests(&tick));
        self.transient_grant = self.reach.max(lingers).saturating_sub(wanted);
        match order {
            Some(order) => finished(&layout, order, promised),
            None => Actuation::default(),
        }
    }

    /// Takes in the sample before anything is ordered. Returns whether the guest was found to have
    /// restarted.
    fn observe(&mut self, tick: &Tick<'_>) -> bool {
        let Tick { layout, input, .. } = *tick;
        let unplugs_all = match self.phase {
            HotplugPhase::Unplugging(phase) => phase.to == Bytes::ZERO,
            HotplugPhase::ForeignRequest(phase) => {
                phase.requested.min(layout.requested) == Bytes::ZERO
            }
            _ => layout.requested == Bytes::ZERO,
        };
        let rebooted =
            layout.plugged == Bytes::ZERO && self.last_plugged > Bytes::ZERO && !unplugs_all;
        if rebooted {
            let (plug_pause, unplug_pause) = (self.plug_pause, self.unplug_pause);
            *self = Actuator {
                plug_pause,
                unplug_pause,
                reach: self.reach,
                transient_grant: self.transient_grant,
                ..Actuator::default()
            };
        }
        self.last_plugged = layout.plugged;
        self.gap.observe(layout, input.sample, input.now);
        // While more is requested, possibly by an order that arrives late, that memory may still
        // come.
        if self.unproven.is_some_and(|unproven| layout.plugged <= unproven.base)
            && layout.requested <= layout.plugged
            && !matches!(self.phase, HotplugPhase::Plugging(_))
        {
            self.unproven = None;
        }
        let (plugged, block, sample, now) =
            (layout.plugged, layout.block(), input.sample, input.now);
        match &mut self.phase {
            HotplugPhase::Plugging(Plugging { wait, .. })
            | HotplugPhase::Unplugging(Unplugging { wait, .. })
            | HotplugPhase::ForeignRequest(ForeignRequest { wait, .. }) => {
                wait.observe(plugged, block, sample, now);
            }
            HotplugPhase::Rest | HotplugPhase::Lending(_) => {}
        }
        rebooted
    }

    /// The most that the guest may come to hold through earlier requests, whatever is ordered now.
    fn most_by_requests(&self, tick: &Tick<'_>) -> Bytes {
        let layout = tick.layout;
        if layout.requested <= layout.plugged
            && !matches!(self.phase, HotplugPhase::ForeignRequest(_))
        {
            return Bytes::ZERO;
        }
        let most = layout.plugged.max(layout.requested);
        self.total_after_deflation(tick, most).unwrap_or(layout.total_with(most))
    }
}

/// The least and the most that a guest can be made to hold. `may_plug`: memory may be plugged in
/// now.
pub fn range(sample: &GuestSample, may_plug: bool, settings: &HotplugSettings) -> Option<Range> {
    if sample.hotplug.is_none() {
        return Some(Range { least: Bytes::ZERO, most: sample.boot_memory? });
    }
    Some(Layout::of(sample, settings.stale_after)?.range(may_plug))
}

/// The order for a guest without plugged memory, or without the figures to plug any: the guard's
/// target, unchanged. A guest with memory devices whose balloon cannot be used gets none; of one
/// without, the guard only calls a reduction off. A pending hotplug request is withdrawn, because
/// the balloon would offset it at once.
pub fn balloon_only(sample: &GuestSample, send: Option<Bytes>) -> Actuation {
    let is_usable = sample.hotplug.is_none() || why_plug_only(sample).is_none();
    let Some(target) = send.filter(|_| is_usable) else { return Actuation::default() };
    let mut order = Actuation { target: Some(target), ..Actuation::default() };
    let plugged = sample.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.plugged);
    if let Some(holds) = sample.allocation {
        let (from, to) = (holds.value.saturating_sub(plugged), target.saturating_sub(plugged));
        order.moves = Vec::from_iter(balloon_move(from, to));
    }
    if let Some(hotplug) = sample.hotplug.filter(|it| it.requested > plugged) {
        let mechanism = mechanism_of(hotplug.kind);
        let why = MechanismReason::AskedByOthers { more: hotplug.requested - plugged };
        order.plug = Some(plugged);
        order.moves.push(Move { mechanism, from: hotplug.requested, to: plugged, why });
    }
    order
}

/// The order that leaves plugged memory as it is; the balloon goes as near to the target as it can.
/// `None`: no order is needed.
fn leave_plugged(tick: &Tick<'_>) -> Option<HotplugOrder> {
    let Tick { layout, wanted, input, .. } = *tick;
    let plug = (layout.requested != layout.plugged).then_some(layout.plugged);
    if input.send.is_none() || layout.plugs_only() && plug.is_none() {
        return None;
    }
    let target = layout.reachable(wanted, layout.plugged);
    Some(HotplugOrder { target, plug, why: plug.map(|_| layout.why_withdrawn()) })
}

/// The order for a guest that has just restarted. No memory is plugged in any more, and its driver
/// is about to inflate the balloon to its former size. A request to plug is withdrawn too: plugging
/// begins anew at a later tick.
fn order_after_restart(tick: &Tick<'_>) -> HotplugOrder {
    let target = tick.layout.reachable(tick.wanted, Bytes::ZERO);
    let why = MechanismReason::PluggedIdle { idle: Duration::ZERO };
    HotplugOrder { target, plug: Some(Bytes::ZERO), why: Some(why) }
}

/// The order with its moves.
fn finished(layout: &Layout, order: HotplugOrder, promised: Bytes) -> Actuation {
    let HotplugOrder { target, plug, why } = order;
    let plugged = plug.unwrap_or(layout.plugged);
    let mut moves = Vec::with_capacity(2);
    let part = |total: Bytes, plugged: Bytes| total.saturating_sub(plugged);
    if !layout.plugs_only() {
        moves.extend(balloon_move(part(layout.total, layout.plugged), part(target, plugged)));
    }
    if let Some(why) = why {
        // Withdrawing a request moves from what was requested to what is plugged in.
        let from = if plugged == layout.plugged { layout.requested } else { layout.plugged };
        moves.push(Move { mechanism: layout.mechanism(), from, to: plugged, why });
    }
    Actuation { target: Some(target), plug, moves, from_spare: target.saturating_sub(promised) }
}

fn balloon_move(from: Bytes, to: Bytes) -> Option<Move> {
    let why =
        if to > from { MechanismReason::BalloonHasIt } else { MechanismReason::BalloonTakesIt };
    (to != from).then_some(Move { mechanism: Mechanism::Balloon, from, to, why })
}
