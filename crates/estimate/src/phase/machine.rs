//! Decides whether to track the next interval.
//!
//! Idea: the table of [`super`] as a state machine. It takes the samples of an interval and returns
//! whether to track the next one, with the reason and any change of the threshold.
//! Source: MEB §3.5.3, §3.5.4.

use std::fmt;

use ballast_model::Bytes;

use super::detector::{Detector, FilterLength, Stability, Threshold};
use super::jump::JumpDetector;

/// Intervals of rest before the first checkpoint, and after any adjustment: `PS_init`.
const CHECKPOINT_FIRST: u32 = 10;
/// Added when a calibration adjusts nothing: `PS_step`.
const CHECKPOINT_STEP: u32 = 5;
/// Most intervals of rest before a checkpoint: `PS_max`.
const CHECKPOINT_MAX: u32 = 20;

/// How the event threshold is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdMode {
    /// Always this threshold.
    Fixed(Threshold),
    /// Adjusted so that events and working sets agree on stability.
    Adaptive,
}

/// The operator's settings for intermittent tracking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntermittentSettings {
    /// How the event threshold is set.
    pub mode: ThresholdMode,
    /// Number of samples that a filter averages.
    pub samples: FilterLength,
    /// Balancing unit: working sets that differ by less count as equal.
    pub unit: Bytes,
    /// Whether a single event count far from the earlier ones ends rest at once; ours, not in the
    /// papers.
    pub jumps: bool,
}

impl IntermittentSettings {
    /// The balancing unit of MEB §3.5.3.
    pub const UNIT_DEFAULT: Bytes = Bytes::mib(1);

    /// The settings for live guests: the papers' machine, with jumps.
    pub fn live() -> Self {
        IntermittentSettings { jumps: true, ..IntermittentSettings::default() }
    }
}

impl Default for IntermittentSettings {
    /// The adaptive machine of the papers.
    fn default() -> Self {
        let (samples, unit) = (FilterLength::DEFAULT, IntermittentSettings::UNIT_DEFAULT);
        IntermittentSettings { mode: ThresholdMode::Adaptive, samples, unit, jumps: false }
    }
}

/// Measurements of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSample {
    /// The working set; ignored in an interval of rest.
    pub wss: Option<Bytes>,
    /// Event count.
    pub events: Option<u64>,
}

/// Result of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseStep {
    /// Whether to track the next interval.
    pub next: NextInterval,
    /// Change of the event threshold.
    pub adjusted: Option<ThresholdChange>,
}

/// Whether to track the next interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NextInterval {
    /// Track it.
    Track(TrackReason),
    /// Do not track it.
    Rest(RestReason),
}

impl NextInterval {
    /// Whether events showed, in an interval of rest, that the phase continues, so that the last
    /// working set is still valid.
    pub fn is_same_phase(self) -> bool {
        matches!(
            self,
            NextInterval::Rest(RestReason::SamePhase { .. })
                | NextInterval::Track(TrackReason::Checkpoint { .. })
        )
    }

    /// Whether a jump of events, in an interval of rest, began a new phase.
    pub fn is_jump(self) -> bool {
        matches!(self, NextInterval::Track(TrackReason::NewPhase { is_jump: true, .. }))
    }
}

/// Why tracking continues or resumes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrackReason {
    /// A detector needs more samples of this phase.
    Filling {
        /// Number of samples needed, at least 1.
        lacking: usize,
    },
    /// The working set changes.
    WssUnstable {
        /// `|err_r − 1|` of working sets.
        deviation: f64,
    },
    /// Events changed while tracking rested.
    NewPhase {
        /// `|err_r − 1|` of events.
        deviation: f64,
        /// Whether the last count alone is a jump ([`IntermittentSettings::jumps`]).
        is_jump: bool,
    },
    /// After a long rest the event threshold must be checked.
    Checkpoint {
        /// Intervals of rest.
        rested: u32,
    },
    /// A measurement is missing.
    Missing(MissingInput),
}

/// A missing measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingInput {
    /// The working set of a tracked interval.
    Wss,
    /// The event count.
    Events,
}

/// Why tracking rests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RestReason {
    /// The working set is stable.
    WssStable {
        /// `|err_r − 1|` of working sets.
        deviation: f64,
    },
    /// Events are as before.
    SamePhase {
        /// Intervals of rest so far.
        rested: u32,
    },
}

/// A change of the event threshold, with its new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdChange {
    /// It was too tight: events were unstable although the working set was stable.
    Relaxed(Threshold),
    /// It was too loose: events were stable although the working set was unstable.
    Tightened(Threshold),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PhaseState {
    Tracking { is_calibration: bool },
    Resting { rested: u32 },
}

/// Decides on tracking one guest; tracks at first.
#[derive(Clone, Debug)]
pub struct Intermittent {
    is_adaptive: bool,
    threshold: Threshold,
    wss: Detector,
    events: Detector,
    samples: FilterLength,
    /// `None`: jumps are not detected.
    jumps: Option<JumpDetector>,
    /// Intervals of rest before a checkpoint.
    checkpoint: u32,
    state: PhaseState,
}

impl Intermittent {
    /// A machine that has seen nothing yet.
    pub fn new(settings: IntermittentSettings) -> Self {
        let (is_adaptive, threshold) = match settings.mode {
            ThresholdMode::Fixed(threshold) => (false, threshold),
            ThresholdMode::Adaptive => (true, Threshold::ADAPTIVE_FIRST),
        };
        Intermittent {
            is_adaptive,
            threshold,
            wss: Detector::new(settings.samples, settings.unit.get()),
            events: Detector::new(settings.samples, 0),
            samples: settings.samples,
            jumps: settings.jumps.then(JumpDetector::default),
            checkpoint: CHECKPOINT_FIRST,
            state: PhaseState::Tracking { is_calibration: false },
        }
    }

    /// Whether the next interval is to be tracked.
    pub fn is_tracking(&self) -> bool {
        matches!(self.state, PhaseState::Tracking { .. })
    }

    /// The current event threshold.
    pub fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// Processes the measurements of an interval and decides on the next.
    pub fn observe(&mut self, sample: PhaseSample) -> PhaseStep {
        match self.state {
            PhaseState::Tracking { is_calibration } => self.tracked(sample, is_calibration),
            PhaseState::Resting { rested } => {
                let next = self.rested(sample.events, rested + 1);
                PhaseStep { next: self.enter(next), adjusted: None }
            }
        }
    }

    fn tracked(&mut self, sample: PhaseSample, is_calibration: bool) -> PhaseStep {
        // Each filter is fed even if the other's input is missing.
        let wss = sample.wss.map(|wss| self.wss.push(wss.get(), Threshold::MIN));
        let events = sample.events.map(|events| self.events.push(events, self.threshold));
        let adjusted = self.adjustment(wss, events);
        if let Some(ThresholdChange::Relaxed(to) | ThresholdChange::Tightened(to)) = adjusted {
            self.threshold = to;
            self.checkpoint = CHECKPOINT_FIRST;
        }
        let is_wss_unstable = matches!(wss, Some(Stability::Unstable(_)));
        if is_wss_unstable {
            self.wss.clear();
        }
        let are_events_unstable = matches!(events, Some(Stability::Unstable(_)))
            && !matches!(adjusted, Some(ThresholdChange::Relaxed(_)));
        if are_events_unstable {
            self.events.clear();
        }
        self.remember(sample.events, is_wss_unstable || are_events_unstable);
        if is_calibration && adjusted.is_none() && wss.is_some() && events.is_some() {
            self.checkpoint = (self.checkpoint + CHECKPOINT_STEP).min(CHECKPOINT_MAX);
        }
        let next = after_tracking(wss, events);
        if let (NextInterval::Rest(_), false, Some(jumps)) = (next, is_calibration, &mut self.jumps)
        {
            // Samples older than those in the filters belong to the transition into this phase.
            jumps.keep(self.samples.to_fill());
        }
        PhaseStep { next: self.enter(next), adjusted }
    }

    fn adjustment(
        &self,
        wss: Option<Stability>,
        events: Option<Stability>,
    ) -> Option<ThresholdChange> {
        if !self.is_adaptive {
            return None;
        }
        match (wss?, events?) {
            (Stability::Stable(_), Stability::Unstable(deviation)) => {
                Some(ThresholdChange::Relaxed(Threshold::nearest(deviation)))
            }
            (Stability::Unstable(_), Stability::Stable(deviation)) => {
                Some(ThresholdChange::Tightened(Threshold::nearest(deviation)))
            }
            _ => None,
        }
    }

    fn rested(&mut self, events: Option<u64>, rested: u32) -> NextInterval {
        let Some(events) = events else {
            return NextInterval::Track(TrackReason::Missing(MissingInput::Events));
        };
        let jump = self.jumps.as_ref().and_then(|jumps| jumps.jump(events, self.samples));
        let answer = match (self.events.push(events, self.threshold), jump) {
            (Stability::Stable(_), Some(deviation)) => Stability::Unstable(deviation),
            (answer, _) => answer,
        };
        self.remember(Some(events), matches!(answer, Stability::Unstable(_)));
        match answer {
            Stability::Unstable(deviation) => {
                self.events.clear();
                NextInterval::Track(TrackReason::NewPhase { deviation, is_jump: jump.is_some() })
            }
            Stability::Filling(lacking) => NextInterval::Track(TrackReason::Filling { lacking }),
            Stability::Stable(_) if self.is_adaptive && rested >= self.checkpoint => {
                NextInterval::Track(TrackReason::Checkpoint { rested })
            }
            Stability::Stable(_) => NextInterval::Rest(RestReason::SamePhase { rested }),
        }
    }

    /// Feeds the jump detector.
    fn remember(&mut self, events: Option<u64>, is_new_phase: bool) {
        let Some(jumps) = &mut self.jumps else { return };
        if is_new_phase {
            jumps.clear();
        }
        if let Some(events) = events {
            jumps.push(events);
        }
    }

    fn enter(&mut self, next: NextInterval) -> NextInterval {
        self.state = match next {
            NextInterval::Track(why) => PhaseState::Tracking {
                is_calibration: matches!(why, TrackReason::Checkpoint { .. }),
            },
            NextInterval::Rest(RestReason::WssStable { .. }) => PhaseState::Resting { rested: 0 },
            NextInterval::Rest(RestReason::SamePhase { rested }) => PhaseState::Resting { rested },
        };
        next
    }
}

/// Decides after a tracked interval. With a stable working set, unstable events do not matter: an
/// adaptive threshold has just been relaxed for them, and a fixed machine ignores them.
fn after_tracking(wss: Option<Stability>, events: Option<Stability>) -> NextInterval {
    let Some(wss) = wss else {
        return NextInterval::Track(TrackReason::Missing(MissingInput::Wss));
    };
    let Some(events) = events else {
        return NextInterval::Track(TrackReason::Missing(MissingInput::Events));
    };
    match (wss, events) {
        (Stability::Filling(wss), Stability::Filling(events)) => {
            NextInterval::Track(TrackReason::Filling { lacking: wss.max(events) })
        }
        (Stability::Filling(lacking), _) | (_, Stability::Filling(lacking)) => {
            NextInterval::Track(TrackReason::Filling { lacking })
        }
        (Stability::Unstable(deviation), _) => {
            NextInterval::Track(TrackReason::WssUnstable { deviation })
        }
        (Stability::Stable(deviation), _) => {
            NextInterval::Rest(RestReason::WssStable { deviation })
        }
    }
}

impl fmt::Display for NextInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextInterval::Track(why) => write!(f, "track: {why}"),
            NextInterval::Rest(why) => write!(f, "rest: {why}"),
        }
    }
}

impl fmt::Display for TrackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrackReason::Filling { lacking: 1 } => {
                write!(f, "1 more sample of this phase is needed")
            }
            TrackReason::Filling { lacking } => {
                write!(f, "{lacking} more samples of this phase are needed")
            }
            TrackReason::WssUnstable { deviation } => {
                write!(f, "working set changed by {:.1} %", deviation * 100.0)
            }
            TrackReason::NewPhase { deviation, .. } => {
                write!(f, "new phase: events changed by {:.1} %", deviation * 100.0)
            }
            TrackReason::Checkpoint { rested } => {
                write!(f, "checkpoint after {rested} intervals of rest")
            }
            TrackReason::Missing(MissingInput::Wss) => write!(f, "no working set was measured"),
            TrackReason::Missing(MissingInput::Events) => write!(f, "no events were counted"),
        }
    }
}

impl fmt::Display for RestReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestReason::WssStable { deviation } => {
                write!(f, "working set is stable within {:.1} %", deviation * 100.0)
            }
            RestReason::SamePhase { rested } => {
                write!(f, "same phase: events unchanged, {rested} intervals of rest so far")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mode: ThresholdMode) -> Intermittent {
        Intermittent::new(IntermittentSettings { mode, ..IntermittentSettings::default() })
    }

    fn fixed(threshold: f64) -> Intermittent {
        machine(ThresholdMode::Fixed(Threshold::new(threshold).unwrap()))
    }

    /// One interval; the working set in MiB.
    fn observe(machine: &mut Intermittent, wss_mib: u64, events: u64) -> PhaseStep {
        let wss = machine.is_tracking().then_some(Bytes::mib(wss_mib));
        machine.observe(PhaseSample { wss, events: Some(events) })
    }

    /// Fills both filters and comes to rest.
    fn at_rest(mut machine: Intermittent) -> Intermittent {
        for lacking in (1..5).rev() {
            let step = observe(&mut machine, 100, 1000);
            assert_eq!(step.next, NextInterval::Track(TrackReason::Filling { lacking }));
        }
        let step = observe(&mut machine, 100, 1000);
        assert_eq!(step.next, NextInterval::Rest(RestReason::WssStable { deviation: 0.0 }));
        machine
    }

    /// The intervals of rest before each of the next `checkpoints`.
    fn rests(machine: &mut Intermittent, checkpoints: usize) -> Vec<u32> {
        let mut rests = Vec::new();
        for _ in 0..1000 {
            let step = observe(machine, 100, 1000);
            if let NextInterval::Track(TrackReason::Checkpoint { rested }) = step.next {
                assert!(step.next.is_same_phase());
                rests.push(rested);
            }
            if rests.len() == checkpoints {
                return rests;
            }
        }
        panic!("only {rests:?}");
    }

    #[test]
    fn checkpoints_get_rarer_while_nothing_is_adjusted() {
        let mut machine = at_rest(machine(ThresholdMode::Adaptive));
        assert_eq!(rests(&mut machine, 4), [10, 15, 20, 20]);
    }

    #[test]
    fn a_fixed_threshold_has_no_checkpoints() {
        let mut machine = at_rest(fixed(0.3));
        for rested in 1..100 {
            let step = observe(&mut machine, 100, 1000);
            assert_eq!(step.next, NextInterval::Rest(RestReason::SamePhase { rested }));
            assert!(step.next.is_same_phase());
        }
    }

    /// Events of 1000, 1000 and then 1900 with a constant working set: f = 1000, 1000, 1300,
    /// f_mean = 1100, err_r = 1.1818.
    #[test]
    fn changed_events_begin_a_phase_and_refill_the_filter() {
        let mut machine = at_rest(fixed(0.15));
        let step = observe(&mut machine, 100, 1900);
        let NextInterval::Track(TrackReason::NewPhase { deviation, is_jump: false }) = step.next
        else {
            panic!("{step:?}")
        };
        assert!(!step.next.is_same_phase() && !step.next.is_jump());
        assert!((deviation - 2.0 / 11.0).abs() < 1e-12, "{deviation}");
        // The filter of working sets was kept; that of events is refilled from empty.
        for lacking in (1..5).rev() {
            let step = observe(&mut machine, 100, 1900);
            assert_eq!(step.next, NextInterval::Track(TrackReason::Filling { lacking }));
        }
        let step = observe(&mut machine, 100, 1900);
        assert_eq!(step.next, NextInterval::Rest(RestReason::WssStable { deviation: 0.0 }));
    }

    /// 1000 five times, then 1250: the filter, with f = 1083 and f_mean = 1028, is still stable.
    #[test]
    fn a_jump_begins_a_phase_at_once() {
        let settings = IntermittentSettings::live();
        for (settings, is_found) in [(settings, true), (IntermittentSettings::default(), false)] {
            let mut machine = at_rest(Intermittent::new(settings));
            let step = observe(&mut machine, 100, 1250);
            assert_eq!(
                matches!(step.next, NextInterval::Track(TrackReason::NewPhase { .. })),
                is_found
            );
            assert_eq!(step.next.is_jump(), is_found);
            assert_eq!(machine.is_tracking(), is_found);
        }
        // The new phase must not see its own samples as jumps.
        let mut machine = at_rest(Intermittent::new(settings));
        let mut intervals = 0;
        while machine.is_tracking() || intervals == 0 {
            observe(&mut machine, 125, 1250);
            intervals += 1;
            assert!(intervals < 20, "the new phase is never stable");
        }
        let step = observe(&mut machine, 125, 1250);
        assert_eq!(step.next, NextInterval::Rest(RestReason::SamePhase { rested: 1 }));
    }

    /// The papers print `T := err_r`, here 9/7; the deviation 2/7 is meant.
    #[test]
    fn frozen_relaxing_takes_the_deviation_and_keeps_the_filter() {
        let mut machine = machine(ThresholdMode::Adaptive);
        for events in [1000, 1000, 1000, 1000] {
            observe(&mut machine, 100, events);
        }
        // f = 1000, 1000, 1500; f_mean = 3500 / 3; err_r = 4500 / 3500.
        let step = observe(&mut machine, 100, 2500);
        let Some(ThresholdChange::Relaxed(to)) = step.adjusted else { panic!("{step:?}") };
        assert!((to.get() - 2.0 / 7.0).abs() < 1e-12, "{to:?}");
        assert!(!machine.is_tracking(), "it counts as stable");
        // f = 1000, 1500, 2000; f_mean = 1500; err_r = 4/3: not filling, because the filter was
        // kept.
        let step = observe(&mut machine, 100, 2500);
        assert!(matches!(step.next, NextInterval::Track(TrackReason::NewPhase { .. })), "{step:?}");
    }

    /// f = 1000, 1000, 3000: a deviation of 0.8. With such a threshold no fall would be seen.
    #[test]
    fn relaxing_stops_while_a_fall_would_still_be_seen() {
        let mut machine = machine(ThresholdMode::Adaptive);
        for events in [1000, 1000, 1000, 1000] {
            observe(&mut machine, 100, events);
        }
        let step = observe(&mut machine, 100, 7000);
        assert_eq!(step.adjusted, Some(ThresholdChange::Relaxed(Threshold::MAX)));
        // At the maximum a fall to a tenth is seen: f = 1000, 1000, 700; then 1000, 700, 400.
        let mut machine = at_rest(self::machine(ThresholdMode::Adaptive));
        machine.threshold = Threshold::MAX;
        observe(&mut machine, 100, 100);
        let step = observe(&mut machine, 100, 100);
        assert!(matches!(step.next, NextInterval::Track(TrackReason::NewPhase { .. })), "{step:?}");
    }

    /// The papers print `T := err_r`, here 1.0, with which nothing would be unstable again.
    #[test]
    fn frozen_tightening_takes_the_deviation_down_to_the_minimum() {
        let mut machine = machine(ThresholdMode::Adaptive);
        for wss in [100, 100, 100, 100] {
            observe(&mut machine, wss, 1000);
        }
        // The working set doubles while events are constant: a threshold of 0 would end all rest.
        let step = observe(&mut machine, 200, 1000);
        assert_eq!(step.adjusted, Some(ThresholdChange::Tightened(Threshold::MIN)));
        assert!(
            matches!(step.next, NextInterval::Track(TrackReason::WssUnstable { .. })),
            "{step:?}"
        );
        // By hand: events of f = 1000, 1000, 1100: deviation 3300 / 3100 − 1 = 0.0645.
        let mut machine = self::machine(ThresholdMode::Adaptive);
        for wss in [100, 100, 100, 100] {
            observe(&mut machine, wss, 1000);
        }
        let step = observe(&mut machine, 200, 1300);
        let Some(ThresholdChange::Tightened(to)) = step.adjusted else { panic!("{step:?}") };
        assert!((to.get() - 2.0 / 31.0).abs() < 1e-12, "{to:?}");
    }

    #[test]
    fn any_adjustment_makes_checkpoints_frequent_again() {
        let mut machine = at_rest(machine(ThresholdMode::Adaptive));
        assert_eq!(rests(&mut machine, 2), [10, 15]);
        // The calibration finds that the working set moved while events did not.
        let step = observe(&mut machine, 200, 1000);
        assert!(matches!(step.adjusted, Some(ThresholdChange::Tightened(_))), "{step:?}");
        assert_eq!(rests(&mut machine, 3), [10, 15, 20]);
    }

    #[test]
    fn a_calibration_that_finds_a_new_phase_adjusts_nothing() {
        let mut machine = at_rest(machine(ThresholdMode::Adaptive));
        assert_eq!(rests(&mut machine, 1), [10]);
        let step = observe(&mut machine, 200, 9000);
        assert_eq!(step.adjusted, None);
        assert!(
            matches!(step.next, NextInterval::Track(TrackReason::WssUnstable { .. })),
            "{step:?}"
        );
        for lacking in (1..5).rev() {
            let step = observe(&mut machine, 100, 1000);
            assert_eq!(step.next, NextInterval::Track(TrackReason::Filling { lacking }));
        }
        assert_eq!(rests(&mut machine, 1), [15]);
    }

    #[test]
    fn a_fixed_machine_with_an_empty_event_filter_resumes_tracking() {
        let mut machine = fixed(0.05);
        for events in [1000, 1000, 1000, 1000] {
            observe(&mut machine, 100, events);
        }
        let step = observe(&mut machine, 100, 2000);
        assert!(matches!(step.next, NextInterval::Rest(RestReason::WssStable { .. })), "{step:?}");
        let step = observe(&mut machine, 100, 2000);
        assert_eq!(step.next, NextInterval::Track(TrackReason::Filling { lacking: 4 }));
    }

    #[test]
    fn missing_input_keeps_tracking_on_and_feeds_no_filter() {
        let mut machine = at_rest(machine(ThresholdMode::Adaptive));
        let nothing = PhaseSample { wss: None, events: None };
        let step = machine.observe(nothing);
        assert_eq!(step.next, NextInterval::Track(TrackReason::Missing(MissingInput::Events)));
        let step = machine.observe(nothing);
        assert_eq!(step.next, NextInterval::Track(TrackReason::Missing(MissingInput::Wss)));
        let step = machine.observe(PhaseSample { wss: Some(Bytes::mib(100)), events: None });
        assert_eq!(step.next, NextInterval::Track(TrackReason::Missing(MissingInput::Events)));
        let step = observe(&mut machine, 100, 1000);
        assert_eq!(step.next, NextInterval::Rest(RestReason::WssStable { deviation: 0.0 }));
    }

    #[test]
    fn reasons_are_rendered() {
        for (next, rendered) in [
            (
                NextInterval::Track(TrackReason::Filling { lacking: 2 }),
                "track: 2 more samples of this phase are needed",
            ),
            (
                NextInterval::Track(TrackReason::NewPhase { deviation: 0.125, is_jump: false }),
                "track: new phase: events changed by 12.5 %",
            ),
            (
                NextInterval::Rest(RestReason::WssStable { deviation: 0.01 }),
                "rest: working set is stable within 1.0 %",
            ),
        ] {
            assert_eq!(next.to_string(), rendered);
        }
    }
}
