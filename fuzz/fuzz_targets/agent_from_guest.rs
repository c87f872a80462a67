//! What a guest's agent sends: any bytes, in any pieces, keep the host's side within its limits.
#![no_main]

use std::time::Duration;

use ballast_agent_proto::host::{AgentEvent, AgentSession, HostFacts, SessionSettings};
use ballast_agent_proto::wire::message::{decode, encode};
use ballast_agent_proto::wire::{FrameReader, GuestFrame};
use ballast_model::{Bytes, Timestamp};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut reader = FrameReader::new();
    reader.push(bytes);
    while let Some(frame) = reader.next_frame() {
        if let Ok(message) = frame.map(|payload| decode::<GuestFrame>(&payload))
            && let Ok(message) = message
        {
            reader_agrees(&message);
        }
    }
    let most = Bytes::gib(1);
    let settings = SessionSettings {
        statistics_period: Duration::from_secs(1),
        emergency_period: Duration::from_secs(1),
        host_facts: HostFacts { memory_max: Some(most) },
    };
    let mut session = AgentSession::new(settings, Timestamp::ZERO);
    // The number in the hellos of the seeds.
    session.connected(4711, Timestamp::ZERO);
    for (piece, ms) in bytes.chunks(31).zip((0..).step_by(100)) {
        session.handle_bytes(piece, Timestamp::from_millis(ms));
        session.handle_timeout(Timestamp::from_millis(ms));
        while let Some(event) = session.poll_event() {
            match event {
                AgentEvent::Request { request, .. } => assert!(request.amount <= most),
                AgentEvent::Shrunk { gave, .. } => assert!(gave <= most),
                _ => {}
            }
        }
        while session.poll_transmit().is_some() {}
    }
});

/// A decoded message, encoded and decoded again, is the same.
fn reader_agrees(message: &GuestFrame) {
    let mut reader = FrameReader::new();
    reader.push(&encode(message).expect("within its bounds"));
    let payload = reader.next_frame().expect("whole").expect("a frame");
    assert_eq!(decode::<GuestFrame>(&payload).as_ref(), Ok(message));
}
