//! Rejects implausible messages of an agent.
//!
//! Properties: no message makes the host believe that a guest has more memory than the host gave
//! it; counters do not decrease; no message counts twice; the guest's clock does not run backwards,
//! nor much faster than the host's.
//!
//! Each message is compared with the last accepted one and with what the host knows. A message that
//! fails is dropped whole, with the reason. Requested amounts are capped, not rejected: asking for
//! too much is not a lie.
//!
//! Limits: plausible lies are accepted here; policies and the guard limit what a guest gains by
//! them.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};
use thiserror::Error;

use crate::wire::{KernelCounters, MemorySizes, Statistics};

/// Between two messages the guest's clock may advance by twice the host's plus this: messages wait
/// in buffers while the guest, its host or the daemon is paused.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// What the host itself knows about the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The most memory the guest can have: boot memory and plugged memory. `None`: unknown.
    pub memory_max: Option<Bytes>,
}

/// Why a message was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ImplausibleMessage {
    /// A repeated message, or one older than the last.
    #[error("message {seq} after message {last}: expected a larger number")]
    Repeated {
        /// The message's sequence number.
        seq: u64,
        /// The last accepted one.
        last: u64,
    },
    /// The guest's clock ran backwards although the agent was not restarted.
    #[error("uptime of {uptime_ms} ms after {last_ms} ms: the guest's clock ran backwards")]
    ClockBackwards {
        /// Uptime in the message.
        uptime_ms: u64,
        /// Uptime in the last accepted message.
        last_ms: u64,
    },
    /// The guest's clock ran too fast.
    #[error(
        "uptime advanced by {by_ms} ms within {elapsed_ms} ms: the guest's clock runs too fast"
    )]
    ClockJumped {
        /// Advance of the guest's clock.
        by_ms: u64,
        /// Advance of the host's clock.
        elapsed_ms: u64,
    },
    /// A counter decreased.
    #[error("{counter} fell from {last} to {value}: counters never decrease")]
    CounterBackwards {
        /// The counter's name.
        counter: &'static str,
        /// Value in the message.
        value: u64,
        /// Value in the last accepted message.
        last: u64,
    },
    /// A size exceeds its limit.
    #[error("{field} {value:#} exceeds {limit_name} {limit:#}")]
    TooLarge {
        /// Name of the size.
        field: &'static str,
        /// Its value.
        value: Bytes,
        /// Name of the limit.
        limit_name: &'static str,
        /// The limit.
        limit: Bytes,
    },
    /// The agent sends too much.
    #[error("over {bytes_per_second_max} bytes a second")]
    Flood {
        /// The limit.
        bytes_per_second_max: u64,
    },
    /// A repeated request.
    #[error("request {number} after request {last}: expected a higher number")]
    RequestRepeated {
        /// The request's number.
        number: u64,
        /// The last accepted one.
        last: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct LastMessage {
    seq: u64,
    uptime_ms: u64,
    at: Timestamp,
}

/// Compares each message with the last accepted one.
#[derive(Clone, Debug, Default)]
pub struct MessageValidator {
    last: Option<LastMessage>,
    counters: KernelCounters,
}

impl MessageValidator {
    /// A validator that has accepted nothing yet.
    pub fn new() -> MessageValidator {
        MessageValidator::default()
    }

    /// Accepts or rejects a message; returns how many messages before it were lost.
    ///
    /// # Errors
    /// Why the message is rejected.
    pub fn message(
        &mut self,
        seq: u64,
        uptime_ms: u64,
        now: Timestamp,
    ) -> Result<u64, ImplausibleMessage> {
        let this = LastMessage { seq, uptime_ms, at: now };
        let Some(last) = self.last else {
            self.last = Some(this);
            return Ok(0);
        };
        if seq <= last.seq {
            return Err(ImplausibleMessage::Repeated { seq, last: last.seq });
        }
        let Some(by_ms) = uptime_ms.checked_sub(last.uptime_ms) else {
            return Err(ImplausibleMessage::ClockBackwards { uptime_ms, last_ms: last.uptime_ms });
        };
        let elapsed = now.saturating_since(last.at);
        if Duration::from_millis(by_ms) > elapsed.saturating_mul(2).saturating_add(CLOCK_SLACK) {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            return Err(ImplausibleMessage::ClockJumped { by_ms, elapsed_ms });
        }
        self.last = Some(this);
        Ok(seq - last.seq - 1)
    }

    /// Accepts or rejects statistics.
    ///
    /// # Errors
    /// The first implausible field.
    pub fn statistics(
        &mut self,
        statistics: &Statistics,
        facts: HostFacts,
    ) -> Result<(), ImplausibleMessage> {
        let memory = &statistics.memory;
        check_sizes(memory, facts)?;
        if let (Some(free), Some(total)) = (memory.swap_free_bytes, memory.swap_total_bytes) {
            at_most("swap_free", free, "swap_total", total)?;
        }
        if let (Some(high), Some(total)) = (statistics.watermarks.high_bytes, memory.total_bytes) {
            at_most("high watermark", high, "total", total)?;
        }
        let pairs = statistics.counters.fields().zip(self.counters.fields());
        for ((counter, value), (_, last)) in pairs {
            if let (Some(value), Some(last)) = (value, last)
                && value < last
            {
                return Err(ImplausibleMessage::CounterBackwards { counter, value, last });
            }
        }
        self.counters = statistics.counters;
        Ok(())
    }
}

/// Checks each size against the total only, not against each other: the kernel does not read them
/// all at the same moment.
fn check_sizes(memory: &MemorySizes, facts: HostFacts) -> Result<(), ImplausibleMessage> {
    if let (Some(total), Some(limit)) = (memory.total_bytes, facts.memory_max) {
        at_most("total", total, "the host's limit", limit.get())?;
    }
    let Some(limit) = memory.total_bytes.or(facts.memory_max.map(Bytes::get)) else {
        return Ok(());
    };
    for (field, value) in [
        ("free", memory.free_bytes),
        ("available", memory.available_bytes),
        ("buffers", memory.buffers_bytes),
        ("cached", memory.cached_bytes),
        ("shmem", memory.shmem_bytes),
        ("active", memory.active_bytes),
        ("inactive", memory.inactive_bytes),
        ("active_file", memory.active_file_bytes),
        ("inactive_file", memory.inactive_file_bytes),
        ("unevictable", memory.unevictable_bytes),
        ("swap_cached", memory.swap_cached_bytes),
    ] {
        if let Some(value) = value {
            at_most(field, value, "total", limit)?;
        }
    }
    Ok(())
}

fn at_most(
    field: &'static str,
    value: u64,
    limit_name: &'static str,
    limit: u64,
) -> Result<(), ImplausibleMessage> {
    if value <= limit {
        return Ok(());
    }
    let (value, limit) = (Bytes::new(value), Bytes::new(limit));
    Err(ImplausibleMessage::TooLarge { field, value, limit_name, limit })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn messages_checked_by_hand() {
        let mut validator = MessageValidator::new();
        assert_eq!(validator.message(5, 1_000, at(0)), Ok(0));
        assert_eq!(validator.message(6, 2_000, at(1_000)), Ok(0));
        // Two were lost.
        assert_eq!(validator.message(9, 5_000, at(4_000)), Ok(2));
        assert_eq!(
            validator.message(9, 5_000, at(4_000)),
            Err(ImplausibleMessage::Repeated { seq: 9, last: 9 })
        );
        assert_eq!(
            validator.message(10, 4_999, at(5_000)),
            Err(ImplausibleMessage::ClockBackwards { uptime_ms: 4_999, last_ms: 5_000 })
        );
        // At most 2 × 1 s + 60 s.
        assert_eq!(validator.message(10, 67_000, at(5_000)), Ok(0));
        assert_eq!(
            validator.message(11, 67_000 + 62_001, at(6_000)),
            Err(ImplausibleMessage::ClockJumped { by_ms: 62_001, elapsed_ms: 1_000 })
        );
        // A rejected message is not what the next is compared with.
        assert_eq!(validator.message(11, 68_000, at(6_000)), Ok(0));
    }

    fn statistics(total: u64, free: u64, swapped_in: u64) -> Statistics {
        let mut it = Statistics::default();
        it.memory.total_bytes = Some(total);
        it.memory.free_bytes = Some(free);
        it.counters.swap_in_pages = Some(swapped_in);
        it
    }

    #[test]
    fn statistics_checked_by_hand() {
        let mut validator = MessageValidator::new();
        let facts = HostFacts { memory_max: Some(Bytes::new(1_000)) };
        assert_eq!(validator.statistics(&statistics(900, 900, 7), facts), Ok(()));
        for (statistics, counter_or_figure) in [
            (statistics(1_001, 0, 7), "total"),
            (statistics(900, 901, 7), "free"),
            (statistics(900, 0, 6), "swap_in_pages"),
        ] {
            let error = validator.statistics(&statistics, facts).unwrap_err().to_string();
            assert!(error.contains(counter_or_figure), "{error}");
        }
        // Missing fields are accepted.
        assert_eq!(validator.statistics(&Statistics::default(), facts), Ok(()));
        let mut swap = Statistics::default();
        swap.memory.swap_free_bytes = Some(2);
        swap.memory.swap_total_bytes = Some(1);
        assert!(validator.statistics(&swap, HostFacts::default()).is_err());
        let mut alone = Statistics::default();
        alone.memory.active_bytes = Some(1_001);
        assert!(validator.statistics(&alone, facts).is_err());
        assert_eq!(validator.statistics(&alone, HostFacts::default()), Ok(()));
    }

    proptest! {
        #[test]
        fn sequence_clock_and_counters_of_accepted_messages_never_decrease(
            samples in prop::collection::vec((0..20u64, 0..5_000u64, 0..3_000u64, prop::option::of(0..9u64)), 1..60)
        ) {
            let mut validator = MessageValidator::new();
            let (mut now, mut seqs, mut clocks, mut counts) = (0, vec![], vec![], vec![]);
            for (seq, uptime_ms, step, swapped) in samples {
                now += step;
                if validator.message(seq, uptime_ms, at(now)).is_err() {
                    continue;
                }
                seqs.push(seq);
                clocks.push(uptime_ms);
                let mut it = statistics(9, 9, 0);
                it.counters.swap_in_pages = swapped;
                if validator.statistics(&it, HostFacts::default()).is_ok() {
                    counts.push(swapped);
                }
            }
            prop_assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(clocks.is_sorted());
            let pairs = counts.windows(2).filter(|pair| pair[0].is_some() && pair[1].is_some());
            prop_assert!(pairs.into_iter().all(|pair| pair[0] <= pair[1]));
        }
    }
}
