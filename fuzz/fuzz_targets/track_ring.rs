//! The ring: with anything that the other side may leave in its memory, reading and writing end,
//! within bounds.
#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

use ballast_tracker_proto::{
    CAPACITY_MIN, RingConsumer, RingEntry, RingProducer, initialize_ring, ring_words,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let words: Vec<AtomicU64> = (0..ring_words(CAPACITY_MIN)).map(|_| AtomicU64::new(0)).collect();
    initialize_ring(&words, CAPACITY_MIN).expect("a ring of the least capacity");
    let mut consumer = RingConsumer::new(&words).expect("the ring just made");
    let mut producer = RingProducer::new(&words).expect("the ring just made");
    // Each piece of the input overwrites a word; then both sides continue.
    for piece in bytes.chunks(10) {
        let (place, value) = piece.split_at(piece.len().min(2));
        let place = place.iter().fold(0, |place, byte| place << 8 | usize::from(*byte));
        let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        words[place % words.len()].store(value, Ordering::Relaxed);
        producer.push(RingEntry::Touch { page: value % (1 << 52), is_write: false });
        let mut count = 0;
        let _ = consumer.read(&words, 64, |_| count += 1);
        assert!(count <= 64);
        let _ = RingConsumer::new(&words);
    }
});
