//! The table `[policy]` of scenario files: the policies' settings, as in the daemon's
//! configuration.

use std::time::Duration;

use ballast_estimate::probing::ProbingSettings;
use ballast_model::{Bytes, PolicyName};
use ballast_policy::PolicySettings;
use ballast_toml_strict::duration;
use serde::Deserialize;

use ballast_config::{FlexmemdTable, MebTable, PolicyParameters, Tau, TwsTable};

/// A mistake: the keys below the table, and the text.
type PolicyMistake = (Vec<&'static str>, String);

/// The policies' settings, as in the daemon's configuration.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyTable {
    #[serde(with = "duration::option")]
    pub(super) interval: Option<Duration>,
    reserve_per_guest: Option<Bytes>,
    tau: Option<Tau>,
    meb: MebTable,
    tws: TwsTable,
    flexmemd: FlexmemdTable,
}

impl PolicyTable {
    /// Converts the table to the settings of the simulator, checked for each of `policies`.
    pub(super) fn settings(
        &self,
        policies: &[PolicyName],
    ) -> Result<(PolicySettings, ProbingSettings), PolicyMistake> {
        let PolicyTable { interval: _, reserve_per_guest, tau, meb, tws, flexmemd } = self;
        let reserve_per_guest = reserve_per_guest.unwrap_or(PolicySettings::RESERVE_DEFAULT);
        let parameters = PolicyParameters { reserve_per_guest, tau: *tau, meb, tws, flexmemd };
        let settings =
            parameters.settings().map_err(|([table, key], message)| (vec![table, key], message))?;
        for name in policies {
            ballast_policy::check(*name, &settings.0)
                .map_err(|error| (vec!["flexmemd"], error.to_string()))?;
        }
        Ok(settings)
    }
}
