//! The pages that a workload touches.
//!
//! Idea: one interface to anonymous memory and to a file read through the page cache, so that the
//! engine only deals with pages. Both are filled page by page with incompressible data. Memory is
//! mapped for the size that the schedule asks for and unmapped when it asks for less, so that the
//! kernel's `Committed_AS` follows the workload as it follows a program's.
//! Limits: pages of 4 KiB; huge pages are disabled because one touch would fault in 512 pages.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

use ballast_lab_guest::rng::Rng;
use ballast_model::{Bytes, PAGE_SIZE};
use rustix::fs::Advice as FileAdvice;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

const PAGE: usize = PAGE_SIZE as usize;
const WORDS: usize = PAGE / size_of::<u64>();
/// Words per cache line, and lines per page.
const LINE_WORDS: u64 = 8;
const LINES: u64 = WORDS as u64 / LINE_WORDS;

/// Pages that a workload touches, numbered from 0.
pub(crate) trait Backing {
    /// Fills a page for the first time.
    fn fill(&mut self, page: u64, rng: &mut Rng) -> Result<(), String>;
    /// Called once all pages of a size are filled.
    fn finish_filling(&mut self) -> Result<(), String>;
    /// Has room for `pages` pages, at least 1, and frees those beyond.
    fn resize(&mut self, pages: u64) -> Result<(), String>;
    /// Reads one word of a filled page, and writes it if `write`.
    fn touch(&mut self, page: u64, write: bool) -> Result<(), String>;
}

/// The word of `page` to touch. It is in a different cache line for each page; otherwise all
/// touches would compete for the same few cache sets.
const fn word_of(page: u64) -> usize {
    (page % LINES * LINE_WORDS) as usize
}

/// Private anonymous memory.
pub(crate) struct AnonymousMemory {
    start: NonNull<u64>,
    pages: u64,
}

impl AnonymousMemory {
    /// Maps one page.
    pub(crate) fn new() -> Result<AnonymousMemory, String> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE, access, MapFlags::PRIVATE)
        }
        .map_err(|error| format!("cannot map a page: {error}"))?;
        // A kernel without huge pages refuses this, and does not need it. A mapping keeps the
        // advice as it grows. SAFETY: the range is the mapping just made; the advice does not
        // change its contents.
        let _ = unsafe { rustix::mm::madvise(start, PAGE, Advice::LinuxNoHugepage) };
        let start = NonNull::new(start.cast()).ok_or("cannot map a page: mapped at address 0")?;
        Ok(AnonymousMemory { start, pages: 1 })
    }

    /// The address of a word; panics if the page is out of range, which is a bug of the engine.
    fn word(&self, page: u64, word: usize) -> *mut u64 {
        assert!(page < self.pages && word < WORDS, "page {page} of {}", self.pages);
        // SAFETY: the index is inside the mapping, as was just checked.
        unsafe { self.start.as_ptr().add(page as usize * WORDS + word) }
    }
}

impl Backing for AnonymousMemory {
    fn fill(&mut self, page: u64, rng: &mut Rng) -> Result<(), String> {
        for word in 0..WORDS {
            // SAFETY: `word` points into the mapping, which is writable and only ours.
            unsafe { self.word(page, word).write_volatile(rng.next_u64()) };
        }
        Ok(())
    }

    fn finish_filling(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn resize(&mut self, pages: u64) -> Result<(), String> {
        let (old, new) = (self.pages as usize * PAGE, pages as usize * PAGE);
        // SAFETY: the range is our mapping, and no reference into it exists: it may move, and the
        // contents of its end are discarded on purpose.
        let start = unsafe {
            rustix::mm::mremap(self.start.as_ptr().cast(), old, new, MremapFlags::MAYMOVE)
        }
        .map_err(|error| format!("cannot map {} of memory: {error}", Bytes::pages(pages)))?;
        self.start = NonNull::new(start.cast()).ok_or("memory was moved to address 0")?;
        self.pages = pages;
        Ok(())
    }

    fn touch(&mut self, page: u64, write: bool) -> Result<(), String> {
        let word = self.word(page, word_of(page));
        // SAFETY: `word` points into the mapping, which is readable, writable and only ours;
        // volatile because the access itself is the purpose.
        unsafe {
            let value = word.read_volatile();
            if write {
                word.write_volatile(value.wrapping_add(1));
            }
        }
        Ok(())
    }
}

impl Drop for AnonymousMemory {
    fn drop(&mut self) {
        let bytes = self.pages as usize * PAGE;
        // SAFETY: this is our mapping, and no reference into it exists.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A file that is read through the page cache.
pub(crate) struct CachedFile {
    file: File,
    page: Box<[u8; PAGE]>,
}

impl CachedFile {
    /// Creates a file at `path` and unlinks it at once, so nothing else finds it. Checks that the
    /// disk has room for `size` first: a throttled disk may take minutes to fill up.
    pub(crate) fn create(path: &Path, size: Bytes) -> Result<CachedFile, String> {
        let failed = |error| format!("{}: {error}", path.display());
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(failed)?;
        std::fs::remove_file(path).map_err(failed)?;
        let disk = rustix::fs::fstatvfs(&file).map_err(|error| failed(error.into()))?;
        let room = Bytes::new(disk.f_bavail.saturating_mul(disk.f_frsize));
        if room < size {
            return Err(format!("{}: {size} needed, room for {room}", path.display()));
        }
        // Disables readahead, which would read pages that were not touched.
        rustix::fs::fadvise(&file, 0, None, FileAdvice::Random)
            .map_err(|error| failed(error.into()))?;
        Ok(CachedFile { file, page: Box::new([0; PAGE]) })
    }
}

impl Backing for CachedFile {
    fn fill(&mut self, page: u64, rng: &mut Rng) -> Result<(), String> {
        for word in self.page.chunks_exact_mut(size_of::<u64>()) {
            word.copy_from_slice(&rng.next_u64().to_ne_bytes());
        }
        self.file
            .write_all_at(&*self.page, page * PAGE_SIZE)
            .map_err(|error| format!("filling page {page} of the file: {error}"))
    }

    /// Writes the file to its disk, so that its pages are clean and can be dropped.
    fn finish_filling(&mut self) -> Result<(), String> {
        self.file.sync_data().map_err(|error| format!("writing the file to its disk: {error}"))
    }

    /// A file has the length of what was written to it.
    fn resize(&mut self, pages: u64) -> Result<(), String> {
        let end = pages * PAGE_SIZE;
        let failed = |error| format!("truncating the file to {pages} pages: {error}");
        if self.file.metadata().map_err(failed)?.len() > end {
            self.file.set_len(end).map_err(failed)?;
        }
        Ok(())
    }

    fn touch(&mut self, page: u64, write: bool) -> Result<(), String> {
        let at = page * PAGE_SIZE;
        let read = self.file.read_exact_at(&mut *self.page, at);
        let written = match (read, write) {
            (Ok(()), true) => {
                let first = word_of(page) * size_of::<u64>();
                self.page[first] = self.page[first].wrapping_add(1);
                self.file.write_all_at(&self.page[first..=first], at + first as u64)
            }
            (read, _) => read,
        };
        written.map_err(|error| format!("page {page} of the file: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills, touches, releases and fills again.
    fn exercise(backing: &mut dyn Backing) {
        let mut rng = Rng::new(3);
        backing.resize(8).unwrap();
        for page in 0..8 {
            backing.fill(page, &mut rng).unwrap();
        }
        backing.finish_filling().unwrap();
        for page in 0..8 {
            backing.touch(page, page % 2 == 0).unwrap();
        }
        backing.resize(2).unwrap();
        backing.touch(1, true).unwrap();
        backing.resize(8).unwrap();
        backing.fill(2, &mut rng).unwrap();
        backing.touch(2, false).unwrap();
    }

    #[test]
    fn memory_is_filled_touched_and_released() {
        let mut memory = AnonymousMemory::new().unwrap();
        exercise(&mut memory);
        let word = |page, word| {
            // SAFETY: `word` checks its arguments and points into the mapping.
            unsafe { memory.word(page, word).read_volatile() }
        };
        assert_eq!(word(5, 0), 0, "released");
        assert_ne!((word(0, 7), word(0, 8)), (0, 0), "filled");
        assert_ne!(word(0, 7), word(0, 8), "with data that does not repeat");
    }

    #[test]
    fn mapped_memory_is_committed_as_the_size_changes() {
        let mut memory = AnonymousMemory::new().unwrap();
        for pages in [4096, 16, 64] {
            memory.resize(pages).unwrap();
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let start = format!("{:x}-", memory.start.as_ptr() as usize);
            let mapping = smaps.lines().skip_while(|line| !line.starts_with(&start));
            let flags = mapping.clone().find(|line| line.starts_with("VmFlags:")).unwrap();
            assert!(flags.split(' ').any(|flag| flag == "ac"), "accounted: {flags}");
            let size = mapping.clone().find(|line| line.starts_with("Size:")).unwrap();
            assert_eq!(size.split_whitespace().nth(1), Some((4 * pages).to_string().as_str()));
        }
    }

    #[test]
    #[should_panic(expected = "page 8 of 8")]
    fn page_out_of_range_panics() {
        let mut memory = AnonymousMemory::new().unwrap();
        memory.resize(8).unwrap();
        let _ = memory.touch(8, true);
    }

    #[test]
    fn file_is_filled_touched_and_released() {
        let path = std::env::temp_dir().join(format!("lab-guest-backing-{}", std::process::id()));
        let mut file = CachedFile::create(&path, Bytes::pages(8)).unwrap();
        assert!(!path.exists());
        exercise(&mut file);
        assert!(file.touch(7, false).unwrap_err().starts_with("page 7 of the file"));
        let too_large = CachedFile::create(&path, Bytes::MAX).err().unwrap();
        assert!(too_large.contains("room for") && !path.exists(), "{too_large}");
    }
}
