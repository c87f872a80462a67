//! What an operator can set about the policies of flexmemd.

use std::time::Duration;

use super::credits::TAX_DEFAULT_BASIS_POINTS;
use super::demand::Thresholds;
use super::round_robin::RoundLimit;

/// What an operator can set about the policies of flexmemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time for which rent is paid, and after which a periodic policy decides; at least
    /// [`Settings::PERIOD_MIN`].
    pub period: Duration,
    /// Part of every balance that is shared out anew each second, in hundredths of a percent.
    pub tax_basis_points: u32,
    /// When statistics call for a change.
    pub thresholds: Thresholds,
    /// What guests may receive in one round of `round-robin`, compared with each other.
    pub round: RoundLimit,
}

impl Settings {
    /// Guests report once a second (flexmemd §3.1.2); more often there is nothing new to decide on.
    pub const PERIOD_DEFAULT: Duration = Duration::from_secs(1);
    /// Shortest period: a decision takes milliseconds.
    pub const PERIOD_MIN: Duration = Duration::from_millis(100);
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period: Settings::PERIOD_DEFAULT,
            tax_basis_points: TAX_DEFAULT_BASIS_POINTS,
            thresholds: Thresholds::default(),
            round: RoundLimit::default(),
        }
    }
}
