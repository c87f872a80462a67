//! Rivals: the balancers others run, as policies of the simulator.
//!
//! Idea: what they decide, under the same guard, estimators and tick as our own policies, so that a
//! comparison is one of rules and not of plumbing. One file each, whose header says what is not
//! reproduced. Their own mechanisms (waiting for a balloon, excluding a guest that does not answer,
//! releasing before granting) are the guard's here, for all of them alike.
//!
//! Properties: every target is whole pages within floor and ceiling; a minimum of theirs is our
//! floor, a maximum our ceiling. No two guests are told apart but by name. *Not* promised: that
//! targets add up to no more than the budget. `mom` and `proxmox` go by the free memory of the host
//! and know no budget; the guard then grants only what is free.
//!
//! Cost: O(n log n) a decision, `proxmox` O(n) times its rounds.
//! Source: each rival's published rules or code, named in its header.
//! Limits: a rival that needs a figure nobody provides does without, as its header says. Swap in use
//! is known only as far as an agent reports it.

mod esx;
mod hyperv;
mod mom;
mod proxmox;
mod qmemman;
mod squeezed;
mod xenmm;

use std::borrow::Cow;

use ballast_model::{Bytes, Clamped, Desired, PolicyName, Reason};
use ballast_policy::{Contender, Division, Policy, Problem, Wanted};

pub use esx::Esx;
pub use hyperv::HyperV;
pub use mom::Mom;
pub use proxmox::Proxmox;
pub use qmemman::Qmemman;
pub use squeezed::Squeezed;
pub use xenmm::Xenmm;

/// Every rival, in the order in which they are listed to people.
pub const ALL: [PolicyName; 7] =
    [mom::NAME, qmemman::NAME, squeezed::NAME, proxmox::NAME, hyperv::NAME, esx::NAME, xenmm::NAME];

/// The rival of that name, in its first state; `None`: there is none of that name.
pub fn build(name: &str) -> Option<Box<dyn Policy>> {
    let PolicyName::Custom(known) = find(name)? else { return None };
    Some(match known {
        "mom" => Box::new(Mom::default()),
        "qmemman" => Box::new(Qmemman),
        "squeezed" => Box::new(Squeezed),
        "proxmox" => Box::new(Proxmox),
        "hyperv" => Box::new(HyperV),
        "esx" => Box::new(Esx::default()),
        "xenmm" => Box::new(Xenmm::default()),
        _ => return None,
    })
}

/// The name of a rival, from text.
pub fn find(name: &str) -> Option<PolicyName> {
    ALL.into_iter().find(|rival| rival.as_str() == name)
}

/// Free memory of a guest, page cache not counted; where nobody tells it, the memory it could give
/// back, page cache counted.
fn free(contender: &Contender) -> Bytes {
    let free = contender.signals.free;
    free.unwrap_or(contender.allocation.saturating_sub(contender.used)).min(contender.allocation)
}

/// Free and whole memory of the host; where nobody tells them, the budget and what is left of it.
fn host_free_and_total(problem: &Problem) -> (Bytes, Bytes) {
    let host = problem.host();
    match (host.memory_available, host.memory_total) {
        (Some(free), Some(total)) if total > Bytes::ZERO => (free.min(total), total),
        _ => {
            let held: Bytes = problem.contenders().iter().map(|c| c.allocation).sum();
            (problem.budget().saturating_sub(held), problem.budget())
        }
    }
}

/// An amount of bytes as it is computed with.
fn signed(bytes: Bytes) -> i128 {
    i128::from(bytes.get())
}

/// `bytes` as an amount of memory; less than none is none.
fn unsigned(bytes: i128) -> Bytes {
    Bytes::new(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX))
}

/// What a rule wants, brought to whole pages within the guest's bounds.
fn wanted(
    contender: &Contender,
    target: Bytes,
    used: Bytes,
    rule: impl Into<Cow<'static, str>>,
) -> Wanted {
    let target = target.page_floor();
    let reason = if target < contender.floor {
        Reason::Bound(Clamped::Floor { floor: contender.floor })
    } else if target > contender.ceiling {
        Reason::Bound(Clamped::Ceiling { ceiling: contender.ceiling })
    } else {
        Reason::Custom { rule: rule.into(), used }
    };
    let target = target.clamp(contender.floor, contender.ceiling);
    Wanted { id: contender.id.clone(), desired: Desired { target, reason } }
}

/// The division that `wanted` is.
fn division(problem: &Problem, wanted: Vec<Wanted>) -> Division {
    Division { wanted, shortfall: problem.shortfall(), notes: Vec::new() }
}

#[cfg(test)]
mod tests;
