//! Replays conversations with real hypervisors: `transcripts/`, recorded with `examples/record.rs`
//! from QEMU 7.2.22 of Debian 12. The bytes sent must be the same. Only the queries of block
//! statistics and their replies were added by hand: these guests have no disks.
//!
//! Lines: `> ` bytes sent, `< MS WALL ` bytes received (escaped), `! MS STEP` a step of the
//! recorder.

use std::time::Duration;

use ballast_model::{
    Action, Bytes, Generation, GuestSample, HotplugKind, LinkState, OutcomeKind, RunState,
    Timestamp,
};
use ballast_qmp::codec::QemuVersion;
use ballast_qmp::guest::GuestMonitor;

/// A replayed transcript: the monitor after it, and the outcomes of its orders.
struct Replay {
    guest: GuestMonitor,
    at: Timestamp,
    outcomes: Vec<OutcomeKind>,
}

impl Replay {
    fn sample(&self) -> GuestSample {
        self.guest.sample("recorded".parse().unwrap(), self.at)
    }
}

/// Replays a transcript; received bytes are fed in pieces of at most `piece_bytes`.
fn replay(transcript: &str, piece_bytes: usize) -> Replay {
    let mut guest = GuestMonitor::new(Duration::from_secs(10));
    let mut at = Timestamp::ZERO;
    guest.connected(at, None);
    let mut outcomes = Vec::new();
    for (number, line) in transcript.lines().enumerate() {
        let line_number = number + 1;
        let (kind, rest) = line.split_once(' ').expect("a line of a transcript");
        let mut words = rest.splitn(if kind == "<" { 3 } else { 2 }, ' ');
        let mut time = || words.next().unwrap().parse::<u64>().expect("a time");
        match kind {
            ">" => {
                let sent = format!("{rest}\n");
                assert!(
                    guest.outgoing().starts_with(sent.as_bytes()),
                    "line {line_number}: expected {sent}, got {}",
                    String::from_utf8_lossy(guest.outgoing())
                );
                guest.mark_written(sent.len());
            }
            "<" => {
                assert!(guest.outgoing().is_empty(), "line {line_number}: more was sent");
                at = Timestamp::from_millis(time());
                let wall_secs = time();
                let came = unescape(words.next().unwrap());
                for piece in came.as_bytes().chunks(piece_bytes) {
                    guest.receive(piece, at, wall_secs).unwrap();
                }
            }
            "!" => {
                at = Timestamp::from_millis(time());
                step(&mut guest, words.next().unwrap(), at);
            }
            other => panic!("line {line_number}: {other}"),
        }
        outcomes.extend(std::iter::from_fn(|| guest.pop_finished()).map(|(_, outcome)| outcome));
    }
    Replay { guest, at, outcomes }
}

fn step(guest: &mut GuestMonitor, step: &str, at: Timestamp) {
    match step.split_once('=') {
        None if step == "sample" => assert!(guest.begin_sample(at)),
        None if step == "powerdown" => assert!(guest.begin_powerdown(at).is_ok()),
        Some(("keep" | "plug", mib)) => {
            let (plug, target) = match mib.split_once(',') {
                Some((plug, target)) => (Some(plug.parse().unwrap()), target),
                None => (None, mib),
            };
            let action = Action {
                guest: "recorded".parse().unwrap(),
                target: Bytes::mib(target.parse().unwrap()),
                plug: plug.map(Bytes::mib),
                generation: Generation(1),
                deadline: at,
            };
            assert!(guest.begin_action(&action, at).is_ok());
        }
        Some(("wait", _)) => {}
        _ => panic!("{step}"),
    }
}

/// Reverses `escape_debug`, for the characters that occur in QMP.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next().expect("an escaped character") {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                same => same,
            },
            same => same,
        });
    }
    plain
}

/// Replays with several sizes of pieces; the last readings are the same.
fn replay_in_pieces(transcript: &str) -> Replay {
    let whole = replay(transcript, usize::MAX);
    for piece_bytes in [1, 7, 64, 1000] {
        let pieces = replay(transcript, piece_bytes);
        assert_eq!(pieces.sample(), whole.sample(), "pieces of {piece_bytes}");
        assert_eq!(pieces.outcomes, whole.outcomes, "pieces of {piece_bytes}");
    }
    whole
}

#[test]
fn a_running_linux_guest_reports_statistics_and_follows_its_target() {
    let replayed = replay_in_pieces(include_str!("../transcripts/linux-guest.txt"));
    let sample = replayed.sample();
    assert_eq!(replayed.guest.version(), Some(QemuVersion { major: 7, minor: 2, micro: 22 }));
    assert_eq!(sample.link, LinkState::Up);
    assert_eq!(sample.run_state, Some(RunState::Running));
    assert_eq!(sample.boot_memory, Some(Bytes::mib(512)));
    assert_eq!(sample.allocation.map(|read| read.value), Some(Bytes::mib(384)));
    let stats = sample.stats.expect("statistics");
    assert!(stats.age <= Duration::from_secs(2), "{:?}", stats.age);
    let (total, available) = (stats.value.total.unwrap(), stats.value.available.unwrap());
    // Linux does not change MemTotal if the balloon deflates on OOM.
    assert!(available < Bytes::mib(384) && total > Bytes::mib(384), "{:?}", stats.value);
    assert!(stats.value.major_faults.is_some() && stats.value.swap_out == Some(Bytes::ZERO));
    assert_eq!(replayed.outcomes, [OutcomeKind::Accepted, OutcomeKind::Accepted]);
    assert_eq!(sample.capabilities.deflate_on_oom, Some(true));
}

#[test]
fn a_guest_that_never_ran_has_no_statistics() {
    let replayed = replay_in_pieces(include_str!("../transcripts/never-ran.txt"));
    let sample = replayed.sample();
    assert_eq!(sample.stats, None);
    assert_eq!(sample.allocation.map(|read| read.value), Some(Bytes::mib(256)));
    assert_eq!(sample.capabilities.statistics, Some(true));
    assert_eq!(sample.capabilities.free_page_reporting, Some(true));
}

#[test]
fn a_guest_without_a_balloon_refuses_the_balloon_command() {
    let replayed = replay_in_pieces(include_str!("../transcripts/no-balloon.txt"));
    let sample = replayed.sample();
    assert_eq!(sample.capabilities.balloon, Some(false));
    assert_eq!(sample.capabilities.memory_devices, Some(false));
    let [OutcomeKind::Failed(how)] = &replayed.outcomes[..] else { panic!() };
    assert_eq!(how, "balloon: DeviceNotActive: No balloon device has been activated");
}

#[test]
fn pretty_printed_messages_and_memory_devices_are_parsed() {
    let replayed = replay_in_pieces(include_str!("../transcripts/pretty-virtio-mem.txt"));
    let sample = replayed.sample();
    assert_eq!(sample.capabilities.memory_devices, Some(true));
    assert_eq!(sample.hotplug.map(|it| it.max), Some(Bytes::mib(512)));
    assert_eq!(sample.capabilities.balloon, Some(true));
    assert_eq!(sample.link, LinkState::Up);
}

/// The part of the allocation that is not in the guest kernel's `MemTotal`.
fn kernel_overhead(sample: &GuestSample) -> Bytes {
    let total = sample.stats.and_then(|stats| stats.value.total).expect("statistics");
    sample.allocation.expect("an allocation").value - total
}

/// The kernel's overhead is the same with 256 MiB plugged and 128 MiB in the balloon as with
/// neither, which shows that the allocation is computed correctly.
#[test]
fn virtio_mem_memory_is_plugged_and_unplugged() {
    let text = include_str!("../transcripts/virtio-mem-guest.txt");
    let at_700 = text.find("wait=2000").expect("a step");
    let grown = replay(&text[..text[..at_700].rfind("! ").unwrap()], usize::MAX).sample();
    let hotplug = grown.hotplug.expect("a device");
    assert_eq!(hotplug.kind, HotplugKind::VirtioMem);
    assert_eq!((hotplug.plugged, hotplug.requested), (Bytes::mib(256), Bytes::mib(256)));
    assert_eq!((hotplug.max, hotplug.block), (Bytes::gib(1), Bytes::mib(2)));
    assert_eq!(grown.allocation.map(|read| read.value), Some(Bytes::mib(640)));
    let replayed = replay_in_pieces(text);
    let shrunk = replayed.sample();
    assert_eq!(shrunk.hotplug.map(|it| (it.plugged, it.requested)), Some(Default::default()));
    assert_eq!(shrunk.allocation.map(|read| read.value), Some(Bytes::mib(500)));
    assert_eq!(kernel_overhead(&grown), kernel_overhead(&shrunk));
    assert_eq!(replayed.outcomes, [const { OutcomeKind::Accepted }; 3]);
}

#[test]
fn modules_are_plugged_and_one_is_unplugged() {
    let text = include_str!("../transcripts/dimm-guest.txt");
    let at_500 = text.find("plug=128").expect("a step");
    let grown = replay(&text[..text[..at_500].rfind("! ").unwrap()], usize::MAX).sample();
    let hotplug = grown.hotplug.expect("slots");
    assert_eq!((hotplug.kind, hotplug.block), (HotplugKind::Dimm, Bytes::mib(128)));
    assert_eq!((hotplug.plugged, hotplug.max), (Bytes::mib(256), Bytes::mib(512)));
    assert_eq!(grown.allocation.map(|read| read.value), Some(Bytes::mib(640)));
    let replayed = replay_in_pieces(text);
    let shrunk = replayed.sample();
    assert_eq!(shrunk.hotplug.map(|it| it.plugged), Some(Bytes::mib(128)));
    assert_eq!(shrunk.hotplug.map(|it| it.requested), Some(Bytes::mib(128)));
    assert_eq!(shrunk.allocation.map(|read| read.value), Some(Bytes::mib(500)));
    assert_eq!(kernel_overhead(&grown), kernel_overhead(&shrunk));
    assert_eq!(replayed.outcomes, [const { OutcomeKind::Accepted }; 2]);
}
