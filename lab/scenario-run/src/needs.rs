//! Each guest's need: the smallest memory in which it reads nothing back.
//!
//! Idea (the ideal of TWS §4.1): with all their memory, guests run the workloads that the scenario
//! starts at 0 s, until each has gone through its memory once. Then sizes are tried by bisection,
//! for each guest separately and for all guests at the same time. A size is enough if the guest
//! goes through its memory again and reads back no more than chance. A size that is not enough is
//! given up as soon as that shows, and everything in swap is read back before the next size is
//! tried.
//! Cost: some minutes, most of them for reading back.
//! Limits: the resolution is [`STEPS`] steps of a guest's memory, and no size is below the guest's
//! floor. Workloads that begin later than at 0 s are ignored, and a workload that changes has no
//! single need.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_lab_guest::protocol::{FromGuest, LabReport};
use ballast_lab_host::{Event, Guest, Run, Scenario, ScenarioGuest, Subscription};
use ballast_model::Bytes;
use tokio::time::Instant;

use super::balloon::Balloon;
use super::live::Live;
use super::turns::starts;

/// The number of steps into which a guest's memory is divided for the search.
const STEPS: u64 = 64;
/// Passes through its memory for which a size is tried; the first may have begun before the trial.
const PASSES: u64 = 2;
/// Least length of a trial, so that memory that is seldom used is used, too.
const TRIAL_MIN: Duration = Duration::from_secs(5);
/// Pages that may be read back during a trial: those of the kernel and of idle programs.
const READ_BACK_MAX: u64 = 32;
/// How long a guest may take to fill its memory, to reach a size, or to read everything back.
const PATIENCE: Duration = Duration::from_secs(240);
/// Time between two polls.
const POLL: Duration = Duration::from_millis(200);

/// The need of every guest that works, by the guest's name.
///
/// # Errors
/// The guests cannot be started, or one does not get through its memory.
pub(super) async fn find(
    scenario: &Scenario,
    live: &mut Live,
) -> anyhow::Result<BTreeMap<String, Bytes>> {
    let shared_live = RefCell::new(live);
    let say = |line: &str| shared_live.borrow_mut().say(line);
    let run = Run::start(&scenario.unlimited().run_options(), &say)?;
    for start in starts(scenario).into_iter().filter(|start| start.at.is_zero()) {
        run.guest(start.guest.as_str())?.send_start(&start.id, &start.spec)?;
    }
    let is_working = |guest: &&ScenarioGuest| guest.workloads.iter().any(|it| it.at.is_zero());
    let each = scenario.guests.iter().filter(is_working).map(|guest| {
        let (run, say) = (&run, &say);
        async move {
            let name = guest.name.as_str();
            let found = NeedSubject::new(run.guest(name)?).await?.need(guest, say).await;
            let need = found.with_context(|| format!("guest {name}: what it needs"))?;
            Ok((name.to_owned(), need))
        }
    });
    let found: anyhow::Result<Vec<_>> = futures_util::future::try_join_all(each).await;
    run.shutdown();
    Ok(found?.into_iter().collect())
}

/// A guest whose need is being found.
struct NeedSubject<'a> {
    guest: &'a Guest,
    events: Subscription,
    balloon: Balloon,
    counters: ReportCounters,
}

/// Counters of its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReportCounters {
    passes: u64,
    read_back_pages: u64,
}

impl ReportCounters {
    fn of(report: &LabReport) -> ReportCounters {
        let counters = [report.vm.pswpin, report.vm.workingset_refault_file];
        ReportCounters {
            passes: report.workloads.iter().map(|workload| workload.iterations).sum(),
            read_back_pages: counters.into_iter().flatten().sum(),
        }
    }

    /// Whether no more pages were read back since `earlier` than chance explains.
    fn is_quiet_since(self, earlier: ReportCounters) -> bool {
        self.read_back_pages.saturating_sub(earlier.read_back_pages) <= READ_BACK_MAX
    }

    /// Whether the guest has gone through its memory since `earlier`.
    fn is_through_since(self, earlier: ReportCounters) -> bool {
        self.passes.saturating_sub(earlier.passes) >= PASSES
    }
}

impl<'a> NeedSubject<'a> {
    async fn new(guest: &'a Guest) -> anyhow::Result<NeedSubject<'a>> {
        let balloon = Balloon::of(guest).await?;
        Ok(NeedSubject {
            guest,
            events: guest.subscribe()?,
            balloon,
            counters: ReportCounters::default(),
        })
    }

    async fn need(
        mut self,
        scenario: &ScenarioGuest,
        say: &impl Fn(&str),
    ) -> anyhow::Result<Bytes> {
        let floor = scenario.limits().floor_for(scenario.memory);
        let step = scenario.memory.fraction(1, STEPS);
        let (mut short, mut enough) = (floor, scenario.memory.page_floor());
        self.read_all_back().await.context("with all its memory")?;
        while enough.saturating_sub(short) > step {
            let size = short.saturating_add(enough.saturating_sub(short).fraction(1, 2));
            let size = size.page_floor();
            if self.shrinks_to(size).await? && self.is_quiet().await? {
                enough = size;
            } else {
                short = size;
                self.balloon.set(enough).await?;
                self.read_all_back().await.with_context(|| format!("with {enough} again"))?;
            }
            say(&format!("guest {}: needs {short} to {enough}", scenario.name));
        }
        Ok(enough)
    }

    /// Whether the guest shrinks to `size` without reading anything back on the way.
    async fn shrinks_to(&mut self, size: Bytes) -> anyhow::Result<bool> {
        let before = self.counters;
        self.balloon.set(size).await?;
        let end = Instant::now() + PATIENCE;
        while self.poll().await?.is_quiet_since(before) {
            if self.balloon.actual().await? == size {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Whether the guest goes through its memory without reading anything back.
    async fn is_quiet(&mut self) -> anyhow::Result<bool> {
        let (before, began) = (self.counters, Instant::now());
        loop {
            let counters = self.poll().await?;
            if !counters.is_quiet_since(before) {
                return Ok(false);
            }
            if counters.is_through_since(before) && began.elapsed() >= TRIAL_MIN {
                return Ok(true);
            }
            if began.elapsed() > PATIENCE {
                bail!(
                    "{} passes in {} s; the end of its console:\n{}",
                    counters.passes.saturating_sub(before.passes),
                    PATIENCE.as_secs(),
                    self.guest.console_tail()
                );
            }
        }
    }

    /// Waits until the guest goes through its memory without reading anything back.
    async fn read_all_back(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.is_quiet().await? {
            if Instant::now() > end {
                bail!("it still reads back after {} s", PATIENCE.as_secs());
            }
        }
        Ok(())
    }

    /// Its counters now.
    async fn poll(&mut self) -> anyhow::Result<ReportCounters> {
        tokio::time::sleep(POLL).await;
        while let Some(Event { message, .. }) = self.events.next(Duration::ZERO) {
            match message {
                FromGuest::Report(report) => self.counters = ReportCounters::of(&report),
                FromGuest::Done { id, .. } => {
                    bail!("its workload {id} has ended, so that no size can be tried")
                }
                FromGuest::Error { text, .. } => bail!("it refused: {text}"),
                FromGuest::Hello { .. } | FromGuest::Ready(_) | FromGuest::ExecDone { .. } => {}
            }
        }
        if self.events.is_over() {
            let console = self.guest.console_tail();
            bail!("it {}; the end of its console:\n{console}", self.guest.state());
        }
        Ok(self.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_enough_after_whole_passes_without_reading_back() {
        let counters = |passes, read_back_pages| ReportCounters { passes, read_back_pages };
        let before = counters(3, 100);
        assert!(
            !counters(4, 100).is_through_since(before) && counters(5, 100).is_through_since(before)
        );
        assert!(
            counters(5, 132).is_quiet_since(before) && !counters(5, 133).is_quiet_since(before)
        );
        // A guest that rebooted counts from zero again.
        assert!(counters(0, 0).is_quiet_since(before));
    }
}
