//! Whether to track the next interval.
//!
//! Idea: the table of [`super`], as a state machine: an interval's samples in, the next interval's
//! tracking out, with the reason and with what was adjusted.
//! Source: MEB §3.5.3, §3.5.4.

use std::fmt;

use ballast_model::Bytes;

use super::detector::{Answer, Detector, Samples, Threshold};
use super::jump::Steady;

/// Intervals of rest before the first checkpoint, and after any adjustment: `PS_init`.
const CHECKPOINT_FIRST: u32 = 10;
/// What is added where a calibration adjusts nothing: `PS_step`.
const CHECKPOINT_STEP: u32 = 5;
/// The most intervals of rest: `PS_max`.
const CHECKPOINT_MAX: u32 = 20;

/// How the threshold of events is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Always this one.
    Fixed(Threshold),
    /// So that events say of stability what working sets say.
    Adaptive,
}

/// What an operator can set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntermittentSettings {
    /// How the threshold of events is found.
    pub mode: Mode,
    /// Samples a filter takes the mean of.
    pub samples: Samples,
    /// What memory is balanced by: working sets that differ by less are the same.
    pub unit: Bytes,
    /// Whether, in rest, a single count of events out of all proportion to those before it begins a new phase at
    /// once; the papers have nothing of the kind.
    pub jumps: bool,
}

impl IntermittentSettings {
    /// The balancing unit of MEB §3.5.3.
    pub const UNIT_DEFAULT: Bytes = Bytes::mib(1);

    /// For guests that are balanced: the papers' machine, and jumps.
    pub fn live() -> Self {
        IntermittentSettings { jumps: true, ..IntermittentSettings::default() }
    }
}

impl Default for IntermittentSettings {
    /// The adaptive machine of the papers.
    fn default() -> Self {
        let (samples, unit) = (Samples::DEFAULT, IntermittentSettings::UNIT_DEFAULT);
        IntermittentSettings { mode: Mode::Adaptive, samples, unit, jumps: false }
    }
}

/// What was seen in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The working set; not looked at in an interval of rest.
    pub wss: Option<Bytes>,
    /// How often the event happened.
    pub events: Option<u64>,
}

/// What follows of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// What to do in the next one.
    pub next: Next,
    /// How the threshold of events was moved.
    pub adjusted: Option<Adjusted>,
}

/// What to do in the next interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Track.
    Track(TrackWhy),
    /// Do not.
    Rest(RestWhy),
}

impl Next {
    /// Whether events said, in an interval of rest, that the phase goes on; what was last known of the working
    /// set then still holds.
    pub fn is_same_phase(self) -> bool {
        matches!(
            self,
            Next::Rest(RestWhy::SamePhase { .. }) | Next::Track(TrackWhy::Checkpoint { .. })
        )
    }

    /// Whether events said, in an interval of rest, that another phase has begun, and said it by themselves: of
    /// events that stray anyway, a single count says nothing of what the guest does.
    pub fn is_jump(self) -> bool {
        matches!(self, Next::Track(TrackWhy::NewPhase { is_jump: true, .. }))
    }
}

/// Why tracking goes on, or goes on again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrackWhy {
    /// Too few samples of this phase: so many intervals are lacking.
    Filling {
        /// From 1.
        lacking: usize,
    },
    /// The working set is moving.
    WssUnstable {
        /// `|err_r − 1|` of working sets.
        deviation: f64,
    },
    /// Events moved while tracking rested.
    NewPhase {
        /// `|err_r − 1|` of events.
        deviation: f64,
        /// Whether this count alone tells it ([`IntermittentSettings::jumps`]).
        is_jump: bool,
    },
    /// Tracking has rested so long that the threshold of events is to be checked.
    Checkpoint {
        /// Intervals of rest.
        rested: u32,
    },
    /// Something was not seen in an interval in which it should have been.
    Missing(Missing),
}

/// What was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The working set, though it was tracked.
    Wss,
    /// Events.
    Events,
}

/// Why tracking rests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RestWhy {
    /// The working set is stable.
    WssStable {
        /// `|err_r − 1|` of working sets.
        deviation: f64,
    },
    /// Events go on as before.
    SamePhase {
        /// Intervals of rest so far.
        rested: u32,
    },
}

/// How the threshold of events was moved, and to what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Adjusted {
    /// It was too tight: events were unstable, working sets were not.
    Relaxed(Threshold),
    /// It was too loose: working sets were unstable, events were not.
    Tightened(Threshold),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Tracking { is_calibration: bool },
    Resting { rested: u32 },
}

/// Intermittent tracking of one guest; tracks at first.
#[derive(Clone, Debug)]
pub struct Intermittent {
    is_adaptive: bool,
    threshold: Threshold,
    wss: Detector,
    events: Detector,
    samples: Samples,
    /// `None`: jumps are not looked for.
    steady: Option<Steady>,
    /// Intervals of rest until a checkpoint.
    checkpoint: u32,
    state: State,
}

impl Intermittent {
    /// Nothing seen yet.
    pub fn new(settings: IntermittentSettings) -> Self {
        let (is_adaptive, threshold) = match settings.mode {
            Mode::Fixed(threshold) => (false, threshold),
            Mode::Adaptive => (true, Threshold::ADAPTIVE_FIRST),
        };
        Intermittent {
            is_adaptive,
            threshold,
            wss: Detector::new(settings.samples, settings.unit.get()),
            events: Detector::new(settings.samples, 0),
            samples: settings.samples,
            steady: settings.jumps.then(Steady::default),
            checkpoint: CHECKPOINT_FIRST,
            state: State::Tracking { is_calibration: false },
        }
    }

    /// Whether the next interval is tracked.
    pub fn is_tracking(&self) -> bool {
        matches!(self.state, State::Tracking { .. })
    }

    /// The threshold of events as it stands.
    pub fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// Takes in what was seen in an interval, and says what to do in the next.
    pub fn observe(&mut self, seen: Interval) -> Step {
        match self.state {
            State::Tracking { is_calibration } => self.tracked(seen, is_calibration),
            State::Resting { rested } => {
                let next = self.rested(seen.events, rested + 1);
                Step { next: self.enter(next), adjusted: None }
            }
        }
    }

    fn tracked(&mut self, seen: Interval, is_calibration: bool) -> Step {
        // What is there is taken in even where the other is missing.
        let wss = seen.wss.map(|wss| self.wss.push(wss.get(), Threshold::MIN));
        let events = seen.events.map(|events| self.events.push(events, self.threshold));
        let adjusted = self.adjustment(wss, events);
        if let Some(Adjusted::Relaxed(to) | Adjusted::Tightened(to)) = adjusted {
            self.threshold = to;
            self.checkpoint = CHECKPOINT_FIRST;
        }
        let is_wss_unstable = matches!(wss, Some(Answer::Unstable(_)));
        if is_wss_unstable {
            self.wss.clear();
        }
        let are_events_unstable = matches!(events, Some(Answer::Unstable(_)))
            && !matches!(adjusted, Some(Adjusted::Relaxed(_)));
        if are_events_unstable {
            self.events.clear();
        }
        self.remember(seen.events, is_wss_unstable || are_events_unstable);
        if is_calibration && adjusted.is_none() && wss.is_some() && events.is_some() {
            self.checkpoint = (self.checkpoint + CHECKPOINT_STEP).min(CHECKPOINT_MAX);
        }
        let next = after_tracking(wss, events);
        if let (Next::Rest(_), false, Some(steady)) = (next, is_calibration, &mut self.steady) {
            // What came before the filters' samples was the way into this phase.
            steady.keep(self.samples.to_fill());
        }
        Step { next: self.enter(next), adjusted }
    }

    fn adjustment(&self, wss: Option<Answer>, events: Option<Answer>) -> Option<Adjusted> {
        if !self.is_adaptive {
            return None;
        }
        match (wss?, events?) {
            (Answer::Stable(_), Answer::Unstable(deviation)) => {
                Some(Adjusted::Relaxed(Threshold::just_over(deviation)))
            }
            (Answer::Unstable(_), Answer::Stable(deviation)) => {
                Some(Adjusted::Tightened(Threshold::just_over(deviation)))
            }
            _ => None,
        }
    }

    fn rested(&mut self, events: Option<u64>, rested: u32) -> Next {
        let Some(events) = events else {
            return Next::Track(TrackWhy::Missing(Missing::Events));
        };
        let jump = self.steady.as_ref().and_then(|steady| steady.jump(events, self.samples));
        let answer = match (self.events.push(events, self.threshold), jump) {
            (Answer::Stable(_), Some(deviation)) => Answer::Unstable(deviation),
            (answer, _) => answer,
        };
        self.remember(Some(events), matches!(answer, Answer::Unstable(_)));
        match answer {
            Answer::Unstable(deviation) => {
                self.events.clear();
                Next::Track(TrackWhy::NewPhase { deviation, is_jump: jump.is_some() })
            }
            Answer::Filling(lacking) => Next::Track(TrackWhy::Filling { lacking }),
            Answer::Stable(_) if self.is_adaptive && rested >= self.checkpoint => {
                Next::Track(TrackWhy::Checkpoint { rested })
            }
            Answer::Stable(_) => Next::Rest(RestWhy::SamePhase { rested }),
        }
    }

    /// Keeps what a later jump is told by.
    fn remember(&mut self, events: Option<u64>, is_new_phase: bool) {
        let Some(steady) = &mut self.steady else { return };
        if is_new_phase {
            steady.clear();
        }
        if let Some(events) = events {
            steady.push(events);
        }
    }

    fn enter(&mut self, next: Next) -> Next {
        self.state = match next {
            Next::Track(why) => {
                State::Tracking { is_calibration: matches!(why, TrackWhy::Checkpoint { .. }) }
            }
            Next::Rest(RestWhy::WssStable { .. }) => State::Resting { rested: 0 },
            Next::Rest(RestWhy::SamePhase { rested }) => State::Resting { rested },
        };
        next
    }
}

/// What follows of the answers of an interval that was tracked. Events that are unstable beside a working
/// set that is stable have relaxed an adaptive threshold, and a fixed one does not go by them.
fn after_tracking(wss: Option<Answer>, events: Option<Answer>) -> Next {
    Next::Track(match (wss, events) {
        (None, _) => TrackWhy::Missing(Missing::Wss),
        (_, None) => TrackWhy::Missing(Missing::Events),
        (Some(Answer::Filling(wss)), Some(Answer::Filling(events))) => {
            TrackWhy::Filling { lacking: wss.max(events) }
        }
        (Some(Answer::Filling(lacking)), _) | (_, Some(Answer::Filling(lacking))) => {
            TrackWhy::Filling { lacking }
        }
        (Some(Answer::Unstable(deviation)), _) => TrackWhy::WssUnstable { deviation },
        (Some(Answer::Stable(deviation)), _) => {
            return Next::Rest(RestWhy::WssStable { deviation });
        }
    })
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Track(why) => write!(f, "track: {why}"),
            Next::Rest(why) => write!(f, "rest: {why}"),
        }
    }
}

impl fmt::Display for TrackWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrackWhy::Filling { lacking: 1 } => write!(f, "1 more sample of this phase is needed"),
            TrackWhy::Filling { lacking } => {
                write!(f, "{lacking} more samples of this phase are needed")
            }
            TrackWhy::WssUnstable { deviation } => {
                write!(f, "the working set moves, by {:.1} %", deviation * 100.0)
            }
            TrackWhy::NewPhase { deviation, .. } => {
                write!(f, "a new phase: events moved by {:.1} %", deviation * 100.0)
            }
            TrackWhy::Checkpoint { rested } => {
                write!(f, "to calibrate, after {rested} intervals of rest")
            }
            TrackWhy::Missing(Missing::Wss) => write!(f, "no working set was read"),
            TrackWhy::Missing(Missing::Events) => write!(f, "no events were read"),
        }
    }
}

impl fmt::Display for RestWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestWhy::WssStable { deviation } => {
                write!(f, "the working set is stable, within {:.1} %", deviation * 100.0)
            }
            RestWhy::SamePhase { rested } => {
                write!(f, "events go on as before, in the last of {rested} intervals of rest")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mode: Mode) -> Intermittent {
        Intermittent::new(IntermittentSettings { mode, ..IntermittentSettings::default() })
    }

    fn fixed(threshold: f64) -> Intermittent {
        machine(Mode::Fixed(Threshold::new(threshold).unwrap()))
    }

    /// One interval; the working set in MiB.
    fn seen(machine: &mut Intermittent, wss_mib: u64, events: u64) -> Step {
        let wss = machine.is_tracking().then_some(Bytes::mib(wss_mib));
        machine.observe(Interval { wss, events: Some(events) })
    }

    /// Fills both filters and comes to rest.
    fn at_rest(mut machine: Intermittent) -> Intermittent {
        for lacking in (1..5).rev() {
            let step = seen(&mut machine, 100, 1000);
            assert_eq!(step.next, Next::Track(TrackWhy::Filling { lacking }));
        }
        let step = seen(&mut machine, 100, 1000);
        assert_eq!(step.next, Next::Rest(RestWhy::WssStable { deviation: 0.0 }));
        machine
    }

    /// The intervals of rest before each of so many checkpoints.
    fn rests(machine: &mut Intermittent, checkpoints: usize) -> Vec<u32> {
        let mut rests = Vec::new();
        for _ in 0..1000 {
            let step = seen(machine, 100, 1000);
            if let Next::Track(TrackWhy::Checkpoint { rested }) = step.next {
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
        let mut machine = at_rest(machine(Mode::Adaptive));
        assert_eq!(rests(&mut machine, 4), [10, 15, 20, 20]);
    }

    #[test]
    fn a_fixed_threshold_has_no_checkpoints() {
        let mut machine = at_rest(fixed(0.3));
        for rested in 1..100 {
            let step = seen(&mut machine, 100, 1000);
            assert_eq!(step.next, Next::Rest(RestWhy::SamePhase { rested }));
            assert!(step.next.is_same_phase());
        }
    }

    /// Events of 1000, 1000 and then 1900 while the working set stays: f = 1000, 1000, 1300,
    /// f_mean = 1100, err_r = 1.1818.
    #[test]
    fn events_that_move_begin_a_phase_and_fill_anew() {
        let mut machine = at_rest(fixed(0.15));
        let step = seen(&mut machine, 100, 1900);
        let Next::Track(TrackWhy::NewPhase { deviation, is_jump: false }) = step.next else {
            panic!("{step:?}")
        };
        assert!(!step.next.is_same_phase() && !step.next.is_jump());
        assert!((deviation - 2.0 / 11.0).abs() < 1e-12, "{deviation}");
        // The filter of working sets was kept, that of events is filled from nothing.
        for lacking in (1..5).rev() {
            let step = seen(&mut machine, 100, 1900);
            assert_eq!(step.next, Next::Track(TrackWhy::Filling { lacking }));
        }
        let step = seen(&mut machine, 100, 1900);
        assert_eq!(step.next, Next::Rest(RestWhy::WssStable { deviation: 0.0 }));
    }

    /// The same without the filter's lag: 1000 five times, then 1250, where f is 1083 and f_mean 1028.
    #[test]
    fn a_jump_begins_a_phase_at_once() {
        let settings = IntermittentSettings::live();
        for (settings, is_found) in [(settings, true), (IntermittentSettings::default(), false)] {
            let mut machine = at_rest(Intermittent::new(settings));
            let step = seen(&mut machine, 100, 1250);
            assert_eq!(matches!(step.next, Next::Track(TrackWhy::NewPhase { .. })), is_found);
            assert_eq!(step.next.is_jump(), is_found);
            assert_eq!(machine.is_tracking(), is_found);
        }
        // The phase is another then, and its own samples are not out of proportion.
        let mut machine = at_rest(Intermittent::new(settings));
        let mut intervals = 0;
        while machine.is_tracking() || intervals == 0 {
            seen(&mut machine, 125, 1250);
            intervals += 1;
            assert!(intervals < 20, "the new phase is never stable");
        }
        let step = seen(&mut machine, 125, 1250);
        assert_eq!(step.next, Next::Rest(RestWhy::SamePhase { rested: 1 }));
    }

    /// Misprint: printed is `T := err_r`, which here would be 1.273 and not 0.273.
    #[test]
    fn frozen_relaxing_takes_the_deviation_and_keeps_the_filter() {
        let mut machine = machine(Mode::Adaptive);
        for events in [1000, 1000, 1000, 1000] {
            seen(&mut machine, 100, events);
        }
        // f = 1000, 1000, 1500; f_mean = 3500 / 3; err_r = 4500 / 3500.
        let step = seen(&mut machine, 100, 2500);
        let Some(Adjusted::Relaxed(to)) = step.adjusted else { panic!("{step:?}") };
        assert!((to.get() - 2.0 / 7.0).abs() < 1e-12, "{to:?}");
        assert!(!machine.is_tracking(), "it counts as stable");
        // f = 1000, 1500, 2000; f_mean = 1500; err_r = 4/3: not filling, for the filter stayed.
        let step = seen(&mut machine, 100, 2500);
        assert!(matches!(step.next, Next::Track(TrackWhy::NewPhase { .. })), "{step:?}");
    }

    /// f = 1000, 1000, 3000: a deviation of 0.8, with which nothing that falls would be seen.
    #[test]
    fn relaxing_stops_where_a_fall_would_not_be_seen() {
        let mut machine = machine(Mode::Adaptive);
        for events in [1000, 1000, 1000, 1000] {
            seen(&mut machine, 100, events);
        }
        let step = seen(&mut machine, 100, 7000);
        assert_eq!(step.adjusted, Some(Adjusted::Relaxed(Threshold::MAX)));
        // Even at that, a fall to a tenth is seen: f = 1000, 1000, 700; then 1000, 700, 400.
        let mut machine = at_rest(self::machine(Mode::Adaptive));
        machine.threshold = Threshold::MAX;
        seen(&mut machine, 100, 100);
        let step = seen(&mut machine, 100, 100);
        assert!(matches!(step.next, Next::Track(TrackWhy::NewPhase { .. })), "{step:?}");
    }

    /// Misprint: printed is `T := err_r`; here that is 1.0, and nothing would be unstable again.
    #[test]
    fn frozen_tightening_takes_the_deviation_but_not_below_the_least() {
        let mut machine = machine(Mode::Adaptive);
        for wss in [100, 100, 100, 100] {
            seen(&mut machine, wss, 1000);
        }
        // The working set doubles while events are flat: deviation 0, which would end all rest.
        let step = seen(&mut machine, 200, 1000);
        assert_eq!(step.adjusted, Some(Adjusted::Tightened(Threshold::MIN)));
        assert!(matches!(step.next, Next::Track(TrackWhy::WssUnstable { .. })), "{step:?}");
        // By hand: events of f = 1000, 1000, 1100: deviation 3300 / 3100 − 1 = 0.0645.
        let mut machine = self::machine(Mode::Adaptive);
        for wss in [100, 100, 100, 100] {
            seen(&mut machine, wss, 1000);
        }
        let step = seen(&mut machine, 200, 1300);
        let Some(Adjusted::Tightened(to)) = step.adjusted else { panic!("{step:?}") };
        assert!((to.get() - 2.0 / 31.0).abs() < 1e-12, "{to:?}");
    }

    #[test]
    fn any_adjustment_makes_checkpoints_frequent_again() {
        let mut machine = at_rest(machine(Mode::Adaptive));
        assert_eq!(rests(&mut machine, 2), [10, 15]);
        // The calibration finds that the working set moved while events did not.
        let step = seen(&mut machine, 200, 1000);
        assert!(matches!(step.adjusted, Some(Adjusted::Tightened(_))), "{step:?}");
        assert_eq!(rests(&mut machine, 3), [10, 15, 20]);
    }

    #[test]
    fn a_calibration_that_finds_a_new_phase_adjusts_nothing() {
        let mut machine = at_rest(machine(Mode::Adaptive));
        assert_eq!(rests(&mut machine, 1), [10]);
        let step = seen(&mut machine, 200, 9000);
        assert_eq!(step.adjusted, None);
        assert!(matches!(step.next, Next::Track(TrackWhy::WssUnstable { .. })), "{step:?}");
        for lacking in (1..5).rev() {
            let step = seen(&mut machine, 100, 1000);
            assert_eq!(step.next, Next::Track(TrackWhy::Filling { lacking }));
        }
        assert_eq!(rests(&mut machine, 1), [15]);
    }

    /// It rests on the word of the working set alone, but not blind.
    #[test]
    fn a_fixed_machine_at_rest_with_an_empty_filter_wakes_at_once() {
        let mut machine = fixed(0.05);
        for events in [1000, 1000, 1000, 1000] {
            seen(&mut machine, 100, events);
        }
        let step = seen(&mut machine, 100, 2000);
        assert!(matches!(step.next, Next::Rest(RestWhy::WssStable { .. })), "{step:?}");
        let step = seen(&mut machine, 100, 2000);
        assert_eq!(step.next, Next::Track(TrackWhy::Filling { lacking: 4 }));
    }

    #[test]
    fn what_is_missing_keeps_tracking_on_and_feeds_no_filter() {
        let mut machine = at_rest(machine(Mode::Adaptive));
        let nothing = Interval { wss: None, events: None };
        let step = machine.observe(nothing);
        assert_eq!(step.next, Next::Track(TrackWhy::Missing(Missing::Events)));
        let step = machine.observe(nothing);
        assert_eq!(step.next, Next::Track(TrackWhy::Missing(Missing::Wss)));
        let step = machine.observe(Interval { wss: Some(Bytes::mib(100)), events: None });
        assert_eq!(step.next, Next::Track(TrackWhy::Missing(Missing::Events)));
        let step = seen(&mut machine, 100, 1000);
        assert_eq!(step.next, Next::Rest(RestWhy::WssStable { deviation: 0.0 }));
    }

    #[test]
    fn every_reason_is_told() {
        for (next, told) in [
            (
                Next::Track(TrackWhy::Filling { lacking: 2 }),
                "track: 2 more samples of this phase are needed",
            ),
            (
                Next::Track(TrackWhy::NewPhase { deviation: 0.125, is_jump: false }),
                "track: a new phase: events moved by 12.5 %",
            ),
            (
                Next::Rest(RestWhy::WssStable { deviation: 0.01 }),
                "rest: the working set is stable, within 1.0 %",
            ),
        ] {
            assert_eq!(next.to_string(), told);
        }
    }
}
