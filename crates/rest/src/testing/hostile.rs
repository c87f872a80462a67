//! A guest of a hypervisor with a REST API that answers with any bytes.
//!
//! Idea: takes samples and gives orders as the backend does. The answers are the parts of the input
//! between zero bytes; the first byte of each determines its status.

use ballast_model::{Action, Bytes, Generation, GuestId, Timestamp};

use crate::call::Answer;
use crate::guest::RestGuest;

/// Most samples of one input.
const SAMPLES_MAX: u64 = 8;
/// Most rounds of calls in one sample that any answers can make necessary.
const ROUNDS_MAX: usize = 4;
/// Most calls of one order: one for each device or zone, and one for the balloon.
const CALLS_MAX: usize = 65;

/// Runs [`try_rest_guest`] on `bytes`, on `seed`, and on `seed` with `bytes` written over it from
/// `at` on; `at` must be less than the length of `seed`.
///
/// # Panics
/// As [`try_rest_guest`].
pub fn try_rest_guest_near<G: RestGuest + Default>(seed: &[u8], bytes: &[u8], at: usize) {
    let mut mixed = seed.to_vec();
    mixed.splice(at..(at + bytes.len()).min(seed.len()), bytes.iter().copied());
    for data in [bytes, seed, &mixed] {
        try_rest_guest::<G>(data);
    }
}

/// Uses `data` as answers. Whatever the answers, a guest does not panic, ends each sample, makes no
/// order longer than for a real hypervisor, holds whole pages, and has no more plugged in than its
/// maximum.
///
/// # Panics
/// The guest breaks one of these rules.
pub fn try_rest_guest<G: RestGuest + Default>(data: &[u8]) {
    let mut guest = G::default();
    let id: GuestId = "a".parse().expect("a name");
    let mut answers = data.split(|&byte| byte == 0);
    for sample in 0..SAMPLES_MAX {
        let now = Timestamp::from_millis(sample * 1000);
        guest.planned(sample % 2 == 1);
        guest.begin(now, sample.is_multiple_of(5));
        let mut rounds = 0;
        loop {
            let calls = guest.calls();
            if calls.is_empty() {
                break;
            }
            rounds += 1;
            assert!(rounds <= ROUNDS_MAX, "a sample ends");
            for call in calls {
                let answer = answers.next().unwrap_or_default();
                let (status, body) = match answer.split_first() {
                    Some((b'!', body)) => (400, body),
                    Some((b'?', body)) => (404, body),
                    _ => (200, answer),
                };
                let answer = Answer { status, body: body.to_vec() };
                let _ = guest.take(&call, &answer, now, now);
            }
        }
        let guest_sample = guest.sample(&id, now);
        assert!(guest_sample.allocation.is_none_or(|it| it.value == it.value.page_floor()));
        if let Some(hotplug) = guest_sample.hotplug {
            assert!(hotplug.plugged <= hotplug.max && hotplug.requested <= hotplug.max);
        }
        let action = Action {
            guest: id.clone(),
            target: Bytes::mib(512),
            plug: (sample % 3 == 0).then_some(Bytes::mib(64)),
            generation: Generation(sample),
            deadline: now,
        };
        if let Ok(calls) = guest.order(&action) {
            assert!(calls.len() <= CALLS_MAX, "{} calls", calls.len());
        }
        for notice in guest.take_notices() {
            assert!(!notice.chars().any(char::is_control), "{notice:?}");
        }
    }
}
