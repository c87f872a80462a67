//! `/proc/PID/pagemap`: the state of each page of a process.
//!
//! Idea: the file has one 64-bit word per page. For private memory the word is complete: present,
//! swapped, or neither. For a shared file it says only whether the page is in the process's page
//! table; a swapped page looks as if never touched ([`SharedFile`](crate::shared_file::SharedFile)
//! tells the difference).
//!
//! Cost: about 1 µs a read, and 10 ns a page.
//! Source: proc_pid_pagemap(5).
//! Limits: [`CHUNK_PAGES`] a read.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use ballast_model::{Bytes, PAGE_SIZE};

use crate::ranges::{AddressRange, runs};

/// Most pages per read: 2 MiB of memory, a buffer of 4 KiB.
pub(crate) const CHUNK_PAGES: usize = 512;

const WORD: usize = size_of::<u64>();

/// The word of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagemapEntry(u64);

impl PagemapEntry {
    /// The page is in the process's page table.
    pub fn is_present(&self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// The page is in swap.
    pub fn is_swapped(&self) -> bool {
        self.0 >> 62 & 1 == 1
    }
}

/// The entries in bytes read from a `pagemap`; a word that is cut off at the end is left out.
pub fn parse_pagemap(bytes: &[u8]) -> impl ExactSizeIterator<Item = PagemapEntry> + '_ {
    bytes.chunks_exact(WORD).map(|word| {
        let mut copy = [0; WORD];
        copy.copy_from_slice(word);
        PagemapEntry(u64::from_ne_bytes(copy))
    })
}

/// The `pagemap` of one process.
#[derive(Debug)]
pub(crate) struct Pagemap(File);

impl Pagemap {
    pub(crate) fn new(file: OwnedFd) -> Pagemap {
        Pagemap(file.into())
    }

    /// Reads the entries of the first [`CHUNK_PAGES`] of `range` into `buffer`. Returns fewer when
    /// the process ends.
    pub(crate) fn read<'b>(
        &self,
        range: AddressRange,
        buffer: &'b mut [PagemapEntry; CHUNK_PAGES],
    ) -> &'b [PagemapEntry] {
        let pages = (range.len().to_pages() as usize).min(CHUNK_PAGES);
        let mut bytes = [0; CHUNK_PAGES * WORD];
        let at = range.start() / PAGE_SIZE * WORD as u64;
        let read = self.0.read_at(&mut bytes[..pages * WORD], at).unwrap_or(0);
        let entries = parse_pagemap(&bytes[..read]);
        let count = entries.len();
        for (place, entry) in buffer.iter_mut().zip(entries) {
            *place = entry;
        }
        &buffer[..count]
    }

    /// The amount of `range` for which `matches` is true.
    pub(crate) fn count(
        &self,
        range: AddressRange,
        matches: impl Fn(&PagemapEntry) -> bool,
    ) -> Bytes {
        let mut sum = Bytes::ZERO;
        self.for_each_chunk(range, |at, entries| {
            sum += runs(at, entries, &matches).map(|run| run.len()).sum();
        });
        sum
    }

    /// The parts of `range` for which `matches` is true, lowest first. Parts of neighbouring chunks
    /// are not joined.
    pub(crate) fn parts(
        &self,
        range: AddressRange,
        matches: impl Fn(&PagemapEntry) -> bool,
    ) -> Vec<AddressRange> {
        let mut parts = Vec::new();
        self.for_each_chunk(range, |at, entries| parts.extend(runs(at, entries, &matches)));
        parts
    }

    fn for_each_chunk(&self, mut range: AddressRange, mut act: impl FnMut(u64, &[PagemapEntry])) {
        let mut buffer = [PagemapEntry::default(); CHUNK_PAGES];
        while !range.is_empty() {
            let entries = self.read(range, &mut buffer);
            if entries.is_empty() {
                return;
            }
            act(range.start(), entries);
            range = range.split(Bytes::pages(entries.len() as u64)).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_in_chunks_up_to_the_end() {
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
        assert_eq!(pagemap.count(all, PagemapEntry::is_present), Bytes::pages(499));
        assert_eq!(pagemap.count(all, PagemapEntry::is_swapped), Bytes::pages(499));
        let first = AddressRange::new(0, 2 * PAGE_SIZE);
        assert_eq!(pagemap.parts(first, |it| it.is_present() || it.is_swapped()), [first]);
        assert_eq!(pagemap.parts(first, PagemapEntry::is_swapped).len(), 1);
    }
}
