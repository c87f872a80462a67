//! Ways to estimate a guest's working set.

use serde::Serialize;

use ballast_estimate::statistical::SamplingSettings;
use ballast_tracker::TrackableGuest;
use ballast_working_set::WatchPlannerSettings;

use ballast_daemon::track::{FollowSettings, Follower, Sampler, WorkingSetSource};

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// What the daemon does
    Daemon,
    /// Every page, in granules of 32
    Every,
    /// 100 pages at random, others every 5 s: ESX as MEB compares with it
    Statistical,
}

impl Way {
    pub(crate) const ALL: [Way; 3] = [Way::Daemon, Way::Every, Way::Statistical];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Way::Daemon => "daemon",
            Way::Every => "every granule of 32",
            Way::Statistical => "statistical",
        }
    }

    /// The mean error in MEB §5.2.1, for a guest that touches 40 to 350 MiB.
    pub(crate) const fn paper(self) -> Option<f64> {
        match self {
            Way::Daemon => None,
            Way::Every => Some(0.1346),
            Way::Statistical => Some(0.7436),
        }
    }

    /// How many intervals of the truth one interval of this way covers.
    pub(crate) const fn intervals(self) -> u32 {
        match self {
            Way::Daemon | Way::Every => 1,
            Way::Statistical => SamplingSettings::FAST.period.as_secs() as u32,
        }
    }

    /// Intervals before those that count, in which the sample finds its size.
    pub(crate) const fn warm_up(self) -> u32 {
        match self {
            Way::Daemon => 6,
            Way::Every => 3,
            Way::Statistical => 0,
        }
    }

    /// Begins to watch `guest`; `daemon` has the daemon's settings.
    pub(crate) fn begin(
        self,
        guest: &TrackableGuest,
        daemon: &FollowSettings,
    ) -> anyhow::Result<Box<dyn WorkingSetSource>> {
        let follow = |settings: &FollowSettings| -> anyhow::Result<Box<dyn WorkingSetSource>> {
            Ok(Box::new(Follower::begin(guest, settings, None, None)?))
        };
        match self {
            Way::Daemon => follow(daemon),
            Way::Every => {
                let planner = WatchPlannerSettings {
                    sample: None,
                    rest: None,
                    hot_set: false,
                    ..WatchPlannerSettings::default()
                };
                follow(&FollowSettings { planner, ..daemon.clone() })
            }
            Way::Statistical => {
                let sampler = Sampler::begin(guest, SamplingSettings::FAST, daemon.seed)?;
                Ok(Box::new(sampler))
            }
        }
    }
}
