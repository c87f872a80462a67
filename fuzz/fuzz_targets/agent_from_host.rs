//! What a host sends to an agent: any bytes are refused, or their message survives a round trip.
#![no_main]

use ballast_agent_proto::wire::frame::HEADER_LEN;
use ballast_agent_proto::wire::message::{decode, encode};
use ballast_agent_proto::wire::{FrameReader, HostFrame, PAYLOAD_BYTES_MAX};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (mut whole, mut torn) = (FrameReader::new(), FrameReader::new());
    whole.push(bytes);
    let at_once: Vec<String> =
        std::iter::from_fn(|| whole.next_frame()).filter_map(Result::ok).collect();
    let mut in_pieces = Vec::new();
    for piece in bytes.chunks(5) {
        torn.push(piece);
        in_pieces.extend(std::iter::from_fn(|| torn.next_frame()).filter_map(Result::ok));
        assert!(torn.held() <= HEADER_LEN + PAYLOAD_BYTES_MAX);
    }
    assert_eq!(at_once, in_pieces);
    for payload in at_once {
        if let Ok(message) = decode::<HostFrame>(&payload) {
            let mut reader = FrameReader::new();
            reader.push(&encode(&message).expect("within its bounds"));
            let again = reader.next_frame().expect("whole").expect("a frame");
            assert_eq!(decode::<HostFrame>(&again), Ok(message));
        }
    }
});
