//! What can be set about policies, wherever it is written: in the daemon's configuration and in
//! scenarios of the simulator.

use std::ops::RangeInclusive;

use ballast_estimate::probing::ProbingSettings;
use ballast_model::Bytes;
use ballast_policy::{PolicySettings, TaxRule};

use super::file::Tau;
use super::flexmemd::FlexmemdTable;
use super::meb::MebTable;
use super::tws::TwsTable;

/// Hundredths of a percent in a whole.
pub(super) const BASIS_POINTS: f64 = 10_000.0;

/// A key of a table, and what is wrong with it.
pub(super) type Mistake = (&'static str, String);

/// The tables of a file that say how policies decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knobs<'a> {
    pub(crate) reserve_per_guest: Bytes,
    pub(crate) tau: Option<Tau>,
    pub(crate) meb: &'a MebTable,
    pub(crate) tws: &'a TwsTable,
    pub(crate) flexmemd: &'a FlexmemdTable,
}

impl Knobs<'_> {
    /// The settings they mean.
    ///
    /// # Errors
    /// The table below `[policy]` and its key that is out of range or fits no other, and what was
    /// expected.
    pub(crate) fn settings(
        self,
    ) -> Result<(PolicySettings, ProbingSettings), ([&'static str; 2], String)> {
        let at = |table| move |(key, message): Mistake| ([table, key], message);
        let settings = PolicySettings {
            reserve: self.reserve_per_guest,
            tax: self.tau.map_or(TaxRule::Dynamic, |tau| tau.0),
            meb: self.meb.settings().map_err(at("meb"))?,
            flexmemd: self.flexmemd.settings().map_err(at("flexmemd"))?,
        };
        Ok((settings, self.tws.settings().map_err(at("tws"))?))
    }
}

/// A part of a whole in hundredths of a percent, rounded once, here at the edge.
pub(super) fn basis_points(
    key: &'static str,
    part: f64,
    range: RangeInclusive<f64>,
) -> Result<u32, Mistake> {
    if !range.contains(&part) {
        return Err((key, format!("{part}: expected {} to {}", range.start(), range.end())));
    }
    Ok((part * BASIS_POINTS).round() as u32)
}
