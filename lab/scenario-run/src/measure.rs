//! Measures one run, second by second.
//!
//! Idea: the schedule's clock begins once every guest has reported. From then on workloads are
//! started when they are due, and every second the guests' reports and the daemon's status are
//! recorded.
//! Limits: nothing else is recorded while a balloon driver is being unloaded. A guest that waits
//! for its swap disk reports late; its reports are dated by its own clock.

use std::time::Duration;

use anyhow::{Context, bail};
use ballast_api::GuestView;
use ballast_lab_guest::protocol::{FromGuest, ProcessEnd, WorkloadTotals};
use ballast_lab_host::{
    DemandSignal, Event, Guest, LabError, Run, Scenario, Subscription, VariantKind,
};
use ballast_model::{Bytes, GuestId};
use tokio::time::Instant;

use super::balloon;
use super::daemon::Daemon;
use super::inside::Collector;
use super::live::{GuestStatus, Live};
use super::record::{
    GuestRun, InsideSample, OutsideSample, RunRecord, Sample, TrackingStatus, WorkloadRecord,
};
use super::stillness::{StillnessWatch, is_steady};
use super::turns::{Start, Turn, starts};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// How long the first report of an idle guest may take; one comes every second.
const REPORT_PATIENCE: Duration = Duration::from_secs(30);
/// How long a guest may take to unload its balloon driver, which returns the balloon's memory to
/// the guest.
const UNLOAD_PATIENCE: Duration = Duration::from_secs(30);

/// One guest under observation.
pub(super) struct WatchedGuest<'a> {
    pub(super) guest: &'a Guest,
    events: Subscription,
    collector: Collector,
    pub(super) samples: Vec<Sample>,
    latest: [Option<InsideSample>; 2],
    stillness: StillnessWatch,
    reported: Instant,
    /// It is being moved to another QEMU, so silence of this one is no error.
    pub(super) is_leaving: bool,
    /// Its fixed work is done, and its workloads are stopped.
    is_stopped: bool,
}

/// A workload that was started, and when.
pub(super) struct Started {
    pub(super) start: Start,
    pub(super) at_s: f64,
}

/// The result of measuring a run.
pub(super) struct Measured {
    pub(super) record: RunRecord,
    /// When the receiver of the scenario's transfer began to need memory.
    pub(super) demanded: Option<std::time::Instant>,
}

/// Plays the schedule and records it; `prepared` is running already.
pub(super) async fn measure(
    scenario: &Scenario,
    turn: &Turn,
    run: &Run,
    daemon: &mut Daemon,
    live: &mut Live,
    prepared: Vec<Start>,
) -> anyhow::Result<Measured> {
    let names = scenario.guests.iter().map(|guest| guest.name.as_str());
    let guests = names.map(|name| run.guest(name)).collect::<Result<Vec<_>, _>>()?;
    let (began, mut watched) = begin(&guests)?;
    let mut due = starts(scenario).into_iter().filter(|start| !start.prepared).peekable();
    let mut stops = stops(scenario).into_iter().peekable();
    let guaranteed = guaranteed(scenario);
    let mut by_hand =
        scenario.by_hand.as_ref().filter(|_| turn.variant.kind == VariantKind::ByHand);
    let mut setting = None;
    let mut started: Vec<Started> =
        prepared.into_iter().map(|start| Started { start, at_s: 0.0 }).collect();
    let end = began + scenario.duration;
    let mut sample_at = began;
    loop {
        let next = [
            due.peek().map(|start| start.at),
            stops.peek().map(|(at, _)| *at),
            by_hand.map(|by_hand| by_hand.at),
        ];
        let next = next.into_iter().flatten().map(|at| began + at).fold(sample_at, Instant::min);
        tokio::time::sleep_until(next).await;
        while let Some((_, guest)) = stops.next_if(|(at, _)| began + *at <= Instant::now()) {
            unload_balloon(run.guest(guest.as_str())?)?;
            live.say(&format!("guest {guest}: its balloon's driver is unloaded"));
        }
        while let Some(start) = due.next_if(|start| began + start.at <= Instant::now()) {
            let at_s = began.elapsed().as_secs_f64();
            run.guest(start.guest.as_str())?.send_start(&start.id, &start.spec)?;
            if let Some((_, floor)) = guaranteed.as_ref().filter(|(id, _)| *id == start.id)
                && is_receiver(scenario, &start)
            {
                daemon.guarantee(&start.guest, *floor).await?;
            }
            started.push(Started { start, at_s });
        }
        if let Some(sizes) = by_hand.take_if(|it| began + it.at <= Instant::now()) {
            let sockets = sizes.guests.iter().map(|(guest, size)| {
                Ok((run.guest(guest.as_str())?.lab_qmp_socket().to_owned(), *size))
            });
            let sockets = sockets.collect::<Result<Vec<_>, LabError>>()?;
            setting = Some(tokio::spawn(balloon::set_all(sockets)));
            live.say("balloons are set by hand");
        }
        if Instant::now() < sample_at {
            continue;
        }
        let at_s = began.elapsed().as_secs_f64();
        let views = daemon.guests().await?;
        for guest in &mut watched {
            guest.sample(at_s, views.as_deref(), &started)?;
            guest.ensure_moving()?;
        }
        let now: Vec<GuestStatus> = watched.iter().map(WatchedGuest::now).collect();
        live.show(turn, sample_at - began, scenario.duration, &now);
        if sample_at >= end || is_work_done(scenario, &watched) {
            break;
        }
        for guest in &mut watched {
            guest.stop_once_done(scenario, &started)?;
        }
        sample_at = next_sample(sample_at, end);
    }
    let measured_s = began.elapsed().as_secs_f64();
    if let Some(setting) = setting {
        setting.await.context("balloons were not set by hand")??;
    }
    let demanded = started.iter().rfind(|it| is_receiver(scenario, &it.start));
    let demanded = demanded.map(|it| began.into_std() + Duration::from_secs_f64(it.at_s));
    let workloads = stop(started, &mut watched, measured_s)?;
    let remarks = watched.iter().flat_map(WatchedGuest::remarks).collect();
    let record = run_record(turn, measured_s, watched, &workloads, remarks);
    Ok(Measured { record, demanded })
}

/// When the next sample is due, at most at `end`; those that were missed while the daemon did not
/// answer are skipped.
pub(super) fn next_sample(mut sample_at: Instant, end: Instant) -> Instant {
    while sample_at <= Instant::now() {
        sample_at += SAMPLE_EVERY;
    }
    sample_at.min(end)
}

/// The record of the run, without the parts that are added afterwards.
pub(super) fn run_record(
    turn: &Turn,
    measured_s: f64,
    watched: Vec<WatchedGuest<'_>>,
    workloads: &[(String, WorkloadRecord)],
    remarks: Vec<String>,
) -> RunRecord {
    RunRecord {
        policy: turn.variant.name.clone(),
        repetition: turn.repetition,
        measured_s,
        guests: watched
            .into_iter()
            .map(|guest| GuestRun {
                workloads: workloads
                    .iter()
                    .filter(|(name, _)| name == guest.name())
                    .map(|(_, record)| record.clone())
                    .collect(),
                guest: guest.name().to_owned(),
                samples: guest.samples,
            })
            .collect(),
        remarks,
        ..RunRecord::default()
    }
}

/// Whether there are guests with a fixed work and all of them have done it.
fn is_work_done(scenario: &Scenario, watched: &[WatchedGuest<'_>]) -> bool {
    let mut fixed = watched.iter().filter_map(|guest| guest.has_done_work(scenario)).peekable();
    fixed.peek().is_some() && fixed.all(|is_done| is_done)
}

fn is_receiver(scenario: &Scenario, start: &Start) -> bool {
    scenario.transfer.as_ref().is_some_and(|transfer| transfer.to == start.guest)
}

/// The last workload of the transfer's receiver, which raises its floor, and that floor.
fn guaranteed(scenario: &Scenario) -> Option<(String, Bytes)> {
    let transfer = scenario.transfer.as_ref().filter(|it| it.demand == DemandSignal::Floor)?;
    let receiver = scenario.guests.iter().find(|guest| guest.name == transfer.to)?;
    let last = starts(scenario).into_iter().rfind(|start| start.guest == transfer.to)?;
    Some((last.id, receiver.start().saturating_add(transfer.amount)))
}

/// When which guest's balloon stops, the earliest first.
fn stops(scenario: &Scenario) -> Vec<(Duration, GuestId)> {
    let of_guests = scenario.guests.iter();
    let mut stops: Vec<_> =
        of_guests.filter_map(|guest| Some((guest.balloon_stops?, guest.name.clone()))).collect();
    stops.sort();
    stops
}

/// Unloads the guest's balloon driver: the balloon does nothing from now on, and the guest gets the
/// balloon's memory back.
fn unload_balloon(guest: &Guest) -> anyhow::Result<()> {
    let done = guest.exec(&["rmmod", "virtio_balloon"].map(str::to_owned), UNLOAD_PATIENCE)?;
    if !done.end.is_success() {
        bail!(
            "guest {}: its balloon's driver cannot be unloaded: {}",
            guest.id(),
            done.stderr.trim()
        );
    }
    Ok(())
}

/// Waits until every guest has reported, and begins.
pub(super) fn begin<'a>(guests: &[&'a Guest]) -> anyhow::Result<(Instant, Vec<WatchedGuest<'a>>)> {
    let mut first = Vec::new();
    for &guest in guests {
        let events = guest.subscribe()?;
        let report = loop {
            match events.next(REPORT_PATIENCE) {
                Some(Event { at, message: FromGuest::Report(report) }) => break (at, report),
                Some(_) => {}
                None => bail!(
                    "guest {} does not report; the end of its console:\n{}",
                    guest.id(),
                    guest.console_tail()
                ),
            }
        };
        first.push((guest, events, report));
    }
    let began = Instant::now();
    let watched = first.into_iter().map(|(guest, events, (at, report))| {
        let age = began.into_std().saturating_duration_since(at);
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let collector = Collector::new(&report, age_ms);
        WatchedGuest {
            guest,
            events,
            collector,
            samples: Vec::new(),
            latest: [None, None],
            stillness: StillnessWatch::default(),
            reported: began,
            is_leaving: false,
            is_stopped: false,
        }
    });
    Ok((began, watched.collect()))
}

impl<'a> WatchedGuest<'a> {
    /// Watches the guest in the other QEMU from now on.
    pub(super) fn arrive(&mut self, guest: &'a Guest) -> anyhow::Result<()> {
        self.events = guest.subscribe()?;
        (self.guest, self.is_leaving, self.reported) = (guest, false, Instant::now());
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        self.guest.id().as_str()
    }

    /// Remarks for the readers of its figures.
    pub(super) fn remarks(&self) -> Vec<String> {
        self.collector.remarks(self.name())
    }

    /// Takes all events since the last call; returns the latest report, if there is one.
    fn take_events(&mut self) -> anyhow::Result<Option<InsideSample>> {
        let mut latest = None;
        while let Some(event) = self.events.next(Duration::ZERO) {
            latest = self.collector.take(event.message).or(latest);
        }
        if let Some(refusal) = self.collector.take_refusals().first() {
            bail!("guest {} refused: {refusal}", self.name());
        }
        if self.events.is_over() && !self.is_leaving {
            let console = self.guest.console_tail();
            bail!(
                "guest {} {}; the end of its console:\n{console}",
                self.name(),
                self.guest.state()
            );
        }
        Ok(latest)
    }

    pub(super) fn sample(
        &mut self,
        at_s: f64,
        views: Option<&[GuestView]>,
        started: &[Started],
    ) -> anyhow::Result<()> {
        let inside = self.take_events()?;
        if let Some(inside) = &inside {
            let should_run =
                started.iter().any(|it| self.is_running(it) && is_steady(&it.start.spec));
            self.stillness.report(inside, should_run);
            self.reported = Instant::now();
            self.latest.swap(0, 1);
            self.latest[1] = Some(inside.clone());
        }
        let view = views.and_then(|views| views.iter().find(|view| view.guest == self.name()));
        let touched_bytes = self.guest.truth()?.last().map(|row| row.wss.get());
        self.samples.push(Sample { at_s, daemon: view.map(outside), inside, touched_bytes });
        Ok(())
    }

    /// Whether the workload is one of this guest's and has not ended.
    fn is_running(&self, Started { start, .. }: &Started) -> bool {
        start.guest == *self.guest.id() && self.collector.end_of(&start.id).is_none()
    }

    /// Fails if the guest stands still: the run is worthless then. The error shows the guest's
    /// state.
    pub(super) fn ensure_moving(&self) -> anyhow::Result<()> {
        let Some(stillness) = self.stillness.found(self.reported.elapsed()) else { return Ok(()) };
        bail!("guest {} {stillness}\n{}", self.name(), self.guest.symptoms());
    }

    /// Whether the guest has done its fixed work; `None`: it has none.
    fn has_done_work(&self, scenario: &Scenario) -> Option<bool> {
        let own = scenario.guests.iter().find(|it| it.name == *self.guest.id())?;
        let touches = self.latest[1].as_ref().map_or(0, |inside| inside.touches);
        Some(touches >= own.work?.get())
    }

    /// Stops its workloads once its fixed work is done: a program that is done ends, and others can
    /// use its memory.
    fn stop_once_done(&mut self, scenario: &Scenario, started: &[Started]) -> anyhow::Result<()> {
        if self.is_stopped || self.has_done_work(scenario) != Some(true) {
            return Ok(());
        }
        self.is_stopped = true;
        for it in started.iter().filter(|it| self.is_running(it)) {
            self.guest.send_stop(&it.start.id)?;
        }
        Ok(())
    }

    /// Its state for the progress display.
    pub(super) fn now(&self) -> GuestStatus {
        let [before, latest] = &self.latest;
        let rate = |counter: fn(&InsideSample) -> Option<u64>| {
            let (before, latest) = (before.as_ref()?, latest.as_ref()?);
            let span_s = (latest.at_ms - before.at_ms) as f64 / 1000.0;
            let grown = counter(latest)?.saturating_sub(counter(before)?);
            (span_s > 0.0).then_some(grown as f64 / span_s)
        };
        GuestStatus {
            name: self.name().to_owned(),
            outside: self.samples.last().and_then(|sample| sample.daemon.clone()),
            inside: latest.clone(),
            touches_per_s: rate(|inside| Some(inside.touches)),
            faults_per_s: rate(|inside| inside.major_faults),
        }
    }
}

fn outside(view: &GuestView) -> OutsideSample {
    OutsideSample {
        allocation_bytes: view.allocation_bytes,
        target_bytes: view.target_bytes,
        used_bytes: view.used_bytes,
        tracking: view.tracking.as_ref().map(|tracking| TrackingStatus {
            state: tracking.state.code.clone(),
            working_set_bytes: tracking.working_set_bytes,
            cost: tracking.cost_millionths.map(|share| f64::from(share) / 1e6),
        }),
        doing: view.change.as_ref().map(|change| change.code.clone()),
        doing_text: view.change.as_ref().map(|change| change.text.clone()),
    }
}

/// Stops all workloads that still run, at the same time so that none runs longer than another.
pub(super) fn stop(
    started: Vec<Started>,
    watched: &mut [WatchedGuest<'_>],
    measured_s: f64,
) -> anyhow::Result<Vec<(String, WorkloadRecord)>> {
    let stopped: Vec<Result<(ProcessEnd, WorkloadTotals), LabError>> =
        std::thread::scope(|scope| {
            let stops: Vec<_> = started
                .iter()
                .map(|Started { start, .. }| {
                    let mut all = watched.iter();
                    let guest = all.find(|guest| *guest.guest.id() == start.guest);
                    let ended = guest.and_then(|guest| guest.collector.end_of(&start.id));
                    let guest = guest.map(|guest| guest.guest);
                    scope.spawn(move || match (ended, guest) {
                        (Some(ended), _) => Ok(ended),
                        (None, Some(guest)) => guest.stop_workload(&start.id),
                        (None, None) => Err(LabError::Invalid(format!("no guest {}", start.guest))),
                    })
                })
                .collect();
            let joined = stops.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
    started
        .into_iter()
        .zip(stopped)
        .map(|(Started { start, at_s }, ended)| {
            let guest = watched.iter_mut().find(|guest| *guest.guest.id() == start.guest);
            let (end, totals) = match (ended, guest) {
                // The workload ended by itself just before it was to be stopped.
                (Err(LabError::Refused { .. }), Some(guest)) => {
                    guest.take_events()?;
                    guest.collector.end_of(&start.id).context("a workload is lost")?
                }
                (Err(error @ LabError::Timeout { .. }), Some(guest)) => {
                    return Err(anyhow::anyhow!("{}", guest.guest.symptoms()).context(error));
                }
                (ended, _) => ended?,
            };
            let (words, ended_well) = end_in_words(end);
            // What a prepared workload did before the schedule began is not counted.
            let before = watched.iter().find(|guest| *guest.guest.id() == start.guest);
            let before = before.map(|it| it.collector.before(&start.id)).unwrap_or_default();
            let elapsed_ms = match start.prepared {
                true => totals.elapsed_ms.min((measured_s * 1000.0) as u64),
                false => totals.elapsed_ms,
            };
            let record = WorkloadRecord {
                workload: start.id,
                started_s: at_s,
                end: words,
                ended_well,
                touches: totals.touches.saturating_sub(before.touches),
                iterations: totals.iterations.saturating_sub(before.iterations),
                elapsed_ms,
            };
            Ok((start.guest.to_string(), record))
        })
        .collect()
}

/// How a workload ended in words, and whether that is as it should be.
fn end_in_words(end: ProcessEnd) -> (String, bool) {
    match end {
        ProcessEnd::Exited { code: 0 } => ("ended by itself".to_owned(), true),
        ProcessEnd::Exited { code } => (format!("ended with status {code}"), false),
        ProcessEnd::Killed { signal } => (format!("was killed by signal {signal}"), false),
        ProcessEnd::Stopped {} => ("was stopped at the end".to_owned(), true),
        ProcessEnd::TimedOut {} => ("ran out of time".to_owned(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_that_was_killed_did_not_end_well() {
        assert!(
            end_in_words(ProcessEnd::Stopped {}).1
                && end_in_words(ProcessEnd::Exited { code: 0 }).1
        );
        let (words, well) = end_in_words(ProcessEnd::Killed { signal: 9 });
        assert_eq!((words.as_str(), well), ("was killed by signal 9", false));
    }
}
