//! The work of a tracked guest's thread.
//!
//! Idea: the thread watches the guest by the best source that works: the tracker in its hypervisor,
//! the kernel's DAMON, the generations of its pages, the kernel's referenced bits. A source that
//! fails is retried with growing pauses, or given up for the next one if it cannot work as long as
//! the guest lives. An attempt that costs much is followed by a pause that keeps attempts within
//! the guest's budget.
//!
//! Referenced bits, if configured, give a working set but no curve; the interval is chosen so that
//! the cost stays within the budget.
//! Cost: that of the source.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ballast_host::{PROC, ProcessReader, give_up_raised_priority};
use ballast_model::{
    Bytes, ProcessId, Share, TrackerReport, Tracking, TrackingSource, TrackingState,
};
use ballast_tracker::{check_shared, clear_referenced, memory_paths_at, referenced, trackable_at};

use super::damon::DamonFollower;
use super::follow::Follower;
use super::latest::Latest;
use super::mglru::MglruFollower;
use super::row::{Row, WatchedInterval};
use super::shared::{ServiceSettings, Shared};
use super::source::{Remembered, SourceError, WorkingSetSource, interval_within};
use super::source_order::{SourceKind, SourceOrder};

/// Pause between two attempts: the first and the longest. The first is short because, on a busy
/// host, the daemon may just have missed the second for which a tracker waits.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Longest pause after a costly attempt: an operator who has mended the cause waits no longer.
const RETRY_COSTLY_MAX: Duration = Duration::from_secs(3600);
/// Longest interval of the referenced bits: in a longer one, a guest touches all its memory.
const REFERENCED_MAX: Duration = Duration::from_secs(120);

/// Starts to watch a guest. Takes its size, if known, and what its last source left.
type Open<'a> = dyn Fn(Option<Bytes>, Option<Remembered>) -> Opened + 'a;
/// The guest that is watched, or why it is not.
type Opened = Result<Box<dyn WorkingSetSource>, SourceError>;

/// Tracks a guest by the best source that works until stopped.
pub(super) fn track_process(process: ProcessId, settings: &ServiceSettings, shared: &Shared) {
    let ProcessId { pid, start_ticks } = process;
    let reader = ProcessReader::open(Path::new(PROC), pid).ok().flatten();
    if reader.is_none_or(|reader| reader.start_time() != start_ticks) {
        return; // The next tick has another process, or none.
    }
    // The daemon's raised priority is for ticks, which no tracking may delay.
    give_up_raised_priority();
    let order = SourceOrder { choice: settings.source, allows_bits: settings.referenced };
    let mut why = Vec::new();
    for source in order.sources() {
        let ended = match source {
            SourceKind::Library => {
                let Some(guest) = trackable_at(Path::new(PROC), pid) else {
                    why.push("its hypervisor runs without libballast_track.so".to_owned());
                    continue;
                };
                let open = |holds, remembered| -> Opened {
                    Ok(Box::new(Follower::begin(&guest, &settings.follow, holds, remembered)?))
                };
                track(&open, source, order, &why, shared)
            }
            SourceKind::Damon => {
                let open = |_, _| -> Opened {
                    let hub = Arc::clone(&shared.damon);
                    let seed = settings.follow.seed;
                    Ok(Box::new(DamonFollower::begin(hub, pid, Some(start_ticks), seed)?))
                };
                track(&open, source, order, &why, shared)
            }
            SourceKind::Mglru => {
                let open = |_, _| -> Opened {
                    Ok(Box::new(MglruFollower::begin(pid, settings.follow.interval)?))
                };
                track(&open, source, order, &why, shared)
            }
            SourceKind::Referenced => return by_bits(pid, settings, shared, &why.join("; ")),
        };
        let Some(error) = ended else { return };
        why.push(error.to_string());
    }
    shared.update(|latest| latest.fail(TrackingState::Absent, why.join("; ")));
}

/// Tracks a guest by one source until stopped; `passed` is why better ones were given up. `Some`:
/// why this source fails, if it is given up.
fn track(
    open: &Open<'_>,
    source: SourceKind,
    order: SourceOrder,
    passed: &[String],
    shared: &Shared,
) -> Option<SourceError> {
    let failing = match source {
        SourceKind::Library => TrackingState::Failing,
        // There is no tracker that could have hidden memory.
        SourceKind::Damon | SourceKind::Mglru | SourceKind::Referenced => TrackingState::Absent,
    };
    let mut retry = RETRY_FIRST;
    let mut remembered = None;
    loop {
        let mut least = Duration::ZERO;
        if shared.may_track.load(Ordering::Relaxed) {
            let began = Instant::now();
            let begun = open(shared.allocation(), remembered.take());
            let took = began.elapsed();
            let ended = begun.and_then(|mut source| {
                let ended = follow(&mut *source, shared, &mut retry);
                remembered = source.end();
                ended
            });
            if let Err(error) = ended {
                let trouble = [passed, &[error.to_string()]].concat().join("; ");
                shared.update(|latest| latest.fail(failing, trouble));
                if order.gives_up(source, error.is_lasting()) {
                    return Some(error);
                }
                least = least_pause(source, took, shared.budget());
            }
        } else {
            shared.update(show_waiting);
            retry = RETRY_FIRST;
        }
        if !shared.wait(retry.max(least)) {
            return None;
        }
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// The least pause after an attempt that failed and took so long; `budget` is a share of one core.
fn least_pause(source: SourceKind, took: Duration, budget: f64) -> Duration {
    match source {
        // It walks over all memory of the guest.
        SourceKind::Mglru => interval_within(took, budget).min(RETRY_COSTLY_MAX),
        // It waits for another program, which costs nothing.
        SourceKind::Library | SourceKind::Damon | SourceKind::Referenced => Duration::ZERO,
    }
}

/// Shows that the guest does not run.
fn show_waiting(latest: &mut Latest) {
    latest.tracking = Tracking::new(TrackingState::Waiting);
    latest.coldness = None;
}

/// Tracks the guest until stopped, or until the guest is paused for longer than the source allows.
fn follow(
    source: &mut dyn WorkingSetSource,
    shared: &Shared,
    retry: &mut Duration,
) -> Result<(), SourceError> {
    loop {
        if !shared.may_go_on() {
            shared.update(show_waiting);
            if !shared.resumes_within(source.longest_pause()) {
                return Ok(());
            }
            source.resume();
        }
        source.set_budget(shared.budget());
        let (row, _) = source.interval(shared.allocation(), &mut || shared.may_go_on())?;
        // An interval that ended early is incomplete.
        if !shared.may_go_on() {
            continue;
        }
        *retry = RETRY_FIRST;
        let tracking = tracking_of(&row);
        let is_same_phase = row.step.is_some_and(|step| step.next.is_same_phase());
        let (moved, holds) = (row.moved, row.tracked);
        let expects_paging = shared.expects_paging.load(Ordering::Relaxed);
        let coldness = if expects_paging { source.coldness().map(Arc::new) } else { None };
        let report = row.seen.map(|seen| {
            let WatchedInterval { working_set, curve, source, .. } = seen;
            (TrackerReport { working_set, curve, source }, Instant::now())
        });
        shared.update(|latest| {
            latest.track(tracking);
            latest.coldness = coldness;
            if report.is_some() {
                latest.report = report;
            } else if let Some(moved) = moved {
                latest.scale_by(moved, holds);
            } else if is_same_phase {
                latest.confirm();
            }
        });
    }
}

/// The tracking state that an interval shows.
fn tracking_of(row: &Row) -> Tracking {
    let state = match row.seen.as_ref().map(|seen| seen.source) {
        Some(TrackingSource::Damon | TrackingSource::DamonHuge) => TrackingState::Sampling,
        Some(TrackingSource::Mglru | TrackingSource::MglruHuge) => TrackingState::Aging,
        Some(TrackingSource::Library | TrackingSource::Referenced) => TrackingState::Watching,
        None => TrackingState::Resting,
    };
    Tracking {
        watched: row.seen.as_ref().map(|seen| Share::from_ratio(seen.share)),
        cost: Some(Share::from_ratio(row.cost_share())),
        ..Tracking::new(state)
    }
}

/// Tracks a guest by referenced bits until stopped; `why` is why no better source is used.
fn by_bits(pid: u32, settings: &ServiceSettings, shared: &Shared, why: &str) {
    let mut interval = settings.follow.interval;
    loop {
        let planned = interval;
        let began = Instant::now();
        let cleared = clear_referenced(pid);
        let clearing = began.elapsed();
        if !shared.wait(interval) {
            return;
        }
        let began = Instant::now();
        let paths = memory_paths_at(Path::new(PROC), pid);
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let read = cleared.and_then(|()| {
            check_shared(pid, &paths, shared.allocation().map_or(0, Bytes::get))?;
            referenced(pid, &paths)
        });
        let cost = clearing + began.elapsed();
        let shortest = settings.follow.interval;
        let longest = REFERENCED_MAX.max(shortest);
        interval = interval_within(cost, shared.budget()).clamp(shortest, longest);
        let is_running = shared.may_track.load(Ordering::Relaxed);
        shared.update(|latest| match read {
            Ok(bytes) if is_running => {
                let report = TrackerReport {
                    working_set: Bytes::new(bytes),
                    curve: None,
                    source: TrackingSource::Referenced,
                };
                let cost = cost.as_secs_f64() / planned.as_secs_f64().max(f64::MIN_POSITIVE);
                let tracking = Tracking {
                    watched: Some(Share::WHOLE),
                    cost: Some(Share::from_ratio(cost)),
                    trouble: Some(why.to_owned()),
                    ..Tracking::new(TrackingState::Referenced)
                };
                latest.report = Some((report, Instant::now()));
                latest.tracking = tracking;
                latest.coldness = None;
            }
            Ok(_) => latest.tracking = Tracking::new(TrackingState::Waiting),
            Err(error) => latest.fail(TrackingState::Failing, error.to_string()),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use ballast_config::SourceChoice;

    use super::super::damon_hub::DamonHub;
    use super::super::fixture::row;
    use super::*;

    /// A source that bears pauses up to some length, and counts how often the guest ran again.
    struct Toy {
        longest_pause: Duration,
        resumed: Arc<AtomicU64>,
    }

    impl WorkingSetSource for Toy {
        fn interval(
            &mut self,
            _: Option<Bytes>,
            go_on: &mut dyn FnMut() -> bool,
        ) -> Result<(Row, Vec<u64>), SourceError> {
            while go_on() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok((row(1, true), Vec::new()))
        }

        fn set_length(&mut self, _: Duration) {}

        fn longest_pause(&self) -> Duration {
            self.longest_pause
        }

        fn resume(&mut self) {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn running() -> Shared {
        Shared {
            stop: AtomicBool::new(false),
            allocation: AtomicU64::new(0),
            budget: AtomicU64::new(1_f64.to_bits()),
            may_track: AtomicBool::new(true),
            expects_paging: AtomicBool::new(false),
            latest: Mutex::new(Latest::new(TrackingState::Sampling)),
            damon: Arc::new(DamonHub::new(Duration::ZERO)),
        }
    }

    /// Waits for it.
    fn wait_until(is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_gives_up_what_the_order_gives_up() {
        for source in [SourceKind::Library, SourceKind::Damon, SourceKind::Mglru] {
            for (is_lasting, allows_bits) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let shared = running();
                let open = |_, _| -> Opened {
                    // One attempt is enough.
                    shared.stop.store(true, Ordering::Relaxed);
                    Err(match is_lasting {
                        true => SourceError::Blind("6.1".to_owned()),
                        false => SourceError::Crowded(5),
                    })
                };
                let order = SourceOrder { choice: SourceChoice::Auto, allows_bits };
                let is_given_up = track(&open, source, order, &[], &shared).is_some();
                assert_eq!(is_given_up, order.gives_up(source, is_lasting), "{source:?} {order:?}");
            }
        }
    }

    #[test]
    fn generations_that_fail_for_a_while_are_tried_again() {
        let (shared, attempts) = (running(), AtomicU64::new(0));
        let open = |_, _| -> Opened {
            let earlier = attempts.fetch_add(1, Ordering::Relaxed);
            shared.stop.store(earlier > 0, Ordering::Relaxed);
            Err(SourceError::Crowded(5))
        };
        let order = SourceOrder { choice: SourceChoice::Auto, allows_bits: false };
        let passed = ["this kernel has no DAMON".to_owned()];
        let ended = track(&open, SourceKind::Mglru, order, &passed, &shared);
        assert!(ended.is_none() && attempts.load(Ordering::Relaxed) == 2, "{ended:?}");
        let trouble = shared.latest.lock().unwrap().tracking.trouble.clone().unwrap();
        assert!(
            trouble.starts_with("this kernel has no DAMON; the kernel itself ages"),
            "{trouble}"
        );
    }

    proptest::proptest! {
        #[test]
        fn agings_that_fail_stay_within_the_budget(
            took_ms in 0..100_000_u64,
            thousandths in 1..=1000_u32,
        ) {
            let (took, budget) = (Duration::from_millis(took_ms), f64::from(thousandths) / 1000.0);
            let pause = least_pause(SourceKind::Mglru, took, budget);
            // Durations are whole nanoseconds.
            let is_within = took.as_secs_f64() <= budget * pause.as_secs_f64() + 1e-6;
            proptest::prop_assert!(is_within || pause == RETRY_COSTLY_MAX, "{pause:?}");
            proptest::prop_assert!(pause <= RETRY_COSTLY_MAX);
            proptest::prop_assert_eq!(least_pause(SourceKind::Damon, took, budget), Duration::ZERO);
        }
    }

    #[test]
    fn a_source_that_bears_pauses_outlives_resets() {
        let (shared, resumed) = (running(), Arc::new(AtomicU64::new(0)));
        let mut source =
            Toy { longest_pause: Duration::from_secs(3600), resumed: Arc::clone(&resumed) };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut retry = RETRY_FIRST;
                follow(&mut source, &shared, &mut retry).is_ok()
            });
            for reset in 1..=3 {
                shared.may_track.store(false, Ordering::Relaxed);
                wait_until(|| {
                    shared.latest.lock().unwrap().tracking.state == TrackingState::Waiting
                });
                shared.update(|latest| latest.tracking = Tracking::new(TrackingState::Sampling));
                shared.may_track.store(true, Ordering::Relaxed);
                wait_until(|| resumed.load(Ordering::Relaxed) == reset);
            }
            shared.stop.store(true, Ordering::Relaxed);
            assert!(thread.join().unwrap());
        });
        assert_eq!(resumed.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_source_that_bears_no_pause_ends_with_one() {
        let (shared, resumed) = (running(), Arc::new(AtomicU64::new(0)));
        shared.may_track.store(false, Ordering::Relaxed);
        let mut source = Toy { longest_pause: Duration::ZERO, resumed: Arc::clone(&resumed) };
        let mut retry = RETRY_FIRST;
        follow(&mut source, &shared, &mut retry).unwrap();
        assert_eq!(resumed.load(Ordering::Relaxed), 0);
    }
}
