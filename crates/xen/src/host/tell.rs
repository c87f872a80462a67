//! Answers to the agents inside guests.
//!
//! Idea: an answer is the value of one key that the agent watches. It is written like an order,
//! only while the domain's number is still its own. No caller waits for the write.
//! Limits: [`TELLING_MAX`] at a time; an answer beyond those is lost, and the agent asks again.

use ballast_agent_proto::wire::HostMessage;
use ballast_model::GuestId;
use ballast_xenstore::{Answer, GuardedWrite, RequestId};

use super::{Purpose, XenHost};
use crate::key::answer_path;

/// Most answers that are being written.
const TELLING_MAX: usize = 256;

impl XenHost {
    /// Writes an answer to a guest's last request.
    pub(super) fn tell_agent(&mut self, guest: &GuestId, message: &HostMessage) {
        let id = self.guests().get(guest).copied();
        let Some(domain) = id.and_then(|id| self.domains.get_mut(&id)) else { return };
        let Some(text) = domain.answer(message) else { return };
        let expected = domain.expected();
        let Some(connection) =
            self.connection.as_mut().filter(|_| self.telling.len() < TELLING_MAX)
        else {
            return;
        };
        if let (Some(expected), Some(path)) = (expected, answer_path(domain.id))
            && let Ok(write) = GuardedWrite::begin(&mut connection.session, expected, (path, text))
        {
            self.await_told(write);
        }
    }

    fn await_told(&mut self, write: GuardedWrite) {
        if let Some(id) = write.awaited() {
            self.asked.insert(id, Purpose::Tell);
            self.telling.insert(id, write);
        }
    }

    /// Continues to write an answer.
    pub(super) fn take_told(&mut self, id: RequestId, answer: Answer) {
        let (Some(mut write), Some(connection)) = (self.telling.remove(&id), &mut self.connection)
        else {
            return;
        };
        match write.take(&mut connection.session, answer) {
            None => self.await_told(write),
            Some(Ok(())) => {}
            Some(Err(error)) => self.say(format!("an answer to a guest's request: {error}")),
        }
    }
}
