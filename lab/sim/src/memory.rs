//! A guest's memory: which blocks are resident or on disk, and the cost of touching them.
//!
//! Idea: Linux's reclaim, in blocks. A touch sets a referenced bit and moves nothing. When less
//! than the low watermark is free, the inactive lists are scanned from their tails until the high
//! watermark is free. A block referenced since its last scan is kept, and becomes active at the
//! second scan; an unreferenced block is evicted, and the eviction's number recorded. A block that
//! is faulted in again within as many evictions as there are active blocks would have stayed
//! resident with a little more memory and becomes active at once (refault distance). Active blocks
//! are deactivated when they outnumber the inactive ones `√(10 GiB)` to one (`inactive_is_low`).
//!
//! A block stands for all of its pages: it costs as many touches, faults and requests. Averages
//! over pages visited in some order then hold for blocks visited in that order.
//!
//! Cost: O(1) per touch, amortised O(1) per eviction; 20 bytes per block. Source: Linux 6.1,
//! `mm/vmscan.c` and `mm/workingset.c`.
//! Limits: scanning costs no processor time; a faulting process waits for the blocks written to
//! make room; swap clusters are written together and read ahead only in address order.

use ballast_model::{Bytes, PAGE_SIZE};

use crate::counters::Counters;
use crate::disk::{Requests, ns};
use crate::lru::{List, Lru};
use crate::scenario::{Disk, GuestSpec, Kernel};

mod reclaim;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockLocation {
    /// Never touched, or freed.
    Nowhere,
    /// Resident, on this list.
    On(List),
    /// Only in swap or in its file.
    Out,
}

/// Touched since its last scan.
const REFERENCED: u8 = 1;
/// One scan found it referenced.
const REFERENCED_ONCE: u8 = 2;
/// Differs from its copy on disk.
const DIRTY: u8 = 4;
/// Has a swap slot.
const SLOT: u8 = 8;
/// The host has paged it out.
const HOST_OUT: u8 = 16;

#[derive(Clone, Copy, Debug)]
struct Block {
    location: BlockLocation,
    flags: u8,
    region: u8,
    /// Number of evictions before its own.
    evicted_at: u32,
}

/// The memory of one workload: blocks `first..first + len`, of at most `most`.
#[derive(Clone, Copy, Debug)]
struct Region {
    first: u32,
    len: u32,
    most: u32,
    file: bool,
    /// Number of blocks that can be touched without waiting.
    ready: u32,
}

/// There is no free memory and nothing can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// A guest's memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    block: u64,
    pages: u64,
    allocation: u64,
    kernel: Kernel,
    /// Additional processor time of a page's first touch, in ns.
    fill_ns: u64,
    blocks: Vec<Block>,
    regions: Vec<Region>,
    lru: Lru,
    resident: u64,
    slots: u64,
    slots_most: u64,
    swap: Option<Requests>,
    readahead: u64,
    data: Requests,
    host: Option<Requests>,
    host_out: u64,
    /// Number of evictions so far; wraps.
    evictions: u32,
    /// Which lists are scanned next: see [`Memory::is_turn_of_anon`].
    turn: u64,
    /// Slowdown of requests because others use the same disk; 1,000 is none.
    pub(crate) contention_permille: u64,
    /// Its event counters.
    pub(crate) counters: Counters,
}

impl Memory {
    /// The memory of a guest that holds `allocation`, with empty regions for its workloads.
    pub(crate) fn new(
        spec: &GuestSpec,
        block: Bytes,
        allocation: Bytes,
        host: Option<Disk>,
    ) -> Memory {
        let block = block.get().max(PAGE_SIZE);
        let mut blocks = Vec::new();
        let mut regions = Vec::new();
        for (number, timed) in spec.workloads.iter().enumerate() {
            let pattern = &timed.workload.pattern;
            let most = pattern.size_max().get().div_ceil(block) as u32;
            let (first, file) = (blocks.len() as u32, pattern.is_file());
            let region = number as u8;
            let empty = Block { location: BlockLocation::Nowhere, flags: 0, region, evicted_at: 0 };
            blocks.resize(blocks.len() + most as usize, empty);
            regions.push(Region { first, len: 0, most, file, ready: 0 });
        }
        Memory {
            block,
            pages: block / PAGE_SIZE,
            allocation: allocation.get(),
            kernel: spec.kernel,
            fill_ns: ns(spec.fill),
            lru: Lru::new(blocks.len()),
            blocks,
            regions,
            resident: 0,
            slots: 0,
            slots_most: spec.swap.map_or(0, |swap| swap.size.get() / block),
            swap: spec.swap.map(|swap| Requests::new(swap.disk)),
            readahead: spec.swap.map_or(1, |swap| swap.readahead_pages.max(1)),
            data: Requests::new(spec.data),
            host: host.map(Requests::new),
            host_out: 0,
            evictions: 0,
            turn: 0,
            contention_permille: 1000,
            counters: Counters::default(),
        }
    }

    /// Pages of a block.
    pub(crate) fn block_pages(&self) -> u64 {
        self.pages
    }

    pub(crate) fn allocation(&self) -> Bytes {
        Bytes::new(self.allocation)
    }

    /// Memory of the kernel itself.
    pub(crate) fn kernel(&self) -> Bytes {
        self.kernel.uncounted.saturating_add(self.kernel.unreclaimable)
    }

    /// The kernel's memory that a tracker sees touched: memory reserved at boot is hardly used
    /// again.
    pub(crate) fn kernel_touched(&self) -> Bytes {
        self.kernel.unreclaimable
    }

    /// Memory that the guest's kernel reports (`MemTotal`).
    pub(crate) fn total(&self) -> Bytes {
        self.allocation().saturating_sub(self.kernel.uncounted)
    }

    /// Memory for blocks.
    fn room(&self) -> u64 {
        self.allocation.saturating_sub(self.kernel().get())
    }

    /// Free memory.
    pub(crate) fn free(&self) -> u64 {
        self.room().saturating_sub(self.resident * self.block)
    }

    /// Free memory at which reclaim stops: the kernel's high watermark, at most a quarter of the
    /// memory for blocks.
    pub(crate) fn watermark_high(&self) -> u64 {
        self.kernel.watermark_high.get().min(self.room() / 4)
    }

    /// Free memory at which reclaim starts, in the same proportion to the high watermark.
    pub(crate) fn watermark_low(&self) -> u64 {
        let Kernel { watermark_low: low, watermark_high: high, .. } = self.kernel;
        Bytes::new(self.watermark_high()).fraction(low.get(), high.get().max(1)).get()
    }

    /// Available memory as Linux estimates it (`si_mem_available`): without half of the page cache,
    /// at most the low watermark, and without the reserve, the high watermark.
    pub(crate) fn available(&self) -> Bytes {
        let cache = self.file().get();
        let cache = cache - (cache / 2).min(self.watermark_low());
        Bytes::new((self.free() + cache).saturating_sub(self.watermark_high()))
    }

    /// Page cache.
    pub(crate) fn file(&self) -> Bytes {
        self.in_blocks(self.lru.len(List::ActiveFile) + self.lru.len(List::InactiveFile))
    }

    pub(crate) fn active(&self) -> Bytes {
        self.in_blocks(self.lru.len(List::ActiveFile) + self.lru.len(List::ActiveAnon))
    }

    pub(crate) fn inactive(&self) -> Bytes {
        self.in_blocks(self.lru.len(List::InactiveFile) + self.lru.len(List::InactiveAnon))
    }

    pub(crate) fn swap_used(&self) -> Bytes {
        self.in_blocks(self.slots)
    }

    pub(crate) fn swap_free(&self) -> Bytes {
        self.in_blocks(self.slots_most - self.slots)
    }

    /// Memory in use by processes, page cache and kernel, without swap.
    pub(crate) fn used(&self) -> Bytes {
        Bytes::new(self.allocation.saturating_sub(self.free()))
    }

    /// Memory the host has paged out.
    pub(crate) fn host_out(&self) -> Bytes {
        self.in_blocks(self.host_out)
    }

    /// Memory of all regions at their current size, with the kernel's.
    pub(crate) fn demand(&self) -> Bytes {
        let blocks: u64 = self.regions.iter().map(|region| u64::from(region.len)).sum();
        self.kernel().saturating_add(self.in_blocks(blocks))
    }

    /// Anonymous memory committed to processes (`Committed_AS`), with the kernel's own.
    pub(crate) fn committed(&self) -> Bytes {
        let anon = self.regions.iter().filter(|region| !region.file);
        let blocks: u64 = anon.map(|region| u64::from(region.len)).sum();
        self.in_blocks(blocks).saturating_add(self.kernel.unreclaimable)
    }

    fn in_blocks(&self, n: u64) -> Bytes {
        Bytes::new(n.saturating_mul(self.block))
    }

    /// Number of blocks of a region at its current size.
    pub(crate) fn len(&self, region: usize) -> u32 {
        self.regions[region].len
    }

    /// Whether every block of a region can be touched without waiting.
    pub(crate) fn is_ready(&self, region: usize) -> bool {
        self.regions[region].ready == self.regions[region].len
    }

    /// Sets a region's size and frees the blocks beyond it. A file stays in the page cache.
    pub(crate) fn resize(&mut self, region: usize, size: Bytes) {
        let Region { first, len, most, file, .. } = self.regions[region];
        let wanted = (size.get().div_ceil(self.block) as u32).min(most);
        if wanted == len || file && wanted < len {
            return;
        }
        for block in first + wanted..(first + len).max(first + wanted) {
            self.give_back(block);
        }
        self.regions[region].len = wanted;
    }

    /// Frees a whole region, including page cache.
    pub(crate) fn clear(&mut self, region: usize) {
        let Region { first, len, .. } = self.regions[region];
        (first..first + len).for_each(|block| self.give_back(block));
        self.regions[region].len = 0;
    }

    fn give_back(&mut self, at: u32) {
        let Block { location, flags, .. } = self.blocks[at as usize];
        if let BlockLocation::On(list) = location {
            self.lru.remove(list, at);
            self.left(at);
        }
        if flags & SLOT != 0 {
            self.slots -= 1;
        }
        self.blocks[at as usize].location = BlockLocation::Nowhere;
        self.blocks[at as usize].flags = 0;
    }

    /// Records that a block is no longer resident.
    fn left(&mut self, at: u32) {
        let block = self.blocks[at as usize];
        self.resident -= 1;
        if block.flags & HOST_OUT != 0 {
            self.host_out -= 1;
            self.blocks[at as usize].flags &= !HOST_OUT;
        } else {
            self.regions[usize::from(block.region)].ready -= 1;
        }
    }

    /// Touches all pages of a block; `in_order` if it follows the previous block. Returns the time
    /// waited, in ns.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn touch(
        &mut self,
        region: usize,
        at: u32,
        write: bool,
        in_order: bool,
    ) -> Result<u64, OutOfMemory> {
        let index = self.regions[region].first + at;
        let block = self.blocks[index as usize];
        let waited = match block.location {
            BlockLocation::On(_) if block.flags & HOST_OUT == 0 => 0,
            BlockLocation::On(_) => self.page_in_from_host(index),
            BlockLocation::Nowhere | BlockLocation::Out => self.fault(region, index, in_order)?,
        };
        self.counters.touches += self.pages;
        self.mark(index, write);
        Ok(waited)
    }

    fn mark(&mut self, index: u32, write: bool) {
        let block = &mut self.blocks[index as usize];
        block.flags |= REFERENCED;
        if write && block.flags & DIRTY == 0 {
            block.flags |= DIRTY;
            if block.flags & SLOT != 0 {
                // The copy in swap is outdated.
                block.flags &= !SLOT;
                self.slots -= 1;
            }
        }
    }

    /// Marks `count` resident blocks of a region from `from` on as touched.
    pub(crate) fn mark_range(&mut self, region: usize, from: u32, count: u32, write: bool) {
        let first = self.regions[region].first;
        let len = self.regions[region].len;
        if len == 0 {
            return;
        }
        for step in 0..count.min(len) {
            self.mark(first + (from + step) % len, write);
        }
    }

    /// Counts `touches` of resident pages.
    pub(crate) fn account(&mut self, touches: u64) {
        self.counters.touches += touches;
    }

    fn fault(&mut self, region: usize, index: u32, in_order: bool) -> Result<u64, OutOfMemory> {
        let file = self.regions[region].file;
        let mut waited = self.make_room(index)?;
        let came_from = self.blocks[index as usize].location;
        let mut pages = self.pages;
        let fresh = came_from == BlockLocation::Nowhere;
        self.enter(index, file);
        if fresh && !file {
            self.counters.minor_faults += pages;
            return Ok(waited + pages.saturating_mul(self.fill_ns));
        }
        if file {
            self.counters.major_faults += pages;
            self.counters.file_read_pages += pages;
            if !fresh {
                self.counters.refaulted_file_pages += pages;
            }
            return Ok(waited + self.wait(self.data.ns(pages, pages)));
        }
        let mut requests = pages;
        if in_order {
            let end = self.regions[region].first + self.regions[region].len;
            let more = (self.readahead / self.pages).saturating_sub(1);
            for next in (index + 1..end).take(more as usize) {
                if self.blocks[next as usize].location != BlockLocation::Out {
                    break;
                }
                waited += self.make_room(next)?;
                self.enter(next, file);
                pages += self.pages;
            }
            requests = pages.div_ceil(self.readahead);
        }
        self.counters.major_faults += requests;
        self.counters.swap_in_pages += pages;
        let Some(swap) = self.swap else { return Ok(waited) };
        Ok(waited + self.wait(swap.ns(requests, pages)))
    }

    /// Makes room for a block.
    fn make_room(&mut self, index: u32) -> Result<u64, OutOfMemory> {
        let mut waited = 0;
        if self.free() < self.block + self.watermark_low() {
            waited = self.reclaim(self.block + self.watermark_high());
        }
        debug_assert!(
            !matches!(self.blocks[index as usize].location, BlockLocation::On(_)),
            "the block is already resident"
        );
        if self.free() < self.block { Err(OutOfMemory) } else { Ok(waited) }
    }

    /// Makes a block resident.
    fn enter(&mut self, index: u32, file: bool) {
        let block = self.blocks[index as usize];
        let away = self.evictions.wrapping_sub(block.evicted_at);
        let active = self.lru.len(List::ActiveAnon) + self.lru.len(List::ActiveFile);
        let soon = block.location == BlockLocation::Out && u64::from(away) <= active;
        let list = match (file, soon) {
            (false, false) => List::InactiveAnon,
            (false, true) => List::ActiveAnon,
            (true, false) => List::InactiveFile,
            (true, true) => List::ActiveFile,
        };
        self.lru.push(list, index);
        self.blocks[index as usize].location = BlockLocation::On(list);
        self.resident += 1;
        self.regions[usize::from(block.region)].ready += 1;
    }

    /// Accounts for a request that takes `ns` without contention.
    fn wait(&mut self, ns: u64) -> u64 {
        let ns = ns.saturating_mul(self.contention_permille) / 1000;
        self.counters.waited_ns += ns;
        ns
    }

    /// Takes up to `wanted` bytes for the balloon, by reclaim if they are not free. Returns the
    /// bytes taken and the disks' busy time.
    pub(crate) fn inflate(&mut self, wanted: u64) -> (u64, u64) {
        let mut waited = 0;
        if self.free() < wanted + self.watermark_low() {
            waited = self.reclaim(wanted + self.watermark_low());
        }
        let given = wanted.min(self.free().saturating_sub(self.watermark_low() / 4));
        let given = given / PAGE_SIZE * PAGE_SIZE;
        self.allocation -= given;
        (given, waited)
    }

    /// Returns `given` bytes from the balloon.
    pub(crate) fn deflate(&mut self, given: u64) {
        self.allocation += given;
    }

    /// The host pages out up to `wanted` bytes, starting at block `from` and wrapping around,
    /// unnoticed by the guest and its lists. Returns the bytes paged out.
    pub(crate) fn page_out_by_host(&mut self, wanted: Bytes, from: u64) -> Bytes {
        let n = self.blocks.len() as u64;
        let mut out = 0;
        for step in 0..n {
            if (out + 1) * self.block > wanted.get() {
                break;
            }
            let at = ((from % n.max(1) + step) % n) as usize;
            let block = &mut self.blocks[at];
            if matches!(block.location, BlockLocation::On(_)) && block.flags & HOST_OUT == 0 {
                block.flags |= HOST_OUT;
                self.regions[usize::from(block.region)].ready -= 1;
                self.host_out += 1;
                out += 1;
            }
        }
        self.in_blocks(out)
    }

    fn page_in_from_host(&mut self, at: u32) -> u64 {
        let block = &mut self.blocks[at as usize];
        block.flags &= !HOST_OUT;
        self.regions[usize::from(block.region)].ready += 1;
        self.host_out -= 1;
        match self.host {
            Some(host) => self.wait(host.ns(self.pages, self.pages)),
            None => 0,
        }
    }
}
