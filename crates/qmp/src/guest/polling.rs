//! Sends a guest's queries: the probe of a connection and the poll of a tick.
//!
//! Idea: every command sent carries its purpose and its requester, so that replies may come in any
//! order and a probe may run beside a poll. A probe has up to four rounds: folders and figures,
//! then the vsock device's number, then the balloon's properties, then turning its statistics on.

use ballast_model::Timestamp;

use super::monitor::{GuestMonitor, PROBE_INTERVAL};
use super::probe::{FOLDERS, ProbeResult};
use super::requests::{Poll, Purpose, Requester, SentCommand};
use crate::command::QmpCommand;
use crate::session::SessionPhase;

/// Interval of a guest's statistics, in seconds, if none is set: QEMU's shortest.
const POLLING_INTERVAL_SECS: u64 = 1;

const GUEST_STATS: &str = "guest-stats";
const POLLING_INTERVAL: &str = "guest-stats-polling-interval";

impl GuestMonitor {
    /// Sends whatever has become due or possible.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if !self.is_ready() {
            return;
        }
        // The first probe runs at once, because a poll needs its result; later ones run with a
        // poll.
        let is_first = self.probed_at.is_none();
        if self.probe.is_none() && (is_first || (self.poll.is_some() && self.is_probe_due(now))) {
            self.begin_probe(now);
        }
        self.continue_probe(now);
        self.advance_actions(now);
        if let Some(poll @ Poll { pending: None, .. }) = self.poll
            && self.probed_at.is_some()
        {
            self.send_poll(poll, now);
        }
    }

    fn is_ready(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.phase() == SessionPhase::Ready)
    }

    fn is_probe_due(&self, now: Timestamp) -> bool {
        let is_old = |at: Timestamp| now.saturating_since(at) >= PROBE_INTERVAL;
        self.probe_again || self.probed_at.is_some_and(is_old)
    }

    fn begin_probe(&mut self, now: Timestamp) {
        self.probe_again = false;
        self.run.request_query();
        // Readings of two probes must not be added up.
        (self.balloon_actual, self.virtio_mem_plugged) = (None, None);
        let before = self.sent.len();
        let folders = FOLDERS.map(|path| (Purpose::Folder(path), QmpCommand::QomList { path }));
        let queries = [
            (Purpose::Status, QmpCommand::QueryStatus),
            (Purpose::Balloon, QmpCommand::QueryBalloon),
            (Purpose::Summary, QmpCommand::QueryMemorySizeSummary),
            (Purpose::MemoryDevices, QmpCommand::QueryMemoryDevices),
            (Purpose::MachineMemory, QmpCommand::QomGet { path: "/machine", property: "memory" }),
        ];
        for (purpose, command) in queries.into_iter().chain(folders) {
            self.send(purpose, Requester::Probe, &command, now);
        }
        self.run.take_query_due();
        self.probe = Some((self.sent.len() - before, ProbeResult::default()));
    }

    /// Starts the probe's next round, or ends the probe, once all replies of a round have come.
    fn continue_probe(&mut self, now: Timestamp) {
        let Some((_, mut found)) = self.probe.take_if(|(pending, _)| *pending == 0) else { return };
        found.folders_done();
        if let Some(path) = found.vsock_path.take() {
            let command = QmpCommand::QomGet { path: &path, property: "guest-cid" };
            let is_sent = self.send(Purpose::VsockCid, Requester::Probe, &command, now);
            self.probe = Some((usize::from(is_sent), found));
            return;
        }
        if let Some(path) = found.balloon_path.clone()
            && found.capabilities.statistics.is_none()
        {
            // This round's queries correct it if they fail.
            found.capabilities.statistics = Some(true);
            let before = self.sent.len();
            for (purpose, property) in [
                (Purpose::PollingInterval, POLLING_INTERVAL),
                (Purpose::FreePageReporting, "free-page-reporting"),
                (Purpose::DeflateOnOom, "deflate-on-oom"),
            ] {
                let command = QmpCommand::QomGet { path: &path, property };
                self.send(purpose, Requester::Probe, &command, now);
            }
            self.probe = Some((self.sent.len() - before, found));
            return;
        }
        if std::mem::take(&mut found.start_polling)
            && let Some(path) = found.balloon_path.clone()
        {
            let (property, value) = (POLLING_INTERVAL, POLLING_INTERVAL_SECS);
            let command = QmpCommand::QomSet { path: &path, property, value };
            let is_sent = self.send(Purpose::SetPollingInterval, Requester::Probe, &command, now);
            self.probe = Some((usize::from(is_sent), found));
            return;
        }
        self.hotplug.probed(&mut found, self.actions.is_empty());
        self.balloon_path = found.balloon_path;
        self.capabilities = found.capabilities;
        (self.vsock_cid, self.pinned) = (found.vsock_cid, found.pinned);
        self.probed_at = Some(now);
        self.update_allocation_without_balloon(now);
    }

    fn send_poll(&mut self, poll: Poll, now: Timestamp) {
        let before = self.sent.len();
        let (requester, has_balloon) = (Requester::Poll(poll.number), self.may_have_balloon());
        if has_balloon {
            self.send(Purpose::Balloon, requester, &QmpCommand::QueryBalloon, now);
        }
        if self.hotplug.has_devices() {
            self.send(Purpose::MemoryDevices, requester, &QmpCommand::QueryMemoryDevices, now);
        }
        if let Some(path) = self.balloon_path.take() {
            let command = QmpCommand::QomGet { path: &path, property: GUEST_STATS };
            self.send(Purpose::Stats, requester, &command, now);
            self.balloon_path = Some(path);
        }
        // Without a balloon every poll queries the status, so that it detects a hanging hypervisor.
        if self.run.take_query_due() || !has_balloon {
            self.send(Purpose::Status, requester, &QmpCommand::QueryStatus, now);
        }
        let pending = self.sent.len() - before;
        self.poll = (pending > 0).then_some(Poll { pending: Some(pending), ..poll });
        // Last, and waited for by nobody: the reply is the longest and the least urgent.
        if self.block_stats.take_due(now) {
            self.send(Purpose::BlockStats, Requester::Nobody, &QmpCommand::QueryBlockStats, now);
        }
    }

    /// Sends a command with the usual timeout; returns whether it was accepted for sending.
    pub(super) fn send(
        &mut self,
        purpose: Purpose,
        requester: Requester,
        command: &QmpCommand<'_>,
        now: Timestamp,
    ) -> bool {
        self.send_until(purpose, requester, command, now, now + self.command_timeout)
    }

    /// [`GuestMonitor::send`] with a deadline of its own.
    pub(super) fn send_until(
        &mut self,
        purpose: Purpose,
        requester: Requester,
        command: &QmpCommand<'_>,
        now: Timestamp,
        deadline: Timestamp,
    ) -> bool {
        let Some(session) = &mut self.session else { return false };
        let Ok(id) = session.send(command, deadline) else { return false };
        self.sent.push(SentCommand { id, purpose, requester, at: now });
        true
    }
}
