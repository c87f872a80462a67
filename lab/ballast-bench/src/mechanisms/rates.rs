//! How fast each mechanism moves memory.
//!
//! Idea: one guest, with each mechanism there and back in turn, again and again. Balloon and
//! plugged memory are timed until QEMU reports the size; paging until the last page has left the
//! process or is back in it.
//! Cost: some five seconds a round. Limits: the memory is not in use; memory that a guest needs
//! comes slower (see the help for a balloon). Paging is not measured on a host without swap. Pages
//! that were just written out come back from the host's copies in memory, not from its disk.

use std::time::{Duration, Instant};

use anyhow::bail;
use ballast_lab_guest::workload::Pattern;
use ballast_lab_host::{Accel, Hotplug};
use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::{
    PageIn, PageInLimits, PageOut, PageOutLimits, PagingProgress, PagingState, Picker, SwapBounds,
};
use serde::Serialize;

use super::test_guest::TestGuest;
use crate::timing::Spread;

/// Boot memory of the guest, and how much can be plugged in.
const MEMORY: Bytes = Bytes::mib(768);
const PLUGGED: Bytes = Bytes::mib(512);
/// How much free memory its balloon takes.
const TAKEN: Bytes = Bytes::mib(512);
/// How much it uses when pages are moved, and how much of that is moved.
const USED: Bytes = Bytes::mib(384);
const PAGED: Bytes = Bytes::mib(256);
/// Neighbouring pages that are moved together, as by the daemon.
const GRANULE_PAGES: u64 = 16;
/// No limit on the rate.
const NO_LIMIT: Bytes = Bytes::gib(64);
const STEP_MAX: Bytes = Bytes::mib(8);
const SWAP: SwapBounds = SwapBounds { use_max_percent: 95, reserve: Bytes::ZERO };
/// Longer than any order here takes.
const PATIENCE: Duration = Duration::from_secs(180);

/// A mechanism in one direction.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) mechanism: &'static str,
    pub(super) runs: usize,
    /// Memory moved in a run; for paging, what really left or came back.
    pub(super) bytes: u64,
    /// Bytes a second.
    pub(super) bytes_per_s: Spread,
    /// Why there are no figures; `None`: there are.
    pub(super) not_measured: Option<String>,
}

/// The memory moved and the time, by run.
type RateRuns = Vec<(Bytes, Duration)>;

/// Measures; progress goes to `say`. Also returns how guests execute.
///
/// # Errors
/// Something that guests need is missing, or the guest does not reach a size.
pub(super) fn measure(rounds: usize, say: &dyn Fn(&str)) -> anyhow::Result<(Accel, Vec<Figure>)> {
    say("rates of mechanisms: booting");
    let with_device =
        |spec: &mut ballast_lab_host::GuestSpec| spec.hotplug = Some(Hotplug::virtio_mem(PLUGGED));
    let mut test_guest = TestGuest::start(MEMORY, with_device, say)?;
    let mut runs: [RateRuns; 4] = Default::default();
    for round in 0..rounds {
        say(&format!("rates of mechanisms {}/{rounds}: balloon, virtio-mem", round + 1));
        runs[0].push((TAKEN, test_guest.reach(MEMORY.saturating_sub(TAKEN))?));
        runs[1].push((TAKEN, test_guest.reach(MEMORY)?));
        runs[2].push((PLUGGED, test_guest.plug(PLUGGED)?));
        runs[3].push((PLUGGED, test_guest.plug(Bytes::ZERO)?));
    }
    let names =
        ["balloon, inflating", "balloon, deflating", "virtio-mem, plug", "virtio-mem, unplug"];
    let mut figures: Vec<Figure> =
        names.into_iter().zip(&runs).map(|(name, runs)| figure(name, runs, None)).collect();
    test_guest.start_workload(Pattern::Constant { size: USED }, Some(1))?;
    let mut runs: [RateRuns; 2] = Default::default();
    let mut why_not = None;
    for round in 0..rounds {
        say(&format!("rates of mechanisms {}/{rounds}: pages", round + 1));
        match there_and_back(&test_guest) {
            Ok([out, back]) => {
                runs[0].push(out);
                runs[1].push(back);
            }
            Err(why) => {
                why_not = Some(format!("{why:#}"));
                break;
            }
        }
    }
    for (name, runs) in ["pages, out", "pages, in"].into_iter().zip(&runs) {
        figures.push(figure(name, runs, why_not.clone()));
    }
    Ok((test_guest.accel(), figures))
}

/// Pages moved to the host's swap and back.
fn there_and_back(test_guest: &TestGuest) -> anyhow::Result<[(Bytes, Duration); 2]> {
    let paging = test_guest.paging()?;
    let limits = PageOutLimits { per_second: NO_LIMIT, step_bytes_max: STEP_MAX, swap: SWAP };
    let mut out = PageOut::new(PAGED, Picker::new(1).granule_pages(GRANULE_PAGES), limits);
    let out = finish(|now| out.step(&paging, now))?;
    let limits = PageInLimits { per_second: NO_LIMIT, step_bytes_max: STEP_MAX };
    let mut back = PageIn::new(None, limits);
    let back = finish(|now| back.step(&paging, now, NO_LIMIT))?;
    Ok([out, back])
}

/// Takes steps until nothing is left to do; returns how much was moved, and in how long.
fn finish(mut step: impl FnMut(Timestamp) -> PagingProgress) -> anyhow::Result<(Bytes, Duration)> {
    let began = Instant::now();
    loop {
        let progress = step(Timestamp::ZERO + began.elapsed());
        let taken = began.elapsed();
        match progress.state {
            PagingState::Finished(_) => return Ok((progress.moved, taken)),
            PagingState::Failed(refusal) => bail!("{refusal}"),
            PagingState::InProgress | PagingState::Waiting { .. } if taken > PATIENCE => {
                bail!("not finished after {} s", taken.as_secs())
            }
            PagingState::InProgress | PagingState::Waiting { .. } => {}
        }
    }
}

fn figure(mechanism: &'static str, runs: &RateRuns, not_measured: Option<String>) -> Figure {
    let speeds = runs.iter().map(|(moved, taken)| moved.get() as f64 / taken.as_secs_f64());
    Figure {
        mechanism,
        runs: runs.len(),
        bytes: runs.iter().map(|run| run.0.get()).min().unwrap_or(0),
        bytes_per_s: Spread::of_speeds(speeds),
        not_measured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_run_is_the_worst() {
        let runs = vec![
            (Bytes::mib(10), Duration::from_secs(1)),
            (Bytes::mib(10), Duration::from_secs(5)),
            (Bytes::mib(9), Duration::from_secs(3)),
        ];
        let figure = figure("a", &runs, None);
        let mib = |n: f64| n / (1 << 20) as f64;
        assert_eq!((figure.runs, figure.bytes), (3, Bytes::mib(9).get()));
        assert_eq!((mib(figure.bytes_per_s.median), mib(figure.bytes_per_s.worst)), (3.0, 2.0));
    }

    #[test]
    fn what_is_refused_has_no_figures() {
        let refused = |_| PagingProgress {
            state: PagingState::Failed(ballast_reclaim::ReclaimError::NoSwap),
            tried: Bytes::ZERO,
            moved: Bytes::ZERO,
        };
        assert!(finish(refused).is_err());
        assert_eq!(figure("a", &RateRuns::new(), Some("no swap".to_owned())).runs, 0);
    }
}
