//! Why a guest was left alone, as `{"code", "figures"}`, and back without loss.

use std::time::Duration;

use ballast_model::{Bytes, Held, Implausible};
use serde::{Deserialize, Serialize};

use super::ns;
use super::sample::RunStateRecord;

/// A [`Held`]; the code is [`Held::code`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum HeldRecord {
    Paused,
    OptedOut,
    Unreachable { why: String },
    NotRunning { state: RunStateRecord },
    NoBalloon,
    NoAllocation,
    DiscardInhibited,
    NoStatistics,
    Stale { age_ns: u64, limit_ns: u64 },
    Implausible(ImplausibleRecord),
    Stuck { idle_ns: u64, asked_bytes: u64, retry_in_ns: u64 },
    DeadBand { change_bytes: u64, band_bytes: u64 },
    OnTarget,
    PlanRefused { violation: String },
    ClockBackwards,
}

/// An [`Implausible`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum ImplausibleRecord {
    TotalOverBoot { total_bytes: u64, boot_bytes: u64 },
    FreeOverTotal { free_bytes: u64, total_bytes: u64 },
    AvailableOverTotal { available_bytes: u64, total_bytes: u64 },
    AvailableOverAllocation { available_bytes: u64, allocation_bytes: u64 },
}

impl From<&Held> for HeldRecord {
    fn from(held: &Held) -> Self {
        match held {
            Held::Paused => HeldRecord::Paused,
            Held::OptedOut => HeldRecord::OptedOut,
            Held::Unreachable { why } => HeldRecord::Unreachable { why: why.clone() },
            Held::NotRunning { state } => HeldRecord::NotRunning { state: state.into() },
            Held::NoBalloon => HeldRecord::NoBalloon,
            Held::NoAllocation => HeldRecord::NoAllocation,
            Held::DiscardInhibited => HeldRecord::DiscardInhibited,
            Held::NoStatistics => HeldRecord::NoStatistics,
            Held::Stale { age, limit } => {
                HeldRecord::Stale { age_ns: ns(*age), limit_ns: ns(*limit) }
            }
            Held::Implausible(what) => HeldRecord::Implausible(what.into()),
            Held::Stuck { idle, asked, retry_in } => HeldRecord::Stuck {
                idle_ns: ns(*idle),
                asked_bytes: asked.get(),
                retry_in_ns: ns(*retry_in),
            },
            Held::DeadBand { change, band } => {
                HeldRecord::DeadBand { change_bytes: change.get(), band_bytes: band.get() }
            }
            Held::OnTarget => HeldRecord::OnTarget,
            Held::PlanRefused { violation } => {
                HeldRecord::PlanRefused { violation: violation.clone() }
            }
            Held::ClockBackwards => HeldRecord::ClockBackwards,
        }
    }
}

impl From<HeldRecord> for Held {
    fn from(record: HeldRecord) -> Self {
        match record {
            HeldRecord::Paused => Held::Paused,
            HeldRecord::OptedOut => Held::OptedOut,
            HeldRecord::Unreachable { why } => Held::Unreachable { why },
            HeldRecord::NotRunning { state } => Held::NotRunning { state: state.into() },
            HeldRecord::NoBalloon => Held::NoBalloon,
            HeldRecord::NoAllocation => Held::NoAllocation,
            HeldRecord::DiscardInhibited => Held::DiscardInhibited,
            HeldRecord::NoStatistics => Held::NoStatistics,
            HeldRecord::Stale { age_ns, limit_ns } => Held::Stale {
                age: Duration::from_nanos(age_ns),
                limit: Duration::from_nanos(limit_ns),
            },
            HeldRecord::Implausible(what) => Held::Implausible(what.into()),
            HeldRecord::Stuck { idle_ns, asked_bytes, retry_in_ns } => Held::Stuck {
                idle: Duration::from_nanos(idle_ns),
                asked: Bytes::new(asked_bytes),
                retry_in: Duration::from_nanos(retry_in_ns),
            },
            HeldRecord::DeadBand { change_bytes, band_bytes } => {
                Held::DeadBand { change: Bytes::new(change_bytes), band: Bytes::new(band_bytes) }
            }
            HeldRecord::OnTarget => Held::OnTarget,
            HeldRecord::PlanRefused { violation } => Held::PlanRefused { violation },
            HeldRecord::ClockBackwards => Held::ClockBackwards,
        }
    }
}

impl From<&Implausible> for ImplausibleRecord {
    fn from(what: &Implausible) -> Self {
        match what {
            Implausible::TotalOverBoot { total, boot } => ImplausibleRecord::TotalOverBoot {
                total_bytes: total.get(),
                boot_bytes: boot.get(),
            },
            Implausible::FreeOverTotal { free, total } => ImplausibleRecord::FreeOverTotal {
                free_bytes: free.get(),
                total_bytes: total.get(),
            },
            Implausible::AvailableOverTotal { available, total } => {
                ImplausibleRecord::AvailableOverTotal {
                    available_bytes: available.get(),
                    total_bytes: total.get(),
                }
            }
            Implausible::AvailableOverAllocation { available, allocation } => {
                ImplausibleRecord::AvailableOverAllocation {
                    available_bytes: available.get(),
                    allocation_bytes: allocation.get(),
                }
            }
        }
    }
}

impl From<ImplausibleRecord> for Implausible {
    fn from(record: ImplausibleRecord) -> Self {
        match record {
            ImplausibleRecord::TotalOverBoot { total_bytes, boot_bytes } => {
                Implausible::TotalOverBoot {
                    total: Bytes::new(total_bytes),
                    boot: Bytes::new(boot_bytes),
                }
            }
            ImplausibleRecord::FreeOverTotal { free_bytes, total_bytes } => {
                Implausible::FreeOverTotal {
                    free: Bytes::new(free_bytes),
                    total: Bytes::new(total_bytes),
                }
            }
            ImplausibleRecord::AvailableOverTotal { available_bytes, total_bytes } => {
                Implausible::AvailableOverTotal {
                    available: Bytes::new(available_bytes),
                    total: Bytes::new(total_bytes),
                }
            }
            ImplausibleRecord::AvailableOverAllocation { available_bytes, allocation_bytes } => {
                Implausible::AvailableOverAllocation {
                    available: Bytes::new(available_bytes),
                    allocation: Bytes::new(allocation_bytes),
                }
            }
        }
    }
}
