//! Streams of references of different shapes, named and random.

use proptest::prelude::*;

/// Named streams, each of them short enough for the oracle.
pub(crate) fn named() -> Vec<(&'static str, Vec<u64>)> {
    let far = 1_u64 << 40;
    let mut state = 7;
    vec![
        ("nothing", vec![]),
        ("one tag", vec![5]),
        ("one tag again and again", vec![5; 300]),
        ("two tags in turn", [3, 9].repeat(100)),
        ("two tags far apart", [0, u64::MAX].repeat(50)),
        ("a scan", (0..3000).collect()),
        ("a scan backwards", (0..3000).rev().collect()),
        ("a loop", (0..700).cycle().take(4000).collect()),
        ("a loop of a word of slots", (0..64).cycle().take(1000).collect()),
        ("a loop of a group of slots", (0..2048).cycle().take(9000).collect()),
        ("a loop of one more", (0..2049).cycle().take(9000).collect()),
        ("there and back", (0..500).chain((0..500).rev()).cycle().take(5000).collect()),
        ("strides", (0..64_u64).flat_map(|at| (0..40).map(move |row| at + row * 512)).collect()),
        ("one hot tag in a scan", (0..2000).flat_map(|tag| [u64::MAX, tag]).collect()),
        ("an old tag after a hot one", {
            (0..100).chain([100; 3000]).chain(0..100).chain([100; 500]).chain([7]).collect()
        }),
        ("a loop far out", (far..far + 900).cycle().take(3000).collect()),
        ("near and far", (0..900).map(|tag| tag + far * (tag % 3)).cycle().take(4000).collect()),
        ("every distance once", (1..90).flat_map(|n| (0..n).chain((0..n).rev())).collect()),
        ("random", (0..6000).map(|_| next(&mut state) % 900).collect()),
        ("growing", (1..6000).map(|at| next(&mut state) % (at / 4 + 1)).collect()),
        ("skewed", (0..6000).map(|_| skewed(next(&mut state), 2000)).collect()),
    ]
}

/// A part of a stream, as real programs make for a while.
#[derive(Clone, Debug)]
enum Phase {
    Loop { start: u64, len: u64, times: u64 },
    Stride { start: u64, step: u64, len: u64 },
    Random { start: u64, len: u64, seed: u64, references: u64 },
    Skewed { start: u64, len: u64, seed: u64, references: u64 },
    Repeat { tag: u64, times: u64 },
}

impl Phase {
    fn write(&self, out: &mut Vec<u64>) {
        match *self {
            Self::Loop { start, len, times } => {
                (0..times).for_each(|_| out.extend((0..len).map(|at| start.wrapping_add(at))));
            }
            Self::Stride { start, step, len } => {
                out.extend((0..len).map(|at| start.wrapping_add(at.wrapping_mul(step))));
            }
            Self::Random { start, len, mut seed, references } => {
                out.extend((0..references).map(|_| start.wrapping_add(next(&mut seed) % len)))
            }
            Self::Skewed { start, len, mut seed, references } => out
                .extend((0..references).map(|_| start.wrapping_add(skewed(next(&mut seed), len)))),
            Self::Repeat { tag, times } => out.extend((0..times).map(|_| tag)),
        }
    }
}

fn phase() -> impl Strategy<Value = Phase> {
    let start = || prop_oneof![0..3000_u64, Just(1 << 40), any::<u64>()];
    let len = || prop_oneof![1..20_u64, 1..700_u64];
    prop_oneof![
        (start(), len(), 1..5_u64).prop_map(|(start, len, times)| Phase::Loop {
            start,
            len,
            times
        }),
        (start(), any::<u16>(), len()).prop_map(|(start, step, len)| Phase::Stride {
            start,
            step: step.into(),
            len
        }),
        (start(), len(), any::<u64>(), 1..2000_u64).prop_map(|(start, len, seed, references)| {
            Phase::Random { start, len, seed, references }
        }),
        (start(), len(), any::<u64>(), 1..2000_u64).prop_map(|(start, len, seed, references)| {
            Phase::Skewed { start, len, seed, references }
        }),
        (start(), 1..3000_u64).prop_map(|(tag, times)| Phase::Repeat { tag, times }),
    ]
}

/// Random phases one after the other.
pub(crate) fn random() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(phase(), 0..8).prop_map(|phases| {
        let mut out = Vec::new();
        phases.iter().for_each(|phase| phase.write(&mut out));
        out
    })
}

/// Cuts `tags` into blocks of these lengths, in turn.
pub(crate) fn blocks<'a>(tags: &'a [u64], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u64]> {
    let mut rest = tags;
    let mut lengths = lengths.iter().cycle();
    std::iter::from_fn(move || {
        let wanted = lengths.next().copied()?;
        let (block, after) = rest.split_at(wanted.min(rest.len()));
        let ended = rest.is_empty();
        rest = after;
        (!ended).then_some(block)
    })
}

/// A pseudo-random number (SplitMix64).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number below `len`; each octave is equally probable, which is nearly Zipf's law.
fn skewed(random: u64, len: u64) -> u64 {
    let octaves = u64::from(len.ilog2()) + 1;
    let top = 1 << (random % octaves + 1);
    (random >> 16) % top.min(len)
}
