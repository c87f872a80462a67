//! Judges what limits the memory of guests' processes: cgroups and NUMA nodes.
//!
//! Limits: pure. How far a guest may grow is known from the daemon alone.

use std::collections::BTreeMap;

use ballast_api::StatusReply;
use ballast_host::{MemoryLimit, ReadError};
use ballast_model::{Bytes, MemoryRoom};

use super::finding::{Area, Check, Finding};

/// What a hypervisor should find below a limit besides its guest's memory, and besides this part of
/// that for page tables, as a divisor. Grants keep as much free (`ballast_guard::Rooms`).
const HYPERVISOR: Bytes = Bytes::mib(64);
const KERNEL_PART: u64 = 128;

/// The limits on one hypervisor's process.
#[derive(Debug)]
pub(super) struct LimitsSeen {
    /// The guest's name, or the process's number.
    pub(super) guest: String,
    /// Of its cgroups; `None`: not known.
    pub(super) limits: Result<Option<Vec<MemoryLimit>>, ReadError>,
    /// The NUMA nodes to which it is bound; `None`: none are known.
    pub(super) nodes: Option<MemoryRoom>,
}

/// The findings about all limits, at least one.
pub(super) fn judge(seen: &[LimitsSeen], status: Option<&StatusReply>) -> Vec<Finding> {
    const WHY: &str = "The kernel kills or throttles a guest whose process reaches a limit of its \
        cgroup or fills its NUMA nodes: Ballast grants no more than these leave.";
    let check = Area::Host.check("memory-limits", WHY);
    let mut findings = Vec::new();
    let mut guests: BTreeMap<(String, Bytes), Vec<&str>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for LimitsSeen { guest, limits, nodes } in seen {
        if let Some(MemoryRoom { by, limit, .. }) = nodes {
            guests.entry((by.clone(), *limit)).or_default().push(guest);
        }
        match limits {
            Err(error) => findings.push(check.unreadable(error)),
            Ok(None) => unknown.push(guest.as_str()),
            Ok(Some(limits)) => {
                for MemoryLimit { file, limit } in limits {
                    let by = file.display().to_string();
                    guests.entry((by, *limit)).or_default().push(guest);
                }
            }
        }
    }
    for ((by, limit), guests) in guests {
        findings.push(judge_limit(&check, &by, limit, &guests, status));
    }
    if !unknown.is_empty() {
        let found = format!(
            "not known of {}: version 2 of cgroups does not control its memory",
            names(&unknown)
        );
        findings.push(check.note(found));
    }
    if findings.is_empty() {
        findings.push(check.ok("no guest's process has one"));
    }
    findings
}

/// Whether guests fit below their limit when all have grown to their ceilings.
fn judge_limit(
    check: &Check,
    by: &str,
    limit: Bytes,
    guests: &[&str],
    status: Option<&StatusReply>,
) -> Finding {
    let found = format!("{by} limits {} to {limit:#}", names(guests));
    let ceiling = |name: &&str| {
        let view = status?.guests.iter().find(|view| view.guest == **name)?;
        view.ceiling_bytes.map(Bytes::new)
    };
    let ceilings: Option<Vec<Bytes>> = guests.iter().map(ceiling).collect();
    let Some(ceilings) = ceilings else {
        return check.note(format!("{found}; how far that may grow is not known"));
    };
    let most: Bytes = ceilings.iter().copied().sum();
    let with_own = |ceiling: &Bytes| {
        ceiling.saturating_add(ceiling.fraction(1, KERNEL_PART)).saturating_add(HYPERVISOR)
    };
    let needed: Bytes = ceilings.iter().map(with_own).sum();
    if needed <= limit {
        return check.ok(format!("{found}, which is enough for {most}"));
    }
    let needed = Bytes::mib(needed.get().div_ceil(1 << 20));
    let found = format!("{found}, less than {needed:#}: what {most} of guests' memory may need");
    let remedy = match by.starts_with('/') {
        true => {
            let bytes = needed.get();
            format!(
                "echo {bytes} > {by}    # to stay: virsh memtune, MemoryMax=; or lower ceilings"
            )
        }
        false => format!("ballast set {} --ceiling SIZE    # so that all fit", guests[0]),
    };
    check.warning(found).remedy(remedy)
}

/// The first of several guests, and how many others there are.
fn names(guests: &[&str]) -> String {
    match guests {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}
