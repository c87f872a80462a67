//! Messages of the tracker's protocol: any packet is refused or survives a round trip.
#![no_main]

use ballast_tracker_proto::{Frame, TrackerReply, TrackerRequest};

libfuzzer_sys::fuzz_target!(|packet: &[u8]| {
    if let Ok(frame) = Frame::<TrackerRequest>::decode(packet) {
        let (bytes, len) = frame.encode();
        assert_eq!(Frame::<TrackerRequest>::decode(&bytes[..len]), Ok(frame));
    }
    if let Ok(frame) = Frame::<TrackerReply>::decode(packet) {
        let (bytes, len) = frame.encode();
        assert_eq!(Frame::<TrackerReply>::decode(&bytes[..len]), Ok(frame));
    }
});
