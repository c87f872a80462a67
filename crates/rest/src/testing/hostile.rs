//! A guest of a hypervisor with a REST API, whose answers are any bytes.
//!
//! Idea: samples are taken and orders given as the backend does, with answers cut from the input at
//! its zero bytes; the first byte of each says which status it has.

use ballast_model::{Action, Bytes, Generation, GuestId, Timestamp};

use crate::call::Answer;
use crate::guest::RestGuest;

/// Most samples of one input.
const SAMPLES_MAX: u64 = 8;
/// Most calls of one sample that are answered: those that a real hypervisor can make necessary.
const ROUNDS_MAX: usize = 4;
/// Most calls of one order: a device and zone each, and the balloon.
const CALLS_MAX: usize = 65;

/// As [`try_rest_guest`] with `bytes`, with the answers `seed`, and with `seed` where `bytes` have
/// replaced the part from `at` on, which is less than its length.
///
/// # Panics
/// As [`try_rest_guest`].
pub fn try_rest_guest_near<G: RestGuest>(seed: &[u8], bytes: &[u8], at: usize) {
    let mut mixed = seed.to_vec();
    mixed.splice(at..(at + bytes.len()).min(seed.len()), bytes.iter().copied());
    for data in [bytes, seed, &mixed] {
        try_rest_guest::<G>(data);
    }
}

/// Takes `data` for answers. Whatever is answered, a guest does not panic, ends each sample, makes
/// no order longer than a real hypervisor's, holds whole pages, and has no more plugged in than can
/// be.
///
/// # Panics
/// It does any of that.
pub fn try_rest_guest<G: RestGuest>(data: &[u8]) {
    let mut guest = G::default();
    let id: GuestId = "a".parse().expect("a name");
    let mut answers = data.split(|&byte| byte == 0);
    for sample in 0..SAMPLES_MAX {
        let now = Timestamp::from_millis(sample * 1000);
        guest.planned(sample % 2 == 1);
        guest.begin(now);
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
        let seen = guest.sample(&id, now);
        assert!(seen.allocation.is_none_or(|it| it.value == it.value.page_floor()));
        if let Some(hotplug) = seen.hotplug {
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
