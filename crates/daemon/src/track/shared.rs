//! State shared by the daemon and the thread of a tracked guest.
//!
//! Limits: the daemon never waits for the thread; while it tracks, the thread checks ten times a
//! second whether it may go on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ballast_config::{SourceChoice, TrackingSettings};
use ballast_model::Bytes;
use ballast_working_set::WatchPlannerSettings;

use super::damon_hub::DamonHub;
use super::follow::FollowSettings;
use super::latest::Latest;
use crate::worker::lock;

/// How guests are tracked.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The source by which guests are watched.
    pub source: SourceChoice,
    /// Settings for guests with a tracker; the interval is that of all sources.
    pub follow: FollowSettings,
    /// Largest cost of tracking a guest, as a share of one core.
    pub budget: f64,
    /// Largest cost of tracking all guests, in cores.
    pub budget_total: f64,
    /// Whether guests without another source are tracked by referenced bits.
    pub referenced: bool,
}

/// Time between two checks whether a paused guest runs again.
const LOOK_EVERY: Duration = Duration::from_millis(100);
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
            source: settings.source,
            follow: FollowSettings { interval: settings.interval, planner, seed: SEED },
            budget: settings.budget.limit(),
            budget_total: settings.budget_total * cores(),
            referenced: settings.referenced,
        }
    }
}

/// Processors of the host that this program may use.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// State shared by the guest's thread and the daemon.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// The guest's allocation in bytes; 0 if unknown.
    pub(super) allocation: AtomicU64,
    /// The guest's budget, as the bits of a share of one core.
    pub(super) budget: AtomicU64,
    /// Whether the guest runs: a paused or migrating one is not tracked.
    pub(super) may_track: AtomicBool,
    /// Whether the host may soon page the guest and needs its cold pages.
    pub(super) expects_paging: AtomicBool,
    pub(super) latest: Mutex<Latest>,
    pub(super) damon: Arc<DamonHub>,
}

impl Shared {
    pub(super) fn allocation(&self) -> Option<Bytes> {
        let bytes = self.allocation.load(Ordering::Relaxed);
        (bytes > 0).then_some(Bytes::new(bytes))
    }

    /// Most that tracking the guest may cost now, as a share of one core.
    pub(super) fn budget(&self) -> f64 {
        f64::from_bits(self.budget.load(Ordering::Relaxed))
    }

    pub(super) fn may_go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.may_track.load(Ordering::Relaxed)
    }

    /// Waits until the guest runs again, for `longest` at most. `false`: it does not, or tracking
    /// has to stop.
    pub(super) fn resumes_within(&self, longest: Duration) -> bool {
        let end = Instant::now() + longest;
        while !self.may_go_on() {
            if Instant::now() >= end || !self.wait(LOOK_EVERY) {
                return false;
            }
        }
        true
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Latest)) {
        change(&mut lock(&self.latest));
    }

    /// Waits for `time`, or until the thread is stopped and unparked. `false`: it has to stop.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.stop.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::park_timeout(left);
        }
        false
    }
}
