//! The form of `ballast replay --json`; `docs/json.md` documents it.

use ballast_model::GuestId;
use ballast_replay::{ASSUMPTIONS, ReplayTotals};
use serde::Serialize;

use super::Replayed;

/// The JSON that is printed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReplayJson {
    journal: String,
    /// Always true: what would have happened was not measured.
    simulated: bool,
    assumptions: Vec<&'static str>,
    ticks: u64,
    span_s: f64,
    recorded: TotalsJson,
    policies: Vec<ReplayedPolicyJson>,
}

#[derive(Clone, Debug, Serialize)]
struct ReplayedPolicyJson {
    policy: String,
    #[serde(flatten)]
    imagined: TotalsJson,
    plans_refused: u64,
    guests: Vec<GuestJson>,
}

#[derive(Clone, Debug, Serialize)]
struct GuestJson {
    guest: String,
    recorded: TotalsJson,
    imagined: TotalsJson,
}

#[derive(Clone, Debug, Serialize)]
struct TotalsJson {
    lacked_mib_s: u64,
    lacking_s: f64,
    moved_bytes: u64,
    allocation_mean_bytes: u64,
}

impl From<ReplayTotals> for TotalsJson {
    fn from(totals: ReplayTotals) -> TotalsJson {
        TotalsJson {
            lacked_mib_s: totals.lacked_mib_s,
            lacking_s: totals.lacking.as_secs_f64(),
            moved_bytes: totals.moved.get(),
            allocation_mean_bytes: totals.allocation_mean.get(),
        }
    }
}

impl ReplayJson {
    /// The JSON of a replay.
    pub(crate) fn new(replayed: Replayed<'_>) -> ReplayJson {
        let Replayed { journal, reports } = replayed;
        let first = reports.first();
        let guest = |(id, recorded, imagined): &(GuestId, ReplayTotals, ReplayTotals)| GuestJson {
            guest: id.to_string(),
            recorded: (*recorded).into(),
            imagined: (*imagined).into(),
        };
        ReplayJson {
            journal: journal.display().to_string(),
            simulated: true,
            assumptions: ASSUMPTIONS.to_vec(),
            ticks: first.map_or(0, |report| report.ticks),
            span_s: first.map_or(0.0, |report| report.span.as_secs_f64()),
            recorded: first.map(|report| report.recorded).unwrap_or_default().into(),
            policies: reports
                .iter()
                .map(|report| ReplayedPolicyJson {
                    policy: report.policy.to_string(),
                    imagined: report.imagined.into(),
                    plans_refused: report.plans_refused,
                    guests: report.guests.iter().map(guest).collect(),
                })
                .collect(),
        }
    }
}
