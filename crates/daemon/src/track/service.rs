//! Tracks all guests of the daemon, each in its own thread.
//!
//! Idea: each tick names the present guests, their processes and allocations. A guest with a
//! tracker gets a thread, which stores its latest report for the next tick. The daemon never waits
//! for it. If tracking fails, it is retried with growing pauses, and the reason is reported once. A
//! thread that panics is reported and replaced, after a pause. A report belongs to one process, by
//! its PID and its start time: what was seen of an earlier process is not told of one that uses its
//! PID again.
//!
//! If configured, a guest without a tracker is tracked by the kernel's referenced bits. They give a
//! working set but no curve; the interval is chosen so that the cost stays within the budget.
//!
//! Cost: that of the trackers.
//! Limits: [`GUESTS_MAX`] guests; [`THREADS_MAX`] threads, with those that hang in guests that are
//! gone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ballast_host::{PROC, ProcessReader};
use ballast_model::{
    Bytes, GuestId, Measured, ProcessId, Share, TrackerReport, Tracking, TrackingState,
};
use ballast_reclaim::Coldness;
use ballast_tracker::{
    TrackableGuest, TrackerError, check_shared, clear_referenced, memory_paths_at, referenced,
    trackable_at,
};
use ballast_working_set::WatchPlannerSettings;

use super::follow::{FollowSettings, Follower};
use super::latest::Latest;
use super::row::Row;
use crate::worker::words;
use ballast_config::TrackingSettings;

/// Most guests tracked.
const GUESTS_MAX: usize = 256;
/// Most threads at once.
const THREADS_MAX: usize = 2 * GUESTS_MAX;
/// Pause after a thread panicked. It is long: a fault of the program does not go away by itself.
const RESTART_AFTER: Duration = Duration::from_secs(10);
/// Pause between two attempts: the first and the longest. The first is short, because on a busy
/// host the daemon may just have missed the second for which a tracker waits.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Time between two checks of a waiting thread whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// Longest interval of the referenced bits: in a longer one, a guest touches all its memory.
const REFERENCED_MAX: Duration = Duration::from_secs(120);

/// Watching this part of a guest's memory hides so little of it that no decision changes.
const HIDES_LITTLE: Share = Share::from_millionths(20_000);

/// How guests are tracked.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Settings for guests with a tracker.
    pub follow: FollowSettings,
    /// Largest share of a core for tracking other guests by referenced bits; `None`: they are not
    /// tracked.
    pub referenced: Option<f64>,
}

/// Picks the sample; fixed, so that runs can be compared.
const SEED: u64 = 1;

impl From<&TrackingSettings> for ServiceSettings {
    fn from(settings: &TrackingSettings) -> Self {
        let planner = WatchPlannerSettings {
            sample: (!settings.every).then(|| settings.budget.clone()),
            rest: settings.intermittent,
            hot_set: settings.hot_set,
            ..WatchPlannerSettings::default()
        };
        ServiceSettings {
            follow: FollowSettings { interval: settings.interval, planner, seed: SEED },
            referenced: settings.referenced.then(|| settings.budget.limit()),
        }
    }
}

/// The tracked guests.
#[derive(Debug)]
pub struct Service {
    settings: ServiceSettings,
    work: Work,
    followed: BTreeMap<GuestId, Followed>,
    /// Each thread holds one more reference.
    threads: Arc<()>,
}

/// What the thread of a process does.
type Work = fn(ProcessId, &ServiceSettings, &Shared);

/// One tracked guest.
#[derive(Debug)]
struct Followed {
    process: ProcessId,
    shared: Arc<Shared>,
    /// `None`: it could not be started, or was seen to end.
    thread: Option<JoinHandle<()>>,
    /// When another thread takes the place of one that panicked.
    restart_at: Option<Instant>,
    /// The trouble reported last.
    reported: Option<String>,
}

/// State shared by the guest's thread and the daemon.
#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    /// The guest's allocation in bytes; 0 if unknown.
    allocation: AtomicU64,
    /// Whether the guest runs: a paused or migrating one is not tracked.
    may_track: AtomicBool,
    /// Whether the host may soon page the guest and needs its cold pages.
    expects_paging: AtomicBool,
    latest: Mutex<Latest>,
}

/// The tracking status of a guest.
#[derive(Clone, Debug)]
pub struct TrackingStatus {
    /// The latest report and its age.
    pub report: Option<Measured<TrackerReport>>,
    /// How the guest is tracked.
    pub tracking: Option<Tracking>,
    /// Why tracking fails; `Some` only when the reason is new.
    pub new_trouble: Option<String>,
}

impl Shared {
    fn allocation(&self) -> Option<Bytes> {
        let bytes = self.allocation.load(Ordering::Relaxed);
        (bytes > 0).then_some(Bytes::new(bytes))
    }

    fn may_go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.may_track.load(Ordering::Relaxed)
    }

    fn update(&self, change: impl FnOnce(&mut Latest)) {
        change(&mut self.latest.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for `time`; `false`: the thread is to stop.
    fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.stop.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(STOP_CHECK));
        }
        false
    }
}

/// A guest present in a tick.
#[derive(Clone, Copy, Debug)]
pub struct PresentGuest<'a> {
    /// Its name.
    pub id: &'a GuestId,
    /// Its hypervisor's process.
    pub process: ProcessId,
    /// Its allocation, if known.
    pub allocation: Option<Bytes>,
    /// Whether it runs.
    pub is_running: bool,
}

impl Service {
    /// Tracks no guest yet.
    pub fn new(settings: ServiceSettings) -> Service {
        Service::doing(track_process, settings)
    }

    fn doing(work: Work, settings: ServiceSettings) -> Service {
        Service { settings, work, followed: BTreeMap::new(), threads: Arc::default() }
    }

    /// Stops tracking all guests but these, given by name and process.
    pub fn keep(&mut self, mut is_there: impl FnMut(&GuestId, ProcessId) -> bool) {
        self.followed.retain(|id, followed| is_there(id, followed.process));
    }

    /// Tracks a guest, starting if necessary, and returns its status.
    pub fn status(&mut self, guest: PresentGuest<'_>) -> TrackingStatus {
        let is_other =
            |followed: &Followed| followed.process != guest.process || followed.must_restart();
        if self.followed.get(guest.id).is_none_or(is_other) {
            self.followed.remove(guest.id);
            if self.followed.len() >= GUESTS_MAX {
                return TrackingStatus { report: None, tracking: None, new_trouble: None };
            }
            let followed = self.start(guest);
            self.followed.insert(guest.id.clone(), followed);
        }
        let Some(followed) = self.followed.get_mut(guest.id) else {
            return TrackingStatus { report: None, tracking: None, new_trouble: None };
        };
        followed.look_after_thread();
        let allocation = guest.allocation.map_or(0, Bytes::get);
        followed.shared.allocation.store(allocation, Ordering::Relaxed);
        followed.shared.may_track.store(guest.is_running, Ordering::Relaxed);
        followed.status()
    }

    /// Sets whether the host may soon page a guest: then its cold pages are kept up to date.
    pub fn expect_paging(&self, id: &GuestId, is_expected: bool) {
        if let Some(followed) = self.followed.get(id) {
            followed.shared.expects_paging.store(is_expected, Ordering::Relaxed);
        }
    }

    /// Whether a guest has a tracker, or may have one.
    pub fn has_tracker(&self, id: &GuestId) -> bool {
        self.is_tracking(id, |tracking| {
            !matches!(tracking.state, TrackingState::Absent | TrackingState::Referenced)
        })
    }

    fn is_tracking(&self, id: &GuestId, is_so: impl FnOnce(&Tracking) -> bool) -> bool {
        self.followed.get(id).is_some_and(|followed| {
            let latest = followed.shared.latest.lock().unwrap_or_else(PoisonError::into_inner);
            is_so(&latest.tracking)
        })
    }

    /// Whether much of a guest's memory may be missing from its process's page table, because a
    /// tracker has revoked it: this daemon's, or one of another client that keeps this one out.
    pub fn hides_memory(&self, id: &GuestId) -> bool {
        self.is_tracking(id, |tracking| match tracking.state {
            TrackingState::Absent | TrackingState::Referenced | TrackingState::Waiting => false,
            TrackingState::Watching | TrackingState::Resting => {
                tracking.watched.is_some_and(|watched| watched > HIDES_LITTLE)
            }
            TrackingState::Failing => true,
        })
    }

    /// A guest's cold pages, if requested with [`Service::expect_paging`].
    pub fn coldness(&self, id: &GuestId) -> Option<Arc<Coldness>> {
        let latest = self.followed.get(id)?.shared.latest.lock();
        latest.unwrap_or_else(PoisonError::into_inner).coldness.clone()
    }
}

impl Service {
    fn start(&self, guest: PresentGuest<'_>) -> Followed {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            allocation: AtomicU64::new(0),
            may_track: AtomicBool::new(guest.is_running),
            expects_paging: AtomicBool::new(false),
            latest: Mutex::new(Latest {
                report: None,
                tracking: Tracking::new(TrackingState::Waiting),
                coldness: None,
            }),
        });
        let thread = if Arc::strong_count(&self.threads) > THREADS_MAX {
            Err(std::io::Error::other(format!("{THREADS_MAX} threads run or hang already")))
        } else {
            let (theirs, settings) = (Arc::clone(&shared), self.settings.clone());
            let (running, work) = (Arc::clone(&self.threads), self.work);
            let process = guest.process;
            std::thread::Builder::new().name(format!("track {}", guest.id)).spawn(move || {
                let _running = running;
                work(process, &settings, &theirs);
            })
        };
        let (thread, restart_at) = match thread {
            Ok(thread) => (Some(thread), None),
            Err(error) => {
                let trouble = format!("cannot start its tracking thread: {error}");
                shared.update(|latest| latest.fail(trouble));
                (None, Some(Instant::now() + RESTART_AFTER))
            }
        };
        Followed { process: guest.process, shared, thread, restart_at, reported: None }
    }
}

impl Followed {
    /// Notes whether the thread panicked.
    fn look_after_thread(&mut self) {
        let ended = self.thread.take_if(|thread| thread.is_finished());
        if let Some(Err(panic)) = ended.map(JoinHandle::join) {
            let trouble = format!("its tracking thread panicked: {}", words(&*panic));
            self.shared.update(|latest| {
                latest.fail(trouble);
                latest.report = None;
            });
            self.restart_at = Some(Instant::now() + RESTART_AFTER);
        }
    }

    /// Whether its time to start another thread has come.
    fn must_restart(&self) -> bool {
        self.restart_at.is_some_and(|at| Instant::now() >= at)
    }

    fn status(&mut self) -> TrackingStatus {
        let latest = self.shared.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let report = latest
            .report
            .as_ref()
            .map(|(report, at)| Measured { value: report.clone(), age: at.elapsed() });
        let trouble = &latest.tracking.trouble;
        let new_trouble = if *trouble == self.reported { None } else { trouble.clone() };
        self.reported.clone_from(trouble);
        TrackingStatus { report, tracking: Some(latest.tracking.clone()), new_trouble }
    }
}

impl Drop for Followed {
    /// Tells the thread to stop, without waiting for it.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Tracks a guest by its tracker, or else by referenced bits, until stopped.
fn track_process(process: ProcessId, settings: &ServiceSettings, shared: &Shared) {
    let ProcessId { pid, start_ticks } = process;
    let reader = ProcessReader::open(Path::new(PROC), pid).ok().flatten();
    if reader.is_none_or(|reader| reader.start_time() != start_ticks) {
        return; // The next tick has another process, or none.
    }
    let why = match trackable_at(Path::new(PROC), pid) {
        Some(guest) => match track(&guest, settings, shared) {
            None => return,
            why => why,
        },
        None => None,
    };
    by_bits(pid, settings, shared, why.as_deref());
}

/// Tracks a guest by its tracker until stopped. `Some`: why that cannot work, if referenced bits
/// can replace it.
fn track(guest: &TrackableGuest, settings: &ServiceSettings, shared: &Shared) -> Option<String> {
    let mut retry = RETRY_FIRST;
    let mut remembered = None;
    loop {
        if shared.may_track.load(Ordering::Relaxed) {
            let (follow_settings, holds) = (&settings.follow, shared.allocation());
            let followed = Follower::begin(guest, follow_settings, holds, remembered.take());
            let ended = followed.and_then(|mut follower| {
                let ended = follow(&mut follower, shared, &mut retry);
                remembered = Some(follower.end());
                ended
            });
            if let Err(error) = ended {
                shared.update(|latest| latest.fail(error.to_string()));
                if error.is_lasting() && settings.referenced.is_some() {
                    return Some(error.to_string());
                }
            }
        } else {
            shared.update(|latest| {
                latest.tracking = Tracking::new(TrackingState::Waiting);
                latest.coldness = None;
            });
            retry = RETRY_FIRST;
        }
        if !shared.wait(retry) {
            return None;
        }
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Tracks the guest until stopped or paused.
fn follow(
    follower: &mut Follower,
    shared: &Shared,
    retry: &mut Duration,
) -> Result<(), TrackerError> {
    while shared.may_go_on() {
        let go_on = || shared.may_go_on();
        let (row, _) = follower.interval(shared.allocation(), go_on)?;
        // An interval that ended early is incomplete.
        if !shared.may_go_on() {
            break;
        }
        *retry = RETRY_FIRST;
        let tracking = tracking_of(&row);
        let is_same_phase = row.step.is_some_and(|step| step.next.is_same_phase());
        let (moved, holds) = (row.moved, row.tracked);
        let expects_paging = shared.expects_paging.load(Ordering::Relaxed);
        let coldness = if expects_paging { follower.coldness().map(Arc::new) } else { None };
        let report = row.seen.map(|seen| {
            let report = TrackerReport { working_set: seen.working_set, curve: seen.curve };
            (report, Instant::now())
        });
        shared.update(|latest| {
            latest.tracking = tracking;
            latest.coldness = coldness;
            if report.is_some() {
                latest.report = report;
            } else if let Some(moved) = moved {
                latest.move_by(moved, holds);
            } else if is_same_phase {
                latest.confirm();
            }
        });
    }
    Ok(())
}

/// The tracking state that an interval shows.
fn tracking_of(row: &Row) -> Tracking {
    let state = if row.seen.is_some() { TrackingState::Watching } else { TrackingState::Resting };
    Tracking {
        watched: row.seen.as_ref().map(|seen| Share::from_ratio(seen.share)),
        cost: Some(Share::from_ratio(row.cost_share())),
        ..Tracking::new(state)
    }
}

/// Tracks a guest by referenced bits until stopped; `why` says why its tracker, if any, is not
/// used.
fn by_bits(pid: u32, settings: &ServiceSettings, shared: &Shared, why: Option<&str>) {
    let Some(share) = settings.referenced else {
        shared.update(|latest| latest.tracking = Tracking::new(TrackingState::Absent));
        return;
    };
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
        interval = interval_within(cost, share).clamp(settings.follow.interval, REFERENCED_MAX);
        let is_running = shared.may_track.load(Ordering::Relaxed);
        shared.update(|latest| match read {
            Ok(bytes) if is_running => {
                let report = TrackerReport { working_set: Bytes::new(bytes), curve: None };
                let cost = cost.as_secs_f64() / planned.as_secs_f64().max(f64::MIN_POSITIVE);
                let tracking = Tracking {
                    watched: Some(Share::WHOLE),
                    cost: Some(Share::from_ratio(cost)),
                    trouble: why.map(str::to_owned),
                    ..Tracking::new(TrackingState::Referenced)
                };
                *latest =
                    Latest { report: Some((report, Instant::now())), tracking, coldness: None };
            }
            Ok(_) => latest.tracking = Tracking::new(TrackingState::Waiting),
            Err(error) => latest.fail(error.to_string()),
        });
    }
}

/// The interval at which readings that take `cost` each use `share` of the time.
fn interval_within(cost: Duration, share: f64) -> Duration {
    let seconds = cost.as_secs_f64() / share;
    Duration::try_from_secs_f64(seconds).unwrap_or(REFERENCED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::tiny::WorkingSetShift;

    #[test]
    fn the_interval_keeps_the_cost_within_its_share() {
        assert_eq!(interval_within(Duration::from_millis(20), 0.005), Duration::from_secs(4));
        assert_eq!(interval_within(Duration::from_millis(20), 0.0), REFERENCED_MAX);
    }

    #[test]
    fn a_shifted_report_is_fresh_and_capped_by_guest_memory() {
        let seen = Instant::now() - Duration::from_secs(60);
        let report = TrackerReport { working_set: Bytes::mib(60), curve: None };
        let tracking = Tracking::new(TrackingState::Resting);
        let mut latest = Latest { report: Some((report, seen)), tracking, coldness: None };
        latest.move_by(WorkingSetShift { before: 100, now: 150 }, Bytes::mib(512));
        let (shifted, at) = latest.report.clone().unwrap();
        assert!(shifted.working_set == Bytes::mib(90) && at > seen);
        latest.move_by(WorkingSetShift { before: 1, now: 10 }, Bytes::mib(512));
        assert_eq!(latest.report.unwrap().0.working_set, Bytes::mib(512));
    }

    #[test]
    fn confirming_renews_a_report_but_invents_none() {
        let tracking = Tracking::new(TrackingState::Waiting);
        let mut latest = Latest { report: None, tracking, coldness: None };
        latest.confirm();
        assert!(latest.report.is_none());
        let seen = Instant::now() - Duration::from_secs(60);
        let report = TrackerReport { working_set: Bytes::mib(7), curve: None };
        latest.report = Some((report.clone(), seen));
        latest.confirm();
        let (kept, at) = latest.report.unwrap();
        assert!(kept == report && at > seen);
    }

    fn settings() -> ServiceSettings {
        let follow = FollowSettings {
            interval: Duration::from_millis(1),
            planner: WatchPlannerSettings::default(),
            seed: 1,
        };
        ServiceSettings { follow, referenced: Some(1.0) }
    }

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 5 }
    }

    /// Stands for tracking: of process 1 it hangs, of others it panics.
    fn misbehave(process: ProcessId, _: &ServiceSettings, _: &Shared) {
        match process.pid {
            1 => loop {
                std::thread::park();
            },
            _ => panic!("a fault"),
        }
    }

    #[test]
    fn a_thread_that_panicked_is_reported_and_replaced() {
        let mut service = Service::doing(misbehave, settings());
        let id: GuestId = "a".parse().unwrap();
        let present =
            PresentGuest { id: &id, process: process(2), allocation: None, is_running: true };
        let end = Instant::now() + Duration::from_secs(60);
        let panicked = |service: &mut Service| {
            loop {
                if let Some(trouble) = service.status(present).new_trouble {
                    return trouble;
                }
                assert!(Instant::now() < end);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        assert_eq!(panicked(&mut service), "its tracking thread panicked: a fault");
        let followed = service.followed.get_mut(&id).unwrap();
        assert!(
            followed.restart_at.is_some_and(|at| at > Instant::now()) && !followed.must_restart()
        );
        followed.restart_at = Some(Instant::now());
        assert_eq!(panicked(&mut service), "its tracking thread panicked: a fault");
    }

    #[test]
    fn threads_that_hang_are_bounded_in_number() {
        let mut service = Service::doing(misbehave, settings());
        let id: GuestId = "a".parse().unwrap();
        let present =
            PresentGuest { id: &id, process: process(1), allocation: None, is_running: true };
        let refused = (0..=THREADS_MAX).find_map(|_| {
            // The guest is gone and returns, but its thread hangs.
            service.keep(|_, _| false);
            service.status(present).new_trouble
        });
        assert!(refused.unwrap().contains("run or hang already"));
        assert_eq!(Arc::strong_count(&service.threads), THREADS_MAX + 1);
    }

    #[test]
    fn a_tracker_that_watches_much_hides_memory() {
        let id: GuestId = "a".parse().unwrap();
        let present =
            PresentGuest { id: &id, process: process(9), allocation: None, is_running: true };
        let mut service = Service::doing(|_, _, _| {}, settings());
        assert!(!service.hides_memory(&id));
        service.status(present);
        for (state, watched, hides) in [
            (TrackingState::Waiting, None, false),
            (TrackingState::Watching, Some(Share::from_millionths(4_000)), false),
            (TrackingState::Watching, Some(Share::WHOLE), true),
            (TrackingState::Resting, None, false),
            (TrackingState::Failing, None, true),
            (TrackingState::Absent, None, false),
        ] {
            let tracking = Tracking { watched, ..Tracking::new(state) };
            service.followed[&id].shared.update(|latest| latest.tracking = tracking);
            assert_eq!(service.hides_memory(&id), hides, "{state:?}");
        }
    }

    /// Stands for tracking: it reports the start time as a working set.
    fn report(process: ProcessId, _: &ServiceSettings, shared: &Shared) {
        let working_set = Bytes::new(process.start_ticks);
        let report = TrackerReport { working_set, curve: None };
        shared.update(|latest| latest.report = Some((report, Instant::now())));
    }

    #[test]
    fn a_process_that_uses_a_pid_again_is_another() {
        let mut service = Service::doing(report, settings());
        let id: GuestId = "a".parse().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        for start_ticks in [5, 6] {
            let process = ProcessId { pid: 2, start_ticks };
            let present = PresentGuest { id: &id, process, allocation: None, is_running: true };
            let reported = loop {
                if let Some(report) = service.status(present).report {
                    break report.value.working_set;
                }
                assert!(Instant::now() < end);
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(reported, Bytes::new(start_ticks));
        }
        service.keep(|_, kept| kept == ProcessId { pid: 2, start_ticks: 5 });
        assert!(service.followed.is_empty());
    }

    #[test]
    fn a_process_without_guest_memory_is_reported_once() {
        let mut service = Service::new(settings());
        let id: GuestId = "a".parse().unwrap();
        let pid = std::process::id();
        let reader = ProcessReader::open(Path::new(PROC), pid).unwrap().unwrap();
        let process = ProcessId { pid, start_ticks: reader.start_time() };
        let present = PresentGuest { id: &id, process, allocation: None, is_running: true };
        let end = Instant::now() + Duration::from_secs(60);
        let trouble = loop {
            if let TrackingStatus {
                report: None,
                tracking: Some(tracking),
                new_trouble: Some(trouble),
            } = service.status(present)
            {
                assert_eq!(tracking.state, TrackingState::Failing);
                break trouble;
            }
            assert!(Instant::now() < end, "no trouble is reported");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(trouble.contains("no guest memory in a file"), "{trouble}");
        assert_eq!(service.status(present).new_trouble, None);
        service.keep(|_, kept| kept != process);
        assert!(service.followed.is_empty());
    }
}
