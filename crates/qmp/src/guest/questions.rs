//! What a guest is asked, and when: the probe of a connection and the questions of a tick.
//!
//! Idea: every command sent carries what it was sent for and who waits for it, so that answers may
//! come in any order and a probe may run beside a tick. A probe has up to three steps: folders and
//! figures, the balloon's properties, and telling the balloon to ask for statistics.

use ballast_model::Timestamp;

use super::probe::{FOLDERS, Found};
use super::{Guest, PROBE_INTERVAL, Round, Ticket};
use crate::command::{Command, ModuleNumber};
use crate::session::Phase;

/// How often the guest sends statistics, in seconds, where nobody has set it yet: QEMU's finest.
const POLLING_INTERVAL_SECS: u64 = 1;

const GUEST_STATS: &str = "guest-stats";
const POLLING_INTERVAL: &str = "guest-stats-polling-interval";

/// What a command was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Status,
    Balloon,
    Stats,
    Summary,
    MemoryDevices,
    Room,
    Folder(&'static str),
    PollingInterval,
    SetPollingInterval,
    FreePageReporting,
    DeflateOnOom,
    /// A command of an action.
    Step,
    Powerdown,
    RemoveMemory(ModuleNumber),
}

/// Who waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Probe,
    /// The tick with this number.
    Round(u64),
    Order(Ticket),
    /// It was given up waiting for.
    Nobody,
}

impl Guest {
    /// Asks whatever has become due or possible.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if !self.is_ready() {
            return;
        }
        if self.probe.is_none() && (self.probed_at.is_none() || self.is_probe_due(now)) {
            // Without the first probe nothing else is known; later ones travel with a tick.
            if self.probed_at.is_none() || self.round.is_some() {
                self.begin_probe(now);
            }
        }
        self.continue_probe(now);
        self.advance_orders(now);
        if let Some(round @ Round { left: None, .. }) = self.round
            && self.probed_at.is_some()
        {
            self.ask_round(round, now);
        }
    }

    fn is_ready(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.phase() == Phase::Ready)
    }

    fn is_probe_due(&self, now: Timestamp) -> bool {
        let old = |at: Timestamp| now.saturating_since(at) >= PROBE_INTERVAL;
        self.probe_again || self.probed_at.is_some_and(old)
    }

    fn begin_probe(&mut self, now: Timestamp) {
        self.probe_again = false;
        self.run.doubt();
        // What an earlier probe found is not of the moment of this one.
        (self.left_by_balloon, self.uncounted) = (None, None);
        let before = self.asked.len();
        let folders = FOLDERS.map(|path| (Question::Folder(path), Command::QomList { path }));
        let questions = [
            (Question::Status, Command::QueryStatus),
            (Question::Balloon, Command::QueryBalloon),
            (Question::Summary, Command::QueryMemorySizeSummary),
            (Question::MemoryDevices, Command::QueryMemoryDevices),
            (Question::Room, Command::QomGet { path: "/machine", property: "memory" }),
        ];
        for (question, command) in questions.into_iter().chain(folders) {
            self.ask(question, Asker::Probe, &command, now);
        }
        self.run.take_doubt();
        self.probe = Some((self.asked.len() - before, Found::default()));
    }

    /// Where all answers of a step have come: the next step of the probe, or its end.
    fn continue_probe(&mut self, now: Timestamp) {
        let Some((0, mut found)) = self.probe.take_if(|(left, _)| *left == 0) else { return };
        found.folders_done();
        let step_two_done = found.capabilities.statistics.is_some();
        if let Some(path) = found.balloon_path.clone()
            && !step_two_done
        {
            found.capabilities.statistics = Some(true);
            let before = self.asked.len();
            for (question, property) in [
                (Question::PollingInterval, POLLING_INTERVAL),
                (Question::FreePageReporting, "free-page-reporting"),
                (Question::DeflateOnOom, "deflate-on-oom"),
            ] {
                let command = Command::QomGet { path: &path, property };
                self.ask(question, Asker::Probe, &command, now);
            }
            self.probe = Some((self.asked.len() - before, found));
            return;
        }
        if let (true, Some(path)) = (found.start_polling, found.balloon_path.clone()) {
            found.start_polling = false;
            let (property, value) = (POLLING_INTERVAL, POLLING_INTERVAL_SECS);
            let command = Command::QomSet { path: &path, property, value };
            let asked = self.ask(Question::SetPollingInterval, Asker::Probe, &command, now);
            self.probe = Some((usize::from(asked), found));
            return;
        }
        self.plugging.probed(&mut found, self.orders.is_idle());
        self.balloon_path = found.balloon_path;
        self.capabilities = found.capabilities;
        self.probed_at = Some(now);
        self.hold_all_without_balloon(now);
    }

    pub(super) fn ask_round(&mut self, round: Round, now: Timestamp) {
        let before = self.asked.len();
        let (asker, balloon) = (Asker::Round(round.number), self.has_balloon());
        if balloon {
            self.ask(Question::Balloon, asker, &Command::QueryBalloon, now);
        }
        if self.plugging.has_devices() {
            self.ask(Question::MemoryDevices, asker, &Command::QueryMemoryDevices, now);
        }
        if let Some(path) = self.balloon_path.take() {
            let command = Command::QomGet { path: &path, property: GUEST_STATS };
            self.ask(Question::Stats, asker, &command, now);
            self.balloon_path = Some(path);
        }
        // Without a balloon the status is asked each time, so that a tick notices who hangs.
        if self.run.take_doubt() || !balloon {
            self.ask(Question::Status, asker, &Command::QueryStatus, now);
        }
        let left = self.asked.len() - before;
        self.round = (left > 0).then_some(Round { left: Some(left), ..round });
    }

    pub(super) fn ask(
        &mut self,
        question: Question,
        asker: Asker,
        command: &Command<'_>,
        now: Timestamp,
    ) -> bool {
        self.ask_until(question, asker, command, now + self.command_timeout)
    }

    pub(super) fn ask_until(
        &mut self,
        question: Question,
        asker: Asker,
        command: &Command<'_>,
        deadline: Timestamp,
    ) -> bool {
        let Some(session) = &mut self.session else { return false };
        let Ok(id) = session.send(command, deadline) else { return false };
        self.asked.push((id, question, asker));
        true
    }
}
