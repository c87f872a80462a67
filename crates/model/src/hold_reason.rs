//! Why a guest's memory is left alone.
//!
//! Idea: as in `reason.rs`, a value with its figures, rendered only here.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "serde")]
use crate::unit;
use crate::{BalloonOwner, Bytes, Pinned, RunState};

/// Why a guest's memory is left alone in this plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum HoldReason {
    /// Ballast is in observe mode.
    Observing,
    /// The operator paused Ballast.
    Paused,
    /// The operator excluded this guest.
    OptedOut,
    /// The hypervisor does not answer for it.
    Unreachable {
        /// Why.
        why: String,
    },
    /// It is not running.
    NotRunning {
        /// What it does instead.
        state: RunState,
    },
    /// It has no balloon device.
    NoBalloon,
    /// Its allocation has not been read yet.
    NoAllocation,
    /// Ballooning would free no host memory (passthrough device or locked memory).
    DiscardInhibited,
    /// The same, where it is known what keeps its pages on the host.
    Pinned {
        /// What keeps them there.
        by: Pinned,
    },
    /// It has never sent statistics.
    NoStatistics,
    /// It has never sent statistics. Either what the host sees it touch fits what it holds, or it
    /// holds more than it was granted. On that evidence alone it may grow, but not shrink.
    SampledAlone {
        /// The memory that it touches.
        #[cfg_attr(feature = "serde", serde(rename = "working_set_bytes", with = "unit"))]
        working_set: Bytes,
    },
    /// Its statistics are too old to act on.
    Stale {
        /// Their age.
        #[cfg_attr(feature = "serde", serde(rename = "age_ns", with = "unit"))]
        age: Duration,
        /// The greatest age acted on.
        #[cfg_attr(feature = "serde", serde(rename = "limit_ns", with = "unit"))]
        limit: Duration,
    },
    /// Its statistics cannot be true.
    Implausible(Implausible),
    /// Memory was requested, and it has released none for too long.
    Stuck {
        /// Time since it last released any.
        #[cfg_attr(feature = "serde", serde(rename = "idle_ns", with = "unit"))]
        idle: Duration,
        /// The requested target.
        #[cfg_attr(feature = "serde", serde(rename = "asked_bytes", with = "unit"))]
        asked: Bytes,
        /// Time until the request is repeated; zero while that is being done.
        #[cfg_attr(feature = "serde", serde(rename = "retry_in_ns", with = "unit"))]
        retry_in: Duration,
    },
    /// Something else moves its balloon.
    AnotherOwner {
        /// The program that does, if known.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        owner: Option<BalloonOwner>,
    },
    /// The change is too small to be worth it.
    DeadBand {
        /// The change wanted.
        #[cfg_attr(feature = "serde", serde(rename = "change_bytes", with = "unit"))]
        change: Bytes,
        /// The smallest change acted on.
        #[cfg_attr(feature = "serde", serde(rename = "band_bytes", with = "unit"))]
        band: Bytes,
    },
    /// Its allocation is its target, or is moving there.
    OnTarget,
    /// It should grow, but a limit of the host's kernel on its process leaves nothing.
    NoRoom {
        /// What limits: a cgroup's file, or NUMA nodes.
        by: String,
        /// The limit.
        #[cfg_attr(feature = "serde", serde(rename = "limit_bytes", with = "unit"))]
        limit: Bytes,
    },
    /// The independent checker refused the whole plan; the text names the first violation.
    PlanRefused {
        /// What the checker found.
        violation: String,
    },
    /// The clock went backwards; nothing is decided until it goes on.
    ClockBackwards,
}

impl HoldReason {
    /// Whether the guest must not be touched by any mechanism, neither to measure what it needs nor
    /// because the host is short.
    pub const fn leaves_alone(&self) -> bool {
        matches!(
            self,
            HoldReason::Observing
                | HoldReason::Paused
                | HoldReason::OptedOut
                | HoldReason::Unreachable { .. }
                | HoldReason::AnotherOwner { .. }
        )
    }

    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            HoldReason::Observing => "observing",
            HoldReason::Paused => "paused",
            HoldReason::OptedOut => "opted-out",
            HoldReason::Unreachable { .. } => "unreachable",
            HoldReason::NotRunning { .. } => "not-running",
            HoldReason::NoBalloon => "no-balloon",
            HoldReason::NoAllocation => "no-allocation",
            HoldReason::DiscardInhibited => "discard-inhibited",
            HoldReason::Pinned { .. } => "pinned",
            HoldReason::NoStatistics => "no-statistics",
            HoldReason::SampledAlone { .. } => "sampled-alone",
            HoldReason::Stale { .. } => "stale",
            HoldReason::Implausible(_) => "implausible",
            HoldReason::Stuck { .. } => "stuck",
            HoldReason::AnotherOwner { .. } => "another-owner",
            HoldReason::DeadBand { .. } => "dead-band",
            HoldReason::OnTarget => "on-target",
            HoldReason::NoRoom { .. } => "no-room",
            HoldReason::PlanRefused { .. } => "plan-refused",
            HoldReason::ClockBackwards => "clock-backwards",
        }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldReason::Observing => f.write_str("observing: nothing is moved (ballast mode balance)"),
            HoldReason::Paused => f.write_str("paused by the operator"),
            HoldReason::OptedOut => f.write_str("excluded by the operator (managed = false)"),
            HoldReason::Unreachable { why } => write!(f, "unreachable: {why}"),
            HoldReason::NotRunning { state } => write!(f, "not running: {state}"),
            HoldReason::NoBalloon => f.write_str(
                "no balloon that says what it holds: QEMU needs -device virtio-balloon-pci, Xen the guest's \
                 driver, others are in docs/hypervisors.md",
            ),
            HoldReason::NoAllocation => f.write_str("allocation not known yet"),
            HoldReason::DiscardInhibited => f.write_str(
                "ballooning would free no host memory: a passthrough device or locked memory holds the pages",
            ),
            HoldReason::Pinned { by } => write!(f, "ballooning would free no host memory: {by}"),
            HoldReason::NoStatistics => {
                f.write_str("no statistics received: is virtio_balloon loaded in the guest, or the agent there?")
            }
            HoldReason::SampledAlone { working_set } => write!(
                f,
                "no statistics received: the host sees that it touches {working_set}, but not what \
                 it could give back, so it may grow, but not shrink"
            ),
            HoldReason::Stale { age, limit } => write!(
                f,
                "statistics {:.1}s old, limit {:.1}s",
                age.as_secs_f64(),
                limit.as_secs_f64()
            ),
            HoldReason::Implausible(what) => write!(f, "statistics cannot be true: {what}"),
            HoldReason::Stuck { idle, asked, retry_in } => {
                let idle = idle.as_secs();
                write!(f, "stuck: asked to shrink to {asked}, released nothing for {idle}s, ")?;
                match retry_in.as_secs() {
                    0 => f.write_str("asking again now"),
                    seconds => write!(f, "next request in {seconds}s"),
                }
            }
            HoldReason::AnotherOwner { owner } => {
                f.write_str("another owner: ")?;
                match owner {
                    Some(owner) => write!(f, "{owner}"),
                    None => f.write_str("unknown"),
                }
            }
            HoldReason::DeadBand { change, band } => {
                write!(f, "a change of {change} is within the dead band of {band}")
            }
            HoldReason::OnTarget => f.write_str("on target"),
            HoldReason::NoRoom { by, limit } => {
                write!(f, "cannot grow: its process is limited to {limit} by {by}")
            }
            HoldReason::PlanRefused { violation } => write!(f, "the checker refused the plan: {violation}"),
            HoldReason::ClockBackwards => f.write_str("the clock went backwards"),
        }
    }
}

/// What is impossible in a guest's statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum Implausible {
    /// It claims more memory than it has.
    TotalOverBoot {
        /// Claimed memory.
        #[cfg_attr(feature = "serde", serde(rename = "total_bytes", with = "unit"))]
        total: Bytes,
        /// Boot memory.
        #[cfg_attr(feature = "serde", serde(rename = "boot_bytes", with = "unit"))]
        boot: Bytes,
    },
    /// It claims more free memory than it manages.
    FreeOverTotal {
        /// Claimed free memory.
        #[cfg_attr(feature = "serde", serde(rename = "free_bytes", with = "unit"))]
        free: Bytes,
        /// Claimed total.
        #[cfg_attr(feature = "serde", serde(rename = "total_bytes", with = "unit"))]
        total: Bytes,
    },
    /// It claims more available memory than it manages.
    AvailableOverTotal {
        /// Claimed available memory.
        #[cfg_attr(feature = "serde", serde(rename = "available_bytes", with = "unit"))]
        available: Bytes,
        /// Claimed total.
        #[cfg_attr(feature = "serde", serde(rename = "total_bytes", with = "unit"))]
        total: Bytes,
    },
    /// It claims more available memory than it is allocated.
    AvailableOverAllocation {
        /// Claimed available memory.
        #[cfg_attr(feature = "serde", serde(rename = "available_bytes", with = "unit"))]
        available: Bytes,
        /// The allocation.
        #[cfg_attr(feature = "serde", serde(rename = "allocation_bytes", with = "unit"))]
        allocation: Bytes,
    },
}

impl fmt::Display for Implausible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Implausible::TotalOverBoot { total, boot } => {
                write!(f, "total {total} is more than the {boot} it was booted with")
            }
            Implausible::FreeOverTotal { free, total } => {
                write!(f, "free {free} is more than total {total}")
            }
            Implausible::AvailableOverTotal { available, total } => {
                write!(f, "available {available} is more than total {total}")
            }
            Implausible::AvailableOverAllocation { available, allocation } => {
                write!(f, "available {available} is more than its allocation of {allocation}")
            }
        }
    }
}
