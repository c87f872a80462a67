//! What a guest really says of what it wants.
//!
//! Idea: one request waits for an answer at a time, so that the host is not flooded and the guest
//! does not pay twice for one need (flexmemd §3.1.2); and one emergency a period, since the host takes
//! more of them for ordinary requests.
//!
//! Limits: an answer that never comes is waited for [`ANSWER_WAIT_MAX`].

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};

use crate::trend::Wish;

/// How long a request waits for its answer: the host that has not answered by then may have been
/// restarted, and will not.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// What a guest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It asks for that much more.
    More(Bytes),
    /// It offers that much.
    Less(Bytes),
    /// It cannot go on.
    Emergency,
}

/// Decides what is said and what is kept back.
#[derive(Clone, Debug)]
pub struct Caller {
    period: Duration,
    waiting_since: Option<Timestamp>,
    emergency_at: Option<Timestamp>,
}

impl Caller {
    /// One who knows that the host's period is `period`.
    pub fn new(period: Duration) -> Caller {
        Caller { period, waiting_since: None, emergency_at: None }
    }

    /// What to say at `now`, if anything. An emergency comes first, and does not wait.
    pub fn say(&mut self, wish: Option<Wish>, emergency: bool, now: Timestamp) -> Option<Call> {
        let passed = |since: Timestamp| now.saturating_since(since);
        if emergency && self.emergency_at.is_none_or(|at| passed(at) >= self.period) {
            // Its answer is that to whatever else would be asked for.
            (self.emergency_at, self.waiting_since) = (Some(now), Some(now));
            return Some(Call::Emergency);
        }
        if self.waiting_since.is_some_and(|since| passed(since) < ANSWER_WAIT_MAX) {
            return None;
        }
        let call = match wish? {
            Wish::More(bytes) => Call::More(bytes),
            Wish::Less(bytes) => Call::Less(bytes),
        };
        self.waiting_since = Some(now);
        Some(call)
    }

    /// The host has answered: granted, granted in part, or refused.
    pub fn answered(&mut self) {
        self.waiting_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn one_request_at_a_time() {
        let mut caller = Caller::new(Duration::from_secs(1));
        let more = Some(Wish::More(Bytes::mib(8)));
        assert_eq!(caller.say(None, false, at(0)), None);
        assert_eq!(caller.say(more, false, at(0)), Some(Call::More(Bytes::mib(8))));
        assert_eq!(caller.say(more, false, at(9_999)), None);
        caller.answered();
        let less = Some(Wish::Less(Bytes::mib(2)));
        assert_eq!(caller.say(less, false, at(9_999)), Some(Call::Less(Bytes::mib(2))));
        // No answer: it asks again after ten seconds.
        assert_eq!(caller.say(more, false, at(19_998)), None);
        assert_eq!(caller.say(more, false, at(19_999)), Some(Call::More(Bytes::mib(8))));
    }

    #[test]
    fn one_emergency_a_period_and_it_does_not_wait() {
        let mut caller = Caller::new(Duration::from_secs(5));
        let more = Some(Wish::More(Bytes::mib(8)));
        caller.say(more, false, at(0));
        assert_eq!(caller.say(more, true, at(100)), Some(Call::Emergency));
        assert_eq!(caller.say(more, true, at(5_099)), None);
        assert_eq!(caller.say(more, true, at(5_100)), Some(Call::Emergency));
        // One that is not heard again still asks in the ordinary way.
        caller.answered();
        assert_eq!(caller.say(more, true, at(6_000)), Some(Call::More(Bytes::mib(8))));
    }
}
