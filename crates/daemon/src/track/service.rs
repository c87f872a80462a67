//! Tracks all guests of the daemon, each in its own thread.
//!
//! Idea: each tick names the present guests, their processes and allocations. Each guest gets a
//! thread (`thread.rs`), which stores its latest report for the next tick. The daemon never waits
//! for it. If tracking fails, it is retried with growing pauses, and the reason is reported once. A
//! thread that panics is reported, and replaced after a pause. A report belongs to one process, by
//! its PID and start time, so reports of an earlier process are not given for one that reuses its
//! PID.
//!
//! Cost: that of the trackers, at most `budget` of a core each and `budget_total` together; of
//! DAMON, that of its one kernel thread.
//! Limits: [`GUESTS_MAX`] guests; [`THREADS_MAX`] threads, including those that hang for guests
//! that are gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ballast_model::{
    Bytes, GuestId, Measured, ProcessId, Share, TrackerReport, Tracking, TrackingState,
};
use ballast_reclaim::Coldness;

use super::damon_hub::DamonHub;
use super::latest::Latest;
use super::shared::{ServiceSettings, Shared};
use super::thread::track_process;
use crate::worker::{lock, panic_text, start_thread};

/// Most guests tracked.
const GUESTS_MAX: usize = 256;
/// Most threads at once.
const THREADS_MAX: usize = 2 * GUESTS_MAX;
/// Pause after a thread panicked. It is long because a programming fault does not go away by
/// itself.
const RESTART_AFTER: Duration = Duration::from_secs(10);
/// If at most this part of a guest's memory was watched, no decision differs by what is hidden.
pub const HIDES_LITTLE: Share = Share::from_millionths(20_000);

/// The tracked guests.
#[derive(Debug)]
pub struct Service {
    settings: ServiceSettings,
    work: Work,
    followed: BTreeMap<GuestId, FollowedGuest>,
    /// Most that tracking one guest may cost, as a share of one core.
    budget: f64,
    damon: Arc<DamonHub>,
    /// Each thread holds one more reference.
    threads: Arc<()>,
}

/// The work of a guest's thread.
type Work = fn(ProcessId, &ServiceSettings, &Shared);

/// One tracked guest.
#[derive(Debug)]
struct FollowedGuest {
    process: ProcessId,
    shared: Arc<Shared>,
    /// `None`: it could not be started, or was found to have ended.
    thread: Option<JoinHandle<()>>,
    /// When another thread replaces one that panicked.
    restart_at: Option<Instant>,
    /// The trouble that was last reported.
    reported: Option<String>,
}

/// The tracking status of a guest.
#[derive(Clone, Debug, Default)]
pub struct TrackingStatus {
    /// The latest report and its age.
    pub report: Option<Measured<TrackerReport>>,
    /// How the guest is tracked.
    pub tracking: Option<Tracking>,
    /// Why tracking fails; `Some` only when the reason is new.
    pub new_trouble: Option<String>,
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
        let damon = Arc::new(DamonHub::new(settings.follow.interval));
        let budget = settings.budget;
        Service {
            settings,
            work,
            followed: BTreeMap::new(),
            budget,
            damon,
            threads: Arc::default(),
        }
    }

    /// Stops tracking all other guests, given by name and process, and shares the total budget
    /// among the remaining ones that are not tracked by DAMON.
    pub fn keep(&mut self, mut is_there: impl FnMut(&GuestId, ProcessId) -> bool) {
        self.followed.retain(|id, followed| is_there(id, followed.process));
        let has_cost = |followed: &&FollowedGuest| {
            let latest = lock(&followed.shared.latest);
            latest.tracking.cost.is_some() && latest.tracking.state != TrackingState::Sampling
        };
        let count = self.followed.values().filter(has_cost).count().max(1);
        self.budget = (self.settings.budget_total / count as f64).min(self.settings.budget);
    }

    /// Tracks a guest, starting if necessary, and returns its status.
    pub fn status(&mut self, guest: PresentGuest<'_>) -> TrackingStatus {
        let is_other =
            |followed: &FollowedGuest| followed.process != guest.process || followed.must_restart();
        if self.followed.get(guest.id).is_none_or(is_other) {
            self.followed.remove(guest.id);
            if self.followed.len() >= GUESTS_MAX {
                return TrackingStatus::default();
            }
            let followed = self.start(guest);
            self.followed.insert(guest.id.clone(), followed);
        }
        let Some(followed) = self.followed.get_mut(guest.id) else {
            return TrackingStatus::default();
        };
        followed.check_thread();
        let allocation = guest.allocation.map_or(0, Bytes::get);
        followed.shared.allocation.store(allocation, Ordering::Relaxed);
        followed.shared.budget.store(self.budget.to_bits(), Ordering::Relaxed);
        followed.shared.may_track.store(guest.is_running, Ordering::Relaxed);
        followed.status()
    }

    /// Sets whether the host may soon page a guest. Then its cold pages are kept up to date.
    pub fn expect_paging(&self, id: &GuestId, is_expected: bool) {
        if let Some(followed) = self.followed.get(id) {
            followed.shared.expects_paging.store(is_expected, Ordering::Relaxed);
        }
    }

    /// Whether a guest has a tracker, or may have one.
    pub fn has_tracker(&self, id: &GuestId) -> bool {
        self.latest_of(id, |latest| {
            !matches!(
                latest.tracking.state,
                TrackingState::Absent
                    | TrackingState::Referenced
                    | TrackingState::Sampling
                    | TrackingState::Aging
            )
        })
    }

    fn latest_of(&self, id: &GuestId, is_so: impl FnOnce(&Latest) -> bool) -> bool {
        self.followed.get(id).is_some_and(|followed| is_so(&lock(&followed.shared.latest)))
    }

    /// Whether much of a guest's memory may be missing from its process's page table because a
    /// tracker has revoked it: this daemon's tracking, now or before, or that of another client
    /// that keeps this one out.
    pub fn hides_memory(&self, id: &GuestId) -> bool {
        self.latest_of(id, |latest| {
            latest.tracking.state == TrackingState::Failing || latest.hidden > HIDES_LITTLE
        })
    }

    /// Records that all of a guest's memory was found in its process's page table.
    pub fn show_memory(&self, id: &GuestId) {
        if let Some(followed) = self.followed.get(id) {
            followed.shared.update(Latest::found_in_page_table);
        }
    }

    /// A guest's cold pages, if requested with [`Service::expect_paging`].
    pub fn coldness(&self, id: &GuestId) -> Option<Arc<Coldness>> {
        lock(&self.followed.get(id)?.shared.latest).coldness.clone()
    }

    fn start(&self, guest: PresentGuest<'_>) -> FollowedGuest {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            allocation: AtomicU64::new(0),
            budget: AtomicU64::new(self.budget.to_bits()),
            may_track: AtomicBool::new(guest.is_running),
            expects_paging: AtomicBool::new(false),
            latest: Mutex::new(Latest::new(TrackingState::Waiting)),
            damon: Arc::clone(&self.damon),
        });
        let thread = if Arc::strong_count(&self.threads) > THREADS_MAX {
            Err(std::io::Error::other(format!("{THREADS_MAX} threads run or hang already")))
        } else {
            let (theirs, settings) = (Arc::clone(&shared), self.settings.clone());
            let (running, work) = (Arc::clone(&self.threads), self.work);
            let process = guest.process;
            let work = move || {
                let _running = running;
                work(process, &settings, &theirs);
            };
            start_thread(&format!("track {}", guest.id), Box::new(work))
        };
        let (thread, restart_at) = match thread {
            Ok(thread) => (Some(thread), None),
            Err(error) => {
                let trouble = format!("cannot start its tracking thread: {error}");
                shared.update(|latest| latest.fail(TrackingState::Failing, trouble));
                (None, Some(Instant::now() + RESTART_AFTER))
            }
        };
        FollowedGuest { process: guest.process, shared, thread, restart_at, reported: None }
    }
}

impl FollowedGuest {
    /// Records whether the thread panicked.
    fn check_thread(&mut self) {
        let ended = self.thread.take_if(|thread| thread.is_finished());
        if let Some(Err(panic)) = ended.map(JoinHandle::join) {
            let trouble = format!("its tracking thread panicked: {}", panic_text(&*panic));
            self.shared.update(|latest| {
                latest.fail(TrackingState::Failing, trouble);
                latest.report = None;
            });
            self.restart_at = Some(Instant::now() + RESTART_AFTER);
        }
    }

    /// Whether it is time to start another thread.
    fn must_restart(&self) -> bool {
        self.restart_at.is_some_and(|at| Instant::now() >= at)
    }

    fn status(&mut self) -> TrackingStatus {
        let latest = lock(&self.shared.latest);
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

impl Drop for Service {
    /// Tells all threads to stop, and frees DAMON for other programs.
    fn drop(&mut self) {
        self.followed.clear();
        self.damon.close();
    }
}

impl Drop for FollowedGuest {
    /// Tells the thread to stop, without waiting for it.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ballast_config::SourceChoice;
    use ballast_host::{PROC, ProcessReader};
    use ballast_model::TrackingSource;
    use ballast_working_set::WatchPlannerSettings;

    use super::super::follow::FollowSettings;
    use super::*;

    fn settings() -> ServiceSettings {
        let follow = FollowSettings {
            interval: Duration::from_millis(1),
            planner: WatchPlannerSettings::default(),
            seed: 1,
        };
        ServiceSettings {
            source: SourceChoice::Library,
            follow,
            budget: 1.0,
            budget_total: 1.0,
            referenced: true,
        }
    }

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 5 }
    }

    /// Stands in for tracking: for process 1 it hangs, for others it panics.
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
    fn guests_share_the_budget_of_all_unless_damon_samples_them() {
        let budgets = ServiceSettings { budget: 0.01, budget_total: 0.03, ..settings() };
        let mut service = Service::doing(|_, _, _| {}, budgets);
        let ids: Vec<GuestId> = (0..6).map(|n| format!("guest-{n}").parse().unwrap()).collect();
        let mut budget_with = |costly: usize, state| {
            for (number, id) in ids.iter().enumerate() {
                let process = process(2);
                service.status(PresentGuest { id, process, allocation: None, is_running: true });
                let cost = (number < costly).then_some(Share::WHOLE);
                let tracking = Tracking { cost, ..Tracking::new(state) };
                service.followed[id].shared.update(|latest| latest.tracking = tracking);
            }
            service.keep(|_, _| true);
            let present = PresentGuest {
                id: &ids[0],
                process: process(2),
                allocation: None,
                is_running: true,
            };
            service.status(present);
            service.followed[&ids[0]].shared.budget()
        };
        assert_eq!(budget_with(0, TrackingState::Absent), 0.01);
        assert_eq!(budget_with(3, TrackingState::Resting), 0.01);
        assert_eq!(budget_with(6, TrackingState::Watching), 0.005);
        assert_eq!(budget_with(6, TrackingState::Sampling), 0.01);
    }

    #[test]
    fn threads_that_hang_are_bounded_in_number() {
        let mut service = Service::doing(misbehave, settings());
        let id: GuestId = "a".parse().unwrap();
        let present =
            PresentGuest { id: &id, process: process(1), allocation: None, is_running: true };
        let refused = (0..=THREADS_MAX).find_map(|_| {
            // The guest goes and returns, but its thread hangs.
            service.keep(|_, _| false);
            service.status(present).new_trouble
        });
        assert!(refused.unwrap().contains("run or hang already"));
        assert_eq!(Arc::strong_count(&service.threads), THREADS_MAX + 1);
    }

    #[test]
    fn a_tracker_that_watched_much_hides_memory() {
        let id: GuestId = "a".parse().unwrap();
        let present =
            PresentGuest { id: &id, process: process(9), allocation: None, is_running: true };
        let mut service = Service::doing(|_, _, _| {}, settings());
        assert!(!service.hides_memory(&id));
        service.status(present);
        let little = Some(Share::from_millionths(4_000));
        for (state, watched, hides) in [
            (TrackingState::Waiting, None, false),
            (TrackingState::Watching, little, false),
            (TrackingState::Resting, None, false),
            (TrackingState::Absent, None, false),
            (TrackingState::Failing, None, true),
            (TrackingState::Watching, Some(Share::WHOLE), true),
            // What was revoked stays revoked until it is touched.
            (TrackingState::Resting, None, true),
            (TrackingState::Watching, little, true),
            (TrackingState::Waiting, None, true),
        ] {
            let tracking = Tracking { watched, ..Tracking::new(state) };
            service.followed[&id].shared.update(|latest| latest.track(tracking));
            assert_eq!(service.hides_memory(&id), hides, "{state:?}");
        }
        service.show_memory(&id);
        assert!(!service.hides_memory(&id), "little was watched last");
        for state in [TrackingState::Watching, TrackingState::Resting] {
            let watched = (state == TrackingState::Watching).then_some(Share::WHOLE);
            let tracking = Tracking { watched, ..Tracking::new(state) };
            service.followed[&id].shared.update(|latest| latest.track(tracking));
            service.show_memory(&id);
            assert!(service.hides_memory(&id), "all of it may be revoked again");
        }
    }

    /// Stands in for tracking: it reports the start time as the working set.
    fn report(process: ProcessId, _: &ServiceSettings, shared: &Shared) {
        let working_set = Bytes::new(process.start_ticks);
        let report = TrackerReport { working_set, curve: None, source: TrackingSource::Library };
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
