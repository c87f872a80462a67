//! A guest's memory in its hypervisor's process, as steps of paging find it.
//!
//! Idea: memory is plugged and unplugged while the host pages; so each step reads the mappings anew, and acts on what
//! is guest memory at that moment. What was unmapped is passed over.
//!
//! Cost: about 0.3 ms a step to read the mappings of a QEMU.
//! Limits: an address that is unmapped and mapped anew within one step may be paged out though it is the
//! hypervisor's own; that costs it a fault, and no data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ballast_model::{Bytes, PAGE_SIZE};

use crate::kernel::{CacheStat, Own};
use crate::pagemap::{CHUNK_PAGES, Entry, Pagemap};
use crate::ram::regions;
use crate::shared_file::SharedFile;
use crate::swap::Swap;
use crate::{AddressRange, GuestRam, Refusal, Region, Vmm, parse_maps};

/// The guest memory of one process.
#[derive(Debug)]
pub struct Paging {
    proc: PathBuf,
    vmm: Vmm,
    ram: GuestRam,
}

/// Where guest memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// In the host's memory. Of shared memory that is what its file has there, whether the hypervisor has it mapped or
    /// not.
    pub resident: Bytes,
    /// In the host's swap; `None` where a shared file may not be opened: its pages look as if never used.
    pub swapped: Option<Bytes>,
}

impl Paging {
    /// Of process `pid` of `proc` (`/proc` on every ordinary host). `start_time` is that of [`Vmm::open`].
    ///
    /// # Errors
    /// Those of [`Vmm::open`], and [`Refusal::NoGuestMemory`].
    pub fn open(
        proc: &Path,
        pid: u32,
        start_time: Option<u64>,
        ram: GuestRam,
    ) -> Result<Paging, Refusal> {
        let vmm = Vmm::open(proc, pid, start_time)?;
        let paging = Paging { proc: proc.to_owned(), vmm, ram };
        paging.regions()?;
        Ok(paging)
    }

    /// The process.
    pub fn vmm(&self) -> &Vmm {
        &self.vmm
    }

    /// Its guest memory at this moment, lowest first.
    ///
    /// # Errors
    /// [`Refusal::Gone`], [`Refusal::Permission`], [`Refusal::NoGuestMemory`] or [`Refusal::Unreadable`].
    pub fn regions(&self) -> Result<Vec<Region>, Refusal> {
        let text = self.vmm.read("maps")?;
        if text.is_empty() {
            return Err(Refusal::Gone { pid: self.vmm.pid() });
        }
        let unreadable = |why| Refusal::unreadable(&self.vmm.path_of("maps"), why);
        regions(self.vmm.pid(), &parse_maps(&text).map_err(unreadable)?, &self.ram)
    }

    /// Where its guest memory is. Looks at every page: about 4 ms for each GiB of shared memory and 3 ms for private.
    ///
    /// # Errors
    /// As [`Paging::regions`].
    pub fn residency(&self) -> Result<Residency, Refusal> {
        let scene = self.scene()?;
        let mut sum = Residency { resident: Bytes::ZERO, swapped: Some(Bytes::ZERO) };
        for piece in &scene.pieces {
            let range = piece.region.range;
            let (resident, swapped) = match &piece.file {
                Some(Ok(file)) => {
                    let stat = file.stat(range).unwrap_or_default();
                    (stat.cached, Some(stat.evicted))
                }
                Some(Err(_)) => (scene.pagemap.count(range, Entry::is_present), None),
                None => (
                    scene.pagemap.count(range, Entry::is_present),
                    Some(scene.pagemap.count(range, Entry::is_swapped)),
                ),
            };
            sum.resident += resident;
            sum.swapped = sum.swapped.zip(swapped).map(|(a, b)| a + b);
        }
        // Of a process that ends there is nothing to be seen, which would be a guest without memory.
        self.alive()?;
        Ok(sum)
    }

    /// How much of its shared guest memory is in the host's memory, whether the hypervisor has it mapped or not; `None`
    /// where it has none. About 4 ms for each GiB of it.
    ///
    /// # Errors
    /// As [`Paging::regions`], and where a shared file may not be opened, or the kernel cannot count
    /// ([`Refusal::KernelTooOld`]).
    pub fn shared_in_memory(&self) -> Result<Option<Bytes>, Refusal> {
        let mut sum = None;
        for region in self.regions()?.into_iter().filter(|region| region.is_shared) {
            let stat = SharedFile::open(&self.vmm, &region)?.stat(region.range);
            let unreadable = |error| Refusal::unreadable(&self.vmm.path_of("map_files"), error);
            sum = Some(sum.unwrap_or(Bytes::ZERO) + stat.map_err(unreadable)?.cached);
        }
        self.alive()?;
        Ok(sum)
    }

    pub(crate) fn alive(&self) -> Result<(), Refusal> {
        if self.vmm.is_alive() { Ok(()) } else { Err(Refusal::Gone { pid: self.vmm.pid() }) }
    }

    pub(crate) fn swap(&self) -> Result<Swap, Refusal> {
        Swap::read(&self.proc)
    }

    /// All that a step needs, open.
    pub(crate) fn scene(&self) -> Result<Scene, Refusal> {
        let pieces = self.regions()?.into_iter().map(|region| {
            let file = region.is_shared.then(|| SharedFile::open(&self.vmm, &region));
            Piece { region, file }
        });
        let pieces = pieces.collect();
        let pagemap = Pagemap::new(self.vmm.open_for("pagemap", "look at its pages")?);
        Ok(Scene { pieces, pagemap })
    }

    /// The process's memory, to be read.
    pub(crate) fn memory(&self) -> Result<Memory, Refusal> {
        Ok(Memory(self.vmm.open_for("mem", "read its memory")?.into()))
    }
}

/// A region, and its file if it has one and that may be opened.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) region: Region,
    pub(crate) file: Option<Result<SharedFile, Refusal>>,
}

/// Guest memory at one moment.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) pagemap: Pagemap,
}

/// A part of one piece that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taken {
    /// The number of the piece.
    pub(crate) piece: usize,
    pub(crate) range: AddressRange,
    /// Whether the process has it in its page table.
    pub(crate) is_mapped: bool,
}

impl Scene {
    /// The pieces that `range` is in, by their numbers, each with its part.
    pub(crate) fn pieces_of(
        &self,
        range: AddressRange,
    ) -> impl Iterator<Item = (usize, AddressRange)> + '_ {
        let first = self.pieces.partition_point(|it| it.region.range.end() <= range.start());
        let numbered = self.pieces.iter().enumerate().skip(first);
        numbered
            .take_while(move |(_, piece)| piece.region.range.start() < range.end())
            .map(move |(number, piece)| (number, piece.region.range.intersection(range)))
    }

    /// What of `range`, a part of piece `number`, is in memory, appended to `taken`.
    pub(crate) fn look(&self, number: usize, range: AddressRange, taken: &mut Vec<Taken>) {
        let mut found = |range, is_mapped| taken.push(Taken { piece: number, range, is_mapped });
        let mut buffer = [Entry::default(); CHUNK_PAGES];
        let mut rest = range;
        while !rest.is_empty() {
            let entries = self.pagemap.read(rest, &mut buffer);
            if entries.is_empty() {
                return;
            }
            for run in crate::ranges::runs(rest.start(), entries, Entry::is_present) {
                found(run, true);
            }
            // What has an entry in swap is private, and not in the file.
            let is_open = |it: &Entry| !it.is_present() && !it.is_swapped();
            if let Some(Ok(file)) = &self.pieces[number].file {
                for run in crate::ranges::runs(rest.start(), entries, is_open) {
                    for part in file.parts(run, |stat: &CacheStat| stat.cached, Bytes::MAX) {
                        found(part, false);
                    }
                }
            }
            rest = rest.split(Bytes::pages(entries.len() as u64)).1;
        }
    }

    /// What of `range`, a part of piece `number`, is in memory.
    pub(crate) fn resident(&self, number: usize, range: AddressRange) -> Bytes {
        match &self.pieces[number].file {
            // Where the file cannot be asked it is not believed that anything moved.
            Some(Ok(file)) => file.stat(range).map_or(range.len(), |stat| stat.cached),
            _ => self.pagemap.count(range, Entry::is_present),
        }
    }

    /// Up to `most` of what is in swap of `range`, a part of piece `number`.
    pub(crate) fn swapped(
        &self,
        number: usize,
        range: AddressRange,
        most: Bytes,
    ) -> Vec<AddressRange> {
        match &self.pieces[number].file {
            Some(Ok(file)) => file.parts(range, |stat| stat.evicted, most),
            Some(Err(_)) => Vec::new(),
            None => {
                let mut left = most;
                let mut parts = self.pagemap.parts(range, Entry::is_swapped);
                for part in &mut parts {
                    *part = part.split(left).0;
                    left = left.saturating_sub(part.len());
                }
                parts.retain(|part| !part.is_empty());
                parts
            }
        }
    }

    /// Reads `range`, a part of piece `number`, from swap, and waits for it.
    pub(crate) fn fill(&self, number: usize, range: AddressRange, memory: &Memory) {
        match &self.pieces[number].file {
            // What fails stays where it is, and is not counted.
            Some(Ok(file)) => drop(file.act(range, Own::Fill)),
            Some(Err(_)) => {}
            None => memory.touch(range),
        }
    }
}

/// The memory of a process, as its own reads would see it.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    /// Reads a byte of each page, which brings it in.
    fn touch(&self, range: AddressRange) {
        let mut byte = [0];
        for address in (range.start()..range.end()).step_by(PAGE_SIZE as usize) {
            // A page that is gone meanwhile is passed over.
            let _ = self.0.read_at(&mut byte, address);
        }
    }
}
