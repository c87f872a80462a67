//! The loop that every reference goes through.
//!
//! Idea: the tag's latest slot gives its rank and with it the distance; its bit is cleared, and the
//! next slot becomes its latest. The latest 64 slots are bits of a register, not of the window:
//! most references of most programs find their tag there, and cost a shift, a count and a store,
//! without a branch that could be mispredicted. A slot that leaves the register goes to the word of
//! the window that is being filled, which is also in a register. Of references to tags with older
//! slots, two kinds need less work:
//!
//! - a tag whose slot is in the word being filled: only that word is examined;
//! - a tag whose slot follows the slot that was just found (scans and loops meet tags in the order
//!   of the previous round): the same number of tags is below it, so its distance is the previous
//!   one's, and clearing its bit is delayed until the run ends, for up to 64 bits together.
//!
//! Clearing is always delayed by one reference, as a run of one, so that its cost overlaps with
//! finding the next slot. With many tags a reference mostly waits for memory, so the tag's slot is
//! prefetched 64 references ahead, and the slot's word and line of counts 24 ahead; if tags fit
//! into the nearer caches, or come in order, prefetching would only cost.
//!
//! Cost: see `docs/benchmarks/`. The same loop is compiled for the baseline processor and for AVX2
//! with bit manipulation; the processor is detected once. The number of levels of counts is a
//! constant of the loop: small windows have fewer.
//!
//! Unsafe: bounds checks cost 24 to 33 % here (measured 2026-11-22, before the latest slots were in
//! a register: Zipf 28.1 against 36.3 ns, a loop 4.9 against 6.1, 5,000 random tags 10.0 against
//! 13.3). The argument for omitting them is at [`Loop`].
//! a register: Zipf 28.1 against 36.3 ns, a loop 4.9 against 6.1, 5,000 random tags 10.0 against
//! 13.3). The argument for doing without is [`Loop`]'s.
#![allow(unsafe_code)]

use super::window::{
    LINE1_SHIFT, LINE2_SHIFT, LINE3_SHIFT, LINE4_SHIFT, Line16, Line32, Slots, WORD_SHIFT, Window,
};
use crate::COLD;

/// The entry of a tag without a slot: slot 0 is never used.
pub(super) const NO_SLOT: u32 = 0;
/// The number of latest slots that are kept in a register.
pub(super) const RECENT: usize = 64;
/// The first slot that is ever used, so that there are always [`RECENT`] slots before the next one.
pub(super) const FIRST: usize = RECENT + 1;

/// How far ahead a tag's slot is prefetched, in references.
const FETCH_SLOT_AHEAD: usize = 64;
/// How far ahead the memory that the slot leads to is prefetched, in references.
const FETCH_WORD_AHEAD: usize = 24;

/// This many references of a block decide whether they come in order.
const SURVEY: usize = 256;

/// The version of the code that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// For every processor.
    Portable,
    /// AVX2, BMI1, BMI2, LZCNT and POPCNT: every x86-64 since 2015.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Path {
    /// The best version for this processor.
    pub(super) fn detected() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            if has_avx2 {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
        }
    }

    /// The greatest of `ids`, 0 if there are none.
    pub(super) fn greatest(self, ids: &[u32]) -> u32 {
        match self {
            Self::Portable => greatest(ids),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: made by `detected` only, after asking the processor.
            Self::Avx2 => unsafe { greatest_avx2(ids) },
        }
    }

    /// Replaces each slot in `last` by its rank plus [`FIRST`]; the window's contents are undefined
    /// afterwards.
    pub(super) fn renumber(self, last: &mut [u32], window: &mut Window, position: &Position) {
        retire(&mut window.slots(), position);
        match self {
            Self::Portable => renumber(last, window),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `greatest`.
            Self::Avx2 => unsafe { renumber_avx2(last, window) },
        }
    }
}

#[inline(always)]
fn greatest(ids: &[u32]) -> u32 {
    ids.iter().fold(0, |greatest, &id| greatest.max(id))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn greatest_avx2(ids: &[u32]) -> u32 {
    greatest(ids)
}

#[inline(always)]
fn renumber(last: &mut [u32], window: &Window) {
    for slot in last.iter_mut().filter(|slot| **slot != NO_SLOT) {
        *slot = window.rank(*slot as usize) + FIRST as u32;
    }
}

/// Moves the recent slots to the window.
fn retire(slots: &mut Slots<'_>, position: &Position) {
    let mut below = position.retired();
    for age in (0..RECENT).rev() {
        let slot = position.next - 1 - age;
        if slot & 63 == 0 {
            slots.enter(slot, below);
        }
        let bit = (position.recent >> age) & 1;
        slots.words[slot >> WORD_SHIFT] |= bit << (slot & 63);
        below += bit as u32;
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn renumber_avx2(last: &mut [u32], window: &Window) {
    renumber(last, window);
}

/// The state of the loop between two calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// The next slot, at least [`FIRST`]; the window's capacity if there is none.
    pub(super) next: usize,
    /// The bits of the [`RECENT`] slots before it: bit 0 is slot `next - 1`. Earlier slots are in
    /// the window.
    pub(super) recent: u64,
    /// The number of tags that have a slot, which is the number of set bits.
    pub(super) live: u32,
}

impl Position {
    /// The state when `live` tags have the slots from [`FIRST`] on.
    pub(super) fn after(live: u32) -> Self {
        let recent = if live >= RECENT as u32 { u64::MAX } else { (1 << live) - 1 };
        Self { next: FIRST + live as usize, recent, live }
    }

    /// The number of bits that are set in the window.
    fn retired(&self) -> u32 {
        self.live - self.recent.count_ones()
    }
}

/// Everything the loop works on.
///
/// What makes its unchecked accesses right:
/// 1. every number in `ids` is below `last.len()` ([`Loop::go`] asserts it);
/// 2. every entry of `last` is [`NO_SLOT`] or a slot below `position.next`, which is at most
///    `window.capacity()`: `last` is private to this module's parent, begins with [`NO_SLOT`], and
///    is written only here (with `next` before it moves on) and when slots are renumbered (ranks
///    plus [`FIRST`], the last of them below the new position's `next`);
/// 3. the arrays of `window` have an entry for every slot below the capacity, by its construction;
/// 4. `distances` is as long as `ids` ([`Loop::new`] asserts it).
pub(super) struct Loop<'a> {
    last: &'a mut [u32],
    window: &'a mut Window,
    position: &'a mut Position,
    ids: &'a [u32],
    distances: &'a mut [u32],
}

impl<'a> Loop<'a> {
    /// References `ids` one after the other and writes their distances.
    ///
    /// # Panics
    /// If `distances` is not as long as `ids`.
    pub(super) fn new(
        last: &'a mut [u32],
        window: &'a mut Window,
        position: &'a mut Position,
        ids: &'a [u32],
        distances: &'a mut [u32],
    ) -> Self {
        assert_eq!(ids.len(), distances.len());
        assert!(position.next <= window.capacity());
        Self { last, window, position, ids, distances }
    }

    /// Continues until the references or the slots are used up; returns how many references were
    /// counted. With `may_fetch` it prefetches, unless the references come in order.
    ///
    /// # Panics
    /// If a number is not below `last.len()`.
    pub(super) fn run(self, path: Path, may_fetch: bool) -> usize {
        if may_fetch && !is_in_order(self.ids) {
            self.run_with::<true>(path)
        } else {
            self.run_with::<false>(path)
        }
    }

    fn run_with<const FETCH: bool>(self, path: Path) -> usize {
        match self.window.capacity() {
            capacity if capacity <= 1 << LINE2_SHIFT => self.run_on::<2, FETCH>(path),
            capacity if capacity <= 1 << LINE3_SHIFT => self.run_on::<3, FETCH>(path),
            _ => self.run_on::<4, FETCH>(path),
        }
    }

    fn run_on<const LEVELS: u32, const FETCH: bool>(self, path: Path) -> usize {
        match path {
            Path::Portable => self.go::<LEVELS, FETCH>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Path::Avx2` is made by `Path::detected` only, after asking the processor.
            Path::Avx2 => unsafe { self.go_avx2::<LEVELS, FETCH>() },
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn go_avx2<const LEVELS: u32, const FETCH: bool>(self) -> usize {
        self.go::<LEVELS, FETCH>()
    }

    #[inline(always)]
    fn go<const LEVELS: u32, const FETCH: bool>(self) -> usize {
        let Self { last, window, position, ids, distances } = self;
        assert!(ids.is_empty() || (greatest(ids) as usize) < last.len());
        let capacity = window.capacity();
        let mut slots = window.slots();
        let Position { mut next, mut recent, mut live } = *position;
        let mut run = SlotRun::NONE;
        let mut at = 0;
        while at < ids.len() && next < capacity {
            // The slot that leaves `recent` when the next slot is used.
            let leaving = next - RECENT;
            if leaving & 63 == 0 {
                // Entries of the new word would count bits that the run has not cleared yet.
                run.end::<LEVELS>(&mut slots, leaving);
                slots.enter(leaving, live - recent.count_ones());
            }
            // Slots from here on are in the word or in `recent`; `NO_SLOT` is in neither.
            let word_start = (leaving as u32 & !63).max(NO_SLOT + 1);
            let next_end = ((next | 63) + 1).min(capacity);
            let mut word = slots.words[leaving >> WORD_SHIFT];
            while at < ids.len() && next < next_end {
                if FETCH {
                    fetch(last, &slots, ids, at);
                }
                // SAFETY: `at` is below `ids.len()`, which is `distances.len()` (4).
                let (id, distance) =
                    unsafe { (*ids.get_unchecked(at), distances.get_unchecked_mut(at)) };
                at += 1;
                // SAFETY: by 1.
                let entry = unsafe { last.get_unchecked_mut(id as usize) };
                let slot = *entry;
                let age = (next as u32).wrapping_sub(1).wrapping_sub(slot);
                if age < RECENT as u32 {
                    *distance = (recent << (63 - age)).count_ones();
                    // The newest tag stays where it is.
                    let step = u64::from(age != 0);
                    let others = recent & !(1 << age);
                    word |= ((others >> 63) & step) << (next & 63);
                    recent = (others << step) | 1;
                    next += step as usize;
                    *entry = next as u32 - 1;
                    continue;
                }
                *entry = next as u32;
                word |= (recent >> 63) << (next & 63);
                recent = (recent << 1) | 1;
                next += 1;
                // The first slot of a word begins another run.
                if slot == run.next && slot & 63 != 0 {
                    *distance = live - run.rank;
                    run.next += 1;
                    continue;
                }
                if slot >= word_start {
                    let from = slot & 63;
                    // All tags in `recent`, minus one for the tag itself, which is already counted.
                    *distance = (word >> from).count_ones() + recent.count_ones() - 1;
                    word &= !(1 << from);
                    continue;
                }
                if slot == NO_SLOT {
                    *distance = COLD;
                    live += 1;
                    continue;
                }
                run.end::<LEVELS>(&mut slots, leaving);
                // SAFETY: `slot` was read from `last` and is not `NO_SLOT`, so by 2 it has been
                // taken.
                run = unsafe { SlotRun::start::<LEVELS>(&slots, slot) };
                *distance = live - run.rank;
            }
            slots.words[leaving >> WORD_SHIFT] = word;
        }
        run.end::<LEVELS>(&mut slots, next - RECENT);
        *position = Position { next, recent, live };
        at
    }
}

/// Whether most of the first [`SURVEY`] references are near the previous one: then the processor
/// prefetches by itself.
fn is_in_order(ids: &[u32]) -> bool {
    let ids = &ids[..ids.len().min(SURVEY)];
    let steps = ids.iter().zip(ids.iter().skip(1));
    let near = steps.filter(|&(&id, &next)| next.wrapping_sub(id).wrapping_add(8) < 16);
    near.count() * 2 > ids.len()
}

/// Prefetches what later references will need.
#[inline(always)]
fn fetch(last: &[u32], slots: &Slots<'_>, ids: &[u32], at: usize) {
    if at + FETCH_SLOT_AHEAD < ids.len() {
        prefetch(last.as_ptr().wrapping_add(ids[at + FETCH_SLOT_AHEAD] as usize));
        // SAFETY: by 1 and 2 of `Loop`; `NO_SLOT` leads to the first word, which is there. The slot
        // may be another by then; that makes the fetch useless and nothing wrong.
        let slot = unsafe {
            *last.get_unchecked(*ids.get_unchecked(at + FETCH_WORD_AHEAD) as usize) as usize
        };
        prefetch(slots.words.as_ptr().wrapping_add(slot >> WORD_SHIFT));
        prefetch(slots.level1.as_ptr().wrapping_add(slot >> LINE1_SHIFT));
    }
}

#[inline(always)]
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing the program can see, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(address.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Consecutive slots in one word, each found by the reference after the previous one; their bits
/// are cleared together.
#[derive(Clone, Copy)]
struct SlotRun {
    /// A used slot, if there is a run.
    first: u32,
    /// The slot after the run, at most 64 after the first, because a run does not leave its word.
    /// If there is no run: 0, which no slot continues.
    next: u32,
    /// The number of bits below the first slot; also below each later slot of the run, once those
    /// before it are cleared.
    rank: u32,
}

impl SlotRun {
    const NONE: Self = Self { first: 0, next: 0, rank: 0 };

    /// A run that begins with `slot`, and its rank.
    ///
    /// # Safety
    /// `slot` has been taken: it is below the window's capacity.
    #[inline(always)]
    unsafe fn start<const LEVELS: u32>(slots: &Slots<'_>, slot: u32) -> Self {
        let at = slot as usize;
        // SAFETY: the caller's, and 3 of `Loop`; indices within a line are masked.
        let rank = unsafe {
            let own = slots.words.get_unchecked(at >> WORD_SHIFT) & ((1 << (slot & 63)) - 1);
            let mut rank = own.count_ones();
            rank +=
                u32::from(slots.level1.get_unchecked(at >> LINE1_SHIFT).0[(at >> WORD_SHIFT) & 31]);
            rank += u32::from(
                slots.level2.get_unchecked(at >> LINE2_SHIFT).0[(at >> LINE1_SHIFT) & 31],
            );
            if LEVELS >= 3 {
                rank += slots.level3.get_unchecked(at >> LINE3_SHIFT).0[(at >> LINE2_SHIFT) & 15];
            }
            if LEVELS >= 4 {
                rank += slots.level4.get_unchecked(at >> LINE4_SHIFT).0[(at >> LINE3_SHIFT) & 15];
            }
            rank
        };
        Self { first: slot, next: slot + 1, rank }
    }

    /// Clears the run's bits. Slots of the window are in use up to the word of `newest`.
    #[inline(always)]
    fn end<const LEVELS: u32>(&mut self, slots: &mut Slots<'_>, newest: usize) {
        let at = self.first as usize;
        let count = self.next - self.first;
        if count == 1 {
            // SAFETY: `first` has been taken (`start`), and 3 of `Loop`.
            unsafe {
                *slots.words.get_unchecked_mut(at >> WORD_SHIFT) &= !(1 << (at & 63));
                line16(slots.level1, at >> LINE1_SHIFT).take_one_after(at >> WORD_SHIFT);
                line16(slots.level2, at >> LINE2_SHIFT).take_one_after(at >> LINE1_SHIFT);
                if LEVELS >= 3 {
                    line32(slots.level3, at >> LINE3_SHIFT).take_one_after(at >> LINE2_SHIFT);
                }
                if LEVELS >= 4 {
                    line32(slots.level4, at >> LINE4_SHIFT).take_one_after(at >> LINE3_SHIFT);
                }
            }
        } else if count > 1 {
            // SAFETY: as above; all slots of the run are in the first one's word.
            unsafe {
                let bits = (u64::MAX >> (64 - count)) << (at & 63);
                *slots.words.get_unchecked_mut(at >> WORD_SHIFT) &= !bits;
                line16(slots.level1, at >> LINE1_SHIFT).take_after(at >> WORD_SHIFT, count);
                line16(slots.level2, at >> LINE2_SHIFT).take_after(at >> LINE1_SHIFT, count);
                if LEVELS >= 3 {
                    line32(slots.level3, at >> LINE3_SHIFT).take_after(at >> LINE2_SHIFT, count);
                }
                if LEVELS >= 4 {
                    line32(slots.level4, at >> LINE4_SHIFT).take_after(at >> LINE3_SHIFT, count);
                }
            }
        }
        if LEVELS >= 4 && count != 0 {
            for line in (at >> LINE4_SHIFT) + 1..=newest >> LINE4_SHIFT {
                slots.level4[line].take_all(count);
            }
        }
        *self = Self::NONE;
    }
}

/// # Safety
/// `index` is below the length.
#[inline(always)]
unsafe fn line16(lines: &mut [Line16], index: usize) -> &mut Line16 {
    // SAFETY: the caller's.
    unsafe { lines.get_unchecked_mut(index) }
}

/// # Safety
/// `index` is below the length.
#[inline(always)]
unsafe fn line32(lines: &mut [Line32], index: usize) -> &mut Line32 {
    // SAFETY: the caller's.
    unsafe { lines.get_unchecked_mut(index) }
}
