//! A guest's claims about itself, from the part of xenstore that it may write.
//!
//! Idea: an agent publishes its messages as the values of two keys, `data/mem_stats` and
//! `data/mem_req` (flexmemd §3.1.2), in the form that it would send to a socket, without the frame.
//! Each passes the same checks as on a socket. XAPI's guest tools publish two numbers instead, once
//! a minute. A value that was there before the watch began is of unknown age, and counts once it
//! changes.
//! Cost: 1 KB of JSON per guest and second.
//! Limits: pages of 4 KiB; XAPI's tools report free memory only, so that page cache counts as used.

use ballast_agent_proto::host::{HostFacts, ImplausibleMessage, MessageValidator};
use ballast_agent_proto::host::{agent_report, guest_stats};
use ballast_agent_proto::wire::message::decode;
use ballast_agent_proto::wire::{GuestFrame, GuestMessage, WireRequestKind};
use ballast_model::{
    AgentReport, Bytes, GuestStats, Measured, MemoryRequest, RequestKind, Timestamp,
};
use std::time::Duration;

use crate::key::parse_kib;

/// The guest's page size.
const PAGE: Bytes = Bytes::pages(1);
/// Most characters of an error, which may repeat what the guest wrote.
const SHOWN: usize = 200;

/// What the host itself knows of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainFacts {
    /// The most that it can hold. `None`: unknown.
    pub memory_max: Option<Bytes>,
    /// Shortest time between emergencies: one that comes sooner is an ordinary request.
    pub emergency_period: Duration,
}

/// When a value was read, and when it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTimes {
    /// When it was read.
    pub now: Timestamp,
    /// When an event reported its change; `None` if that time is unknown.
    pub changed: Option<Timestamp>,
}

/// The claims of one domain.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    stats: Publisher,
    requests: Publisher,
    report: Option<(AgentReport, GuestStats, Timestamp)>,
    request: Option<MemoryRequest>,
    /// Added to the numbers of this agent's requests: a new agent begins with 1 again.
    base: u64,
    emergency_at: Option<Timestamp>,
    /// XAPI's figure of free memory, and when it changed.
    free: Option<(Bytes, Timestamp)>,
    total: Option<Bytes>,
}

/// The messages of one key.
#[derive(Clone, Debug, Default)]
struct Publisher {
    validator: MessageValidator,
    /// The last value, to recognize one that is read again.
    last: Vec<u8>,
}

impl Publisher {
    /// Reads a message. `None` if it is the last one again, or of unknown age.
    fn read(&mut self, value: &[u8], at: ValueTimes) -> Result<Option<CheckedMessage>, String> {
        if value == self.last {
            return Ok(None);
        }
        value.clone_into(&mut self.last);
        let Some(changed) = at.changed else { return Ok(None) };
        let text = str::from_utf8(value).map_err(|error| error.to_string())?;
        let GuestFrame { seq, uptime_ms, message } =
            decode(text).map_err(|error| printable(&error.to_string()))?;
        let is_new_agent = match self.validator.message(seq, uptime_ms, at.now) {
            Ok(_) => false,
            // A restarted agent counts from 1 again. A guest gains nothing by pretending a restart.
            Err(ImplausibleMessage::Repeated { .. }) => {
                self.validator = MessageValidator::new();
                let first = self.validator.message(seq, uptime_ms, at.now);
                first.map_err(|error| error.to_string())?;
                true
            }
            Err(error) => return Err(error.to_string()),
        };
        Ok(Some(CheckedMessage { message, changed, is_new_agent }))
    }
}

/// A message that passed the checks.
struct CheckedMessage {
    message: GuestMessage,
    changed: Timestamp,
    is_new_agent: bool,
}

impl Claims {
    /// Takes in the value of `data/mem_stats`; `None`: there is no such key.
    ///
    /// # Errors
    /// The value is implausible. The text says why, in at most a few hundred characters.
    pub fn take_stats(
        &mut self,
        value: Option<&[u8]>,
        at: ValueTimes,
        facts: DomainFacts,
    ) -> Result<(), String> {
        let Some(value) = value else {
            self.report = None;
            return Ok(());
        };
        let Some(published) = self.stats.read(value, at)? else { return Ok(()) };
        let GuestMessage::Statistics(statistics) = published.message else {
            return Err("another message: expected statistics".to_owned());
        };
        let facts = HostFacts { memory_max: facts.memory_max };
        let checked = self.stats.validator.statistics(&statistics, facts);
        checked.map_err(|error| error.to_string())?;
        let report = agent_report(&statistics, None);
        self.report = Some((report, guest_stats(&statistics, PAGE), published.changed));
        Ok(())
    }

    /// Takes in the value of `data/mem_req`; returns whether it is a new emergency.
    ///
    /// # Errors
    /// As [`Claims::take_stats`].
    pub fn take_request(
        &mut self,
        value: Option<&[u8]>,
        at: ValueTimes,
        facts: DomainFacts,
    ) -> Result<bool, String> {
        let Some(published) = value.map(|value| self.requests.read(value, at)).transpose()? else {
            return Ok(false);
        };
        let Some(published) = published else { return Ok(false) };
        let GuestMessage::Request { number, kind, bytes, .. } = published.message else {
            return Err("another message: expected a request".to_owned());
        };
        let last = self.request.map_or(0, |request| request.number);
        if published.is_new_agent {
            self.base = last;
        }
        let number = number.saturating_add(self.base);
        if number <= last {
            return Err(ImplausibleMessage::RequestRepeated { number, last }.to_string());
        }
        let is_soon = self
            .emergency_at
            .is_some_and(|before| at.now.saturating_since(before) < facts.emergency_period);
        let kind = match kind {
            WireRequestKind::Emergency if !is_soon => RequestKind::Emergency,
            WireRequestKind::Emergency | WireRequestKind::More => RequestKind::More,
            WireRequestKind::Less => RequestKind::Less,
        };
        let amount = Bytes::new(bytes).min(facts.memory_max.unwrap_or(Bytes::MAX));
        self.request = Some(MemoryRequest { number, kind, amount });
        let is_emergency = kind == RequestKind::Emergency;
        if is_emergency {
            self.emergency_at = Some(at.now);
        }
        Ok(is_emergency)
    }

    /// Takes in the value of `data/meminfo_total`.
    ///
    /// # Errors
    /// As [`Claims::take_stats`].
    pub fn take_total(&mut self, value: Option<&[u8]>, facts: DomainFacts) -> Result<(), String> {
        self.total = None;
        let total = value.map(parse_kib).transpose()?;
        if let (Some(total), Some(most)) = (total, facts.memory_max)
            && total > most
        {
            return Err(format!("{total:#} is more than the domain can hold, {most:#}"));
        }
        self.total = total;
        Ok(())
    }

    /// Takes in the value of `data/meminfo_free`.
    ///
    /// # Errors
    /// As [`Claims::take_stats`].
    pub fn take_free(&mut self, value: Option<&[u8]>, at: ValueTimes) -> Result<(), String> {
        self.free = None;
        let free = value.map(parse_kib).transpose()?;
        self.free = free.zip(at.changed);
        Ok(())
    }

    /// The agent's own number of its last request, if that request is `number` here.
    pub fn own_number(&self, number: u64) -> Option<u64> {
        self.request.filter(|it| it.number == number).map(|it| it.number - self.base)
    }

    /// Its statistics, and their age at `now`: the agent's or, without one, XAPI's.
    pub fn stats(&self, now: Timestamp) -> Option<Measured<GuestStats>> {
        if let Some((_, stats, at)) = self.report {
            return Some(Measured { value: stats, age: now.saturating_since(at) });
        }
        let (free, at) = self.free?;
        let free = free.min(self.total.unwrap_or(Bytes::MAX));
        // Reported as available, not as free: on Windows it includes standby pages.
        let stats =
            GuestStats { total: self.total, available: Some(free), ..GuestStats::default() };
        Some(Measured { value: stats, age: now.saturating_since(at) })
    }

    /// Its agent's report and request, and their age at `now`.
    pub fn report(&self, now: Timestamp) -> Option<Measured<AgentReport>> {
        let request = self.request;
        match self.report {
            Some((report, _, at)) => Some(Measured {
                value: AgentReport { request, ..report },
                age: now.saturating_since(at),
            }),
            None => {
                request?;
                Some(Measured::fresh(AgentReport { request, ..AgentReport::default() }))
            }
        }
    }
}

/// The beginning of a text that may repeat what a guest wrote, made printable.
fn printable(text: &str) -> String {
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts() -> DomainFacts {
        DomainFacts { memory_max: Some(Bytes::mib(256)), emergency_period: Duration::from_secs(10) }
    }

    /// A value read in this second, in which it changed.
    fn at(second: u64) -> ValueTimes {
        let now = Timestamp::from_millis(second * 1000);
        ValueTimes { now, changed: Some(now) }
    }

    fn statistics(seq: u64, uptime: u64, available_mib: u64) -> Vec<u8> {
        let (total, available) = (200_u64 << 20, available_mib << 20);
        let memory = format!(r#"{{"total_bytes":{total},"available_bytes":{available}}}"#);
        let message = format!(r#"{{"type":"statistics","memory":{memory}}}"#);
        format!(r#"{{"seq":{seq},"uptime_ms":{uptime},"message":{message}}}"#).into_bytes()
    }

    fn request(seq: u64, number: u64, kind: &str) -> Vec<u8> {
        let why = r#"{"rule":"reclaim-fails","text":"x"}"#;
        let message = format!(
            r#"{{"type":"request","number":{number},"kind":"{kind}","bytes":999999999999,"why":{why}}}"#
        );
        format!(r#"{{"seq":{seq},"uptime_ms":50000,"message":{message}}}"#).into_bytes()
    }

    fn available(claims: &Claims, second: u64) -> Option<(u64, u64)> {
        let stats = claims.stats(Timestamp::from_millis(second * 1000))?;
        Some((stats.value.available?.get() >> 20, stats.age.as_secs()))
    }

    #[test]
    fn statistics_count_from_their_change_on() {
        let mut claims = Claims::default();
        let undated = ValueTimes { now: Timestamp::from_millis(1000), changed: None };
        let first = statistics(5, 9_000, 50);
        claims.take_stats(Some(&first), undated, facts()).unwrap();
        assert_eq!(available(&claims, 1), None, "nobody knows how old it is");
        claims.take_stats(Some(&first), at(2), facts()).unwrap();
        assert_eq!(available(&claims, 2), None, "the same again");
        claims.take_stats(Some(&statistics(6, 10_000, 60)), at(2), facts()).unwrap();
        assert_eq!(available(&claims, 5), Some((60, 3)));
        claims.take_stats(None, at(6), facts()).unwrap();
        assert_eq!(available(&claims, 6), None);
    }

    #[test]
    fn what_cannot_be_is_refused_and_the_last_counts() {
        let mut claims = Claims::default();
        claims.take_stats(Some(&statistics(6, 10_000, 60)), at(2), facts()).unwrap();
        for (value, why) in [
            (vec![0xFF; 4096], "invalid utf-8"),
            (b"[[[[".to_vec(), "not a message"),
            (statistics(7, 9_000, 50), "clock ran backwards"),
            (statistics(8, 11_000, 201), "exceeds total"),
            (request(9, 1, "more"), "expected statistics"),
        ] {
            let error = claims.take_stats(Some(&value), at(3), facts()).unwrap_err();
            assert!(error.contains(why) && error.len() < 1000, "{error}");
            assert_eq!(available(&claims, 3), Some((60, 1)), "{why}");
        }
        // More memory than the domain can have.
        let small = DomainFacts { memory_max: Some(Bytes::mib(100)), ..facts() };
        let error = claims.take_stats(Some(&statistics(10, 60_000, 9)), at(3), small).unwrap_err();
        assert!(error.contains("the host's limit"), "{error}");
    }

    #[test]
    fn an_agent_that_was_started_again_is_heard() {
        let mut claims = Claims::default();
        let number = |claims: &Claims| {
            claims.report(Timestamp::ZERO).unwrap().value.request.map(|it| it.number)
        };
        claims.take_request(Some(&request(8, 3, "more")), at(1), facts()).unwrap();
        assert_eq!(number(&claims), Some(3));
        claims.take_request(Some(&request(2, 1, "less")), at(2), facts()).unwrap();
        assert_eq!(number(&claims), Some(4), "numbers go on");
        claims.take_stats(Some(&statistics(9, 10_000, 60)), at(2), facts()).unwrap();
        claims.take_stats(Some(&statistics(1, 11_000, 70)), at(3), facts()).unwrap();
        assert_eq!(available(&claims, 3), Some((70, 0)));
    }

    #[test]
    fn an_emergency_counts_once_in_its_period() {
        let mut claims = Claims::default();
        let mut ask = |seq, number, second| {
            let value = request(seq, number, "emergency");
            claims.take_request(Some(&value), at(second), facts())
        };
        assert_eq!(ask(1, 1, 1), Ok(true));
        assert_eq!(ask(2, 2, 5), Ok(false));
        assert_eq!(ask(3, 3, 11), Ok(true));
        assert!(ask(4, 3, 30).unwrap_err().contains("expected a higher number"));
        let asked = claims.report(Timestamp::ZERO).unwrap().value.request.unwrap();
        assert_eq!(asked.amount, Bytes::mib(256), "no more than it can have");
    }

    #[test]
    fn a_request_from_before_anybody_looked_is_not_asked() {
        let mut claims = Claims::default();
        let undated = ValueTimes { now: Timestamp::ZERO, changed: None };
        let value = request(8, 3, "emergency");
        assert_eq!(claims.take_request(Some(&value), undated, facts()), Ok(false));
        assert_eq!(claims.report(Timestamp::ZERO), None);
    }

    #[test]
    fn figures_of_xapi_count_without_an_agent() {
        let mut claims = Claims::default();
        claims.take_total(Some(b"204800"), facts()).unwrap();
        claims.take_free(Some(b"51200"), at(1)).unwrap();
        assert_eq!(available(&claims, 61), Some((50, 60)));
        claims.take_free(Some(b"9999999"), at(61)).unwrap();
        assert_eq!(available(&claims, 61), Some((200, 0)), "no more than it has");
        assert!(claims.take_total(Some(b"307200"), facts()).is_err());
        assert!(claims.take_free(Some(b"lots"), at(62)).unwrap_err().contains("`lots`"));
        assert_eq!(available(&claims, 62), None);
        claims.take_stats(Some(&statistics(9, 10_000, 60)), at(62), facts()).unwrap();
        assert_eq!(available(&claims, 62), Some((60, 0)));
    }

    /// What a guest may write: rubbish, numbers, and what its agent writes.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<Vec<u8>>(),
            "[0-9]{1,12}".prop_map(String::into_bytes),
            (1..40u64, 0..40_000u64, 0..400u64)
                .prop_map(|(seq, uptime, mib)| statistics(seq, uptime, mib)),
            (1..40u64, 1..9u64, "(more|less|emergency)")
                .prop_map(|(seq, number, kind)| request(seq, number, &kind)),
        ]
    }

    proptest! {
        /// As a fuzzer does: values of any key appear, change or vanish, in any order.
        #[test]
        fn no_sequence_of_values_makes_a_guest_larger(
            values in prop::collection::vec((any::<u8>(), value()), 0..24)
        ) {
            let mut claims = Claims::default();
            for ((key, value), second) in values.into_iter().zip(1_u64..) {
                let times = ValueTimes { changed: at(second).changed.filter(|_| key & 8 == 0), ..at(second) };
                let value = (key & 16 == 0).then_some(&value[..]);
                let _ = match key % 4 {
                    0 => claims.take_stats(value, times, facts()),
                    1 => claims.take_request(value, times, facts()).map(drop),
                    2 => claims.take_total(value, facts()),
                    _ => claims.take_free(value, times),
                };
                let most = facts().memory_max;
                if let Some(stats) = claims.stats(times.now) {
                    prop_assert!(stats.value.total <= most);
                }
                let request = claims.report(times.now).and_then(|report| report.value.request);
                prop_assert!(request.is_none_or(|request| Some(request.amount) <= most));
            }
        }

        #[test]
        fn no_value_makes_a_guest_larger_than_it_can_be(
            values in prop::collection::vec((any::<Vec<u8>>(), "[0-9]{1,12}", 0..400u64), 1..12)
        ) {
            let mut claims = Claims::default();
            for ((bytes, number, mib), second) in values.into_iter().zip(1..) {
                let _ = claims.take_stats(Some(&bytes), at(second), facts());
                let _ = claims.take_stats(Some(&statistics(second, second, mib)), at(second), facts());
                let _ = claims.take_request(Some(&bytes), at(second), facts());
                let _ = claims.take_total(Some(number.as_bytes()), facts());
                let _ = claims.take_free(Some(number.as_bytes()), at(second));
                let most = facts().memory_max;
                if let Some(stats) = claims.stats(Timestamp::from_millis(second * 1000)) {
                    prop_assert!(stats.value.total <= most);
                    let total = stats.value.total.unwrap_or(Bytes::MAX);
                    prop_assert!(stats.value.available.unwrap_or_default() <= total);
                }
            }
        }
    }
}
