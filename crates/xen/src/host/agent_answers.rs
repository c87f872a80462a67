//! Answers to the agents inside guests.
//!
//! Idea: an answer is the value of one key that the agent watches. It is written like an order,
//! only while the domain's number is still its own. No caller waits for the write.
//! Limits: [`ANSWER_WRITES_MAX`] at a time; an answer beyond those is lost, and the agent asks
//! again.

use ballast_agent_proto::wire::HostMessage;
use ballast_model::GuestId;
use ballast_xenstore::{Answer, GuardedWrite, RequestId};

use super::{RequestPurpose, XenHost};
use crate::key::answer_path;

/// Most answers that are being written.
const ANSWER_WRITES_MAX: usize = 256;

impl XenHost {
    /// Writes an answer to a guest's last request.
    pub(super) fn answer_agent(&mut self, guest: &GuestId, message: &HostMessage) {
        let id = self.guests().get(guest).copied();
        let Some(domain) = id.and_then(|id| self.domains.get_mut(&id)) else { return };
        let Some(text) = domain.answer(message) else { return };
        let expected = domain.expected();
        let Some(connection) =
            self.connection.as_mut().filter(|_| self.answer_writes.len() < ANSWER_WRITES_MAX)
        else {
            return;
        };
        if let (Some(expected), Some(path)) = (expected, answer_path(domain.id))
            && let Ok(write) = GuardedWrite::begin(&mut connection.session, expected, (path, text))
        {
            self.await_answer_write(write);
        }
    }

    fn await_answer_write(&mut self, write: GuardedWrite) {
        if let Some(id) = write.awaited() {
            self.asked.insert(id, RequestPurpose::AgentAnswer);
            self.answer_writes.insert(id, write);
        }
    }

    /// Continues to write an answer.
    pub(super) fn continue_answer_write(&mut self, id: RequestId, answer: Answer) {
        let (Some(mut write), Some(connection)) =
            (self.answer_writes.remove(&id), &mut self.connection)
        else {
            return;
        };
        match write.take(&mut connection.session, answer) {
            None => self.await_answer_write(write),
            Some(Ok(())) => {}
            Some(Err(error)) => self.say(format!("an answer to a guest's request: {error}")),
        }
    }
}
