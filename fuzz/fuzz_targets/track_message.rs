//! Messages of the tracker's protocol: any packet is refused, or means what it says.
#![no_main]

use ballast_track_wire::{Frame, Reply, Request};

libfuzzer_sys::fuzz_target!(|packet: &[u8]| {
    if let Ok(frame) = Frame::<Request>::decode(packet) {
        let (bytes, len) = frame.encode();
        assert_eq!(Frame::<Request>::decode(&bytes[..len]), Ok(frame));
    }
    if let Ok(frame) = Frame::<Reply>::decode(packet) {
        let (bytes, len) = frame.encode();
        assert_eq!(Frame::<Reply>::decode(&bytes[..len]), Ok(frame));
    }
});
