//! Times how long memory takes from one guest to another.
//!
//! Idea: during the measurement a separate thread polls the balloon sizes of both guests every few
//! milliseconds, over the lab's QMP sockets. After the run, with the daemon gone and every guest at
//! its start size again, the giver fills as much memory as was moved and frees it, and its balloon
//! alone takes it: no transfer can be faster than that.
//! Limits: sizes are those that QEMU reports. A poll takes as long as QEMU needs to answer; the
//! longest time between two polls of the receiver is one of the figures. In the comparison the
//! giver's memory is free when it is taken; in the run only if the scenario makes it so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_lab_host::{Run, Scenario, Transfer};
use ballast_model::Bytes;

use super::balloon::Balloon;
use super::record::TransferRecord;
use super::start_size;

/// Time between two polls.
const POLL_PERIOD: Duration = Duration::from_millis(5);
/// The greatest number of polls of a guest: more than an hour's.
const POLLS_MAX: usize = 1 << 20;
/// How long filling, freeing, or the balloon alone may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The workload that fills the giver's memory.
const FILL: &str = "fill-before-balloon";

/// What one guest held at which time.
#[derive(Debug, Default)]
struct HeldPolls(Vec<(Instant, Bytes)>);

/// What both guests held during the run.
#[derive(Debug, Default)]
pub(super) struct HeldSeries {
    from: HeldPolls,
    to: HeldPolls,
}

/// Times of a transfer since its demand, in seconds; `None`: it never came to that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TransferTimes {
    first_use_s: Option<f64>,
    given_s: Option<f64>,
    arrived_s: Option<f64>,
    /// The longest time between two polls of the receiver until all had arrived.
    polls_apart_s_max: f64,
}

impl HeldPolls {
    /// What the guest held at `demand`, or at the first poll after it.
    fn base(&self, demand: Instant) -> Option<Bytes> {
        let at_demand = self.0.iter().rfind(|(at, _)| *at <= demand);
        at_demand.or(self.0.first()).map(|(_, held)| *held)
    }

    /// When the size first met `reached` after `demand`, in seconds since `demand`.
    fn when(&self, demand: Instant, reached: impl Fn(Bytes) -> bool) -> Option<f64> {
        let mut after = self.0.iter().filter(|(at, _)| *at > demand);
        after.find(|(_, held)| reached(*held)).map(|(at, _)| (*at - demand).as_secs_f64())
    }

    /// The longest time between two polls from `demand` until `until_s` seconds later.
    fn apart_max(&self, demand: Instant, until_s: Option<f64>) -> f64 {
        let is_within =
            |at: Instant| at > demand && until_s.is_none_or(|s| (at - demand).as_secs_f64() <= s);
        let pairs = self.0.windows(2).filter(|pair| is_within(pair[1].0));
        pairs.map(|pair| (pair[1].0 - pair[0].0).as_secs_f64()).fold(0.0, f64::max)
    }
}

impl HeldSeries {
    /// The times of a transfer of `amount` that was demanded at `demand`.
    fn times(&self, demand: Instant, amount: Bytes) -> TransferTimes {
        let (Some(from), Some(to)) = (self.from.base(demand), self.to.base(demand)) else {
            return TransferTimes::default();
        };
        let (less, more) = (from.saturating_sub(amount), to.saturating_add(amount));
        let arrived_s = self.to.when(demand, |held| held >= more);
        TransferTimes {
            first_use_s: self.to.when(demand, |held| held > to),
            given_s: self.from.when(demand, |held| held <= less),
            arrived_s,
            polls_apart_s_max: self.to.apart_max(demand, arrived_s),
        }
    }
}

/// The thread that polls.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<HeldSeries>>,
}

impl Watch {
    /// Begins to poll both guests of `transfer`.
    pub(super) fn start(run: &Run, transfer: &Transfer) -> anyhow::Result<Watch> {
        let socket =
            |name: &str| Ok::<_, anyhow::Error>(run.guest(name)?.lab_qmp_socket().to_owned());
        let sockets = [socket(transfer.from.as_str())?, socket(transfer.to.as_str())?];
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watch(&sockets, &stopped))
            .context("no thread to look at balloons with")?;
        Ok(Watch { stop, thread })
    }

    /// Stops and returns what the polls showed.
    pub(super) fn finish(self) -> anyhow::Result<HeldSeries> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread that looks at balloons has panicked"))?
    }
}

fn watch(sockets: &[PathBuf; 2], stop: &AtomicBool) -> anyhow::Result<HeldSeries> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let [from, to] = sockets;
    // Separately: QEMU does not answer while it takes pages from the giver.
    let both = async { tokio::try_join!(series(from, stop), series(to, stop)) };
    let (from, to) = runtime.block_on(both)?;
    Ok(HeldSeries { from, to })
}

async fn series(socket: &Path, stop: &AtomicBool) -> anyhow::Result<HeldPolls> {
    let mut balloon = Balloon::at(socket).await?;
    let mut polls = Vec::new();
    while !stop.load(Ordering::Relaxed) && polls.len() < POLLS_MAX {
        let held = balloon.actual().await?;
        polls.push((Instant::now(), held));
        tokio::time::sleep(POLL_PERIOD).await;
    }
    Ok(HeldPolls(polls))
}

/// The figures of `transfer`, demanded at `demand`. Afterwards guests are at their start sizes,
/// except that the giver is below it.
pub(super) async fn figures(
    scenario: &Scenario,
    transfer: &Transfer,
    run: &Run,
    held_series: &HeldSeries,
    demand: Instant,
) -> anyhow::Result<TransferRecord> {
    let times = held_series.times(demand, transfer.amount);
    let alone = balloon_alone(scenario, transfer, run).await;
    let alone = alone.with_context(|| format!("the balloon of {} alone", transfer.from))?;
    Ok(TransferRecord {
        from: transfer.from.to_string(),
        to: transfer.to.to_string(),
        amount_bytes: transfer.amount.get(),
        first_use_s: times.first_use_s,
        given_s: times.given_s,
        arrived_s: times.arrived_s,
        balloon_alone_s: alone.as_secs_f64(),
        polls_apart_s_max: times.polls_apart_s_max,
    })
}

/// How long the giver's balloon takes to take `amount` of memory that was used and is free again.
async fn balloon_alone(
    scenario: &Scenario,
    transfer: &Transfer,
    run: &Run,
) -> anyhow::Result<Duration> {
    start_size::reach(scenario, run).await?;
    let giver = run.guest(transfer.from.as_str())?;
    let pattern = Pattern::Sequential { size: transfer.amount, passes: Some(1) };
    giver.start_workload(FILL, &WorkloadSpec::from(pattern), PATIENCE)?;
    giver.wait_done(FILL, PATIENCE)?;
    let mut balloon = Balloon::of(giver).await?;
    let target = balloon.actual().await?.saturating_sub(transfer.amount);
    let began = Instant::now();
    balloon.set(target).await?;
    while balloon.actual().await? > target {
        if began.elapsed() > PATIENCE {
            bail!("it has not given {} within {} s", transfer.amount, PATIENCE.as_secs());
        }
        tokio::time::sleep(POLL_PERIOD).await;
    }
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls of both guests: when, in milliseconds, and what each held, in MiB.
    fn held_series(began: Instant, polls: &[(u64, u64, u64)]) -> HeldSeries {
        let at = |ms: u64| began + Duration::from_millis(ms);
        let from = polls.iter().map(|(ms, from, _)| (at(*ms), Bytes::mib(*from)));
        let to = polls.iter().map(|(ms, _, to)| (at(*ms), Bytes::mib(*to)));
        HeldSeries { from: HeldPolls(from.collect()), to: HeldPolls(to.collect()) }
    }

    /// First memory, given, arrived, and time between polls, in milliseconds.
    fn ms(times: TransferTimes) -> ([Option<u64>; 3], u64) {
        let ms = |s: f64| (s * 1000.0).round() as u64;
        let all = [times.first_use_s, times.given_s, times.arrived_s].map(|it| it.map(ms));
        (all, ms(times.polls_apart_s_max))
    }

    #[test]
    fn times_count_from_the_demand_and_what_was_held_then() {
        let began = Instant::now();
        let series = held_series(
            began,
            &[
                (0, 1024, 300),
                (5, 1024, 300),
                (10, 1014, 310),
                // Demanded here, at 12 ms.
                (18, 1014, 310),
                (30, 1000, 310),
                (35, 1000, 311),
                (250, 814, 400),
                (262, 800, 510),
                (400, 800, 400),
            ],
        );
        let demand = began + Duration::from_millis(12);
        let times = |demand, mib| ms(series.times(demand, Bytes::mib(mib)));
        assert_eq!(times(demand, 200), ([Some(23), Some(238), Some(250)], 215));
        assert_eq!(
            times(demand, 205),
            ([Some(23), Some(250), None], 215),
            "it did not get all of it"
        );
        let late = began + Duration::from_millis(300);
        assert_eq!(times(late, 1), ([None, None, None], 138), "nothing came any more");
        assert_eq!(HeldSeries::default().times(began, Bytes::mib(1)), TransferTimes::default());
    }
}
