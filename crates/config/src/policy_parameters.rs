//! Policy settings shared by the daemon's configuration and the simulator's scenarios.

use ballast_estimate::probing::ProbingSettings;
use ballast_model::Bytes;
use ballast_policy::{PolicySettings, TaxRule};

use crate::flexmemd::FlexmemdTable;
use crate::meb::MebTable;
use crate::range::Mistake;
use crate::tau::Tau;
use crate::tws::TwsTable;

/// The tables and keys of a file that configure policies.
#[derive(Clone, Copy, Debug)]
pub struct PolicyParameters<'a> {
    /// `policy.reserve_per_guest`.
    pub reserve_per_guest: Bytes,
    /// `policy.tau`.
    pub tau: Option<Tau>,
    /// `[policy.meb]`.
    pub meb: &'a MebTable,
    /// `[policy.tws]`.
    pub tws: &'a TwsTable,
    /// `[policy.flexmemd]`.
    pub flexmemd: &'a FlexmemdTable,
}

impl PolicyParameters<'_> {
    /// The validated settings.
    ///
    /// # Errors
    /// The table below `[policy]`, its key that is out of range or conflicts with another key, and
    /// what was expected.
    pub fn settings(
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
