//! Any bytes, in any pieces: no panic, bounded memory, the same messages.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, LinkDown, OutcomeKind, Timestamp};
use ballast_qmp::codec::{
    CodecError, DEPTH_MAX, Decoder, MESSAGE_BYTES_MAX, QmpMessage, TEXT_CHARS_MAX, fuzz_decode,
};
use ballast_qmp::command::QmpCommand;
use ballast_qmp::guest::GuestMonitor;
use ballast_qmp::session::{
    EVENTS_MAX, IN_FLIGHT_MAX, OUTGOING_BYTES_MAX, QmpSession, SendError, SessionError,
    SessionInput, SessionPhase,
};
use proptest::prelude::*;

const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7},
    "package": ""}, "capabilities": ["oob"]}}"#;

/// The decoder's output for `bytes` fed in pieces, up to and including the first error.
fn decode(bytes: &[u8], pieces: &[usize]) -> Vec<String> {
    let (mut decoder, mut output, mut rest) = (Decoder::new(), Vec::new(), bytes);
    let mut pieces = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
    while !rest.is_empty() {
        let piece = pieces.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        rest = &rest[decoder.feed(&rest[..piece])..];
        assert!(decoder.buffered_bytes() <= MESSAGE_BYTES_MAX + 1);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => output.push(format!("{message:?}")),
                Ok(None) => break,
                // The excerpt depends on the pieces; the kind of error does not.
                Err(error) => {
                    output.push(format!("{:?}", std::mem::discriminant(&error)));
                    return output;
                }
            }
        }
    }
    output
}

fn first_error(bytes: &[u8]) -> CodecError {
    let mut decoder = Decoder::new();
    let mut rest = bytes;
    loop {
        rest = &rest[decoder.feed(rest)..];
        match decoder.next_message() {
            Err(error) => return error,
            Ok(None) if rest.is_empty() => panic!("no error"),
            Ok(_) => {}
        }
    }
}

#[test]
fn every_kind_of_garbage_has_its_error() {
    let deep = "{\"a\":".repeat(DEPTH_MAX + 1);
    let long = format!("{{\"return\": \"{}", "x".repeat(MESSAGE_BYTES_MAX));
    let table: &[(&[u8], &str)] = &[
        (b"HTTP/1.1 400", "got `HTTP/1.1 400` at byte 0 of the stream, expected `{` to begin"),
        (b" \r\n[1]", "got `[1]` at byte 3"),
        (b"\0\xff", "got `\\0\u{fffd}` at byte 0"),
        (b"{\"return\": \xff}", "not UTF-8 at byte 11"),
        (b"{\"return\": }", "expected a message: expected value at line 1 column 12"),
        (b"{]", "expected a message"),
        (b"{}", "got `{}`, expected an object with `QMP`, `return`, `error` or `event`"),
        (b"{\"error\": 5}", "expected a message: invalid type"),
        (deep.as_bytes(), "nested more than 64 levels"),
        (long.as_bytes(), "more than 1048576 bytes"),
    ];
    for (bytes, expected) in table {
        let message = first_error(bytes).to_string();
        assert!(message.contains(expected), "{message:?} does not say {expected:?}");
        assert!(message.len() < 500, "{} bytes", message.len());
    }
}

#[test]
fn messages_are_split_at_balanced_brackets() {
    let mut decoder = Decoder::new();
    decoder.feed(GREETING.as_bytes());
    let greeting = decoder.next_message();
    assert!(matches!(greeting, Ok(Some(QmpMessage::Greeting(version))) if version.major == 7));
    decoder.feed(br#"{"return": {"a": "}{\"["}, "id": 3} {"return": 1, "id": "x"}"#);
    let expected = QmpMessage::Return { id: Some(3), json: r#"{"a": "}{\"["}"# };
    assert_eq!(decoder.next_message(), Ok(Some(expected)));
    assert_eq!(decoder.next_message(), Ok(Some(QmpMessage::Return { id: None, json: "1" })));
    assert_eq!(decoder.next_message(), Ok(None));
}

/// A session that is ready and has sent this many commands.
fn ready(commands: usize) -> QmpSession {
    let mut session = QmpSession::new(Timestamp::ZERO, Duration::from_secs(1));
    session.receive(GREETING.as_bytes());
    assert_eq!(session.poll(Timestamp::ZERO), Ok(Some(SessionInput::Negotiating)));
    session.receive(br#"{"return": {}, "id": 0}"#);
    assert_eq!(session.poll(Timestamp::ZERO), Ok(Some(SessionInput::Ready)));
    session.mark_written(usize::MAX);
    for n in 0..commands {
        session.send(&QmpCommand::QueryStatus, Timestamp::from_millis(n as u64)).unwrap();
    }
    session
}

#[test]
fn replies_find_their_commands_in_any_order() {
    let mut session = ready(2);
    let sent = std::str::from_utf8(session.outgoing()).unwrap();
    assert_eq!(sent.lines().count(), 2, "both leave in one write");
    session.receive(br#"{"return": 2, "id": 2}{"return": 1, "id": 1}{"return": 1, "id": 1}"#);
    let mut replies = Vec::new();
    while let Some(input) = session.poll(Timestamp::ZERO).unwrap() {
        match input {
            SessionInput::Reply { result, .. } => replies.push(result.unwrap().to_owned()),
            other => assert_eq!(other, SessionInput::Duplicate),
        }
    }
    assert_eq!(replies, ["2", "1"]);
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn an_unexpected_message_ends_the_session() {
    let early = |bytes: &str| {
        let mut session = QmpSession::new(Timestamp::ZERO, Duration::from_secs(1));
        session.receive(bytes.as_bytes());
        session.poll(Timestamp::ZERO).unwrap_err().to_string()
    };
    assert!(early(r#"{"return": 1}"#).contains("expected the greeting first"));
    let late = |bytes: &str| {
        let mut session = ready(1);
        session.receive(bytes.as_bytes());
        session.poll(Timestamp::ZERO).unwrap_err()
    };
    assert_eq!(late(r#"{"return": 1, "id": 7}"#), SessionError::UnknownId { got: 7, sent: 2 });
    assert!(matches!(late(GREETING), SessionError::Unexpected { .. }));
    assert!(matches!(late(r#"{"return": 1, "id": "1"}"#), SessionError::Unexpected { .. }));
    let error = r#"{"error": {"class": "GenericError", "desc": "JSON parse error"}}"#;
    assert!(matches!(late(error), SessionError::NoId(_)));
}

#[test]
fn commands_and_events_are_bounded_and_expire_once() {
    let mut session = ready(IN_FLIGHT_MAX);
    assert_eq!(session.send(&QmpCommand::QueryStatus, Timestamp::ZERO), Err(SendError::Full));
    assert_eq!(session.next_deadline(), Some(Timestamp::ZERO));
    let expired = std::iter::from_fn(|| session.expire(Timestamp::from_millis(1))).count();
    assert_eq!(expired, 2, "those of 0 ms and 1 ms");
    assert!(session.is_overdue());
    for _ in 0..EVENTS_MAX + 5 {
        session.receive(br#"{"event": "BALLOON_CHANGE", "data": {"actual": 1}}"#);
        assert_eq!(session.poll(Timestamp::ZERO), Ok(Some(SessionInput::Event)));
    }
    assert_eq!(session.events_dropped(), 5);
    assert_eq!(std::iter::from_fn(|| session.pop_event()).count(), EVENTS_MAX);
    assert_eq!(session.phase(), SessionPhase::Ready);
}

/// A hypervisor that answers commands without reading them: the ids are easy to guess.
#[test]
fn commands_that_are_never_read_do_not_pile_up() {
    let mut session = ready(0);
    for id in 1.. {
        if session.send(&QmpCommand::QueryMemorySizeSummary, Timestamp::ZERO).is_err() {
            break;
        }
        session.receive(format!(r#"{{"return": 1, "id": {id}}}"#).as_bytes());
        assert!(matches!(session.poll(Timestamp::ZERO), Ok(Some(SessionInput::Reply { .. }))));
        assert!(session.outgoing().len() < OUTGOING_BYTES_MAX + 100);
    }
    let (in_flight, waiting) = (session.in_flight(), session.outgoing().len());
    assert!(in_flight == 0 && waiting >= OUTGOING_BYTES_MAX, "{in_flight}, {waiting}");
    session.mark_written(100);
    assert_eq!(session.outgoing().len(), waiting - 100);
    session.mark_written(usize::MAX);
    assert!(session.send(&QmpCommand::QueryStatus, Timestamp::ZERO).is_ok());
}

/// A monitor that has sent its probe: ids 1 to 8.
fn probing() -> GuestMonitor {
    let mut guest = GuestMonitor::new(Duration::from_secs(1));
    guest.connected(Timestamp::ZERO, Some(1));
    let opening = format!(r#"{GREETING}{{"return": {{}}, "id": 0}}"#);
    guest.receive(opening.as_bytes(), Timestamp::ZERO, 1).unwrap();
    guest
}

#[test]
fn texts_of_the_server_are_short_and_printable() {
    let control = "x\\n\\u001b[2J".repeat(1000);
    let error = format!(r#"{{"error": {{"class": "{control}", "desc": "{control}"}}"#);
    let is_harmless = |text: &str| !text.chars().any(char::is_control) && text.len() < 1000;

    let mut guest = probing();
    let Err(LinkDown::Protocol(why)) =
        guest.receive(format!("{error}}}").as_bytes(), Timestamp::ZERO, 1)
    else {
        panic!("an error without an id")
    };
    assert!(is_harmless(&why) && why.contains(r"x\n\u{1b}[2Jx"), "{why}");

    let mut guest = probing();
    for id in 1..=8 {
        let reply = format!(r#"{error}, "id": {id}}}"#);
        guest.receive(reply.as_bytes(), Timestamp::ZERO, 1).unwrap();
    }
    guest.begin_powerdown(Timestamp::ZERO).unwrap();
    let reply = format!(r#"{error}, "id": 9}}"#);
    guest.receive(reply.as_bytes(), Timestamp::ZERO, 1).unwrap();
    let Some((_, OutcomeKind::Failed(how))) = guest.pop_finished() else { panic!("it failed") };
    assert!(is_harmless(&how), "{how}");
    assert_eq!(how.chars().count(), TEXT_CHARS_MAX);
}

#[test]
fn an_allocation_is_within_the_memory_that_is_there() {
    assert_eq!(allocation_of("18446744073709551615"), Some(Bytes::mib(512)));
    assert_eq!(allocation_of("-4096"), Some(Bytes::ZERO), "a balloon larger than the memory");
}

/// What a guest with 512 MiB holds whose balloon device says `actual`.
fn allocation_of(actual: &str) -> Option<Bytes> {
    let mut guest = probing();
    let balloon = format!(r#""return": {{"actual": {actual}}}, "id": 2"#);
    let replies = [
        r#""return": {"status": "running"}, "id": 1"#,
        &balloon,
        r#""return": {"base-memory": 536870913}, "id": 3"#,
        r#""return": [], "id": 4"#,
        r#""return": {"size": 536870912, "max-size": 536870912}, "id": 5"#,
        r#""return": [], "id": 6"#,
        r#""return": [], "id": 7"#,
        r#""return": [], "id": 8"#,
    ];
    for reply in replies {
        guest.receive(format!("{{{reply}}}").as_bytes(), Timestamp::ZERO, 1).unwrap();
    }
    let sample = guest.sample("a".parse::<GuestId>().unwrap(), Timestamp::ZERO);
    sample.allocation.map(|it| it.value)
}

/// Mostly valid QMP.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => proptest::sample::select(vec![
            GREETING,
            r#"{"return": {"actual": 268435456}, "id": 1}"#,
            "\r\n",
            r#"{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}"#,
            r#"{"error": {"class": "DeviceNotActive", "desc": "no \"balloon\" \\ {"}, "id": 2}"#,
            r#"{"return": [{"name": "t\u00fc", "type": "string"}], "id": 3}"#,
            r#"{"return": {}, "id": 0}"#,
            r#"{"return": {"base-memory": 18446744073709551615}, "id": 3}"#,
            r#"{"return": [{"type": "virtio-mem", "data": {"block-size": 0, "id": "a",
                "size": 18446744073709551615, "max-size": 4096, "requested-size": 1}},
                {"type": "dimm", "data": {"id": "ballast-dimm-3", "size": 9}}], "id": 4}"#,
            r#"{"return": {"size": 9, "max-size": 18446744073709551615, "slots": 5}, "id": 5}"#,
            r#"{"event": "DEVICE_DELETED", "data": {"device": "ballast-dimm-3", "path": "/"}}"#,
            r#"{"event": "ACPI_DEVICE_OST", "data": {"info": {"device": "ballast-dimm-3",
                "source": 3, "status": 1}}}"#,
            "{ \n \"return\": \n\t{} }",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
        1 => "[{}\\[\\]\":,a0 ]{0,12}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_messages(
        bytes in stream(),
        pieces in proptest::collection::vec(1usize..40, 0..60),
    ) {
        prop_assert_eq!(decode(&bytes, &pieces), decode(&bytes, &[]));
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_decode(&bytes);
    }

    #[test]
    fn a_monitor_survives_any_stream(bytes in stream(), cut in 0usize..200) {
        let mut guest = GuestMonitor::new(Duration::from_secs(1));
        guest.connected(Timestamp::ZERO, Some(1));
        guest.begin_sample(Timestamp::ZERO);
        let (head, tail) = bytes.split_at(cut.min(bytes.len()));
        for (ms, part) in [(1, head), (2, tail)] {
            let now = Timestamp::from_millis(ms);
            if let Err(why) = guest.receive(part, now, 1) {
                prop_assert!(matches!(why, LinkDown::Protocol(_)), "{:?}", why);
                guest.disconnected(why);
            }
            prop_assert!(guest.outgoing().len() < 10_000);
        }
        prop_assert!(guest.handle_timeout(Timestamp::from_millis(5000)).is_ok());
    }
}
