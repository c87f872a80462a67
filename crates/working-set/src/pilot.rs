//! How to watch a guest next.
//!
//! Idea: the machines of MEB §3, each fed with what the others left. An interval that was watched is
//! analysed; its working set goes to the phase detector, which says whether the next one is watched at
//! all; its curve says how many pages may stay accessible; its cost, which share of the granules is
//! watched. Two ways: a *sample* of pages, of which the budget says how large it may be, or *every*
//! granule as in MEB, whose size follows the working set.
//!
//! Cost: that of [`Analysis`]. Source: MEB §3.1.2, §3.4, §3.5; the sample and its budget are ours.
//! Limits: in rest nothing is learned, so the estimate stays; the budget does not bound watching every
//! granule, it only tells what it costs. Intervals that the budget leaves out are as those of rest, and the
//! phase detector is told nothing of them but the event.

use std::time::Duration;

use ballast_estimate::granularity::GranularitySwitch;
use ballast_estimate::hot_set::{HotSet, HotSetInput};
use ballast_estimate::phase::{Intermittent, IntermittentSettings, Next, Step};
use ballast_model::Bytes;
use ballast_mrc::Granularity;

use crate::analysis::{Analysis, AnalysisSettings, Interval, Seen, Watched};
use crate::budget::Budget;

/// What an operator can set.
#[derive(Clone, Debug, PartialEq)]
pub struct PilotSettings {
    /// Of a sample of pages, what watching may cost; `None` watches every granule.
    pub sample: Option<Budget>,
    /// When to rest; `None` watches always.
    pub rest: Option<IntermittentSettings>,
    /// Whether granules that were touched last stay accessible until others have been touched (MEB
    /// §3.4), and trap again then; else each traps once an interval. Of a sample it is no by default:
    /// at a machine's own speed even a sample of 512 pages out of 200 MiB then traps 50,000 times a
    /// second (`ballast bench track`), and no share is small enough for the budget.
    pub hot_set: bool,
    /// What touches are weighed by.
    pub analysis: AnalysisSettings,
}

impl Default for PilotSettings {
    fn default() -> PilotSettings {
        PilotSettings {
            sample: Some(Budget::default()),
            rest: Some(IntermittentSettings::live()),
            hot_set: false,
            analysis: AnalysisSettings::default(),
        }
    }
}

/// How to watch an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watch {
    /// Whether it is watched at all.
    pub is_on: bool,
    /// In what granules, and which share of them.
    pub watched: Watched,
    /// Watched granules that stay accessible, first in first out; `None`: all that were touched, until
    /// the interval's end.
    pub hot: Option<u64>,
}

/// An interval that is over.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// Pages touched, in order; `None` where it was an interval of rest, or nothing was seen of it.
    pub touches: Option<&'a [u64]>,
    /// Touches seen and lost.
    pub lost: u64,
    /// How often the event happened by which phases are told (see `estimate`).
    pub events: Option<u64>,
    /// Processor time that watching took, of tracker and guest.
    pub cost: Duration,
    /// How long the interval was.
    pub length: Duration,
    /// What the guest holds.
    pub allocation: Bytes,
}

/// The machines of one guest.
#[derive(Debug)]
pub struct Pilot {
    settings: PilotSettings,
    analysis: Analysis,
    granularity: GranularitySwitch,
    hot: HotSet,
    phase: Option<Intermittent>,
    is_on: bool,
    /// Whether the guest is left in peace because its phase lasts, not for want of budget.
    is_resting: bool,
    /// Intervals that are left out yet.
    pause: u32,
    allocation: Bytes,
}

impl Pilot {
    /// Of a guest that holds `allocation` and was not watched yet.
    pub fn new(settings: PilotSettings, allocation: Bytes) -> Pilot {
        Pilot {
            analysis: Analysis::new(settings.analysis),
            granularity: GranularitySwitch::default(),
            hot: HotSet::default(),
            phase: settings.rest.map(Intermittent::new),
            is_on: true,
            is_resting: false,
            pause: 0,
            allocation,
            settings,
        }
    }

    /// How to watch the interval that begins.
    pub fn watch(&self) -> Watch {
        let watched = self.watched();
        let hot =
            (self.hot.pages() as f64 * watched.share / watched.granule.pages() as f64).round();
        Watch {
            is_on: self.is_on,
            watched,
            hot: self.settings.hot_set.then_some((hot as u64).max(1)),
        }
    }

    /// Takes in the interval that was begun by the last [`watch`](Self::watch), with `has` saying which
    /// granules were watched. What was seen of the guest, and what follows for its phases.
    pub fn end_interval(
        &mut self,
        finished: Finished<'_>,
        has: impl Fn(u64) -> bool,
    ) -> (Option<Seen>, Option<Step>) {
        let Finished { touches, lost, events, cost, length, allocation } = finished;
        let watched = self.watched();
        let seen = touches.map(|touches| {
            self.analysis.end_interval(Interval { watched, touches, lost, length }, has)
        });
        self.allocation = allocation;
        self.pause = self.pause.saturating_sub(1);
        if let Some(seen) = &seen {
            let wss = seen.report.working_set;
            let _ = self.granularity.update(wss);
            self.hot.update(HotSetInput { wss, half_miss: seen.half_miss, allocation });
            if let Some(budget) = &mut self.settings.sample {
                budget.update(cost, length, allocation.to_pages());
                self.pause = budget.pause();
            }
        } else if let Some(budget) = self.settings.sample.as_mut().filter(|_| self.is_resting) {
            budget.rest(length);
        }
        let wss = seen.as_ref().map(|seen| seen.report.working_set);
        let step = self
            .phase
            .as_mut()
            .map(|phase| phase.observe(ballast_estimate::phase::Interval { wss, events }));
        let is_moving = step.is_none_or(|step| matches!(step.next, Next::Track(_)));
        self.is_resting = !is_moving;
        self.is_on = is_moving && self.pause == 0;
        (seen, step)
    }

    /// Watched granules ever touched, by their number, latest touch first; O(their number).
    pub fn order(&self) -> Vec<u64> {
        self.analysis.order()
    }

    fn watched(&self) -> Watched {
        match &self.settings.sample {
            Some(budget) => Watched {
                granule: Granularity::PAGE,
                share: budget.share(self.allocation.to_pages()),
            },
            None => Watched {
                granule: Granularity::new(self.granularity.now().pages())
                    .unwrap_or(Granularity::PAGE),
                share: 1.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn finished(touches: Option<&[u64]>) -> Finished<'_> {
        Finished {
            touches,
            lost: 0,
            events: Some(1000),
            cost: Duration::from_millis(2),
            length: SECOND,
            allocation: Bytes::gib(1),
        }
    }

    #[test]
    fn a_steady_guest_is_left_in_peace_and_watched_again_when_events_move() {
        let mut pilot = Pilot::new(PilotSettings::default(), Bytes::gib(1));
        let touches: Vec<u64> = (0..5000).collect();
        let mut watched = 0;
        while pilot.watch().is_on {
            let (seen, _) = pilot.end_interval(finished(Some(&touches)), |_| true);
            assert!(seen.is_some());
            watched += 1;
            assert!(watched < 20);
        }
        assert!(watched >= 5, "the filters need five: {watched}");
        let (seen, step) = pilot.end_interval(finished(None), |_| true);
        assert!(seen.is_none() && matches!(step.unwrap().next, Next::Rest(_)));
        for _ in 0..3 {
            pilot.end_interval(Finished { events: Some(9000), ..finished(None) }, |_| true);
        }
        assert!(pilot.watch().is_on);
    }

    #[test]
    fn a_sample_grows_while_it_costs_little_and_shrinks_when_it_costs_too_much() {
        let mut pilot =
            Pilot::new(PilotSettings { rest: None, ..PilotSettings::default() }, Bytes::gib(1));
        let before = pilot.watch().watched.share;
        let cheap = Finished { cost: Duration::from_micros(10), ..finished(Some(&[1, 2, 3])) };
        pilot.end_interval(cheap, |_| true);
        pilot.end_interval(cheap, |_| true);
        assert_eq!(pilot.watch().watched.share, before * 4.0);
        let dear = Finished { cost: Duration::from_millis(50), ..finished(Some(&[1])) };
        pilot.end_interval(dear, |_| true);
        assert!(pilot.watch().watched.share < before);
    }

    #[test]
    fn what_a_phase_leaves_of_the_budget_is_spent_on_the_next() {
        let touches: Vec<u64> = (0..5000).collect();
        let share_after = |rests| {
            let mut pilot = Pilot::new(PilotSettings::default(), Bytes::gib(1));
            while pilot.watch().is_on {
                pilot.end_interval(finished(Some(&touches)), |_| true);
            }
            for _ in 0..rests {
                pilot.end_interval(finished(None), |_| true);
            }
            while !pilot.watch().is_on {
                pilot.end_interval(Finished { events: Some(9000), ..finished(None) }, |_| true);
            }
            // 1.4 times the limit.
            let dear = Finished { cost: Duration::from_millis(7), ..finished(Some(&touches)) };
            pilot.end_interval(dear, |_| true);
            pilot.watch().watched.share
        };
        assert_eq!(share_after(10), share_after(0) * 2.0);
    }

    #[test]
    fn a_guest_whose_traps_are_dear_is_watched_less_often() {
        let settings = PilotSettings { rest: None, ..PilotSettings::default() };
        let mut pilot = Pilot::new(settings, Bytes::mib(2));
        // 512 pages in all, at 3 % of a core, where 1 % is allowed for at most.
        let dear = Finished {
            cost: Duration::from_millis(30),
            allocation: Bytes::mib(2),
            ..finished(Some(&[1, 2, 3]))
        };
        let mut is_on = Vec::new();
        for _ in 0..6 {
            let now = pilot.watch().is_on;
            is_on.push(now);
            pilot
                .end_interval(Finished { touches: dear.touches.filter(|_| now), ..dear }, |_| true);
        }
        assert_eq!(is_on, [true, false, false, true, false, false]);
    }

    #[test]
    fn every_granule_is_watched_in_larger_ones_above_2_gib() {
        let settings =
            PilotSettings { sample: None, rest: None, hot_set: true, ..PilotSettings::default() };
        let mut pilot = Pilot::new(settings, Bytes::gib(4));
        assert_eq!(pilot.watch().watched.granule.pages(), 32);
        assert_eq!(pilot.watch().hot, Some(32), "1,024 pages");
        // A page of each granule of 2.5 GiB.
        let touches: Vec<u64> = (0..20_480).map(|granule| granule * 32).collect();
        let large = Finished { allocation: Bytes::gib(4), ..finished(Some(&touches)) };
        let (seen, _) = pilot.end_interval(large, |_| true);
        assert_eq!(seen.unwrap().report.working_set, Bytes::mib(2560));
        let Watch { watched, hot, .. } = pilot.watch();
        assert_eq!((watched.granule.pages(), watched.share), (512, 1.0));
        assert!(hot.is_some_and(|hot| hot >= 1));
    }
}
