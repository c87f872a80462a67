//! The files of a guest's kernel that the agent reads, including MGLRU's: any text gives figures
//! that fit in a message, and commands made of numbers.
#![no_main]

use ballast_agent::linux::{lru_gen, parse};
use ballast_agent_proto::wire::message::encode;
use ballast_agent_proto::wire::{GuestFrame, GuestMessage, Statistics};

const PAGE_BYTES: u64 = 4096;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let statistics = Statistics {
        memory: parse::meminfo(text),
        counters: parse::vmstat(text),
        pressure: parse::pressure(text),
        watermarks: parse::zoneinfo(text, PAGE_BYTES),
    };
    assert_fits(GuestMessage::Statistics(Box::new(statistics)));
    if let Some(ages) = lru_gen::ages(text, PAGE_BYTES) {
        assert!(ages.groups.is_sorted_by(|older, newer| older.idle_ms > newer.idle_ms));
        assert_fits(GuestMessage::Ages(ages));
    }
    let reclaimable = lru_gen::reclaimable(text);
    assert!(reclaimable.len() <= text.lines().count());
    assert!(reclaimable.is_sorted_by(|first, second| first.file_pages >= second.file_pages));
    for generations in &reclaimable {
        let command = generations.command(7);
        assert!(command.bytes().all(|byte| byte.is_ascii_digit() || b"- ".contains(&byte)));
    }
});

fn assert_fits(message: GuestMessage) {
    let frame = GuestFrame { seq: 1, uptime_ms: 1, message };
    assert!(encode(&frame).is_ok(), "{frame:?}");
}
