//! Streams that are too long for the simple oracle; the [`Timeline`] is the oracle instead.

use ballast_mrc::Stack;

use super::distances;
use super::streams::next;
use super::timeline::Timeline;

/// References in a block: small blocks, and some that an engine may treat differently.
const LENGTHS: [usize; 5] = [4096, 1, 100_000, 77, 16_384];

/// References `tags` in blocks of several lengths, compares with the timeline, and returns the
/// distances.
pub(crate) fn check(
    name: &str,
    stack: &mut impl Stack,
    timeline: &mut Timeline,
    tags: &[u64],
) -> Vec<u32> {
    let found = distances(stack, tags, &LENGTHS);
    for (at, (&tag, &found)) in tags.iter().zip(&found).enumerate() {
        let expected = timeline.reference(tag);
        assert_eq!(found, expected, "{name}: reference {at} of a part, to tag {tag}");
    }
    found
}

/// Five million different tags, with old ones in between: a window of slots grows many times, and
/// in the end more than 4 M slots are live.
pub(crate) fn check_growth<S: Stack>(make: fn() -> S) {
    let (mut stack, mut timeline, mut state) = (make(), Timeline::new(6_000_000), 3);
    let mut tags = Vec::new();
    for start in (0..5_000_000).step_by(250_000) {
        tags.clear();
        for tag in start..start + 250_000 {
            tags.push(tag);
            if tag % 8 == 0 {
                tags.push(next(&mut state) % (tag + 1));
            }
        }
        check("growth", &mut stack, &mut timeline, &tags);
    }
    tags.clear();
    tags.extend((0..200_000).map(|_| next(&mut state) % 5_000_000));
    check("growth", &mut stack, &mut timeline, &tags);
    assert_eq!(stack.len(), 5_000_000);
    assert!(stack.order() == timeline.order());
}

/// Footprints that grow and are abandoned: when slots run out, sometimes most of them are live,
/// sometimes few.
pub(crate) fn check_swelling<S: Stack>(make: fn() -> S) {
    let (mut stack, mut timeline, mut state) = (make(), Timeline::new(60 * 40_000), 5);
    for round in 0..60_u64 {
        let (start, len) = (next(&mut state) % 1_000_000, 1 << (next(&mut state) % 18));
        let tags: Vec<_> = match round % 3 {
            0 => (0..40_000).map(|at| start + at % len).collect(),
            1 => (0..40_000).map(|_| start + next(&mut state) % len).collect(),
            _ => (0..40_000).map(|at| (start << 20) + at % len * 512).collect(),
        };
        check("swelling", &mut stack, &mut timeline, &tags);
    }
    assert!(stack.order() == timeline.order());
}

/// A few tags for a long time: slots run out again and again while hardly any of them is live.
pub(crate) fn check_endurance<S: Stack>(make: fn() -> S) {
    let (mut stack, mut timeline) = (make(), Timeline::new(1_500_000));
    let tags: Vec<_> = (0..500_000).map(|at| at % 3).collect();
    check("endurance", &mut stack, &mut timeline, &tags);
    let tags: Vec<_> = (0..500_000).map(|at| at % 65).collect();
    check("endurance", &mut stack, &mut timeline, &tags);
    let tags: Vec<_> = (0..500_000).map(|at| at % 20_000).collect();
    check("endurance", &mut stack, &mut timeline, &tags);
    assert!(stack.order() == timeline.order());
}
