//! Messages in pieces of any size; and impossible lengths and types.

use proptest::prelude::*;

use crate::message::HEADER_LEN;
use crate::testing::try_session;
use crate::{Message, MessageBuffer, MessageError, MessageKind, PATH_MAX, PAYLOAD_MAX, StorePath};

fn message() -> impl Strategy<Value = Message> {
    let kind = prop::sample::select(MessageKind::ALL.to_vec());
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    (kind, any::<u32>(), any::<u32>(), payload).prop_map(|(kind, request, transaction, payload)| {
        Message { kind, request, transaction, payload }
    })
}

/// The naive way to write a message.
fn written(message: &Message) -> Vec<u8> {
    let len = message.payload.len() as u32;
    let mut bytes = (message.kind as u32).to_ne_bytes().to_vec();
    bytes.extend(message.request.to_ne_bytes());
    bytes.extend(message.transaction.to_ne_bytes());
    bytes.extend(len.to_ne_bytes());
    bytes.extend(&message.payload);
    bytes
}

/// The fuzzer's seeds.
const SEEDS: [&[u8]; 2] = [
    include_bytes!("../../../../fuzz/seeds/xenstore_session/answers"),
    include_bytes!("../../../../fuzz/seeds/xenstore_session/event"),
];

proptest! {
    #[test]
    fn messages_come_whole_however_they_are_cut(
        sent in prop::collection::vec(message(), 0..6),
        cuts in prop::collection::vec(1..40_usize, 1..40),
    ) {
        let mut bytes = Vec::new();
        for message in &sent {
            let begin = bytes.len();
            message.write(&mut bytes).unwrap();
            prop_assert_eq!(&bytes[begin..], &written(message)[..]);
        }
        let (mut buffer, mut rest, mut found) = (MessageBuffer::default(), &bytes[..], Vec::new());
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            buffer.push(now);
            while let Some(message) = buffer.next_message().unwrap() {
                found.push(message);
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, sent);
    }

    /// As the fuzzer does, starting from its seeds.
    #[test]
    fn any_answers_end_a_session_or_are_taken(
        bytes: Vec<u8>,
        seed in 0..SEEDS.len(),
        at: prop::sample::Index,
    ) {
        let mut mixed = SEEDS[seed].to_vec();
        let at = at.index(mixed.len());
        mixed.splice(at..(at + bytes.len()).min(mixed.len()), bytes.iter().copied());
        for data in [&bytes[..], SEEDS[seed], &mixed] {
            try_session(data);
        }
    }

    #[test]
    fn rubbish_does_not_panic(bytes: Vec<u8>) {
        let mut buffer = MessageBuffer::default();
        buffer.push(&bytes);
        while let Ok(Some(_)) = buffer.next_message() {}
    }

    #[test]
    fn any_text_is_a_path_or_refused(text in "[a-z0-9/@_. -]{0,40}") {
        if let Ok(path) = text.parse::<StorePath>() {
            prop_assert_eq!(path.as_str(), &text);
            prop_assert!(text == "/" || !text.is_empty() && !text.ends_with('/'));
            prop_assert!(!text.contains("//"));
        }
    }
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let next = |kind: u32, len: u32| {
        let mut buffer = MessageBuffer::default();
        let numbers = [kind, 1, 0, len].map(u32::to_ne_bytes);
        buffer.push(numbers.as_flattened());
        buffer.next_message()
    };
    let most = PAYLOAD_MAX as u32;
    assert_eq!(next(2, most), Ok(None), "it may still come");
    assert_eq!(next(2, most + 1), Err(MessageError::Length(PAYLOAD_MAX + 1)));
    assert_eq!(next(2, u32::MAX), Err(MessageError::Length(u32::MAX as usize)));
    // Types that are never requested (permissions, other domains), and numbers that are no types.
    for kind in [0, 3, 8, 14, 19, 20, 23, 0x4854_5450] {
        assert_eq!(next(kind, 0), Err(MessageError::Kind(kind)));
    }
}

#[test]
fn nothing_too_long_is_written() {
    let of = |len| Message {
        kind: MessageKind::Write,
        request: 1,
        transaction: 0,
        payload: vec![0; len],
    };
    let mut bytes = Vec::new();
    of(PAYLOAD_MAX).write(&mut bytes).unwrap();
    assert_eq!(bytes.len(), HEADER_LEN + PAYLOAD_MAX);
    let error = of(PAYLOAD_MAX + 1).write(&mut bytes);
    assert_eq!(error, Err(MessageError::Length(PAYLOAD_MAX + 1)));
    assert_eq!(bytes.len(), HEADER_LEN + PAYLOAD_MAX, "nothing was added");
}

#[test]
fn paths_have_parts_and_are_short() {
    let read = |text: &str| text.parse::<StorePath>().map_err(|error| error.to_string());
    for text in ["/", "/local/domain/3/memory/target", "/vm/0000-00", "/tool/@x_Y-9", "data/x"] {
        assert_eq!(read(text).unwrap().as_str(), text);
    }
    for (text, why) in [
        ("", "empty part"),
        ("a//b", "empty part"),
        ("/a//b", "empty part"),
        ("/a/", "empty part"),
        ("/a b", "' '"),
        ("/a\0b", r"'\0'"),
        ("/ä", "'ä'"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(why), "{text:?}: {error}");
    }
    assert!(read(&format!("/{}", "a".repeat(PATH_MAX - 1))).is_ok());
    assert!(read(&format!("/{}", "a".repeat(PATH_MAX))).unwrap_err().contains("3073 bytes"));
    assert!(read(&"a".repeat(2049)).unwrap_err().contains("2049 bytes"));
}
