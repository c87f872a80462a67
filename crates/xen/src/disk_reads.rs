//! What domains have read from their disks, as dom0's kernel counts it.
//!
//! Idea: the kernel's block backend (`xen-blkback`) serves the disks that are block devices of dom0
//! (`phy:`), and counts the requests and sectors of each in a folder named `vbd-DOMAIN-DEVICE`.
//! Each domain has its own moment in every five seconds, so that reading never takes long.
//!
//! Cost: a listing a sample, and two small files per disk every [`SpreadQuery::INTERVAL`].
//! Source: Linux, `drivers/block/xen-blkback/xenbus.c`.
//! Limits: [`ENTRIES_MAX`]. Disks that a program serves (QEMU, tapdisk), or another domain, are not
//! counted. A domain without a counted disk has no figure, which is not the same as no reads. If a
//! disk is taken out, the sum falls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_backend::SpreadQuery;
use ballast_model::{Bytes, DiskReads, Measured, Timestamp};

use crate::key::DomainId;

/// Shortest time between two listings: while memory moves, there are ten samples a second.
const LISTINGS_APART: Duration = Duration::from_millis(500);
/// Most entries of the folder that are looked at; it has the network devices, too.
const ENTRIES_MAX: usize = 16_384;
/// The size of a sector, whatever the disk's own is.
const SECTOR_BYTES: u64 = 512;

/// The counters of all disks that dom0's kernel serves.
#[derive(Debug)]
pub(crate) struct DiskCounters {
    folder: PathBuf,
    listed_at: Option<Timestamp>,
    /// Domains with disks.
    domains: BTreeMap<DomainId, DomainDisks>,
}

/// The counters of a domain's disks.
#[derive(Debug)]
struct DomainDisks {
    query: SpreadQuery,
    /// Their sum, and when it was read; `None` if none could be read.
    latest: Option<(DiskReads, Timestamp)>,
}

impl DiskCounters {
    /// The counters in `folder` (`/sys/bus/xen-backend/devices`), not read yet.
    pub(crate) fn new(folder: &Path) -> DiskCounters {
        DiskCounters { folder: folder.to_owned(), listed_at: None, domains: BTreeMap::new() }
    }

    /// Reads the counters of those domains for which that is due at `now`.
    pub(crate) fn observe(&mut self, now: Timestamp) {
        if self.listed_at.is_some_and(|at| now.saturating_since(at) < LISTINGS_APART) {
            return;
        }
        self.listed_at = Some(now);
        let began = Instant::now();
        let disks = list_disks(&self.folder);
        self.domains.retain(|domain, _| disks.contains_key(domain));
        for (domain, folders) in disks {
            let known = self.domains.entry(domain).or_insert_with(|| DomainDisks {
                query: SpreadQuery::new(u64::from(domain.0), now),
                latest: None,
            });
            if known.query.take_due(now) {
                let reads = read_sum(&folders);
                known.latest = reads.map(|it| (DiskReads { took: began.elapsed(), ..it }, now));
            }
        }
    }

    /// What a domain has read from its disks; `None` if no disk of it is counted.
    pub(crate) fn of(&self, domain: DomainId, now: Timestamp) -> Option<Measured<DiskReads>> {
        let (value, at) = self.domains.get(&domain)?.latest?;
        Some(Measured { value, age: now.saturating_since(at) })
    }
}

/// The folders of each domain's disks.
fn list_disks(folder: &Path) -> BTreeMap<DomainId, Vec<PathBuf>> {
    let mut all: BTreeMap<DomainId, Vec<PathBuf>> = BTreeMap::new();
    let Ok(entries) = fs::read_dir(folder) else { return all };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        if let Some(domain) = entry.file_name().to_str().and_then(domain_of) {
            all.entry(domain).or_default().push(entry.path());
        }
    }
    all
}

/// The sum of the counters in folders of disks; `None` if there are none.
fn read_sum(folders: &[PathBuf]) -> Option<DiskReads> {
    let mut sum: Option<DiskReads> = None;
    for folder in folders {
        let figure = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(folder.join("statistics").join(name)).ok()?;
            text.trim().parse().ok()
        };
        let (Some(requests), Some(sectors)) = (figure("rd_req"), figure("rd_sect")) else {
            continue;
        };
        let sum = sum.get_or_insert_default();
        let read = Bytes::new(sectors.saturating_mul(SECTOR_BYTES));
        sum.read = sum.read.saturating_add(read);
        sum.requests = sum.requests.saturating_add(requests);
    }
    sum
}

/// The domain in the name of a disk's folder, such as `vbd-3-51712`.
fn domain_of(name: &str) -> Option<DomainId> {
    let (domain, _device) = name.strip_prefix("vbd-")?.split_once('-')?;
    DomainId::parse(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str, requests: &str, sectors: &str) {
        let statistics = folder.join(name).join("statistics");
        fs::create_dir_all(&statistics).unwrap();
        fs::write(statistics.join("rd_req"), requests).unwrap();
        fs::write(statistics.join("rd_sect"), sectors).unwrap();
    }

    fn second(n: u64) -> Timestamp {
        Timestamp::from_millis(n * 1000)
    }

    /// Bytes and requests that a domain has read.
    fn sum(disks: &DiskCounters, domain: u16, now: Timestamp) -> Option<(u64, u64)> {
        disks.of(DomainId(domain), now).map(|it| (it.value.read.get(), it.value.requests))
    }

    #[test]
    fn reads_of_a_domain_are_added_up_every_five_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        put(folder, "vbd-3-51712", "3\n", "24\n");
        put(folder, "vbd-3-51728", "4\n", "128\n");
        put(folder, "vbd-4-51712", "-1\n", "8\n");
        for other in ["vif-5-0", "vbd-5", "vbd-05-51712", "vbd-x-51712", "qdisk-5-51712"] {
            put(folder, other, "7\n", "7\n");
        }
        // A disk that is just being connected.
        fs::create_dir(folder.join("vbd-6-51712")).unwrap();
        let mut disks = DiskCounters::new(folder);
        assert_eq!(sum(&disks, 3, second(1)), None, "not read yet");
        for n in 1..=6 {
            disks.observe(second(n));
        }
        assert_eq!(sum(&disks, 3, second(6)), Some((152 * 512, 7)));
        let age = disks.of(DomainId(3), second(6)).unwrap().age;
        assert!(age < SpreadQuery::INTERVAL, "{age:?}");
        for other in [4, 5, 6] {
            assert_eq!(sum(&disks, other, second(6)), None, "domain {other}");
        }
        put(folder, "vbd-3-51712", "13\n", "24\n");
        let mut changed_at = Vec::new();
        for n in 7..=20 {
            disks.observe(second(n));
            if disks.of(DomainId(3), second(n)).unwrap().age.is_zero() {
                changed_at.push(n);
            }
            assert_eq!(sum(&disks, 3, second(n)).unwrap().1 == 17, !changed_at.is_empty());
        }
        assert!(changed_at.len() >= 2 && changed_at[1] - changed_at[0] == 5, "{changed_at:?}");
    }

    #[test]
    fn disks_of_different_domains_are_read_at_different_times() {
        let folder = tempfile::tempdir().unwrap();
        for domain in 1..=100 {
            put(folder.path(), &format!("vbd-{domain}-51712"), "3\n", "24\n");
        }
        let mut disks = DiskCounters::new(folder.path());
        let mut counts = Vec::new();
        for n in 1..=20 {
            disks.observe(second(n));
            let is_new = |id: &u16| {
                disks.of(DomainId(*id), second(n)).is_some_and(|reads| reads.age.is_zero())
            };
            counts.push((1..=100).filter(is_new).count());
        }
        assert!(counts[1..].iter().all(|count| (10..=30).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_domain_that_ended_has_no_disks() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "vbd-3-51712", "3\n", "24\n");
        let mut disks = DiskCounters::new(folder.path());
        for n in 1..=6 {
            disks.observe(second(n));
        }
        fs::remove_dir_all(folder.path().join("vbd-3-51712")).unwrap();
        disks.observe(second(7));
        assert_eq!(sum(&disks, 3, second(7)), None);
        assert!(disks.domains.is_empty());
    }

    #[test]
    fn without_the_backend_there_are_no_figures() {
        let folder = tempfile::tempdir().unwrap();
        let mut disks = DiskCounters::new(&folder.path().join("devices"));
        disks.observe(Timestamp::ZERO);
        assert_eq!(disks.of(DomainId(1), Timestamp::ZERO), None);
    }
}
