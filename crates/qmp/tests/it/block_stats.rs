//! Block statistics of a machine: when they are queried, and what the sample has of them. Process 1
//! is asked at its moment in each five seconds, 0.769 s, and process 2 at 4.242 s.

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

    /// Begins a poll, and receives the replies up to the first that `is_late`. Returns the others.
    fn polls_until(&mut self, ms: u64, is_late: impl Fn(&str) -> bool) -> String {
        let now = Timestamp::from_millis(ms);
        assert!(self.guest.begin_sample(now));
        let commands = self.guest.outgoing().to_vec();
        self.guest.mark_written(commands.len());
        let answer = self.machine.receive(&commands, Duration::from_millis(ms), 1);
        let replies = String::from_utf8(answer.bytes).unwrap();
        let mut received = 0;
        for reply in replies.split_inclusive("\r\n").take_while(|&reply| !is_late(reply)) {
            self.guest.receive(reply.as_bytes(), now, 1).unwrap();
            received += reply.len();
        }
        replies[received..].to_owned()
    }

    /// The connection ends for lack of replies to what was sent until `ms`.
    fn times_out(&mut self, ms: u64) {
        assert!(self.guest.handle_timeout(Timestamp::from_millis(ms + 2000)).is_ok());
        let why = self.guest.handle_timeout(Timestamp::from_millis(ms + 40_000)).unwrap_err();
        assert_eq!(why, LinkDown::TimedOut);
        self.guest.disconnected(why);
    }
}

fn is_of_blocks(reply: &str) -> bool {
    reply.contains("rd_bytes")
}

fn reads(bytes: u64, requests: u64) -> DiskReads {
    DiskReads { read: Bytes::new(bytes), requests, ..DiskReads::default() }
}

fn aged(value: DiskReads, age_ms: u64) -> Option<Measured<DiskReads>> {
    Some(Measured { value, age: Duration::from_millis(age_ms) })
}

#[test]
fn a_process_is_asked_at_its_moment_each_five_seconds() {
    let mut pair = Pair::new();
    let times = [500, 1000, 2000, 5768, 5769, 10_768, 12_500, 15_999, 16_000];
    let queried = times.map(|ms| pair.polls(ms));
    assert_eq!(queried, [false, true, false, false, true, false, true, false, true]);
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
    assert!(pair.polls(25_769));
}

#[test]
fn another_process_has_read_nothing_yet() {
    let mut pair = Pair::new();
    pair.polls(1000);
    pair.disconnect();
    assert_eq!(pair.sample(2000).disk_reads, aged(reads(4096, 1), 1000));
    pair.connect(2, 2000);
    assert_eq!(pair.sample(2000).disk_reads, None);
    assert!(pair.polls(4242));
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
    assert!(!pair.polls(6000));
    pair.disconnect();
    pair.connect(2, 7000);
    assert!(pair.polls(9242), "this one may be different");
}

#[test]
fn no_sample_waits_for_block_statistics() {
    let mut pair = Pair::new();
    pair.polls_until(1000, is_of_blocks);
    assert!(!pair.guest.is_sampling());
    assert_eq!(pair.sample(1000).link, LinkState::Up);
}

#[test]
fn a_late_reply_says_how_long_it_took() {
    let mut pair = Pair::new();
    let late = pair.polls_until(1000, is_of_blocks);
    pair.guest.receive(late.as_bytes(), Timestamp::from_millis(2500), 1).unwrap();
    let value = DiskReads { took: Duration::from_millis(1500), ..reads(4096, 1) };
    assert_eq!(pair.sample(3000).disk_reads, aged(value, 2000));
}

#[test]
fn a_process_that_hangs_for_them_is_asked_once() {
    let mut pair = Pair::new();
    pair.polls_until(1000, is_of_blocks);
    pair.times_out(1000);
    pair.connect(1, 42_000);
    assert!(!pair.polls(46_000));
}

#[test]
fn a_process_that_hangs_otherwise_is_asked_again() {
    let mut pair = Pair::new();
    pair.polls_until(1000, |_| true);
    pair.times_out(1000);
    pair.connect(1, 42_000);
    assert!(pair.polls(46_000));
}
