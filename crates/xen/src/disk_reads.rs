//! What domains have read from their disks, as dom0's kernel counts it.
//!
//! Idea: the kernel's block backend (`xen-blkback`) serves the disks that are block devices of dom0
//! (`phy:`), and counts the requests and sectors of each in a folder named `vbd-DOMAIN-DEVICE`.
//! Cost: a listing and two small files per disk, every [`PERIOD`].
//! Source: Linux, `drivers/block/xen-blkback/xenbus.c`.
//! Limits: [`ENTRIES_MAX`]. Disks that a program serves (QEMU, tapdisk), or another domain, are not
//! counted. A domain without a counted disk has no figure, which is not the same as no reads. If a
//! disk is taken out, the sum falls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_model::{Bytes, DiskReads, Measured, Timestamp};

use crate::key::DomainId;

/// Time between two readings: disk reads are for slow judgements.
const PERIOD: Duration = Duration::from_secs(5);
/// Most entries of the folder that are looked at; it has the network devices, too.
const ENTRIES_MAX: usize = 16_384;
/// The size of a sector, whatever the disk's own is.
const SECTOR_BYTES: u64 = 512;

/// The counters of all disks that dom0's kernel serves.
#[derive(Debug)]
pub(crate) struct DiskCounters {
    folder: PathBuf,
    /// The sums of each domain, and when they were read.
    latest: Option<(BTreeMap<DomainId, DiskReads>, Timestamp)>,
}

impl DiskCounters {
    /// The counters in `folder` (`/sys/bus/xen-backend/devices`), not read yet.
    pub(crate) fn new(folder: &Path) -> DiskCounters {
        DiskCounters { folder: folder.to_owned(), latest: None }
    }

    /// Reads the counters, if that is due at `now`.
    pub(crate) fn observe(&mut self, now: Timestamp) {
        let is_due = self.latest.as_ref().is_none_or(|(_, at)| now.saturating_since(*at) >= PERIOD);
        if is_due {
            self.latest = Some((read_all(&self.folder), now));
        }
    }

    /// What a domain has read from its disks; `None` if no disk of it is counted.
    pub(crate) fn of(&self, domain: DomainId, now: Timestamp) -> Option<Measured<DiskReads>> {
        let (all, at) = self.latest.as_ref()?;
        let value = *all.get(&domain)?;
        Some(Measured { value, age: now.saturating_since(*at) })
    }
}

fn read_all(folder: &Path) -> BTreeMap<DomainId, DiskReads> {
    let mut all: BTreeMap<DomainId, DiskReads> = BTreeMap::new();
    let Ok(entries) = fs::read_dir(folder) else { return all };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        let Some(domain) = entry.file_name().to_str().and_then(domain_of) else { continue };
        let figure = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(entry.path().join("statistics").join(name)).ok()?;
            text.trim().parse().ok()
        };
        let (Some(requests), Some(sectors)) = (figure("rd_req"), figure("rd_sect")) else {
            continue;
        };
        let sum = all.entry(domain).or_default();
        let read = Bytes::new(sectors.saturating_mul(SECTOR_BYTES));
        sum.read = sum.read.saturating_add(read);
        sum.requests = sum.requests.saturating_add(requests);
    }
    all
}

/// The domain in the name of a disk's folder, such as `vbd-3-51712`.
fn domain_of(name: &str) -> Option<DomainId> {
    let (domain, _device) = name.strip_prefix("vbd-")?.split_once('-')?;
    DomainId::parse(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_domain_are_added_up_every_five_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, requests: &str, sectors: &str| {
            let statistics = folder.path().join(name).join("statistics");
            fs::create_dir_all(&statistics).unwrap();
            fs::write(statistics.join("rd_req"), requests).unwrap();
            fs::write(statistics.join("rd_sect"), sectors).unwrap();
        };
        put("vbd-3-51712", "3\n", "24\n");
        put("vbd-3-51728", "4\n", "128\n");
        put("vbd-4-51712", "-1\n", "8\n");
        for other in ["vif-5-0", "vbd-5", "vbd-05-51712", "vbd-x-51712", "qdisk-5-51712"] {
            put(other, "7\n", "7\n");
        }
        // A disk that is just being connected.
        fs::create_dir(folder.path().join("vbd-6-51712")).unwrap();
        let mut disks = DiskCounters::new(folder.path());
        let at = Timestamp::from_millis;
        let three = DomainId(3);
        assert_eq!(disks.of(three, at(500)), None, "not read yet");
        disks.observe(at(1000));
        let value = DiskReads { read: Bytes::new(152 * 512), requests: 7 };
        let age = Duration::from_secs(2);
        assert_eq!(disks.of(three, at(3000)), Some(Measured { value, age }));
        for other in [4, 5, 6] {
            assert_eq!(disks.of(DomainId(other), at(3000)), None, "domain {other}");
        }
        put("vbd-3-51712", "13\n", "24\n");
        let requests = |disks: &DiskCounters| disks.of(three, at(6000)).unwrap().value.requests;
        disks.observe(at(5999));
        assert_eq!(requests(&disks), 7);
        disks.observe(at(6000));
        assert_eq!(requests(&disks), 17);
    }

    #[test]
    fn without_the_backend_there_are_no_figures() {
        let folder = tempfile::tempdir().unwrap();
        let mut disks = DiskCounters::new(&folder.path().join("devices"));
        disks.observe(Timestamp::ZERO);
        assert_eq!(disks.of(DomainId(1), Timestamp::ZERO), None);
    }
}
