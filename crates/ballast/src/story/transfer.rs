//! How long it takes memory to get from one guest to another.
//!
//! Idea: while a run is measured a thread of its own asks both guests' QEMU for the sizes of their balloons, every few
//! milliseconds, over the lab's sockets. After the run, with the daemon gone and every guest at its start again, the giver
//! fills as much memory as was moved, frees it, and its balloon takes it by itself: no transfer can be faster than that.
//! Limits: sizes are those QEMU tells; a look takes as long as QEMU needs to answer, and the longest pause between two
//! is told with the figures. The giver's memory is free when it is taken, in either case only if the scenario has it so.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use ballast_lab::{Run, Scenario, Transfer};
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_model::Bytes;

use super::balloon::Balloon;
use super::record::TransferRecord;
use super::start_size;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Most looks kept; those that show nothing new are not.
const LOOKS_MAX: usize = 1 << 20;
/// How long filling, freeing, and the balloon by itself may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The workload that fills the giver's memory.
const FILL: &str = "fill-before-balloon";

/// What both guests held at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    at: Instant,
    from: Bytes,
    to: Bytes,
}

/// What was seen of both guests.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Those that showed something new.
    changes: Vec<Look>,
    /// The longest time between any two.
    apart_max: Duration,
}

impl Looks {
    fn add(&mut self, look: Look, before: Option<Instant>) {
        self.apart_max = self.apart_max.max(before.map_or(Duration::ZERO, |it| look.at - it));
        let is_new =
            self.changes.last().is_none_or(|last| (last.from, last.to) != (look.from, look.to));
        if is_new && self.changes.len() < LOOKS_MAX {
            self.changes.push(look);
        }
    }

    /// When the receiver had more than at `demand`, and when `amount` more; each in seconds since then.
    fn times(&self, demand: Instant, amount: Bytes) -> (Option<f64>, Option<f64>) {
        let at_demand = self.changes.iter().rfind(|look| look.at <= demand);
        let Some(base) = at_demand.or(self.changes.first()).map(|look| look.to) else {
            return (None, None);
        };
        let since = |least: Bytes| {
            let mut after = self.changes.iter().filter(|look| look.at > demand);
            after.find(|look| look.to >= least).map(|look| (look.at - demand).as_secs_f64())
        };
        (since(base.saturating_add(Bytes::new(1))), since(base.saturating_add(amount)))
    }
}

/// The thread that looks.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Looks>>,
}

impl Watch {
    /// Begins to look at both guests of `transfer`.
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

    /// What it has seen.
    pub(super) fn finish(self) -> anyhow::Result<Looks> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread that looks at balloons has panicked"))?
    }
}

fn watch(sockets: &[PathBuf; 2], stop: &AtomicBool) -> anyhow::Result<Looks> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let [from, to] = sockets;
        let (mut from, mut to) = (Balloon::at(from).await?, Balloon::at(to).await?);
        let (mut looks, mut before) = (Looks::default(), None);
        while !stop.load(Ordering::Relaxed) {
            let sizes = (from.actual().await?, to.actual().await?);
            let look = Look { at: Instant::now(), from: sizes.0, to: sizes.1 };
            looks.add(look, before);
            before = Some(look.at);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(looks)
    })
}

/// The figures of `transfer`, demanded at `demand`; guests are at their starts afterwards, the giver below.
pub(super) async fn figures(
    scenario: &Scenario,
    transfer: &Transfer,
    run: &Run,
    looks: &Looks,
    demand: Instant,
) -> anyhow::Result<TransferRecord> {
    let (first_use_s, arrived_s) = looks.times(demand, transfer.amount);
    let alone = balloon_alone(scenario, transfer, run).await;
    let alone = alone.with_context(|| format!("the balloon of {} by itself", transfer.from))?;
    Ok(TransferRecord {
        from: transfer.from.to_string(),
        to: transfer.to.to_string(),
        amount_bytes: transfer.amount.get(),
        first_use_s,
        arrived_s,
        balloon_alone_s: alone.as_secs_f64(),
        looks_apart_s_max: looks.apart_max.as_secs_f64(),
    })
}

/// How long the giver's balloon needs to take `amount` of memory that was used and is free.
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
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(began: Instant, seen: &[(u64, u64, u64)]) -> Looks {
        let mut looks = Looks::default();
        let mut before = None;
        for (at_ms, from, to) in seen {
            let at = began + Duration::from_millis(*at_ms);
            looks.add(Look { at, from: Bytes::mib(*from), to: Bytes::mib(*to) }, before);
            before = Some(at);
        }
        looks
    }

    #[test]
    fn times_count_from_the_demand_and_what_the_receiver_had_then() {
        let began = Instant::now();
        let seen = looks(
            began,
            &[
                (0, 1024, 300),
                (5, 1024, 300),
                (10, 1014, 310),
                // Demanded here, at 12 ms.
                (18, 1014, 310),
                (30, 1000, 310),
                (35, 1000, 311),
                (300, 900, 400),
                (312, 800, 510),
                (400, 800, 400),
            ],
        );
        assert_eq!(seen.changes.len(), 7);
        assert_eq!(seen.apart_max, Duration::from_millis(265));
        let demand = began + Duration::from_millis(12);
        let ms = |(first, all): (Option<f64>, Option<f64>)| {
            [first, all].map(|it| it.map(|s| (s * 1000.0).round() as u64))
        };
        assert_eq!(ms(seen.times(demand, Bytes::mib(200))), [Some(23), Some(300)]);
        assert_eq!(ms(seen.times(demand, Bytes::mib(201))), [Some(23), None], "not all of it");
        let late = began + Duration::from_millis(350);
        assert_eq!(ms(seen.times(late, Bytes::mib(1))), [None, None], "it got nothing more");
        assert_eq!(ms(Looks::default().times(began, Bytes::mib(1))), [None, None]);
    }
}
