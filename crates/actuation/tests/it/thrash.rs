//! Guests that thrash after a reduction and others: named cases, and random guests.

use std::time::Duration;

use ballast_actuation::thrash::{ThrashDetector, ThrashSettings, Thrashing};
use ballast_model::{
    AgentReport, Bytes, GuestSample, GuestStats, LinkState, Measured, Regret, Timestamp,
};
use proptest::prelude::*;

/// A sample of a guest; sizes are MiB, `swap` and `files` since boot.
#[derive(Clone, Copy, Debug)]
struct Reading {
    holds: u64,
    swap: Option<u64>,
    files: Option<u64>,
}

fn sample(reading: Reading) -> GuestSample {
    let swap_in = reading.swap.map(Bytes::mib);
    let stats = GuestStats { swap_in, ..GuestStats::default() };
    let agent = reading.files.map(|files| {
        Measured::fresh(AgentReport {
            refaulted_file_pages: Some(Bytes::mib(files).to_pages()),
            ..AgentReport::default()
        })
    });
    GuestSample {
        allocation: Some(Measured::fresh(Bytes::mib(reading.holds))),
        stats: Some(Measured::fresh(stats)),
        agent: agent.map(Box::new),
        ..GuestSample::unknown("g".parse().unwrap(), LinkState::Up)
    }
}

/// A guest watched every second.
#[derive(Default)]
struct WatchedGuest {
    second: u64,
    detector: ThrashDetector,
}

impl WatchedGuest {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.second * 1000)
    }

    fn observe(&mut self, reading: Reading) -> Option<Thrashing> {
        self.second += 1;
        self.detector.observe(self.now(), &sample(reading), &ThrashSettings::default())
    }

    /// Samples a guest that holds `holds` for some seconds and reads `swap` back in each.
    fn stay(&mut self, seconds: u64, holds: u64, swap: &mut u64, by: u64) -> Vec<Thrashing> {
        (0..seconds)
            .filter_map(|_| {
                *swap += by;
                self.observe(Reading { holds, swap: Some(*swap), files: None })
            })
            .collect()
    }
}

fn thrashing(held: u64, taken: u64, read_back: u64) -> Thrashing {
    let [held, taken, read_back] = [held, taken, read_back].map(Bytes::mib);
    Thrashing { held, taken, read_back }
}

#[test]
fn a_guest_that_thrashes_gets_back_what_was_taken() {
    // Taken, read back per second; the first verdict, if any.
    for (taken, by, expected) in [
        (400, 0, None),
        (400, 10, None),
        (400, 12, Some(thrashing(1000, 400, 108))),
        (400, 101, Some(thrashing(1000, 400, 101))),
        (40, 1, None),
        (40, 2, Some(thrashing(1000, 40, 18))),
        (40, 17, Some(thrashing(1000, 40, 17))),
    ] {
        let (mut guest, mut swap) = (WatchedGuest::default(), 5_000);
        guest.stay(20, 1000, &mut swap, 0);
        guest.stay(1, 1000 - taken, &mut swap, 0);
        let verdicts = guest.stay(30, 1000 - taken, &mut swap, by);
        assert_eq!(verdicts.first().copied(), expected, "{taken} taken, {by} a second");
        assert_eq!(guest.detector.regret().unwrap().undone, u64::from(expected.is_some()));
    }
}

#[test]
fn what_it_read_anyway_does_not_count() {
    let (mut guest, mut swap) = (WatchedGuest::default(), 0);
    guest.stay(30, 1000, &mut swap, 50);
    assert_eq!(guest.stay(30, 800, &mut swap, 50), []);
    let regret = guest.detector.regret().unwrap();
    assert_eq!((regret.taken, regret.basis_points()), (Bytes::mib(200), 0));
    assert_eq!(guest.stay(15, 600, &mut swap, 100).len(), 1);
}

#[test]
fn a_reduction_in_steps_is_one() {
    let (mut guest, mut swap) = (WatchedGuest::default(), 0);
    guest.stay(5, 1000, &mut swap, 0);
    for holds in [950, 900, 850, 800] {
        assert_eq!(guest.stay(2, holds, &mut swap, 5), []);
    }
    assert_eq!(guest.stay(9, 800, &mut swap, 5), [thrashing(1000, 200, 55)]);
    let regret = Regret { taken: Bytes::mib(200), read_back: Bytes::mib(55), undone: 1 };
    assert_eq!(guest.detector.regret(), Some(regret));
}

#[test]
fn the_pause_after_an_undo_grows_and_is_forgotten() {
    let (mut guest, mut swap) = (WatchedGuest::default(), 0);
    for pause in [60, 120, 240, 480, 960, 960] {
        guest.stay(3, 1000, &mut swap, 0);
        guest.stay(1, 800, &mut swap, 0);
        assert_eq!(guest.stay(1, 800, &mut swap, 60).len(), 1);
        guest.stay(pause - 1, 1000, &mut swap, 0);
        assert_eq!(guest.detector.least(guest.now()), Some(Bytes::mib(1000)));
        guest.stay(1, 1000, &mut swap, 0);
        assert_eq!(guest.detector.least(guest.now()), None);
    }
    assert_eq!(guest.stay(20, 800, &mut swap, 0), []);
    assert_eq!(guest.stay(2, 600, &mut swap, 60).len(), 1);
    guest.stay(60, 800, &mut swap, 0);
    assert_eq!(guest.detector.least(guest.now()), None, "the pause started over");
}

#[test]
fn counters_that_come_go_or_fall_are_no_thrashing() {
    let steps = [
        (Some(0), None),
        (Some(0), Some(9_000)),
        (None, Some(9_001)),
        (Some(500_000), None),
        (Some(3), Some(2)),
        (None, None),
        (Some(900_000), Some(2)),
    ];
    for (at, (swap, files)) in steps.into_iter().enumerate().skip(1) {
        let mut guest = WatchedGuest::default();
        let (swap_before, files_before) = steps[at - 1];
        for holds in [1000, 600] {
            guest.observe(Reading { holds, swap: swap_before, files: files_before });
        }
        assert_eq!(guest.observe(Reading { holds: 600, swap, files }), None, "step {at}");
    }
}

#[test]
fn refaults_of_files_count_as_well() {
    let mut guest = WatchedGuest::default();
    for (holds, files) in [(1000, 70), (600, 70), (600, 120)] {
        assert_eq!(guest.observe(Reading { holds, swap: Some(0), files: Some(files) }), None);
    }
    let last = Reading { holds: 600, swap: Some(60), files: Some(120) };
    assert_eq!(guest.observe(last), Some(thrashing(1000, 400, 110)));
}

fn any_reading() -> impl Strategy<Value = (u64, u64, u64)> {
    (prop_oneof![Just(1000), 200..1000u64], prop_oneof![Just(0), 0..60u64], 0..30u64)
}

proptest! {
    /// The oracle keeps the plainest possible account. An undo is always backed by what was taken
    /// and read back since the guest last held what it gets back, and there is none while nothing
    /// is read.
    #[test]
    fn an_undo_is_backed_by_what_happened(steps in prop::collection::vec(any_reading(), 1..200)) {
        let mut guest = WatchedGuest::default();
        let (mut swap, mut files) = (77, 11);
        let mut history: Vec<(u64, u64)> = Vec::new();
        for (holds, by, refaults) in steps {
            swap += by;
            files += refaults / 10;
            history.push((holds, swap + files));
            let found = guest.observe(Reading { holds, swap: Some(swap), files: Some(files) });
            if let Some(Thrashing { held, taken, read_back }) = found {
                prop_assert!(read_back > taken.fraction(1, 4).max(Bytes::mib(16)));
                let [held, taken, read_back] = [held, taken, read_back].map(|it| it.get() >> 20);
                let from = history.iter().rposition(|(holds, _)| *holds == held).unwrap();
                prop_assert_eq!(held - taken, holds, "what it holds now");
                // Read since the sample in which the reduction was first seen.
                prop_assert!(read_back <= swap + files - history[from + 1].1);
                prop_assert_eq!(guest.detector.least(guest.now()), Some(Bytes::mib(held)));
            }
        }
        let most = history.windows(2).map(|pair| pair[0].0.saturating_sub(pair[1].0)).sum::<u64>();
        let regret = guest.detector.regret().unwrap_or_default();
        prop_assert!(regret.taken <= Bytes::mib(most));
        prop_assert!(regret.read_back <= Bytes::mib(swap + files - 88));
    }

    /// A reduction of a guest that keeps reading back as it always did is never undone.
    #[test]
    fn a_steady_reader_is_never_undone(rate in 0..100u64, down in prop::collection::vec(1..50u64, 1..20)) {
        let (mut guest, mut swap, mut holds) = (WatchedGuest::default(), 0, 2000);
        guest.stay(30, holds, &mut swap, rate);
        for by in down {
            holds -= by;
            prop_assert_eq!(guest.stay(12, holds, &mut swap, rate), []);
        }
        prop_assert_eq!(guest.detector.regret().unwrap().basis_points(), 0);
    }

    /// Undoes for a guest that always thrashes become rare: at most one per pause.
    #[test]
    fn undoes_are_bounded(seconds in 100..4_000u64) {
        let (mut guest, mut swap, mut undone) = (WatchedGuest::default(), 0, 0);
        let mut until = 0;
        while guest.second < seconds {
            let shrinks = guest.detector.least(guest.now()).is_none();
            prop_assert!(!shrinks || guest.second >= until);
            guest.stay(1, 1000, &mut swap, 0);
            if shrinks {
                guest.stay(1, 700, &mut swap, 0);
                undone += guest.stay(1, 700, &mut swap, 100).len() as u64;
                until = guest.second + 50;
            }
        }
        prop_assert!(undone <= 6 + seconds / Duration::from_secs(900).as_secs(), "{undone}");
    }
}
