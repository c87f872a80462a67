//! Block statistics of a machine: when they are queried, and what the sample has of them.

use std::time::Duration;

use ballast_model::{Bytes, DiskReads, GuestSample, LinkDown, LinkState, Measured, Timestamp};
use ballast_qmp::guest::GuestMonitor;
use ballast_qmp_testing::{Machine, Misbehaviour, PeerConfig};

/// A guest's monitor and its machine. Times are in milliseconds.
struct Pair {
    guest: GuestMonitor,
    machine: Machine,
}

impl Pair {
    /// The monitor has probed process 1, whose disk was read.
    fn new() -> Pair {
        let config = PeerConfig { disk_reads: Some(reads(4096, 1)), ..PeerConfig::default() };
        let machine = Machine::new(config, Duration::ZERO);
        let mut pair = Pair { guest: GuestMonitor::new(Duration::from_secs(2)), machine };
        pair.connect(1, 0);
        pair
    }

    /// The monitor connects to process `pid` and probes it.
    fn connect(&mut self, pid: u32, ms: u64) {
        let now = Timestamp::from_millis(ms);
        self.guest.connected(now, Some(pid));
        let greeting = self.machine.connect().expect("a greeting");
        self.guest.receive(greeting.as_bytes(), now, 1).unwrap();
        let sent = self.exchange(ms).unwrap();
        assert!(!sent.contains("query-blockstats"), "a probe does not need it: {sent}");
    }

    fn disconnect(&mut self) {
        self.guest.disconnected(LinkDown::Closed("end of stream".to_owned()));
    }

    /// Moves bytes until both sides are silent; returns the commands.
    fn exchange(&mut self, ms: u64) -> Result<String, LinkDown> {
        let mut sent = String::new();
        while !self.guest.outgoing().is_empty() {
            let commands = self.guest.outgoing().to_vec();
            self.guest.mark_written(commands.len());
            sent.push_str(std::str::from_utf8(&commands).expect("text"));
            let answer = self.machine.receive(&commands, Duration::from_millis(ms), 1);
            self.guest.receive(&answer.bytes, Timestamp::from_millis(ms), 1)?;
        }
        Ok(sent)
    }

    /// Polls the guest; returns whether block statistics were queried.
    fn polls(&mut self, ms: u64) -> bool {
        assert!(self.guest.begin_sample(Timestamp::from_millis(ms)));
        let sent = self.exchange(ms).unwrap();
        assert!(!self.guest.is_sampling(), "all is answered");
        sent.contains("query-blockstats")
    }

    fn sample(&self, ms: u64) -> GuestSample {
        self.guest.sample("a".parse().unwrap(), Timestamp::from_millis(ms))
    }
}

fn reads(bytes: u64, requests: u64) -> DiskReads {
    DiskReads { read: Bytes::new(bytes), requests }
}

fn aged(value: DiskReads, age_ms: u64) -> Option<Measured<DiskReads>> {
    Some(Measured { value, age: Duration::from_millis(age_ms) })
}

#[test]
fn the_first_poll_queries_them_then_one_each_five_seconds() {
    let mut pair = Pair::new();
    let times = [1000, 2000, 5999, 6000, 10_999, 12_500, 13_000, 17_499, 17_500];
    let queried = times.map(|ms| pair.polls(ms));
    assert_eq!(queried, [true, false, false, true, false, true, false, false, true]);
}

#[test]
fn a_sample_has_what_was_read_and_its_age() {
    let mut pair = Pair::new();
    assert_eq!(pair.sample(500).disk_reads, None);
    pair.polls(1000);
    pair.machine.set_disk_reads(Some(reads(1 << 20, 200)));
    pair.polls(3000);
    assert_eq!(pair.sample(3500).disk_reads, aged(reads(4096, 1), 2500));
    pair.polls(6000);
    assert_eq!(pair.sample(6000).disk_reads, aged(reads(1 << 20, 200), 0));
}

#[test]
fn after_an_error_they_are_not_queried_on_this_connection() {
    let mut pair = Pair::new();
    pair.polls(1000);
    pair.machine.set_disk_reads(None);
    assert!(pair.polls(6000));
    assert!(!pair.polls(20_000));
    let sample = pair.sample(20_000);
    assert_eq!(sample.link, LinkState::Up);
    assert_eq!(sample.disk_reads, aged(reads(4096, 1), 19_000), "it is kept");
    pair.disconnect();
    pair.connect(1, 21_000);
    assert!(pair.polls(21_000));
}

#[test]
fn another_process_has_read_nothing_yet() {
    let mut pair = Pair::new();
    pair.polls(1000);
    pair.disconnect();
    assert_eq!(pair.sample(2000).disk_reads, aged(reads(4096, 1), 1000));
    pair.connect(2, 2000);
    assert_eq!(pair.sample(2000).disk_reads, None);
    assert!(pair.polls(2000));
}

/// Its reply may be longer or deeper than any message may be.
#[test]
fn a_process_whose_reply_breaks_the_connection_is_asked_once() {
    let mut pair = Pair::new();
    pair.machine.misbehave(Misbehaviour::Deep);
    assert!(pair.guest.begin_sample(Timestamp::from_millis(1000)));
    let why = pair.exchange(1000).unwrap_err();
    assert!(matches!(why, LinkDown::Protocol(_)), "{why}");
    pair.guest.disconnected(why);
    pair.machine.misbehave(Misbehaviour::None);
    pair.connect(1, 2000);
    assert!(!pair.polls(2000));
    pair.disconnect();
    pair.connect(2, 3000);
    assert!(pair.polls(3000), "this one may be different");
}
