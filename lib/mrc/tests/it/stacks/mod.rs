//! Tests that every exact stack gives the distances of the oracle, bit for bit.
//!
//! Idea: one suite, generic over the stack; [`suite`] and [`long_suite`] run it for each stack. The
//! oracles are the simplest programs that find distances, one for short streams and one for long
//! ones.

mod long;
mod oracle;
mod streams;
mod timeline;
pub(crate) mod traces;

use ballast_mrc::{Avl, CountingEngine, Engine, EngineName, Exact, Histogram, List, Stack};
use oracle::Oracle;
use proptest::prelude::*;
use timeline::Timeline;

/// References `tags` in blocks of these lengths.
fn distances(stack: &mut impl Stack, tags: &[u64], lengths: &[usize]) -> Vec<u32> {
    let mut distances = vec![u32::MAX; tags.len()];
    let mut rest = distances.as_mut_slice();
    for block in streams::blocks(tags, lengths) {
        let (here, after) = rest.split_at_mut(block.len());
        stack.reference(block, here).unwrap();
        rest = after;
    }
    distances
}

fn histogram(distances: &[u32]) -> Histogram {
    let mut counts = vec![0; distances.iter().max().map_or(0, |&most| most as usize + 1)];
    distances.iter().for_each(|&distance| counts[distance as usize] += 1);
    Histogram::from_counts(&counts)
}

/// Compares the visible state of `stack` with the oracle.
fn check_state(stack: &impl Stack, oracle: &Oracle) {
    assert_eq!(stack.len(), oracle.order.len() as u64);
    assert_eq!(stack.is_empty(), oracle.order.is_empty());
    assert_eq!(stack.order(), oracle.order);
}

/// References `tags` in blocks of these lengths and compares with the oracle.
fn check_stream(
    name: &str,
    stack: &mut impl Stack,
    oracle: &mut Oracle,
    tags: &[u64],
    lengths: &[usize],
) {
    let (found, expected) = (distances(stack, tags, lengths), oracle.distances(tags));
    if let Some(at) = (0..tags.len()).find(|&at| found[at] != expected[at]) {
        let (found, expected) = (found[at], expected[at]);
        panic!("{name}: reference {at} to tag {}: distance {found}, not {expected}", tags[at]);
    }
    assert_eq!(histogram(&found), histogram(&expected));
    check_state(stack, oracle);
}

/// Compares the distances for every named stream, as a whole and in blocks.
fn check_named<S: Stack>(make: fn() -> S) {
    for (name, tags) in streams::named() {
        for lengths in [&[usize::MAX][..], &[1], &[0, 1, 7, 64, 1000]] {
            let name = format!("{name} in blocks of {lengths:?}");
            check_stream(&name, &mut make(), &mut Oracle::default(), &tags, lengths);
        }
    }
}

/// Counting gives the oracle's histogram and leaves its order, in blocks of any length.
fn check_counted<S: Stack>(make: fn() -> S) {
    for (name, tags) in streams::named() {
        for lengths in [&[usize::MAX][..], &[1], &[0, 1, 7, 64, 1000], &[5000]] {
            check_counts(name, make(), &tags, lengths);
        }
    }
    let lengths = prop::collection::vec(prop_oneof![1..4_usize, 1..9000_usize], 1..5);
    let config = ProptestConfig::with_cases(100);
    proptest!(config, |((tags, lengths) in (streams::random(), lengths))| {
        check_counts("random", make(), &tags, &lengths);
    });
}

fn check_counts(name: &str, stack: impl Stack, tags: &[u64], lengths: &[usize]) {
    let (mut engine, mut oracle) =
        (CountingEngine::new(EngineName::Exact, stack), Oracle::default());
    for block in streams::blocks(tags, lengths) {
        engine.record(block).unwrap();
    }
    let expected = histogram(&oracle.distances(tags));
    assert_eq!(engine.histogram(), Some(expected), "{name} in blocks of {lengths:?}");
    assert_eq!(engine.references(), tags.len() as u64);
    check_state(engine.stack(), &oracle);
}

/// A stack restored from another one's order continues as that one does.
fn check_restored<S: Stack>(make: fn() -> S) {
    for (name, tags) in streams::named() {
        let (before, after) = tags.split_at(tags.len() / 2);
        let (mut stack, mut oracle) = (make(), Oracle::default());
        check_stream(name, &mut stack, &mut oracle, before, &[100]);
        let mut restored = make();
        restored.reference(&[1, 2, 1 << 40], &mut [0; 3]).unwrap();
        restored.restore(&stack.order()).unwrap();
        check_state(&restored, &oracle);
        check_stream(name, &mut restored, &mut oracle, after, &[100]);
    }
    let (mut stack, mut oracle) = (make(), Oracle::default());
    let named_twice = [4, 9, 4, 1 << 50, 9, 0, 0, 4];
    stack.restore(&named_twice).unwrap();
    oracle.restore(&named_twice);
    check_state(&stack, &oracle);
    check_stream("named twice", &mut stack, &mut oracle, &[0, 4, 7, 9, 9, 1 << 50], &[2]);
    stack.restore(&[]).unwrap();
    check_stream("emptied", &mut stack, &mut Oracle::default(), &[4, 4], &[2]);
}

/// Random streams in blocks of random lengths, with the order taken and restored in between.
fn check_random<S: Stack>(make: fn() -> S) {
    let lengths = prop::collection::vec(prop_oneof![1..4_usize, 1..5000_usize], 1..5);
    let strategy = (streams::random(), streams::random(), lengths);
    proptest!(ProptestConfig::with_cases(150), |((first, second, lengths) in strategy)| {
        let (mut stack, mut oracle) = (make(), Oracle::default());
        check_stream("first", &mut stack, &mut oracle, &first, &lengths);
        let mut order = stack.order();
        order.reverse();
        stack.restore(&order).unwrap();
        oracle.restore(&order);
        check_stream("second", &mut stack, &mut oracle, &second, &lengths);
    });
}

/// It takes little memory for few tags, and does not grow when the same tags are referenced.
fn check_memory<S: Stack>(make: fn() -> S) {
    let mut stack = make();
    let tags: Vec<_> = (0..5000).collect();
    distances(&mut stack, &tags, &[4096]);
    let before = stack.memory_bytes();
    for _ in 0..10 {
        distances(&mut stack, &tags, &[4096]);
    }
    let after = stack.memory_bytes();
    assert!(before > 0 && after <= before.max(1 << 20) * 2, "{before} bytes, then {after}");
}

/// Recordings of real programs, in parts.
fn check_recorded<S: Stack>(make: fn() -> S) {
    for name in traces::NAMES {
        let tags = traces::read(name);
        let (mut stack, mut timeline) = (make(), Timeline::new(tags.len()));
        let mut distances = Vec::with_capacity(tags.len());
        for part in tags.chunks(1 << 20) {
            distances.extend(long::check(name, &mut stack, &mut timeline, part));
        }
        assert_eq!(stack.order(), timeline.order(), "{name}");
        let mut engine = CountingEngine::new(EngineName::Exact, make());
        tags.chunks(1 << 16).for_each(|block| engine.record(block).unwrap());
        assert_eq!(engine.histogram(), Some(histogram(&distances)), "{name}");
        assert_eq!(engine.stack().order(), timeline.order(), "{name}");
    }
}

/// The suite for one stack: a module of tests.
macro_rules! suite {
    ($name:ident, $make:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn named_streams_match_the_oracle() {
                check_named(|| $make);
            }

            #[test]
            fn counted_streams_match_the_oracle() {
                check_counted(|| $make);
            }

            #[test]
            fn a_restored_order_goes_on_as_before() {
                check_restored(|| $make);
            }

            #[test]
            fn random_streams_match_the_oracle() {
                check_random(|| $make);
            }

            #[test]
            fn recorded_programs_match_the_oracle() {
                check_recorded(|| $make);
            }

            #[test]
            fn memory_stays_bounded() {
                check_memory(|| $make);
            }
        }
    };
}

/// Long streams, for all but the list: it would take hours.
macro_rules! long_suite {
    ($name:ident, $make:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn growing_streams_match_the_oracle() {
                long::check_growth(|| $make);
            }

            #[test]
            fn swelling_streams_match_the_oracle() {
                long::check_swelling(|| $make);
            }

            #[test]
            fn long_streams_of_few_tags_match_the_oracle() {
                long::check_endurance(|| $make);
            }
        }
    };
}

suite!(list, List::new());
suite!(avl, Avl::new());
long_suite!(avl_long, Avl::new());
suite!(exact, Exact::new());
long_suite!(exact_long, Exact::new());
suite!(exact_portable, Exact::portable());
long_suite!(exact_portable_long, Exact::portable());
