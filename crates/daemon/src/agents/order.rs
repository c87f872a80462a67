//! Orders for the task that talks to one agent.

use std::time::Duration;

use ballast_agent_proto::host::AgentSession;
use ballast_agent_proto::wire::message::truncated;
use ballast_agent_proto::wire::{BalloonActivity, HostMessage, RequestOutcome};
use ballast_model::{Bytes, MemoryRequest, RequestKind, Timestamp};

use super::latest::Shared;

/// Time programs have to release memory.
const SHRINK_TIME: Duration = Duration::from_secs(2);

/// An order for the task.
#[derive(Debug)]
pub(super) enum Order {
    /// Answer the request with this number.
    Answer(u64, Answer),
    /// Report what the balloon does.
    Balloon(BalloonActivity),
    /// Ask programs to release this much memory.
    Shrink(Bytes),
    /// Allow programs to grow again.
    Release,
}

impl Order {
    pub(super) fn carry_out(self, session: &mut AgentSession, shared: &Shared, now: Timestamp) {
        match self {
            // The session answers the latest request; check that it is still this one.
            Order::Answer(number, Answer { outcome, bytes, why }) => {
                if shared.request() == Some(number) {
                    session.answer(outcome, bytes, why, now);
                }
            }
            Order::Balloon(state) => session.balloon(state, now),
            Order::Shrink(bytes) => drop(session.shrink(bytes, SHRINK_TIME, now)),
            Order::Release => session.release(now),
        }
    }
}

/// The answer to a memory request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How far it is granted.
    pub outcome: RequestOutcome,
    /// Memory granted or taken back.
    pub bytes: Bytes,
    /// Why it is not granted in full; `None`: it is.
    pub why: Option<String>,
}

impl Answer {
    /// The answer to the request of that number, as a message.
    pub(crate) fn message(&self, number: u64) -> HostMessage {
        let Answer { outcome, bytes, why } = self;
        let why = why.as_deref().map(truncated);
        HostMessage::Answer { request: number, outcome: *outcome, bytes: bytes.get(), why }
    }

    /// The answer to `request` of a guest whose allocation changes from `holds` to `target`. It
    /// includes `why` unless the request is granted in full.
    pub(crate) fn to(request: MemoryRequest, holds: Bytes, target: Bytes, why: &str) -> Answer {
        let bytes = match request.kind {
            RequestKind::More | RequestKind::Emergency => target.saturating_sub(holds),
            RequestKind::Less => holds.saturating_sub(target),
        };
        let outcome = match bytes {
            bytes if bytes >= request.amount => RequestOutcome::Granted,
            Bytes::ZERO => RequestOutcome::Refused,
            _ => RequestOutcome::Partly,
        };
        let why = (outcome != RequestOutcome::Granted).then(|| why.to_owned());
        Answer { outcome, bytes, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_states_how_much_of_the_request_is_granted() {
        let asked = |kind| MemoryRequest { number: 1, kind, amount: Bytes::mib(64) };
        let more = |target| Answer::to(asked(RequestKind::More), Bytes::mib(100), target, "short");
        let answer = more(Bytes::mib(200));
        assert_eq!(
            (answer.outcome, answer.bytes, answer.why),
            (RequestOutcome::Granted, Bytes::mib(100), None)
        );
        let answer = more(Bytes::mib(110));
        assert_eq!((answer.outcome, answer.bytes), (RequestOutcome::Partly, Bytes::mib(10)));
        assert_eq!(answer.why.as_deref(), Some("short"));
        assert_eq!(more(Bytes::mib(90)).outcome, RequestOutcome::Refused);
        let less = asked(RequestKind::Less);
        let answer = Answer::to(less, Bytes::mib(100), Bytes::mib(36), "");
        assert_eq!((answer.outcome, answer.bytes), (RequestOutcome::Granted, Bytes::mib(64)));
    }
}
