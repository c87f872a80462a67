//! What a guest writes below `data`: no sequence of values makes it larger than possible.
#![no_main]

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};
use ballast_xen::{Claims, DomainFacts, ValueTimes};
use libfuzzer_sys::fuzz_target;

const MEMORY_MAX: Bytes = Bytes::gib(1);

fuzz_target!(|values: Vec<(u8, Vec<u8>)>| {
    let facts =
        DomainFacts { memory_max: Some(MEMORY_MAX), emergency_period: Duration::from_secs(1) };
    let mut claims = Claims::default();
    for ((key, value), second) in values.into_iter().zip(1_u64..) {
        let now = Timestamp::from_millis(second * 1000);
        let at = ValueTimes { now, changed: (key & 8 == 0).then_some(now) };
        let value = (key & 16 == 0).then_some(&value[..]);
        let _ = match key % 4 {
            0 => claims.take_stats(value, at, facts),
            1 => claims.take_request(value, at, facts).map(drop),
            2 => claims.take_total(value, facts),
            _ => claims.take_free(value, at),
        };
        if let Some(stats) = claims.stats(now) {
            assert!(stats.value.total <= Some(MEMORY_MAX));
        }
        if let Some(request) = claims.report(now).and_then(|report| report.value.request) {
            assert!(request.amount <= MEMORY_MAX);
        }
    }
});
