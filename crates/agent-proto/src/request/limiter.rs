//! Limits how often a guest sends requests.
//!
//! One request waits for an answer at a time, so that the host is not flooded and the guest is not
//! charged twice for one need (flexmemd §3.1.2). One emergency may be sent per period; the host
//! treats further ones as ordinary requests.
//!
//! Limits: waits at most [`ANSWER_WAIT_MAX`] for an answer.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};

use crate::request::trend::WantedChange;

/// How long a request waits for its answer. A host that has not answered by then may have restarted
/// and lost the request.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutgoingRequest {
    /// Asks for more memory.
    More(Bytes),
    /// Offers memory.
    Less(Bytes),
    /// Declares an emergency.
    Emergency,
}

/// Decides which requests are sent and which are held back.
#[derive(Clone, Debug)]
pub struct RequestLimiter {
    emergency_period: Duration,
    waiting_since: Option<Timestamp>,
    emergency_at: Option<Timestamp>,
}

impl RequestLimiter {
    /// A limiter that allows one emergency per `emergency_period`.
    pub fn new(emergency_period: Duration) -> RequestLimiter {
        RequestLimiter { emergency_period, waiting_since: None, emergency_at: None }
    }

    /// The request to send at `now`. An emergency has precedence and does not wait for answers.
    pub fn next_request(
        &mut self,
        wanted: Option<WantedChange>,
        is_emergency: bool,
        now: Timestamp,
    ) -> Option<OutgoingRequest> {
        let elapsed = |since: Timestamp| now.saturating_since(since);
        if is_emergency && self.emergency_at.is_none_or(|at| elapsed(at) >= self.emergency_period) {
            // Its answer also answers the request that was outstanding.
            (self.emergency_at, self.waiting_since) = (Some(now), Some(now));
            return Some(OutgoingRequest::Emergency);
        }
        if self.waiting_since.is_some_and(|since| elapsed(since) < ANSWER_WAIT_MAX) {
            return None;
        }
        let request = match wanted? {
            WantedChange::More(bytes) => OutgoingRequest::More(bytes),
            WantedChange::Less(bytes) => OutgoingRequest::Less(bytes),
        };
        self.waiting_since = Some(now);
        Some(request)
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
    fn one_request_is_outstanding_at_a_time() {
        let mut limiter = RequestLimiter::new(Duration::from_secs(1));
        let more = Some(WantedChange::More(Bytes::mib(8)));
        assert_eq!(limiter.next_request(None, false, at(0)), None);
        let sent = limiter.next_request(more, false, at(0));
        assert_eq!(sent, Some(OutgoingRequest::More(Bytes::mib(8))));
        assert_eq!(limiter.next_request(more, false, at(9_999)), None);
        limiter.answered();
        let less = Some(WantedChange::Less(Bytes::mib(2)));
        let sent = limiter.next_request(less, false, at(9_999));
        assert_eq!(sent, Some(OutgoingRequest::Less(Bytes::mib(2))));
        // Without an answer it asks again after ten seconds.
        assert_eq!(limiter.next_request(more, false, at(19_998)), None);
        let sent = limiter.next_request(more, false, at(19_999));
        assert_eq!(sent, Some(OutgoingRequest::More(Bytes::mib(8))));
    }

    #[test]
    fn emergencies_do_not_wait_and_are_limited_per_period() {
        let mut limiter = RequestLimiter::new(Duration::from_secs(5));
        let more = Some(WantedChange::More(Bytes::mib(8)));
        limiter.next_request(more, false, at(0));
        let emergency = Some(OutgoingRequest::Emergency);
        assert_eq!(limiter.next_request(more, true, at(100)), emergency);
        assert_eq!(limiter.next_request(more, true, at(5_099)), None);
        assert_eq!(limiter.next_request(more, true, at(5_100)), emergency);
        // Within the period an emergency is sent as an ordinary request.
        limiter.answered();
        let sent = limiter.next_request(more, true, at(6_000));
        assert_eq!(sent, Some(OutgoingRequest::More(Bytes::mib(8))));
    }
}
