//! `/proc/PID/pagemap`: what each page of a process is.
//!
//! Idea: one word of 64 bits a page. For private memory it says all: present, swapped, or neither. For a shared file
//! it says only whether the page stands in the process's page table: what was swapped out looks as if never
//! touched ([`SharedFile`](crate::shared_file::SharedFile) knows better).
//!
//! Cost: about 1 µs a reading, and 10 ns a page.
//! Source: proc_pid_pagemap(5).
//! Limits: [`CHUNK_PAGES`] a reading.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use ballast_model::{Bytes, PAGE_SIZE};

use crate::AddressRange;
use crate::ranges::runs;

/// Most pages looked at in one reading: 2 MiB of them, a buffer of 4 KiB.
pub(crate) const CHUNK_PAGES: usize = 512;

const WORD: usize = size_of::<u64>();

/// What the kernel says of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    /// It stands in the process's page table.
    pub(crate) fn is_present(&self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// It is in swap.
    pub(crate) fn is_swapped(&self) -> bool {
        self.0 >> 62 & 1 == 1
    }
}

/// The file of one process.
#[derive(Debug)]
pub(crate) struct Pagemap(File);

impl Pagemap {
    pub(crate) fn new(file: OwnedFd) -> Pagemap {
        Pagemap(file.into())
    }

    /// The entries of the first [`CHUNK_PAGES`] of `range`, in `buffer`. Fewer where the kernel tells of no more: the
    /// process ends.
    pub(crate) fn read<'b>(
        &self,
        range: AddressRange,
        buffer: &'b mut [Entry; CHUNK_PAGES],
    ) -> &'b [Entry] {
        let pages = (range.len().to_pages() as usize).min(CHUNK_PAGES);
        let mut bytes = [0; CHUNK_PAGES * WORD];
        let at = range.start() / PAGE_SIZE * WORD as u64;
        let read = self.0.read_at(&mut bytes[..pages * WORD], at).unwrap_or(0);
        let words = bytes[..read].chunks_exact(WORD);
        let count = words.len();
        for (entry, word) in buffer.iter_mut().zip(words) {
            let mut copy = [0; WORD];
            copy.copy_from_slice(word);
            *entry = Entry(u64::from_ne_bytes(copy));
        }
        &buffer[..count]
    }

    /// Memory of `range` of which `is_in` is true.
    pub(crate) fn count(&self, range: AddressRange, is_in: impl Fn(&Entry) -> bool) -> Bytes {
        let mut sum = Bytes::ZERO;
        self.each(range, |at, entries| {
            sum += runs(at, entries, &is_in).map(|run| run.len()).sum();
        });
        sum
    }

    /// The parts of `range` of which `is_in` is true, lowest first; those of neighbouring chunks are not joined.
    pub(crate) fn parts(
        &self,
        range: AddressRange,
        is_in: impl Fn(&Entry) -> bool,
    ) -> Vec<AddressRange> {
        let mut parts = Vec::new();
        self.each(range, |at, entries| parts.extend(runs(at, entries, &is_in)));
        parts
    }

    fn each(&self, mut range: AddressRange, mut seen: impl FnMut(u64, &[Entry])) {
        let mut buffer = [Entry::default(); CHUNK_PAGES];
        while !range.is_empty() {
            let entries = self.read(range, &mut buffer);
            if entries.is_empty() {
                return;
            }
            seen(range.start(), entries);
            range = range.split(Bytes::pages(entries.len() as u64)).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_chunks_and_none_beyond_the_end() {
        let present = 1_u64 << 63;
        let swapped = 1_u64 << 62;
        let word = |page: u64| match page % 3 {
            0 => present,
            1 => swapped,
            _ => 0,
        };
        let words: Vec<u8> = (0..1500).flat_map(|page| word(page).to_ne_bytes()).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&words, 0).unwrap();
        let pagemap = Pagemap(file);
        let all = AddressRange::new(3 * PAGE_SIZE, 2000 * PAGE_SIZE);
        // Pages 3 to 1499.
        assert_eq!(pagemap.count(all, Entry::is_present), Bytes::pages(499));
        assert_eq!(pagemap.count(all, Entry::is_swapped), Bytes::pages(499));
        let first = AddressRange::new(0, 2 * PAGE_SIZE);
        assert_eq!(pagemap.parts(first, |it| it.is_present() || it.is_swapped()), [first]);
        assert_eq!(pagemap.parts(first, Entry::is_swapped).len(), 1);
    }
}
