//! What domains have read from their disks.
//!
//! Idea: a call of its own, for whose answer no sample waits. Libvirt queries the block layer of
//! one hypervisor after the other, and a hypervisor whose storage hangs does not answer: in one
//! call with state and balloon it would keep the figures of all domains back. While a call hangs,
//! it has that domain's job. The next call does not wait for the job (`--nowait`), so it has the
//! figures of all other domains.
//!
//! Cost: one call every [`PERIOD`], two queries of each hypervisor, some 600 bytes per disk. The
//! queries are never made at once, so domains need no moments of their own.
//! Source: `virConnectGetAllDomainStats`, `VIR_DOMAIN_STATS_BLOCK`.
//! Limits: libvirt counts no disk that it does not know (`<qemu:commandline>`) and none whose
//! requests bypass the hypervisor (vhost-user). A domain without a counted disk has no figure,
//! which is not the same as no reads. If a disk is taken out, the sum falls. If a second hypervisor
//! hangs before the first one answers, no domain has new figures.

use std::time::Duration;

use ballast_model::{DiskReads, GuestId, Timestamp};
use tokio::time::Instant;

use super::LibvirtHost;
use crate::call::{Call, Reply};
use crate::connection::Purpose;
use crate::session::Answer;

/// Time between two calls. Disk reads are for slow judgements, and the queries take time of each
/// hypervisor's main loop.
const PERIOD: Duration = Duration::from_secs(5);
/// A call without an answer for so long hangs. Estimates use no answer that took longer.
const HANGS_AFTER: Duration = Duration::from_secs(15);
/// Most calls without an answer. Libvirt reads nothing from a client that waits for five.
const AWAITED_MAX: usize = 2;

impl LibvirtHost {
    /// Requests what all domains have read from their disks, if that is due. While an answer is
    /// missing, no further call is made, unless the awaited one hangs.
    pub(super) fn request_disk_reads(&mut self, now: Timestamp) {
        let is_due = self.disk_reads_asked_at.is_none_or(|at| now.saturating_since(at) >= PERIOD);
        let Some(connection) = self.connection.as_ref().filter(|_| is_due) else { return };
        let mut awaited = 0;
        for purpose in connection.pending.values() {
            if let Purpose::DiskReads(asked_at, _) = purpose {
                awaited += 1;
                if now.saturating_since(*asked_at) < HANGS_AFTER || awaited >= AWAITED_MAX {
                    return;
                }
            }
        }
        if self.call(Call::AllDiskReads, Purpose::DiskReads(now, Instant::now())).is_some() {
            self.disk_reads_asked_at = Some(now);
        }
    }

    /// Takes in the answer to the call of `asked_at`, which took so long. A domain without figures
    /// keeps its last ones, which age. A refusal is reported once.
    pub(super) fn handle_disk_reads(
        &mut self,
        answer: Answer,
        asked_at: Timestamp,
        took: Duration,
    ) {
        let all = match answer {
            Ok(Reply::AllDomainStats(all)) => all,
            Ok(_) => return,
            Err(error) => {
                if !std::mem::replace(&mut self.are_disk_reads_refused, true) {
                    let notice = format!("what domains read from disks is not known: {error}");
                    self.notices.push(notice);
                }
                return;
            }
        };
        self.are_disk_reads_refused = false;
        for stats in all {
            let Some(reads) = stats.disk_reads else { continue };
            let Ok(id) = stats.domain.name.parse::<GuestId>() else { continue };
            let guest = self.guests.get_mut(&id).filter(|guest| guest.domain == stats.domain);
            if let Some(guest) = guest {
                guest.observe_disk_reads(DiskReads { took, ..reads }, asked_at);
            }
        }
    }
}
