//! Guest memory within its hypervisor process.
//!
//! Idea: memory is plugged and unplugged while the host pages. So each step reads the mappings
//! again and acts on what is guest memory at that moment; memory unmapped since is skipped.
//!
//! Cost: about 0.3 ms a step to read the mappings of a QEMU.
//! Limits: an address that is unmapped and mapped again within one step may be paged out although
//! it belongs to the hypervisor; that costs the hypervisor a fault, and no data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ballast_model::{Bytes, PAGE_SIZE};

use crate::error::ReclaimError;
use crate::kernel::{CacheAction, CacheStat};
use crate::maps::parse_maps;
use crate::pagemap::{CHUNK_PAGES, Pagemap, PagemapEntry};
use crate::process::VmmProcess;
use crate::ram::{GuestRam, GuestRegion, find_regions, in_files};
use crate::ranges::{AddressRange, runs};
use crate::shared_file::SharedFile;
use crate::swap::SwapUsage;

/// The guest memory of one process.
#[derive(Debug)]
pub struct GuestMemory {
    proc: PathBuf,
    vmm: VmmProcess,
    ram: GuestRam,
}

/// Where guest memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// In the host's memory. Shared memory counts whether the hypervisor has it mapped or not.
    pub resident: Bytes,
    /// In the host's swap. `None` if a shared file may not be opened: its swapped pages then look
    /// like pages never used.
    pub swapped: Option<Bytes>,
}

impl GuestMemory {
    /// Opens process `pid` of `proc` (usually `/proc`). `start_time` is that of
    /// [`VmmProcess::open`].
    ///
    /// # Errors
    /// Those of [`VmmProcess::open`], and [`ReclaimError::NoGuestMemory`].
    pub fn open(
        proc: &Path,
        pid: u32,
        start_time: Option<u64>,
        ram: GuestRam,
    ) -> Result<GuestMemory, ReclaimError> {
        let vmm = VmmProcess::open(proc, pid, start_time)?;
        let memory = GuestMemory { proc: proc.to_owned(), vmm, ram };
        memory.regions()?;
        Ok(memory)
    }

    /// The process.
    pub fn vmm(&self) -> &VmmProcess {
        &self.vmm
    }

    /// The current regions of guest memory, lowest first.
    ///
    /// # Errors
    /// [`ReclaimError::Gone`], [`ReclaimError::Permission`], [`ReclaimError::NoGuestMemory`] or
    /// [`ReclaimError::Unreadable`].
    pub fn regions(&self) -> Result<Vec<GuestRegion>, ReclaimError> {
        let text = self.vmm.read("maps")?;
        if text.is_empty() {
            return Err(ReclaimError::Gone { pid: self.vmm.pid() });
        }
        let maps = parse_maps(&text)
            .map_err(|why| ReclaimError::unreadable(&self.vmm.path_of("maps"), why))?;
        find_regions(self.vmm.pid(), &maps, &self.ram)
    }

    /// Counts guest memory in memory and in swap. Visits every page: about 4 ms for each GiB of
    /// shared memory and 3 ms for each GiB of private memory.
    ///
    /// # Errors
    /// As [`GuestMemory::regions`].
    pub fn residency(&self) -> Result<Residency, ReclaimError> {
        let view = self.view()?;
        let mut sum = Residency { resident: Bytes::ZERO, swapped: Some(Bytes::ZERO) };
        for open in &view.regions {
            let range = open.region.range;
            let (resident, swapped) = match &open.file {
                Some(Ok(file)) => {
                    let stat = file.stat(range).unwrap_or_default();
                    (stat.cached, Some(stat.evicted))
                }
                Some(Err(_)) => (view.pagemap.count(range, PagemapEntry::is_present), None),
                None => (
                    view.pagemap.count(range, PagemapEntry::is_present),
                    Some(view.pagemap.count(range, PagemapEntry::is_swapped)),
                ),
            };
            sum.resident += resident;
            sum.swapped = sum.swapped.zip(swapped).map(|(a, b)| a + b);
        }
        // The files of an ending process are empty, which must not pass for a guest without memory.
        self.check_alive()?;
        Ok(sum)
    }

    /// Shared guest memory in the host's memory, whether the hypervisor has it mapped or not;
    /// `None` if the guest has no shared memory. Takes about 4 ms for each GiB.
    ///
    /// # Errors
    /// As [`GuestMemory::regions`]; also if a shared file may not be opened, or the kernel cannot
    /// count it ([`ReclaimError::KernelTooOld`]).
    pub fn shared_in_memory(&self) -> Result<Option<Bytes>, ReclaimError> {
        let mut sum = None;
        for region in self.regions()?.into_iter().filter(|region| region.is_shared) {
            let stat = SharedFile::open(&self.vmm, &region)?.stat(region.range);
            let unreadable =
                |error| ReclaimError::unreadable(&self.vmm.path_of("map_files"), error);
            sum = Some(sum.unwrap_or(Bytes::ZERO) + stat.map_err(unreadable)?.cached);
        }
        self.check_alive()?;
        Ok(sum)
    }

    /// The size of the files that hold guest memory, whether their pages are allocated or not.
    ///
    /// # Errors
    /// As [`GuestMemory::regions`].
    pub fn in_files(&self) -> Result<Bytes, ReclaimError> {
        Ok(in_files(&self.regions()?))
    }

    pub(crate) fn check_alive(&self) -> Result<(), ReclaimError> {
        if self.vmm.is_alive() { Ok(()) } else { Err(ReclaimError::Gone { pid: self.vmm.pid() }) }
    }

    pub(crate) fn swap(&self) -> Result<SwapUsage, ReclaimError> {
        SwapUsage::read(&self.proc)
    }

    /// Opens the files that a step needs.
    pub(crate) fn view(&self) -> Result<MemoryView, ReclaimError> {
        let mut regions = Vec::new();
        for region in self.regions()? {
            let file = region.is_shared.then(|| SharedFile::open(&self.vmm, &region));
            regions.push(OpenRegion { region, file });
        }
        let pagemap = Pagemap::new(self.vmm.open_for("pagemap", "inspect its pages")?);
        Ok(MemoryView { regions, pagemap })
    }

    /// Opens the process's memory for reading.
    pub(crate) fn mem_file(&self) -> Result<MemFile, ReclaimError> {
        Ok(MemFile(self.vmm.open_for("mem", "read its memory")?.into()))
    }
}

/// A region, with its file if it is shared and the file may be opened.
#[derive(Debug)]
pub(crate) struct OpenRegion {
    pub(crate) region: GuestRegion,
    pub(crate) file: Option<Result<SharedFile, ReclaimError>>,
}

/// Guest memory during one step.
#[derive(Debug)]
pub(crate) struct MemoryView {
    /// Lowest first. Methods name a region by its index here.
    pub(crate) regions: Vec<OpenRegion>,
    pub(crate) pagemap: Pagemap,
}

/// A range of one region that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResidentRange {
    /// Index of the region.
    pub(crate) region: usize,
    pub(crate) range: AddressRange,
    /// Whether the process has it in its page table.
    pub(crate) is_mapped: bool,
}

impl MemoryView {
    /// The regions that `range` overlaps, by index, each with the overlap.
    pub(crate) fn overlaps(
        &self,
        range: AddressRange,
    ) -> impl Iterator<Item = (usize, AddressRange)> + '_ {
        let first = self.regions.partition_point(|it| it.region.range.end() <= range.start());
        let indexed = self.regions.iter().enumerate().skip(first);
        indexed
            .take_while(move |(_, open)| open.region.range.start() < range.end())
            .map(move |(index, open)| (index, open.region.range.intersection(range)))
    }

    /// Appends to `found` the parts of `range`, within region `index`, that are in memory.
    pub(crate) fn find_resident(
        &self,
        index: usize,
        range: AddressRange,
        found: &mut Vec<ResidentRange>,
    ) {
        let mut add =
            |range, is_mapped| found.push(ResidentRange { region: index, range, is_mapped });
        let mut buffer = [PagemapEntry::default(); CHUNK_PAGES];
        let mut rest = range;
        while !rest.is_empty() {
            let entries = self.pagemap.read(rest, &mut buffer);
            if entries.is_empty() {
                return;
            }
            for run in runs(rest.start(), entries, PagemapEntry::is_present) {
                add(run, true);
            }
            // A page with a swap entry is private and not in the file.
            let is_unmapped = |it: &PagemapEntry| !it.is_present() && !it.is_swapped();
            if let Some(Ok(file)) = &self.regions[index].file {
                for run in runs(rest.start(), entries, is_unmapped) {
                    for part in file.parts(run, |stat: &CacheStat| stat.cached, Bytes::MAX) {
                        add(part, false);
                    }
                }
            }
            rest = rest.split(Bytes::pages(entries.len() as u64)).1;
        }
    }

    /// The amount of `range`, within region `index`, that is in memory.
    pub(crate) fn resident(&self, index: usize, range: AddressRange) -> Bytes {
        match &self.regions[index].file {
            // If the file cannot be counted, assume that nothing moved.
            Some(Ok(file)) => file.stat(range).map_or(range.len(), |stat| stat.cached),
            _ => self.pagemap.count(range, PagemapEntry::is_present),
        }
    }

    /// The parts of `range`, within region `index`, that are in swap; at most `most` in total.
    pub(crate) fn swapped(
        &self,
        index: usize,
        range: AddressRange,
        most: Bytes,
    ) -> Vec<AddressRange> {
        match &self.regions[index].file {
            Some(Ok(file)) => file.parts(range, |stat| stat.evicted, most),
            Some(Err(_)) => Vec::new(),
            None => {
                let mut left = most;
                let mut parts = self.pagemap.parts(range, PagemapEntry::is_swapped);
                for part in &mut parts {
                    *part = part.split(left).0;
                    left = left.saturating_sub(part.len());
                }
                parts.retain(|part| !part.is_empty());
                parts
            }
        }
    }

    /// Reads `range`, within region `index`, from swap and waits until it is there.
    pub(crate) fn populate(&self, index: usize, range: AddressRange, mem_file: &MemFile) {
        match &self.regions[index].file {
            // A page that cannot be read stays in swap; the caller counts afterwards.
            Some(Ok(file)) => drop(file.apply(range, CacheAction::Populate)),
            Some(Err(_)) => {}
            None => mem_file.touch(range),
        }
    }
}

/// `/proc/PID/mem`.
#[derive(Debug)]
pub(crate) struct MemFile(File);

impl MemFile {
    /// Reads a byte of each page, which brings the page into memory.
    fn touch(&self, range: AddressRange) {
        let mut byte = [0];
        for address in (range.start()..range.end()).step_by(PAGE_SIZE as usize) {
            // Skip pages that were unmapped since.
            let _ = self.0.read_at(&mut byte, address);
        }
    }
}
