//! The guests that a daemon follows, each in a thread of its own.
//!
//! Idea: the daemon says each tick which guests there are, in which processes, and what they hold; a guest
//! with a tracker in it gets a thread, which leaves its latest report where the next tick finds it. The
//! daemon waits for nobody. Where tracking fails it is tried again, less and less often, and the reason is
//! told once.
//!
//! A guest without a tracker is followed by the kernel's referenced bits where that is wanted: a working set,
//! no curve, and in intervals so long that it costs no more than allowed.
//!
//! Cost: that of the trackers. Limits: [`GUESTS_MAX`] guests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ballast_host::PROC;
use ballast_model::{Bytes, GuestId, Measured, Share, TrackerReport, Tracking, TrackingState};
use ballast_reclaim::Coldness;
use ballast_tracker::{
    Trackable, TrackerError, check_shared, clear_referenced, memory_paths_at, referenced,
    trackable_at,
};
use ballast_working_set::PilotSettings;

use super::follow::{FollowSettings, Follower};
use super::row::Row;
use super::tiny::Moved;
use crate::config::TrackingSettings;

/// Most guests that are followed.
const GUESTS_MAX: usize = 256;
/// Between two attempts, at first and at most. The first comes soon, because a host that is too busy may
/// have kept the daemon from being heard of for the second that a tracker waits.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How often a waiting thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Longest interval of the referenced bits: beyond it, all that a guest has is touched.
const REFERENCED_MAX: Duration = Duration::from_secs(120);

/// How guests are followed.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSettings {
    /// Those with a tracker.
    pub(crate) follow: FollowSettings,
    /// Whether the others are followed by referenced bits, and for what share of a core at most.
    pub(crate) referenced: Option<f64>,
}

/// Picks the sample: any number, the same in every run, so that runs can be compared.
const SEED: u64 = 1;

impl From<&TrackingSettings> for ServiceSettings {
    fn from(settings: &TrackingSettings) -> Self {
        let pilot = PilotSettings {
            sample: (!settings.every).then(|| settings.budget.clone()),
            rest: settings.intermittent,
            ..PilotSettings::default()
        };
        ServiceSettings {
            follow: FollowSettings { interval: settings.interval, pilot, seed: SEED },
            referenced: settings.referenced.then(|| settings.budget.limit()),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Service {
    settings: ServiceSettings,
    followed: BTreeMap<GuestId, Followed>,
}

/// One of them.
#[derive(Debug)]
struct Followed {
    pid: u32,
    shared: Arc<Shared>,
    said: Option<String>,
}

/// What its thread and the daemon share.
#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    /// What the guest holds, in bytes; 0 where that is not known.
    allocation: AtomicU64,
    /// Whether the guest runs: one that is paused or migrated is left alone.
    may_track: AtomicBool,
    /// Whether the host may soon page it, and wants to know what is cold.
    is_to_give: AtomicBool,
    latest: Mutex<Latest>,
}

#[derive(Debug)]
struct Latest {
    report: Option<(TrackerReport, Instant)>,
    tracking: Tracking,
    coldness: Option<Arc<Coldness>>,
}

impl Latest {
    /// In rest nothing is seen anew, but what tells a new phase told none: what was seen still holds.
    fn confirm(&mut self) {
        if let Some((_, at)) = &mut self.report {
            *at = Instant::now();
        }
    }

    /// In rest, what tells a new phase told how what was seen has moved, of a guest that has `tracked` memory.
    fn move_by(&mut self, Moved { before, now }: Moved, tracked: Bytes) {
        if let Some((report, at)) = &mut self.report {
            *report = report.moved(now, before, tracked);
            *at = Instant::now();
        }
    }

    /// Takes in that it does not work.
    fn fail(&mut self, trouble: String) {
        let failing = Tracking::new(TrackingState::Failing);
        self.tracking = Tracking { trouble: Some(trouble), ..failing };
        self.coldness = None;
    }
}

/// What is known of a guest.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// What its pages told, and how old that is.
    pub(crate) report: Option<Measured<TrackerReport>>,
    /// How it is followed.
    pub(crate) tracking: Option<Tracking>,
    /// Why nothing is known, once.
    pub(crate) news: Option<String>,
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

    /// Waits so long, or until told to stop; whether it was not.
    fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.stop.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
        false
    }
}

/// A guest as the daemon sees it in a tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present<'a> {
    /// Its name.
    pub(crate) id: &'a GuestId,
    /// Its hypervisor's process.
    pub(crate) pid: u32,
    /// What it holds.
    pub(crate) allocation: Option<Bytes>,
    /// Whether it runs.
    pub(crate) is_running: bool,
}

impl Service {
    /// Follows nobody yet.
    pub(crate) fn new(settings: ServiceSettings) -> Service {
        Service { settings, followed: BTreeMap::new() }
    }

    /// No longer follows any but these: the names, with the processes they have.
    pub(crate) fn keep(&mut self, mut is_there: impl FnMut(&GuestId, u32) -> bool) {
        self.followed.retain(|id, followed| is_there(id, followed.pid));
    }

    /// Follows a guest, and says what is known of it.
    pub(crate) fn look(&mut self, guest: Present<'_>) -> Told {
        if self.followed.get(guest.id).is_none_or(|followed| followed.pid != guest.pid) {
            self.followed.remove(guest.id);
            if self.followed.len() >= GUESTS_MAX {
                return Told { report: None, tracking: None, news: None };
            }
            let followed = Followed::start(guest, &self.settings);
            self.followed.insert(guest.id.clone(), followed);
        }
        let Some(followed) = self.followed.get_mut(guest.id) else {
            return Told { report: None, tracking: None, news: None };
        };
        let allocation = guest.allocation.map_or(0, Bytes::get);
        followed.shared.allocation.store(allocation, Ordering::Relaxed);
        followed.shared.may_track.store(guest.is_running, Ordering::Relaxed);
        followed.look()
    }

    /// Whether the host may soon page a guest: what is cold in it is then kept at hand.
    pub(crate) fn expect_paging(&self, id: &GuestId, is_expected: bool) {
        if let Some(followed) = self.followed.get(id) {
            followed.shared.is_to_give.store(is_expected, Ordering::Relaxed);
        }
    }

    /// Whether a guest has a tracker in it, or may have.
    pub(crate) fn has_tracker(&self, id: &GuestId) -> bool {
        self.followed.get(id).is_some_and(|followed| {
            let latest = followed.shared.latest.lock().unwrap_or_else(PoisonError::into_inner);
            !matches!(latest.tracking.state, TrackingState::Absent | TrackingState::Referenced)
        })
    }

    /// What is known of a guest's pages, where [`Service::expect_paging`] asked for it.
    pub(crate) fn coldness(&self, id: &GuestId) -> Option<Arc<Coldness>> {
        let latest = self.followed.get(id)?.shared.latest.lock();
        latest.unwrap_or_else(PoisonError::into_inner).coldness.clone()
    }
}

impl Followed {
    fn start(guest: Present<'_>, settings: &ServiceSettings) -> Followed {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            allocation: AtomicU64::new(0),
            may_track: AtomicBool::new(guest.is_running),
            is_to_give: AtomicBool::new(false),
            latest: Mutex::new(Latest {
                report: None,
                tracking: Tracking::new(TrackingState::Waiting),
                coldness: None,
            }),
        });
        let (theirs, settings, pid) = (Arc::clone(&shared), settings.clone(), guest.pid);
        let name = format!("track {}", guest.id);
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            let why = match trackable_at(Path::new(PROC), pid) {
                Some(guest) => match track(&guest, &settings, &theirs) {
                    None => return,
                    why => why,
                },
                None => None,
            };
            by_bits(pid, &settings, &theirs, why.as_deref());
        });
        if let Err(error) = spawned {
            shared.update(|latest| latest.fail(format!("no thread to track it: {error}")));
        }
        Followed { pid: guest.pid, shared, said: None }
    }

    fn look(&mut self) -> Told {
        let latest = self.shared.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let report = latest
            .report
            .as_ref()
            .map(|(report, at)| Measured { value: report.clone(), age: at.elapsed() });
        let trouble = &latest.tracking.trouble;
        let news = if *trouble == self.said { None } else { trouble.clone() };
        self.said.clone_from(trouble);
        Told { report, tracking: Some(latest.tracking.clone()), news }
    }
}

impl Drop for Followed {
    /// The thread ends by itself, and what it tracks with it; nobody waits for it.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Follows a guest by its tracker until told to stop; or says why that will never do, where there is another way.
fn track(guest: &Trackable, settings: &ServiceSettings, shared: &Shared) -> Option<String> {
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

/// Follows it until it may not any more.
fn follow(
    follower: &mut Follower,
    shared: &Shared,
    retry: &mut Duration,
) -> Result<(), TrackerError> {
    while shared.may_go_on() {
        let go_on = || shared.may_go_on();
        let (row, _) = follower.interval(shared.allocation(), go_on)?;
        // One that was cut short has not seen what belongs to it.
        if !shared.may_go_on() {
            break;
        }
        *retry = RETRY_FIRST;
        let tracking = tracking_of(&row);
        let is_same_phase = row.step.is_some_and(|step| step.next.is_same_phase());
        let (moved, holds) = (row.moved, row.tracked);
        let is_to_give = shared.is_to_give.load(Ordering::Relaxed);
        let coldness = if is_to_give { follower.coldness().map(Arc::new) } else { None };
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

/// How the interval was watched.
fn tracking_of(row: &Row) -> Tracking {
    let state = if row.seen.is_some() { TrackingState::Watching } else { TrackingState::Resting };
    Tracking {
        watched: row.seen.as_ref().map(|seen| Share::from_ratio(seen.share)),
        cost: Some(Share::from_ratio(row.cost_share())),
        ..Tracking::new(state)
    }
}

/// Follows a guest by referenced bits until told to stop; `why` not by its tracker, where it has one.
fn by_bits(pid: u32, settings: &ServiceSettings, shared: &Shared, why: Option<&str>) {
    let Some(share) = settings.referenced else {
        shared.update(|latest| latest.tracking = Tracking::new(TrackingState::Absent));
        return;
    };
    let mut interval = settings.follow.interval;
    loop {
        let asked = interval;
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
                let cost = cost.as_secs_f64() / asked.as_secs_f64().max(f64::MIN_POSITIVE);
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

/// The interval in which `cost` is that share of it.
fn interval_within(cost: Duration, share: f64) -> Duration {
    let seconds = cost.as_secs_f64() / share;
    Duration::try_from_secs_f64(seconds).unwrap_or(REFERENCED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_milliseconds_for_half_a_percent_are_every_four_seconds() {
        assert_eq!(interval_within(Duration::from_millis(20), 0.005), Duration::from_secs(4));
        assert_eq!(interval_within(Duration::from_millis(20), 0.0), REFERENCED_MAX);
    }

    #[test]
    fn what_moved_is_new_and_never_more_than_the_guest_has() {
        let seen = Instant::now() - Duration::from_secs(60);
        let report = TrackerReport { working_set: Bytes::mib(60), curve: None };
        let tracking = Tracking::new(TrackingState::Resting);
        let mut latest = Latest { report: Some((report, seen)), tracking, coldness: None };
        latest.move_by(Moved { before: 100, now: 150 }, Bytes::mib(512));
        let (told, at) = latest.report.clone().unwrap();
        assert!(told.working_set == Bytes::mib(90) && at > seen);
        latest.move_by(Moved { before: 1, now: 10 }, Bytes::mib(512));
        assert_eq!(latest.report.unwrap().0.working_set, Bytes::mib(512));
    }

    #[test]
    fn what_still_holds_is_not_old_and_what_was_never_seen_is_not_confirmed() {
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

    #[test]
    fn a_process_that_is_no_guest_is_said_to_be_none_once() {
        let follow = FollowSettings {
            interval: Duration::from_millis(1),
            pilot: PilotSettings::default(),
            seed: 1,
        };
        let mut service = Service::new(ServiceSettings { follow, referenced: Some(1.0) });
        let id: GuestId = "a".parse().unwrap();
        let present =
            Present { id: &id, pid: std::process::id(), allocation: None, is_running: true };
        let end = Instant::now() + Duration::from_secs(60);
        let trouble = loop {
            if let Told { report: None, tracking: Some(tracking), news: Some(trouble) } =
                service.look(present)
            {
                assert_eq!(tracking.state, TrackingState::Failing);
                break trouble;
            }
            assert!(Instant::now() < end, "nothing is said");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(trouble.contains("no guest memory in a file"), "{trouble}");
        assert_eq!(service.look(present).news, None);
        service.keep(|_, pid| pid != std::process::id());
        assert!(service.followed.is_empty());
    }
}
