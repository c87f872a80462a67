//! The kernel mechanism that the tracker needs, as a trait.
//!
//! Four operations on ranges of the process's own memory (watch, unwatch, revoke, restore) and a
//! stream of faults. [`MinorFaults`](crate::minor::MinorFaults) is the only implementation; the
//! planned userfaultfd mode `UFFDIO_REGISTER_MODE_RWP` could become a second one.
//!
//! [`restore_granule`] works with every mechanism: it restores a granule whose pages may be
//! missing, mapped already, or beyond the mapping, and always answers the faulting page.

use std::os::fd::BorrowedFd;

use ballast_tracker_proto::PAGE_SIZE;
use rustix::io::Errno;

/// Most faults per read.
pub(crate) const FAULTS_MAX: usize = 64;
/// Most ranges per call: the limit of `process_madvise`.
pub(crate) const RANGES_MAX: usize = 1024;

/// A range of memory: whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Extent {
    pub(crate) const fn new(start: u64, len: u64) -> Extent {
        Extent { start, len }
    }

    pub(crate) const fn page(address: u64) -> Extent {
        Extent { start: address & !(PAGE_SIZE - 1), len: PAGE_SIZE }
    }

    pub(crate) const fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    pub(crate) const fn has(self, address: u64) -> bool {
        self.start <= address && address < self.end()
    }

    pub(crate) const fn overlaps(self, other: Extent) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// A touch of memory without permission; the thread that made it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageFault {
    pub(crate) address: u64,
    pub(crate) is_write: bool,
}

/// Operations of the kernel. Either of the tracker's threads may call them.
pub(crate) trait TrapMechanism: Send + Sync {
    /// Registers `range`: touches without permission become faults.
    fn watch(&self, range: Extent) -> Result<(), Errno>;

    /// Unregisters `range`: restores all permissions, and waiting threads continue.
    fn unwatch(&self, range: Extent) -> Result<(), Errno>;

    /// Revokes the permissions of ranges of shared memory; their contents stay.
    fn revoke(&self, ranges: &[Extent]) -> Result<(), Errno>;

    /// Restores the permissions of as many pages from the start of `range` as one call can; returns
    /// their number of bytes. Threads waiting for them continue.
    ///
    /// # Errors
    /// For the first page: `EXIST`, it has permission; `FAULT`, it is not in the file, and a touch
    /// will be ordinary; anything else, restoring failed.
    fn restore(&self, range: Extent) -> Result<u64, Errno>;

    /// Makes threads waiting in `range` retry.
    fn wake(&self, range: Extent);

    /// Reads pending faults; returns their number.
    fn read(&self, faults: &mut [PageFault; FAULTS_MAX]) -> Result<usize, Errno>;

    /// Readable while faults are pending.
    fn faults(&self) -> BorrowedFd<'_>;
}

/// The result of restoring a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestoreResult {
    /// Pages whose permission was restored.
    pub(crate) pages: u64,
    /// The outcome for the faulting page.
    pub(crate) answer: FaultOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultOutcome {
    /// The page has permission.
    Resolved,
    /// The page had permission already, or is gone; the touch is retried.
    Retried,
    /// The memory is no longer registered.
    Gone,
    /// The fault cannot be answered: tracking must end, or the thread waits forever.
    Failed(Errno),
}

/// Restores `granule`, so that the thread waiting for the page at `address` in it continues.
///
/// Cost: one call if all pages can be restored; otherwise at most three per page.
pub(crate) fn restore_granule(
    kernel: &dyn TrapMechanism,
    granule: Extent,
    address: u64,
) -> RestoreResult {
    let page = Extent::page(address);
    let mut pages = 0;
    let mut answer = None;
    let mut at = granule.start;
    let mut retries = 0;
    while at < granule.end() {
        let rest = Extent::new(at, granule.end() - at);
        let step = match kernel.restore(rest) {
            Ok(bytes) => {
                let done = bytes.clamp(PAGE_SIZE, rest.len);
                pages += done / PAGE_SIZE;
                if Extent::new(at, done).has(page.start) {
                    answer = Some(FaultOutcome::Resolved);
                }
                done
            }
            // Page tables changed during the call.
            Err(Errno::AGAIN) if retries < 2 => {
                retries += 1;
                continue;
            }
            Err(error) => {
                if at == page.start {
                    answer = Some(outcome_of_error(kernel, page, error));
                }
                PAGE_SIZE
            }
        };
        retries = 0;
        at += step;
    }
    // If the mapping has changed since the fault, the page may be outside the granule.
    let answer = answer.unwrap_or_else(|| match kernel.restore(page) {
        Ok(_) => FaultOutcome::Resolved,
        Err(error) => outcome_of_error(kernel, page, error),
    });
    RestoreResult { pages, answer }
}

/// The outcome for the faulting page after an error.
fn outcome_of_error(kernel: &dyn TrapMechanism, page: Extent, error: Errno) -> FaultOutcome {
    match error {
        // Another fault restored the page, it was punched out, or page tables are changing.
        Errno::EXIST | Errno::FAULT | Errno::AGAIN => {
            kernel.wake(page);
            FaultOutcome::Retried
        }
        // No longer registered, or unmapped: no thread can wait there.
        Errno::NOENT | Errno::SRCH => {
            kernel.wake(page);
            FaultOutcome::Gone
        }
        error => FaultOutcome::Failed(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::Mutex;

    use super::*;

    /// A file that never becomes readable.
    pub(crate) struct NeverReady(OwnedFd);

    impl Default for NeverReady {
        fn default() -> Self {
            NeverReady(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap())
        }
    }

    /// A fake whose pages are in states that the test chooses.
    #[derive(Default)]
    pub(crate) struct FakeMechanism {
        silent: NeverReady,
        /// Errors of restoring, by page; other pages can be restored.
        pub(crate) errors: Mutex<BTreeMap<u64, Errno>>,
        pub(crate) restored: Mutex<BTreeSet<u64>>,
        pub(crate) woken: Mutex<Vec<u64>>,
        pub(crate) calls: Mutex<usize>,
    }

    impl TrapMechanism for FakeMechanism {
        fn watch(&self, _: Extent) -> Result<(), Errno> {
            Ok(())
        }

        fn unwatch(&self, _: Extent) -> Result<(), Errno> {
            Ok(())
        }

        fn revoke(&self, _: &[Extent]) -> Result<(), Errno> {
            Ok(())
        }

        fn restore(&self, range: Extent) -> Result<u64, Errno> {
            *self.calls.lock().unwrap() += 1;
            let errors = self.errors.lock().unwrap();
            let mut restored = self.restored.lock().unwrap();
            let mut done = 0;
            while done < range.len {
                let page = range.start + done;
                let error = errors.get(&page).copied();
                let error = error.or_else(|| restored.contains(&page).then_some(Errno::EXIST));
                match error {
                    Some(error) if done == 0 => return Err(error),
                    Some(_) => break,
                    None => restored.insert(page),
                };
                done += PAGE_SIZE;
            }
            Ok(done)
        }

        fn wake(&self, range: Extent) {
            self.woken.lock().unwrap().push(range.start);
        }

        fn read(&self, _: &mut [PageFault; FAULTS_MAX]) -> Result<usize, Errno> {
            Ok(0)
        }

        fn faults(&self) -> BorrowedFd<'_> {
            self.silent.0.as_fd()
        }
    }

    const BASE: u64 = 1 << 20;
    const GRANULE: Extent = Extent::new(BASE, 32 * PAGE_SIZE);

    fn page(number: u64) -> u64 {
        BASE + number * PAGE_SIZE
    }

    #[test]
    fn a_whole_granule_takes_one_call() {
        let kernel = FakeMechanism::default();
        let result = restore_granule(&kernel, GRANULE, page(3) + 77);
        assert_eq!(result, RestoreResult { pages: 32, answer: FaultOutcome::Resolved });
        assert_eq!(*kernel.calls.lock().unwrap(), 1);
    }

    #[test]
    fn holes_and_mapped_pages_are_skipped() {
        let kernel = FakeMechanism::default();
        let holes = [(page(0), Errno::FAULT), (page(9), Errno::FAULT), (page(31), Errno::EXIST)];
        kernel.errors.lock().unwrap().extend(holes);
        let result = restore_granule(&kernel, GRANULE, page(10));
        assert_eq!(result, RestoreResult { pages: 29, answer: FaultOutcome::Resolved });
        assert!(kernel.woken.lock().unwrap().is_empty());
    }

    #[test]
    fn each_error_of_the_faulting_page_has_its_outcome() {
        for (error, answer, wakes) in [
            (Errno::EXIST, FaultOutcome::Retried, true),
            (Errno::FAULT, FaultOutcome::Retried, true),
            (Errno::AGAIN, FaultOutcome::Retried, true),
            (Errno::NOENT, FaultOutcome::Gone, true),
            (Errno::NOMEM, FaultOutcome::Failed(Errno::NOMEM), false),
            (Errno::IO, FaultOutcome::Failed(Errno::IO), false),
        ] {
            let kernel = FakeMechanism::default();
            kernel.errors.lock().unwrap().insert(page(5), error);
            let result = restore_granule(&kernel, GRANULE, page(5));
            assert_eq!(result, RestoreResult { pages: 31, answer }, "{error}");
            assert_eq!(kernel.woken.lock().unwrap().contains(&page(5)), wakes, "{error}");
        }
    }

    #[test]
    fn errors_of_other_pages_are_ignored() {
        let kernel = FakeMechanism::default();
        kernel.errors.lock().unwrap().insert(page(6), Errno::IO);
        let result = restore_granule(&kernel, GRANULE, page(5));
        assert_eq!(result, RestoreResult { pages: 31, answer: FaultOutcome::Resolved });
    }

    #[test]
    fn a_faulting_page_outside_its_granule_is_answered() {
        let kernel = FakeMechanism::default();
        let result = restore_granule(&kernel, Extent::new(BASE, PAGE_SIZE), page(7));
        assert_eq!(result.answer, FaultOutcome::Resolved);
    }

    #[test]
    fn restoring_ends_even_if_every_call_says_again() {
        let kernel = FakeMechanism::default();
        let all = (0..1024).map(|number| (page(number), Errno::AGAIN));
        kernel.errors.lock().unwrap().extend(all);
        let granule = Extent::new(BASE, 1024 * PAGE_SIZE);
        assert_eq!(restore_granule(&kernel, granule, page(0)).answer, FaultOutcome::Retried);
        assert_eq!(*kernel.calls.lock().unwrap(), 3 * 1024);
    }
}
