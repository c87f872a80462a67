//! What domains have read from their disks.
//!
//! Idea: a call of its own, for whose answer no sample waits. Libvirt queries the block layer of
//! one hypervisor after the other, and a hypervisor whose storage hangs does not answer: in one
//! call with state and balloon it would keep the figures of all domains back.
//!
//! Cost: one call every [`PERIOD`], two queries of each hypervisor, some 600 bytes per disk.
//! Source: `virConnectGetAllDomainStats`, `VIR_DOMAIN_STATS_BLOCK`.
//! Limits: libvirt counts no disk that it does not know (`<qemu:commandline>`) and none whose
//! requests bypass the hypervisor (vhost-user). A domain without a counted disk has no figure,
//! which is not the same as no reads. If a disk is taken out, the sum falls.

use std::time::Duration;

use ballast_model::{GuestId, Timestamp};

use super::LibvirtHost;
use crate::call::{Call, Reply};
use crate::connection::Purpose;
use crate::session::Answer;

/// Time between two calls. Disk reads are for slow judgements, and the queries take time of each
/// hypervisor's main loop.
const PERIOD: Duration = Duration::from_secs(5);

impl LibvirtHost {
    /// Requests what all domains have read from their disks, if that is due. While an answer is
    /// missing, no further call is made.
    pub(super) fn request_disk_reads(&mut self, now: Timestamp) {
        let is_due = self.disk_reads_asked_at.is_none_or(|at| now.saturating_since(at) >= PERIOD);
        let is_ours = |it: &Purpose| matches!(it, Purpose::DiskReads(_));
        let is_awaited =
            self.connection.as_ref().is_some_and(|it| it.pending.values().any(is_ours));
        if !is_due || is_awaited {
            return;
        }
        if self.call(Call::AllDiskReads, Purpose::DiskReads(now)).is_some() {
            self.disk_reads_asked_at = Some(now);
        }
    }

    /// Takes in the answer to the call of `asked_at`. A domain without figures keeps its last ones,
    /// which age. A refusal is reported once.
    pub(super) fn handle_disk_reads(&mut self, answer: Answer, asked_at: Timestamp) {
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
                guest.observe_disk_reads(reads, asked_at);
            }
        }
    }
}
