//! What the rivals' rules share: inputs they read and the way from a target to a division.
//!
//! Limits: an unknown input is replaced as its function says.

use std::borrow::Cow;

use ballast_model::{Bytes, Clamped, Desired, Reason};
use ballast_policy::{Contender, Division, Problem};

/// Free memory of a guest without page cache; if unknown, its available memory, which includes page
/// cache.
pub(super) fn free(contender: &Contender) -> Bytes {
    let free = contender.signals.free;
    free.unwrap_or(contender.allocation.saturating_sub(contender.used)).min(contender.allocation)
}

/// Free and total memory of the host; if unknown, the rest of the budget and the budget.
pub(super) fn host_free_and_total(problem: &Problem) -> (Bytes, Bytes) {
    let host = problem.host();
    match (host.memory_available, host.memory_total) {
        (Some(free), Some(total)) if total > Bytes::ZERO => (free.min(total), total),
        _ => {
            let held: Bytes = problem.contenders().iter().map(|c| c.allocation).sum();
            (problem.budget().saturating_sub(held), problem.budget())
        }
    }
}

/// Converts an amount to a signed number of bytes.
pub(super) fn signed(bytes: Bytes) -> i128 {
    i128::from(bytes.get())
}

/// Converts a signed number of bytes to an amount; negative becomes 0.
pub(super) fn unsigned(bytes: i128) -> Bytes {
    Bytes::new(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX))
}

/// Rounds a rule's target to whole pages within the guest's limits.
pub(super) fn wanted(
    contender: &Contender,
    target: Bytes,
    used: Bytes,
    rule: impl Into<Cow<'static, str>>,
) -> Desired {
    let target = target.page_floor();
    let reason = if target < contender.floor {
        Reason::Bound(Clamped::Floor { floor: contender.floor })
    } else if target > contender.ceiling {
        Reason::Bound(Clamped::Ceiling { ceiling: contender.ceiling })
    } else {
        Reason::Custom { rule: rule.into(), used }
    };
    Desired { target: target.clamp(contender.floor, contender.ceiling), reason }
}

/// Builds a division from the targets.
pub(super) fn division(problem: &Problem, wanted: Vec<Desired>) -> Division {
    Division { wanted, shortfall: problem.shortfall(), notes: Vec::new() }
}
