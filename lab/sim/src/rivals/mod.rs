//! Memory balancers of other systems, as policies of the simulator and of the lab's daemons.
//!
//! Idea: their decision rules run under the same guard, estimators and tick as our own policies, so
//! that a comparison is about rules and not about mechanisms. Each rival has a file; its header
//! says what is not reproduced. Rivals' own mechanisms (waiting for a balloon, excluding a guest
//! that does not respond, releasing before granting) are all replaced by the guard's.
//!
//! Properties: every target is whole pages within floor and ceiling; their minimum is our floor,
//! their maximum our ceiling. Decisions do not depend on the order of guests except by name. *Not*
//! guaranteed: that targets sum to at most the budget. `mom` and `proxmox` use the host's free
//! memory and have no budget, `senpai` knows no other guest; the guard then grants only what is
//! free.
//!
//! Cost: O(n log n) per decision, `proxmox` O(n) times its rounds.
//! Source: each rival's published rules or code, named in its header.
//! Limits: a rival replaces an input that no source provides, as its header says. Swap in use is
//! only known if an agent reports it.

mod esx;
mod hyperv;
mod mom;
mod proxmox;
mod qmemman;
mod rule;
mod senpai;
mod squeezed;
mod xenmm;

use ballast_model::PolicyName;
use ballast_policy::Policy;
use ballast_workload::RIVAL_PREFIX;

pub use esx::Esx;
pub use hyperv::HyperV;
pub use mom::Mom;
pub use proxmox::Proxmox;
pub use qmemman::Qmemman;
pub use senpai::Senpai;
pub use squeezed::Squeezed;
pub use xenmm::Xenmm;

/// Every rival, in the order of lists.
pub const ALL: [PolicyName; 8] = [
    mom::NAME,
    qmemman::NAME,
    squeezed::NAME,
    proxmox::NAME,
    hyperv::NAME,
    esx::NAME,
    xenmm::NAME,
    senpai::NAME,
];

/// Builds the rival of that name; `None` if there is none.
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
        "senpai" => Box::new(Senpai::default()),
        _ => return None,
    })
}

/// Finds the name of a rival, also with [`RIVAL_PREFIX`] before it.
pub fn find(name: &str) -> Option<PolicyName> {
    let name = name.strip_prefix(RIVAL_PREFIX).unwrap_or(name);
    ALL.into_iter().find(|rival| rival.as_str() == name)
}

#[cfg(test)]
mod tests;
