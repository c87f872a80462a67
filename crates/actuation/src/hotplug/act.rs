//! What an actuator orders in each of its phases.
//!
//! Limits: a virtio-mem guest is asked again in every tick until the hypervisor has taken the
//! request. Amounts are absolute, so repeating a request changes nothing.

use std::time::Duration;

use ballast_model::{Bytes, GuestStats, Measured, MechanismReason};

use super::online::{Proof, Unproven};
use super::wait::Wait;
use super::{
    ActuationInput, Actuator, ForeignRequest, HotplugOrder, HotplugPhase, HotplugSettings, Lending,
    Ordered, Plugging, Tick, Unplugging,
};

/// A guest within this much of its request has settled: balloons stop a little short.
const SLACK: Bytes = Bytes::mib(4);

/// Less is not plugged in ahead: each chunk takes a few ticks.
const AHEAD_MIN: Bytes = Bytes::mib(32);

/// How long a reduction waits for plugging under way: five times as long as a guest that does plug
/// takes for a GiB.
const REDUCTION_WAITS: Duration = Duration::from_secs(1);

impl Actuator {
    /// The order of this tick. Enters the phase that the order leads to.
    pub(super) fn next_order(&mut self, tick: &Tick<'_>) -> Option<HotplugOrder> {
        match self.phase {
            HotplugPhase::Rest => self.rest(tick),
            HotplugPhase::Plugging(phase) => self.plugging(tick, phase),
            HotplugPhase::Lending(phase) => self.lending(tick, phase),
            HotplugPhase::Unplugging(phase) => self.unplugging(tick, phase),
            HotplugPhase::ForeignRequest(phase) => self.foreign_request(tick, phase),
        }
    }

    fn rest(&mut self, tick: &Tick<'_>) -> Option<HotplugOrder> {
        let Tick { layout, input, .. } = *tick;
        self.phase = HotplugPhase::Rest;
        if layout.requested != layout.plugged {
            let wait = Wait::new(layout.plugged, false, input.now);
            return self
                .foreign_request(tick, ForeignRequest { requested: layout.requested, wait });
        }
        if let Some(undo) = self.judge_unproven(tick) {
            return Some(undo);
        }
        let order = self.plug(tick).or_else(|| self.unplug(tick));
        order.or_else(|| self.order_without_plugging(tick))
    }

    /// Judges whether the guest uses what was plugged in; returns the order to undo it if not.
    fn judge_unproven(&mut self, tick: &Tick<'_>) -> Option<HotplugOrder> {
        let Tick { layout, input, .. } = *tick;
        let settings = input.settings;
        let unproven = self.unproven.as_mut()?;
        unproven.all_plugged(input.now);
        match unproven.judge(layout.plugged, &self.gap, input.now, settings.onlined_within) {
            Proof::Used => {
                self.unproven = None;
                self.plug_pause.forget();
                None
            }
            Proof::Open => None,
            Proof::Unused(unused) => {
                let base = unproven.base;
                if !std::mem::replace(&mut unproven.refused, true) {
                    self.pause_plugging(input);
                }
                let why = MechanismReason::NotOnlined { unused };
                self.unplug_pause.is_over(input.now).then(|| self.begin_unplug(tick, base, why))
            }
        }
    }

    /// Plugs in what the target will need, as far as memory is free.
    fn plug(&mut self, tick: &Tick<'_>) -> Option<HotplugOrder> {
        let Tick { layout, wanted, input, .. } = *tick;
        let settings = input.settings;
        let refused = self.unproven.is_some_and(|unproven| unproven.refused);
        if refused || !self.plug_pause.is_over(input.now) {
            return None;
        }
        let (present, plugged) = (layout.present(), layout.plugged);
        // The balloon may at any moment give what it was already asked to give.
        let total = self.total_after_deflation(tick, plugged)?;
        let missing = wanted.saturating_sub(total);
        let (aim, most, why) = if let Some(why) = layout.why_plug_only() {
            (layout.max, layout.blocks(missing), why)
        } else {
            let needs = wanted > present;
            let soon = wanted.saturating_add(settings.keep).min(tick.ceiling) > present;
            let releasing = total > wanted.saturating_add(SLACK);
            if releasing || !(needs || soon && self.unproven.is_none()) {
                return None;
            }
            let room = tick.ceiling.saturating_sub(wanted.max(total));
            let most = layout.blocks(missing.saturating_add(input.spare.min(room)));
            let why = MechanismReason::BalloonRunsOut { left: present.saturating_sub(wanted) };
            (wanted_plugged(tick), most, why)
        };
        let lacking = aim.min(layout.max).saturating_sub(plugged);
        let chunk = lacking.min(layout.chunk(settings.plug_chunk_max)).min(most);
        let worth_it = chunk == lacking || missing > Bytes::ZERO || chunk >= AHEAD_MIN;
        if chunk == Bytes::ZERO || !worth_it {
            return None;
        }
        let to = plugged + chunk;
        self.unproven.get_or_insert_with(|| Unproven::new(plugged, &self.gap)).plug_more();
        self.idle_since = None;
        self.phase = HotplugPhase::Plugging(Plugging {
            to,
            wait: Wait::new(plugged, has_fresh_statistics(input), input.now),
            begun: input.now,
            wanted,
        });
        let target = layout.reachable(wanted.max(total + chunk), to);
        Some(HotplugOrder { target, plug: Some(to), why: Some(why) })
    }

    /// What the guest holds with `plugged` plugged in once the balloon has given everything that it
    /// was asked for; `None`: that is unknown.
    pub(super) fn total_after_deflation(&self, tick: &Tick<'_>, plugged: Bytes) -> Option<Bytes> {
        let now = tick.layout.total_with(plugged);
        if tick.layout.plugs_only() {
            return Some(now);
        }
        let last = self.last?;
        Some(now.max(last.total.saturating_add(plugged).saturating_sub(last.plugged)))
    }

    /// Unplugs what the balloon cannot take, or what has been idle for long.
    fn unplug(&mut self, tick: &Tick<'_>) -> Option<HotplugOrder> {
        let Tick { layout, wanted, input, .. } = *tick;
        let settings = input.settings;
        if self.unproven.is_some() || !self.unplug_pause.is_over(input.now) {
            return None;
        }
        // No transient grant has to come first, so steps need not be small.
        let most = layout.chunk(settings.plug_chunk_max);
        let plugged = layout.plugged;
        if let Some(why) = layout.why_plug_only() {
            let chunk = layout.blocks(layout.total.saturating_sub(wanted)).min(most).min(plugged);
            return (chunk > Bytes::ZERO).then(|| self.begin_unplug(tick, plugged - chunk, why));
        }
        let beyond = layout.least_with(plugged).saturating_sub(wanted);
        let moves_apart = layout.total < layout.least_with(plugged);
        if beyond > Bytes::ZERO && plugged > Bytes::ZERO && !moves_apart {
            // Rounded down: for a part of a block the balloon would have to deflate.
            let chunk = layout.blocks(beyond).min(most).min(plugged);
            let why = MechanismReason::PluggedIdle { idle: Duration::ZERO };
            if chunk > Bytes::ZERO {
                return Some(self.begin_unplug(tick, plugged - chunk, why));
            }
        }
        let idle = layout.blocks(plugged.saturating_sub(wanted_plugged(tick)));
        if idle == Bytes::ZERO {
            self.idle_since = None;
            return None;
        }
        let since = *self.idle_since.get_or_insert(input.now);
        let chunk = idle.min(layout.chunk(settings.unplug_chunk_max));
        let target = wanted.saturating_add(chunk);
        let transient = target.saturating_sub(layout.total.max(wanted));
        let settled = layout.total.abs_diff(layout.reachable(wanted, plugged)) <= SLACK;
        if input.now.saturating_since(since) < settings.idle_after
            || !settled
            || target > tick.ceiling.min(layout.present())
            || transient > input.spare
        {
            return None;
        }
        self.phase = HotplugPhase::Lending(Lending { chunk, begun: input.now, wanted });
        Some(HotplugOrder { target, plug: None, why: None })
    }

    /// The order for a guest that needs no plugging, if it is not in force.
    fn order_without_plugging(&self, tick: &Tick<'_>) -> Option<HotplugOrder> {
        let Tick { layout, wanted, input, .. } = *tick;
        if layout.plugs_only() {
            return None;
        }
        let ordered = self.last.map_or(wanted, |last| last.total);
        let target = wanted.max(self.with_unproven(tick, layout.plugged).min(ordered));
        let target = layout.reachable(target, layout.plugged);
        let in_force = self.last == Some(Ordered { total: target, plugged: layout.plugged });
        if target.saturating_sub(tick.promised) > input.spare {
            return None;
        }
        (input.send.is_some() || !in_force).then_some(HotplugOrder {
            target,
            plug: None,
            why: None,
        })
    }

    /// The target plus plugged memory that the guest's kernel may not use: the balloon must not
    /// take other memory in its place.
    fn with_unproven(&self, tick: &Tick<'_>, plugged: Bytes) -> Bytes {
        let open = |unproven: Unproven| plugged.saturating_sub(unproven.base);
        tick.wanted.saturating_add(self.unproven.map_or(Bytes::ZERO, open))
    }

    fn plugging(&mut self, tick: &Tick<'_>, phase: Plugging) -> Option<HotplugOrder> {
        let Tick { layout, wanted, input, .. } = *tick;
        if layout.plugged >= phase.to {
            return self.rest(tick);
        }
        let kept = self.with_unproven(tick, layout.plugged).min(layout.total);
        let back = |why| {
            let target = layout.reachable(kept, layout.plugged);
            Some(HotplugOrder { target, plug: Some(layout.plugged), why: Some(why) })
        };
        if phase.wait.stalled(input.now, input.settings.stalled_after).is_some() {
            self.phase = HotplugPhase::Rest;
            self.pause_plugging(input);
            return back(MechanismReason::NotOnlined { unused: phase.to - layout.plugged });
        }
        let waited = input.now.saturating_since(phase.begun);
        // The balloon holds less than it was ordered to: the guest restarted, or ran out of memory.
        let deflated = self.last.is_some_and(|last| layout.total_with(phase.to) > last.total);
        if deflated || wanted < phase.wanted && waited >= REDUCTION_WAITS {
            self.phase = HotplugPhase::Rest;
            return back(MechanismReason::PluggedIdle { idle: Duration::ZERO });
        }
        if input.send.is_none() && layout.requested == phase.to {
            return None;
        }
        let total = self.total_after_deflation(tick, phase.to).unwrap_or(layout.total);
        let target = layout.reachable(wanted.max(total), phase.to);
        Some(HotplugOrder { target, plug: Some(phase.to), why: None })
    }

    fn lending(&mut self, tick: &Tick<'_>, phase: Lending) -> Option<HotplugOrder> {
        let Tick { layout, wanted, input, .. } = *tick;
        let Lending { chunk, begun, .. } = phase;
        if wanted != phase.wanted || chunk > layout.plugged {
            return self.rest(tick);
        }
        let target = wanted.saturating_add(chunk);
        if layout.total >= target && layout.requested == layout.plugged {
            let since = self.idle_since.unwrap_or(begun);
            let why = MechanismReason::PluggedIdle { idle: input.now.saturating_since(since) };
            return Some(self.begin_unplug(tick, layout.plugged - chunk, why));
        }
        if input.now.saturating_since(begun) >= input.settings.stalled_after {
            self.pause_unplugging(input);
            return self.rest(tick);
        }
        input.send.is_some().then_some(HotplugOrder { target, plug: None, why: None })
    }

    /// The total with `to` plugged in: the target, or less where the balloon would have to deflate
    /// for it while the guest unplugs.
    fn unplugged(&self, tick: &Tick<'_>, to: Bytes) -> Bytes {
        let layout = tick.layout;
        let mut target = tick.wanted.min(layout.total_with(to));
        if let (false, Some(last)) = (layout.plugs_only(), self.last) {
            target = target.min(last.total.saturating_add(to).saturating_sub(last.plugged));
        }
        layout.reachable(target, to)
    }

    fn begin_unplug(&mut self, tick: &Tick<'_>, to: Bytes, why: MechanismReason) -> HotplugOrder {
        let Tick { layout, wanted, input, .. } = *tick;
        let wait = Wait::new(layout.plugged, true, input.now);
        self.phase = HotplugPhase::Unplugging(Unplugging { to, wait, wanted });
        HotplugOrder { target: self.unplugged(tick, to), plug: Some(to), why: Some(why) }
    }

    fn unplugging(&mut self, tick: &Tick<'_>, phase: Unplugging) -> Option<HotplugOrder> {
        let Tick { layout, wanted, input, .. } = *tick;
        let plugged = layout.plugged;
        let undoing = self.unproven.is_some();
        if plugged <= phase.to {
            if !undoing {
                self.unplug_pause.forget();
            }
            return self.rest(tick);
        }
        let stop = |target, why| {
            let target = layout.reachable(target, plugged);
            Some(HotplugOrder { target, plug: Some(plugged), why: Some(why) })
        };
        if let Some(idle) = phase.wait.stalled(input.now, input.settings.stalled_after) {
            self.phase = HotplugPhase::Rest;
            self.pause_unplugging(input);
            return stop(layout.total, MechanismReason::UnplugStalled { idle });
        }
        if wanted > phase.wanted && !undoing {
            self.phase = HotplugPhase::Rest;
            self.idle_since = None;
            return stop(layout.total.max(wanted), MechanismReason::Growing);
        }
        if input.send.is_none() && layout.requested == phase.to {
            return None;
        }
        Some(HotplugOrder {
            target: self.unplugged(tick, phase.to),
            plug: Some(phase.to),
            why: None,
        })
    }

    /// Lets the guest carry out requests of other clients. Withdraws a request if the guest does
    /// not follow it (it still could at any time, and no memory would be set aside for that), or if
    /// an order of this actuator has precedence.
    fn foreign_request(
        &mut self,
        tick: &Tick<'_>,
        mut phase: ForeignRequest,
    ) -> Option<HotplugOrder> {
        let Tick { layout, wanted, input, .. } = *tick;
        let plugged = layout.plugged;
        if layout.requested == plugged {
            return self.rest(tick);
        }
        if phase.requested != layout.requested {
            let wait = Wait::new(plugged, false, input.now);
            phase = ForeignRequest { requested: layout.requested, wait };
        }
        self.phase = HotplugPhase::ForeignRequest(phase);
        let grows = layout.requested > plugged;
        if let Some(idle) = phase.wait.stalled(input.now, input.settings.stalled_after) {
            self.phase = HotplugPhase::Rest;
            let why = if grows {
                self.pause_plugging(input);
                MechanismReason::NotOnlined { unused: layout.requested - plugged }
            } else {
                self.pause_unplugging(input);
                MechanismReason::UnplugStalled { idle }
            };
            let target = layout.reachable(layout.total, plugged);
            return Some(HotplugOrder { target, plug: Some(plugged), why: Some(why) });
        }
        input.send?;
        // A balloon sized for memory that is yet to be plugged in would take too much, so that
        // request is withdrawn. A request to unplug stands if the target fits without that memory.
        let leaves_enough = wanted <= layout.most_with(layout.requested);
        let to = if leaves_enough { plugged.min(layout.requested) } else { plugged };
        let kept = self.with_unproven(tick, to).min(layout.total);
        let target = layout.reachable(wanted.max(kept), to);
        let why = (to != layout.requested).then(|| layout.why_withdrawn());
        Some(HotplugOrder { target, plug: Some(to), why })
    }

    fn pause_plugging(&mut self, input: &ActuationInput<'_>) {
        let first = input.settings.plug_pause;
        self.plug_pause.begin(first, HotplugSettings::PLUG_PAUSE_MAX, input.now);
    }

    fn pause_unplugging(&mut self, input: &ActuationInput<'_>) {
        let first = input.settings.unplug_pause;
        self.unplug_pause.begin(first, HotplugSettings::UNPLUG_PAUSE_MAX, input.now);
    }
}

/// The plugged size that serves the target and leaves the balloon its reserve.
fn wanted_plugged(tick: &Tick<'_>) -> Bytes {
    let Tick { layout, wanted, input, .. } = *tick;
    let ahead = wanted.saturating_add(input.settings.ahead).min(tick.ceiling.max(wanted));
    layout.blocks_up(layout.beyond_boot(ahead)).min(layout.plugged_within(wanted))
}

/// Whether the guest's kernel has reported recently.
fn has_fresh_statistics(input: &ActuationInput<'_>) -> bool {
    let fresh = |stats: Measured<GuestStats>| stats.age <= input.settings.stale_after;
    input.sample.stats.is_some_and(fresh)
}
