//! How short of memory the host is.
//!
//! Idea: there are levels, each entered when the host's available memory is below a part of its
//! reserve, or when its tasks wait for memory while little is available. Going up takes a moment of
//! that state, and no time at all where memory is critical. Coming down takes a clearly better
//! state for longer, one level at a time. Between the two thresholds of a level nothing changes, so
//! figures that swing there move no guest.
//!
//! ```text
//! normal ◀─▶ balloon-only ◀─▶ reclaim-owed ◀─▶ reclaim-richest ◀─▶ freeze
//!    └──────────── several levels at once ─────────────────────────▲
//! ```
//!
//! Cost: O(1) a tick. Source: the levels are Ballast's own; flexmemd §3.2.2 has the first three.
//! Limits: where available memory cannot be read, the level stays. Pressure alone does not raise
//! the level, because a process that thrashes within its own limit causes pressure although the
//! host is not short. A host without a reserve is never short.

use std::time::Duration;

use ballast_model::{Bytes, HostSample, Pressure, PressureLevel, Timestamp};

/// Number of levels that have to be entered: all but the lowest.
const ENTERED: usize = PressureLevel::ALL.len() - 1;

/// Parts of the reserve, in eighths, below which each level is entered. A host whose budget is all
/// its memory is at its reserve in normal operation, where the guard grants nothing more. So the
/// first level is a quarter below the reserve.
const ENTER_EIGHTHS: [u64; ENTERED] = [6, 4, 3, 2];

/// A level is left at this many eighths of the reserve above its entry threshold. That is more than
/// a host's figures swing within seconds while nothing happens.
const LEAVE_EIGHTHS_MORE: u64 = 1;

/// Share of time in which all tasks waited that enters each level, in hundredths of a percent. At a
/// twentieth work visibly suffers; at two fifths the host hardly does anything else.
const ENTER_FULL: [u32; ENTERED] = [500, 1_000, 2_000, 4_000];

/// The same for time in which any task waited: four times as much, because on a host with several
/// processors one of them often waits.
const ENTER_SOME: [u32; ENTERED] = [2_000, 4_000, 8_000, 10_000];

/// Settings of a [`HostPressure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPressureSettings {
    /// Memory of the host that should stay available.
    pub reserve: Bytes,
    /// Pressure counts while less than this many times the reserve is available.
    pub pressure_within: u64,
    /// A level is entered once its threshold was passed for this long; at once where memory is
    /// critical.
    pub entered_after: Duration,
    /// A level is left once its lower threshold was kept for this long.
    pub left_after: Duration,
}

impl Default for HostPressureSettings {
    fn default() -> Self {
        HostPressureSettings {
            reserve: HostPressureSettings::RESERVE_DEFAULT,
            pressure_within: HostPressureSettings::PRESSURE_WITHIN_DEFAULT,
            entered_after: HostPressureSettings::ENTERED_AFTER_DEFAULT,
            left_after: HostPressureSettings::LEFT_AFTER_DEFAULT,
        }
    }
}

impl HostPressureSettings {
    /// The guard's default.
    pub const RESERVE_DEFAULT: Bytes = Bytes::mib(512);
    /// With twice its reserve available a host is not short, whatever waits.
    pub const PRESSURE_WITHIN_DEFAULT: u64 = 2;
    /// Two ticks: a single figure may be from a burst of page cache being written.
    pub const ENTERED_AFTER_DEFAULT: Duration = Duration::from_secs(2);
    /// Three ticks: the kernel's pressure figure is already an average over ten seconds.
    pub const LEFT_AFTER_DEFAULT: Duration = Duration::from_secs(3);
}

/// The pressure level of a host.
#[derive(Clone, Debug, Default)]
pub struct HostPressure {
    level: PressureLevel,
    /// Since when each level's threshold has been passed without a break.
    passed_since: [Option<Timestamp>; ENTERED],
    /// Since when the lower threshold of the present level has been kept.
    better_since: Option<Timestamp>,
}

impl HostPressure {
    /// The level.
    pub fn level(&self) -> PressureLevel {
        self.level
    }

    /// Takes in a sample of the host. Returns the level now.
    pub fn observe(
        &mut self,
        now: Timestamp,
        host: &HostSample,
        settings: &HostPressureSettings,
    ) -> PressureLevel {
        let Some(available) = host.memory_available else {
            (self.passed_since, self.better_since) = ([None; ENTERED], None);
            return self.level;
        };
        let enter = reached(available, host.pressure, settings, false);
        let mut highest = PressureLevel::Normal;
        for (index, passed) in self.passed_since.iter_mut().enumerate() {
            let level = PressureLevel::ALL[index + 1];
            if enter < level {
                *passed = None;
                continue;
            }
            let since = *passed.get_or_insert(now);
            let critical = available < enter_below(ENTERED - 1, settings);
            if critical || now.saturating_since(since) >= settings.entered_after {
                highest = level;
            }
        }
        if highest > self.level {
            (self.level, self.better_since) = (highest, None);
            return self.level;
        }
        if self.level == PressureLevel::Normal
            || reached(available, host.pressure, settings, true) >= self.level
        {
            self.better_since = None;
            return self.level;
        }
        let since = *self.better_since.get_or_insert(now);
        if now.saturating_since(since) >= settings.left_after {
            self.level = PressureLevel::ALL[self.level as usize - 1];
            self.better_since = Some(now);
        }
        self.level
    }
}

/// The highest level whose threshold is passed: the entry threshold or, if `leaving`, the lower
/// one.
fn reached(
    available: Bytes,
    pressure: Option<Pressure>,
    settings: &HostPressureSettings,
    leaving: bool,
) -> PressureLevel {
    let more = settings.reserve.fraction(LEAVE_EIGHTHS_MORE, 8);
    let little = settings
        .reserve
        .fraction(settings.pressure_within, 1)
        .saturating_add(if leaving { more } else { Bytes::ZERO });
    let presses = |index: usize| {
        let divisor = if leaving { 2 } else { 1 };
        pressure.is_some_and(|pressure| {
            pressure.full_basis_points >= ENTER_FULL[index] / divisor
                || pressure.some_basis_points >= ENTER_SOME[index] / divisor
        })
    };
    let passed = |index: usize| {
        let below = enter_below(index, settings);
        let below = if leaving { below.saturating_add(more) } else { below };
        available < below || available < little && presses(index)
    };
    (0..ENTERED)
        .rev()
        .find(|index| passed(*index))
        .map_or(PressureLevel::Normal, |index| PressureLevel::ALL[index + 1])
}

fn enter_below(index: usize, settings: &HostPressureSettings) -> Bytes {
    settings.reserve.fraction(ENTER_EIGHTHS[index], 8)
}
