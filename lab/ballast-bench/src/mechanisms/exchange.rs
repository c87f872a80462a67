//! What it costs a computing guest when memory is moved out of it and back.
//!
//! Idea: a workload that fits whatever the balloon holds goes through its memory again and again,
//! while the balloon takes and returns the same memory at a set rate. Its speed against its speed
//! at rest is the cost: of the guest's driver and allocator, and of the host, which takes pages and
//! makes new ones. Windows at all rates come in turns, each round between two windows at rest, so
//! that a machine that gets slower affects all rates.
//!
//! Cost: some ten seconds a window. Source: Global §4.5, up to 1.2 GB/s.
//! Limits: one virtual processor, which the driver takes from the workload. Rates are those that
//! the guest's own kernel counts, which are lower than requested if it cannot follow.

use std::time::{Duration, Instant};

use anyhow::Context;
use ballast_lab_guest::protocol::LabReport;
use ballast_lab_guest::workload::Pattern;
use ballast_lab_host::Accel;
use ballast_model::Bytes;
use serde::Serialize;

use super::test_guest::TestGuest;
use crate::timing::{mean, median};

/// Memory of the guest, what the workload uses, and what is moved out and back.
const MEMORY: Bytes = Bytes::mib(768);
const COMPUTED: Bytes = Bytes::mib(64);
const SWING: Bytes = Bytes::mib(384);
/// Moved by one order.
const STEP: Bytes = Bytes::mib(16);
/// Time between two checks when no order is due.
const PAUSE: Duration = Duration::from_millis(5);

/// The rate at which memory is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExchangePace {
    Rest,
    /// This many MiB a second, out and back together.
    MibPerS(u64),
    AsFastAsItGoes,
}

impl ExchangePace {
    /// The order of a round; the windows at rest around the others are the reference.
    const ROUND: [ExchangePace; 9] = [
        ExchangePace::Rest,
        ExchangePace::MibPerS(50),
        ExchangePace::MibPerS(100),
        ExchangePace::MibPerS(200),
        ExchangePace::MibPerS(400),
        ExchangePace::MibPerS(800),
        ExchangePace::MibPerS(1200),
        ExchangePace::AsFastAsItGoes,
        ExchangePace::Rest,
    ];
    const QUICK: [ExchangePace; 4] = [
        ExchangePace::Rest,
        ExchangePace::MibPerS(200),
        ExchangePace::AsFastAsItGoes,
        ExchangePace::Rest,
    ];

    fn name(self) -> String {
        match self {
            ExchangePace::Rest => "at rest".to_owned(),
            ExchangePace::MibPerS(rate) => format!("{rate} MiB/s"),
            ExchangePace::AsFastAsItGoes => "as fast as it goes".to_owned(),
        }
    }
}

/// The result for one rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// The rate requested; `null`: as fast as possible.
    pub(super) asked_bytes_per_s: Option<u64>,
    pub(super) windows: usize,
    /// Memory moved in a second, out and back together: the median.
    pub(super) moved_bytes_per_s: f64,
    /// Pages that the workload touched in a second: the median.
    pub(super) touches_per_s: f64,
    /// The same against the rest in its own round: median, least and greatest.
    pub(super) work: f64,
    pub(super) work_least: f64,
    pub(super) work_most: f64,
}

/// The counts of one window.
#[derive(Clone, Copy, Debug)]
struct Window {
    round: usize,
    pace: ExchangePace,
    touches_per_s: f64,
    moved_per_s: f64,
}

/// Measures; progress goes to `say`. Also returns how guests execute.
///
/// # Errors
/// Something that guests need is missing, or the guest does not reach a size.
pub(super) fn measure(
    rounds: usize,
    is_quick: bool,
    say: &dyn Fn(&str),
) -> anyhow::Result<(Accel, Vec<Figure>)> {
    say("work beside moving memory: booting");
    let mut test_guest = TestGuest::start(MEMORY, |_| {}, say)?;
    test_guest.start_workload(Pattern::Constant { size: COMPUTED }, None)?;
    let (paces, length) = match is_quick {
        true => (&ExchangePace::QUICK[..], Duration::from_secs(3)),
        false => (&ExchangePace::ROUND[..], Duration::from_secs(10)),
    };
    let mut windows = Vec::new();
    for round in 0..rounds {
        for &pace in paces {
            say(&format!("work beside moving memory {}/{rounds}: {}", round + 1, pace.name()));
            windows.push(window(&mut test_guest, round, pace, length)?);
            test_guest.reach(MEMORY)?;
        }
    }
    Ok((test_guest.accel(), figures(&windows)))
}

fn window(
    test_guest: &mut TestGuest,
    round: usize,
    pace: ExchangePace,
    length: Duration,
) -> anyhow::Result<Window> {
    let mut mover = Mover { pace, began: Instant::now(), steps: 0, is_taking: true };
    let before = mover.until_report(test_guest, Duration::ZERO)?;
    let after = mover.until_report(test_guest, length)?;
    let seconds = Duration::from_millis(after.uptime_ms - before.uptime_ms).as_secs_f64();
    let touches = |report: &LabReport| {
        report.workloads.first().map(|work| work.touches).context("the workload is gone")
    };
    let moved = |report: &LabReport| -> anyhow::Result<u64> {
        let pages = report.vm.balloon_inflate.zip(report.vm.balloon_deflate);
        let (inflated, deflated) =
            pages.context("the guest's kernel does not count its balloon")?;
        Ok(inflated + deflated)
    };
    let pages = moved(&after)? - moved(&before)?;
    Ok(Window {
        round,
        pace,
        touches_per_s: (touches(&after)? - touches(&before)?) as f64 / seconds,
        moved_per_s: Bytes::pages(pages).get() as f64 / seconds,
    })
}

/// Moves memory out and back.
struct Mover {
    pace: ExchangePace,
    began: Instant,
    /// Orders given since then.
    steps: u64,
    /// When moving as fast as possible, whether the balloon is inflating.
    is_taking: bool,
}

impl Mover {
    /// Continues for `length`, and until the guest's next report.
    fn until_report(
        &mut self,
        test_guest: &mut TestGuest,
        length: Duration,
    ) -> anyhow::Result<LabReport> {
        let end = Instant::now() + length;
        let mut seen = None;
        loop {
            self.step(test_guest)?;
            let latest =
                test_guest.lab.guest()?.latest_report()?.context("the guest reports nothing")?;
            if Instant::now() >= end {
                let seq = *seen.get_or_insert(latest.seq);
                if latest.seq > seq {
                    return Ok(latest);
                }
            }
        }
    }

    /// Gives the next order, if it is due.
    fn step(&mut self, test_guest: &mut TestGuest) -> anyhow::Result<()> {
        match self.pace {
            ExchangePace::Rest => std::thread::sleep(PAUSE),
            ExchangePace::MibPerS(rate) => {
                let due = self.began.elapsed().as_secs_f64() * rate as f64 / STEP.as_mib_f64();
                if due < (self.steps + 1) as f64 {
                    std::thread::sleep(PAUSE);
                } else {
                    // One order makes up for all steps that are late.
                    self.steps = due as u64;
                    test_guest.ask(MEMORY.saturating_sub(swung(self.steps)))?;
                }
            }
            ExchangePace::AsFastAsItGoes => {
                let target = match self.is_taking {
                    true => MEMORY.saturating_sub(SWING),
                    false => MEMORY,
                };
                if self.steps == 0 || test_guest.holds()? == target {
                    self.is_taking = self.steps == 0 || !self.is_taking;
                    self.steps += 1;
                    let next = if self.is_taking { SWING } else { Bytes::ZERO };
                    test_guest.ask(MEMORY.saturating_sub(next))?;
                } else {
                    std::thread::sleep(PAUSE);
                }
            }
        }
        Ok(())
    }
}

/// Size of the balloon after this many steps: up to [`SWING`] and down again.
fn swung(steps: u64) -> Bytes {
    let up = SWING.get() / STEP.get();
    let at = steps % (2 * up);
    Bytes::new(STEP.get() * at.min(2 * up - at))
}

fn figures(windows: &[Window]) -> Vec<Figure> {
    let mut paces: Vec<ExchangePace> = Vec::new();
    for window in windows {
        if !paces.contains(&window.pace) {
            paces.push(window.pace);
        }
    }
    let base = |round| {
        let at_rest =
            windows.iter().filter(|it| it.round == round && it.pace == ExchangePace::Rest);
        mean(at_rest.map(|it| it.touches_per_s))
    };
    let figure = |pace: ExchangePace| {
        let of: Vec<&Window> = windows.iter().filter(|it| it.pace == pace).collect();
        let work: Vec<f64> = of.iter().map(|it| it.touches_per_s / base(it.round)).collect();
        Figure {
            asked_bytes_per_s: match pace {
                ExchangePace::Rest => Some(0),
                ExchangePace::MibPerS(rate) => Some(Bytes::mib(rate).get()),
                ExchangePace::AsFastAsItGoes => None,
            },
            windows: of.len(),
            moved_bytes_per_s: median(of.iter().map(|it| it.moved_per_s)),
            touches_per_s: median(of.iter().map(|it| it.touches_per_s)),
            work: median(work.iter().copied()),
            work_least: work.iter().copied().fold(f64::INFINITY, f64::min),
            work_most: work.iter().copied().fold(0.0, f64::max),
        }
    };
    paces.into_iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balloon_swings_up_and_down() {
        let up = SWING.get() / STEP.get();
        let held: Vec<Bytes> = (0..=4 * up).map(swung).collect();
        assert_eq!((held[0], held[1], held[up as usize]), (Bytes::ZERO, STEP, SWING));
        assert_eq!((held[2 * up as usize], held[3 * up as usize]), (Bytes::ZERO, SWING));
        assert!(held.windows(2).all(|pair| pair[0].abs_diff(pair[1]) == STEP));
    }

    /// Each round against its own rest: 90 of 100, and 80 of 200, whatever the machine's speed was.
    #[test]
    fn work_is_held_against_the_rest_of_its_round() {
        let window = |round, pace, touches_per_s, moved_per_s| Window {
            round,
            pace,
            touches_per_s,
            moved_per_s,
        };
        let fast = ExchangePace::AsFastAsItGoes;
        let figures = figures(&[
            window(0, ExchangePace::Rest, 90.0, 0.0),
            window(0, fast, 90.0, 4096.0),
            window(0, ExchangePace::Rest, 110.0, 0.0),
            window(1, ExchangePace::Rest, 200.0, 0.0),
            window(1, fast, 80.0, 8192.0),
        ]);
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].asked_bytes_per_s, figures[0].windows), (Some(0), 3));
        let fast = &figures[1];
        assert_eq!((fast.asked_bytes_per_s, fast.moved_bytes_per_s), (None, 8192.0));
        assert_eq!((fast.work_least, fast.work_most), (0.4, 0.9));
    }
}
