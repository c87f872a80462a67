//! What is believed of what an agent says.
//!
//! Properties: nothing that an agent says makes the host believe in more memory than the host itself
//! knows the guest to have; no counter runs backwards; no message counts twice; the guest's clock
//! does not run faster than the host's; and what comes too often is not heard.
//!
//! Idea: each message is held against the one before it and against what the host knows. One that fails is
//! dropped whole, with the reason; it does not become the one the next is held against. Amounts that
//! are asked for are capped instead, since to ask for too much is no lie.
//!
//! Limits: a guest that lies within what is possible is believed here; whether it gets what it says
//! it needs is for policies and the guard, which hold it to its shares.

use std::time::Duration;

use ballast_agent_wire::{Counters, Memory, Statistics};
use ballast_model::{Bytes, Timestamp};
use thiserror::Error;

/// How much further than the host's the guest's clock may have come since the last message, beside as
/// much again: messages wait in buffers while a guest, its host or the daemon is paused.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// What the host itself knows of the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The most memory it can have: what it booted with and what is plugged in. `None`: not known.
    pub memory_max: Option<Bytes>,
}

/// Why something that an agent said is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Implausible {
    /// A message that was there before, or is older than one that was.
    #[error("message {seq} after message {last}: expected a larger number")]
    Repeated {
        /// Its number.
        seq: u64,
        /// The last one's.
        last: u64,
    },
    /// The guest's clock has run backwards without a new start of the agent.
    #[error("uptime {uptime_ms} ms after {last_ms} ms: expected no less")]
    ClockBackwards {
        /// What it says.
        uptime_ms: u64,
        /// What it said.
        last_ms: u64,
    },
    /// The guest's clock has run too fast.
    #[error("uptime went on by {by_ms} ms in {elapsed_ms} ms of the host's")]
    ClockJumped {
        /// By how much.
        by_ms: u64,
        /// By how much the host's did.
        elapsed_ms: u64,
    },
    /// A counter has run backwards.
    #[error("{counter} {value} after {last}: expected no less")]
    CounterBackwards {
        /// Its name.
        counter: &'static str,
        /// What it says.
        value: u64,
        /// What it said.
        last: u64,
    },
    /// More memory than there is.
    #[error("{figure} {value:#} of {limit_name} {limit:#}: expected no more")]
    TooLarge {
        /// Its name.
        figure: &'static str,
        /// What it says.
        value: Bytes,
        /// What bounds it.
        limit_name: &'static str,
        /// The bound.
        limit: Bytes,
    },
    /// More is sent than any agent needs to.
    #[error("over {bytes_per_second_max} bytes a second")]
    Flood {
        /// The bound.
        bytes_per_second_max: u64,
    },
    /// A request again.
    #[error("request {number} after request {last}: expected a higher number")]
    RequestRepeated {
        /// Its number.
        number: u64,
        /// The last one's.
        last: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Last {
    seq: u64,
    uptime_ms: u64,
    at: Timestamp,
}

/// What was believed last.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    last: Option<Last>,
    counters: Counters,
}

impl Gate {
    /// One that has believed nothing yet.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Whether a message may count; how many before it are missing.
    ///
    /// # Errors
    /// Why not.
    pub fn message(
        &mut self,
        seq: u64,
        uptime_ms: u64,
        now: Timestamp,
    ) -> Result<u64, Implausible> {
        let this = Last { seq, uptime_ms, at: now };
        let Some(last) = self.last else {
            self.last = Some(this);
            return Ok(0);
        };
        if seq <= last.seq {
            return Err(Implausible::Repeated { seq, last: last.seq });
        }
        let Some(by_ms) = uptime_ms.checked_sub(last.uptime_ms) else {
            return Err(Implausible::ClockBackwards { uptime_ms, last_ms: last.uptime_ms });
        };
        let elapsed = now.saturating_since(last.at);
        if Duration::from_millis(by_ms) > elapsed.saturating_mul(2).saturating_add(CLOCK_SLACK) {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            return Err(Implausible::ClockJumped { by_ms, elapsed_ms });
        }
        self.last = Some(this);
        Ok(seq - last.seq - 1)
    }

    /// Whether statistics may count.
    ///
    /// # Errors
    /// The first figure that may not be.
    pub fn statistics(&mut self, said: &Statistics, known: Known) -> Result<(), Implausible> {
        sizes(&said.memory, known)?;
        if let (Some(high), Some(total)) = (said.watermarks.high_bytes, said.memory.total_bytes) {
            at_most("high watermark", high, "total", total)?;
        }
        let both = said.counters.figures().zip(self.counters.figures());
        for ((counter, value), (_, last)) in both {
            if let (Some(value), Some(last)) = (value, last)
                && value < last
            {
                return Err(Implausible::CounterBackwards { counter, value, last });
            }
        }
        self.counters = said.counters;
        Ok(())
    }
}

/// Whether these sizes can be of one guest at one moment. The kernel does not read its own figures at one
/// moment either, so only what bounds each alone is asked for.
fn sizes(memory: &Memory, known: Known) -> Result<(), Implausible> {
    if let (Some(total), Some(most)) = (memory.total_bytes, known.memory_max) {
        at_most("total", total, "the host's", most.get())?;
    }
    let most = memory.total_bytes.or(known.memory_max.map(Bytes::get));
    let Some(most) = most else { return swap(memory) };
    for (figure, value) in [
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
    ] {
        if let Some(value) = value {
            at_most(figure, value, "total", most)?;
        }
    }
    swap(memory)
}

fn swap(memory: &Memory) -> Result<(), Implausible> {
    match (memory.swap_free_bytes, memory.swap_total_bytes) {
        (Some(free), Some(total)) => at_most("swap_free", free, "swap_total", total),
        _ => Ok(()),
    }
}

fn at_most(
    figure: &'static str,
    value: u64,
    limit_name: &'static str,
    limit: u64,
) -> Result<(), Implausible> {
    if value <= limit {
        return Ok(());
    }
    let (value, limit) = (Bytes::new(value), Bytes::new(limit));
    Err(Implausible::TooLarge { figure, value, limit_name, limit })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn messages_by_hand() {
        let mut gate = Gate::new();
        assert_eq!(gate.message(5, 1_000, at(0)), Ok(0));
        assert_eq!(gate.message(6, 2_000, at(1_000)), Ok(0));
        // Two are missing.
        assert_eq!(gate.message(9, 5_000, at(4_000)), Ok(2));
        assert_eq!(
            gate.message(9, 5_000, at(4_000)),
            Err(Implausible::Repeated { seq: 9, last: 9 })
        );
        assert_eq!(
            gate.message(10, 4_999, at(5_000)),
            Err(Implausible::ClockBackwards { uptime_ms: 4_999, last_ms: 5_000 })
        );
        // 2 × 1 s and 60 s more.
        assert_eq!(gate.message(10, 67_000, at(5_000)), Ok(0));
        assert_eq!(
            gate.message(11, 67_000 + 62_001, at(6_000)),
            Err(Implausible::ClockJumped { by_ms: 62_001, elapsed_ms: 1_000 })
        );
        // What was not believed is not what the next is held against.
        assert_eq!(gate.message(11, 68_000, at(6_000)), Ok(0));
    }

    fn statistics(total: u64, free: u64, swapped_in: u64) -> Statistics {
        let mut it = Statistics::default();
        it.memory.total_bytes = Some(total);
        it.memory.free_bytes = Some(free);
        it.counters.swap_in_pages = Some(swapped_in);
        it
    }

    #[test]
    fn statistics_by_hand() {
        let mut gate = Gate::new();
        let known = Known { memory_max: Some(Bytes::new(1_000)) };
        assert_eq!(gate.statistics(&statistics(900, 900, 7), known), Ok(()));
        for (said, counter_or_figure) in [
            (statistics(1_001, 0, 7), "total"),
            (statistics(900, 901, 7), "free"),
            (statistics(900, 0, 6), "swap_in_pages"),
        ] {
            let error = gate.statistics(&said, known).unwrap_err().to_string();
            assert!(error.contains(counter_or_figure), "{error}");
        }
        // A figure that is missing is neither wrong nor forgotten with the others.
        assert_eq!(gate.statistics(&Statistics::default(), known), Ok(()));
        let mut swap = Statistics::default();
        swap.memory.swap_free_bytes = Some(2);
        swap.memory.swap_total_bytes = Some(1);
        assert!(gate.statistics(&swap, Known::default()).is_err());
        let mut alone = Statistics::default();
        alone.memory.active_bytes = Some(1_001);
        assert!(gate.statistics(&alone, known).is_err());
        assert_eq!(gate.statistics(&alone, Known::default()), Ok(()));
    }

    proptest! {
        /// Whatever comes, what is believed has growing numbers, a clock that does not run back, and
        /// counters that do not either.
        #[test]
        fn what_is_believed_goes_forward(
            said in prop::collection::vec((0..20u64, 0..5_000u64, 0..3_000u64, prop::option::of(0..9u64)), 1..60)
        ) {
            let mut gate = Gate::new();
            let (mut now, mut seqs, mut clocks, mut counts) = (0, vec![], vec![], vec![]);
            for (seq, uptime_ms, step, swapped) in said {
                now += step;
                if gate.message(seq, uptime_ms, at(now)).is_err() {
                    continue;
                }
                seqs.push(seq);
                clocks.push(uptime_ms);
                let mut it = statistics(9, 9, 0);
                it.counters.swap_in_pages = swapped;
                if gate.statistics(&it, Known::default()).is_ok() {
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
