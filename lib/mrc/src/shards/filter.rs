//! Decides which tags of a block are sampled, and which were never seen: the part of sampling that
//! every reference passes through.
//!
//! Idea: simple loops over 64 tags without a branch, which the compiler turns into vector code.
//! They are compiled for the baseline and for each wider instruction set, and the processor is
//! asked which one it has. Bits of tags seen before are only read: storing each again would wait
//! for the previous store to the same word, and on a scan 64 neighbours share one. If neighbours
//! follow each other in order, 64 of them are looked up together. Gathering words with vector
//! instructions was twice as slow.
//!
//! Cost: with AVX-512 0.6 ns for each tag on a scan and 1.4 to 2.6 ns on random tags, 0.3 ns of
//! that for reading them (measured 2026-11-22 on a machine shared with others). Limits: the wide
//! versions are only for x86-64.

#![allow(unsafe_code)]

use crate::hash::TagHash;

/// Tags whose comparisons make one word.
const WORD: usize = 64;
/// Tags whose seen bits are tested with one branch.
const RUN: usize = 16;

/// Appends to `sampled` those of `tags` whose hash is at most `limit`, in their order.
pub(crate) fn sift(tags: &[u64], hash: TagHash, limit: u64, sampled: &mut Vec<u64>) {
    wide::sift(tags, hash, limit, sampled);
}

/// Sets the bits of `tags` in `words` and returns how many were not set before; `None`, with
/// nothing done, if a tag is beyond the last bit.
///
/// # Panics
/// If there are words, but their number is not a power of two.
pub(crate) fn note(words: &mut [u64], tags: &[u64]) -> Option<u64> {
    if words.is_empty() {
        return tags.is_empty().then_some(0);
    }
    assert!(words.len().is_power_of_two(), "{} words", words.len());
    wide::note(words, tags)
}

/// Whether `tags` are consecutive numbers in rising order, at least one word of them.
pub(crate) fn is_scan(tags: &[u64]) -> bool {
    // Few blocks that are no scan get beyond this check.
    let (Some(first), Some(last)) = (tags.first(), tags.last()) else { return false };
    let len = tags.len();
    len >= WORD && last.wrapping_sub(*first) == len as u64 - 1 && wide::is_scan(tags)
}

/// Whether `words` have the bits of all `len` tags from `first` on.
pub(crate) fn is_seen(words: &[u64], first: u64, len: u64) -> bool {
    let Some(last) = len.checked_sub(1).and_then(|more| first.checked_add(more)) else {
        return false;
    };
    if last / 64 >= words.len() as u64 {
        return false;
    }
    let words = &words[(first / 64) as usize..=(last / 64) as usize];
    let (head, tail) = (u64::MAX << (first % 64), u64::MAX >> (63 - last % 64));
    match words {
        [only] => only & head & tail == head & tail,
        [front, middle @ .., back] => {
            let all = middle.iter().fold(u64::MAX, |all, word| all & word);
            front & head == head && all == u64::MAX && back & tail == tail
        }
        [] => false,
    }
}

#[inline(always)]
fn is_scan_with(tags: &[u64]) -> bool {
    let (words, rest) = tags.as_chunks::<WORD>();
    let mut next = tags.first().copied().unwrap_or(0);
    for word in words {
        let strays = |strays, (&tag, at): (&u64, u64)| strays | (tag.wrapping_sub(at) ^ next);
        if word.iter().zip(0..).fold(0, strays) != 0 {
            return false;
        }
        next = next.wrapping_add(WORD as u64);
    }
    rest.iter().zip(0..).all(|(tag, at)| tag.wrapping_sub(at) == next)
}

#[inline(always)]
fn sift_with(tags: &[u64], hash: TagHash, limit: u64, sampled: &mut Vec<u64>) {
    let (words, rest) = tags.as_chunks::<WORD>();
    for word in words {
        let mut hits = 0_u64;
        for (at, &tag) in word.iter().enumerate() {
            hits |= u64::from(hash.of(tag) <= limit) << at;
        }
        while hits != 0 {
            sampled.push(word[hits.trailing_zeros() as usize]);
            hits &= hits - 1;
        }
    }
    sampled.extend(rest.iter().filter(|&&tag| hash.of(tag) <= limit));
}

#[inline(always)]
fn note_with(words: &mut [u64], tags: &[u64]) -> Option<u64> {
    // The number of words is a power of two, so the OR of all tags shows whether all are within
    // range.
    let all = tags.iter().fold(0, |all, tag| all | tag);
    if all / 64 >= words.len() as u64 {
        return None;
    }
    let mut new = 0;
    let (scans, mut rest) = tags.as_chunks::<WORD>();
    // Scans are long, so two places are enough to detect them.
    let mut middle = scans.iter().skip(scans.len() / 2).take(2);
    if middle.any(|scan| scan[WORD - 1].wrapping_sub(scan[0]) == WORD as u64 - 1) {
        for scan in scans {
            if !is_seen_scan(words, scan) {
                // SAFETY: no bit of `tag / 64` is outside of `all / 64`, which is below the length.
                new += unsafe { note_runs(words, scan) };
            }
        }
    } else {
        rest = tags;
    }
    // SAFETY: as above.
    Some(new + unsafe { note_runs(words, rest) })
}

/// Whether these are consecutive tags in rising order that have all been seen.
#[inline(always)]
fn is_seen_scan(words: &[u64], tags: &[u64; WORD]) -> bool {
    let first = tags[0];
    let strays = |strays, (&tag, at): (&u64, u64)| strays | (tag.wrapping_sub(at) ^ first);
    if tags.iter().zip(0..).fold(0, strays) != 0 {
        return false;
    }
    let (word, bit) = ((first / 64) as usize, first % 64);
    let seen = match bit {
        0 => words[word],
        _ => (words[word] >> bit) | (words[word + 1] << (64 - bit)),
    };
    seen == u64::MAX
}

/// Sets the bits of `tags` and returns how many were not set before.
///
/// # Safety
/// `tag / 64` is below `words.len()` for each tag.
#[inline(always)]
unsafe fn note_runs(words: &mut [u64], tags: &[u64]) -> u64 {
    let mut new = 0;
    let (runs, rest) = tags.as_chunks::<RUN>();
    for run in runs {
        let mut seen = u64::MAX;
        for &tag in run {
            // SAFETY: the caller's.
            let word = unsafe { *words.get_unchecked((tag / 64) as usize) };
            seen &= word >> (tag % 64);
        }
        if seen & 1 == 0 {
            new += set(words, run);
        }
    }
    new + set(words, rest)
}

#[inline(always)]
fn set(words: &mut [u64], tags: &[u64]) -> u64 {
    let mut new = 0;
    for &tag in tags {
        let (word, bit) = (&mut words[(tag / 64) as usize], 1 << (tag % 64));
        new += u64::from(*word & bit == 0);
        *word |= bit;
    }
    new
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{TagHash, is_scan_with, note_with, sift_with};

    pub(super) fn sift(tags: &[u64], hash: TagHash, limit: u64, sampled: &mut Vec<u64>) {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the processor was just found to have these instructions.
            unsafe { sift_avx512(tags, hash, limit, sampled) }
        } else if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            unsafe { sift_avx2(tags, hash, limit, sampled) }
        } else {
            sift_with(tags, hash, limit, sampled);
        }
    }

    #[target_feature(enable = "avx512f,avx512dq")]
    fn sift_avx512(tags: &[u64], hash: TagHash, limit: u64, sampled: &mut Vec<u64>) {
        sift_with(tags, hash, limit, sampled);
    }

    #[target_feature(enable = "avx2")]
    fn sift_avx2(tags: &[u64], hash: TagHash, limit: u64, sampled: &mut Vec<u64>) {
        sift_with(tags, hash, limit, sampled);
    }

    pub(super) fn is_scan(tags: &[u64]) -> bool {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor was just found to have these instructions.
            unsafe { is_scan_avx512(tags) }
        } else if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            unsafe { is_scan_avx2(tags) }
        } else {
            is_scan_with(tags)
        }
    }

    #[target_feature(enable = "avx512f")]
    fn is_scan_avx512(tags: &[u64]) -> bool {
        is_scan_with(tags)
    }

    #[target_feature(enable = "avx2")]
    fn is_scan_avx2(tags: &[u64]) -> bool {
        is_scan_with(tags)
    }

    pub(super) fn note(words: &mut [u64], tags: &[u64]) -> Option<u64> {
        let has_bmi2 = is_x86_feature_detected!("bmi2");
        if has_bmi2 && is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor was just found to have these instructions.
            unsafe { note_avx512(words, tags) }
        } else if has_bmi2 && is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            unsafe { note_avx2(words, tags) }
        } else {
            note_with(words, tags)
        }
    }

    #[target_feature(enable = "avx512f,bmi2")]
    fn note_avx512(words: &mut [u64], tags: &[u64]) -> Option<u64> {
        note_with(words, tags)
    }

    #[target_feature(enable = "avx2,bmi2")]
    fn note_avx2(words: &mut [u64], tags: &[u64]) -> Option<u64> {
        note_with(words, tags)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod wide {
    pub(super) use super::{is_scan_with as is_scan, note_with as note, sift_with as sift};
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wide_and_portable_sift_alike(
            tags in prop::collection::vec(any::<u64>(), 0..500),
            seed: u64,
            limit: u64,
        ) {
            let hash = TagHash::new(seed);
            let (mut wide, mut portable) = (vec![1], vec![1]);
            sift(&tags, hash, limit, &mut wide);
            sift_with(&tags, hash, limit, &mut portable);
            prop_assert_eq!(&wide, &portable);
            let sampled: Vec<u64> =
                tags.iter().copied().filter(|&tag| hash.of(tag) <= limit).collect();
            prop_assert_eq!(&wide[1..], &sampled);
        }

        #[test]
        fn wide_and_portable_note_alike(
            tags in prop::collection::vec(0..4200_u64, 0..500),
            words in prop::collection::vec(any::<u64>(), 64),
        ) {
            let (mut wide, mut portable) = (words.clone(), words);
            let new = note(&mut wide, &tags);
            prop_assert_eq!(new, note_with(&mut portable, &tags));
            prop_assert_eq!(new.is_none(), tags.iter().any(|&tag| tag >= 4096));
            prop_assert_eq!(wide, portable);
        }
    }

    #[test]
    fn a_scan_is_known_by_every_tag() {
        for len in [64, 65, 128, 1000] {
            for first in [0, 77, u64::MAX - 70] {
                let mut tags: Vec<u64> = (0..len).map(|at| u64::wrapping_add(first, at)).collect();
                assert!(is_scan(&tags) && is_scan_with(&tags), "{first} {len}");
                for at in 0..len as usize {
                    tags[at] ^= 1 << 40;
                    assert!(!is_scan(&tags), "{first} {len} {at}");
                    tags[at] ^= 1 << 40;
                }
            }
        }
        assert!(!is_scan(&[]) && !is_scan(&[1, 2, 3]));
    }

    #[test]
    fn a_range_is_seen_when_every_bit_is() {
        for (first, len) in [(0, 64), (3, 5), (63, 2), (10, 200), (64, 128), (0, 320), (319, 1)] {
            let mut words = vec![0; 5];
            (first..first + len).for_each(|tag| words[(tag / 64) as usize] |= 1 << (tag % 64));
            assert!(is_seen(&words, first, len), "{first} {len}");
            for tag in first..first + len {
                words[(tag / 64) as usize] ^= 1 << (tag % 64);
                assert!(!is_seen(&words, first, len), "{first} {len} {tag}");
                words[(tag / 64) as usize] ^= 1 << (tag % 64);
            }
        }
        assert!(!is_seen(&[u64::MAX], 1, 64) && !is_seen(&[u64::MAX], u64::MAX, 2));
        assert!(!is_seen(&[], 0, 1) && !is_seen(&[u64::MAX], 0, 0));
    }

    #[test]
    fn no_words_hold_no_tag() {
        assert_eq!(note(&mut [], &[]), Some(0));
        assert_eq!(note(&mut [], &[0]), None);
    }
}
