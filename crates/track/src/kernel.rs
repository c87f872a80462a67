//! What the tracker needs of a kernel, whichever way it is done.
//!
//! Idea: four verbs over ranges of the process's own memory (watch, unwatch, revoke, restore) and a
//! stream of faults. Today there is one way, [`Minor`](crate::minor::Minor); the userfaultfd mode that is
//! being made for this (`UFFDIO_REGISTER_MODE_RWP`) would be a second, chosen by its feature bit.
//!
//! [`give_back`] is what all of them need: restoring a granule of which pages may be missing, mapped
//! already, or beyond the mapping, without ever leaving the faulting page unanswered.

use std::os::fd::BorrowedFd;

use ballast_track_wire::PAGE_SIZE;
use rustix::io::Errno;

/// Faults read at once.
pub(crate) const FAULTS_MAX: usize = 64;
/// Ranges revoked at once: the most that `process_madvise` takes.
pub(crate) const RANGES_MAX: usize = 1024;

/// A range of memory, in whole pages.
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

/// A touch of memory without permission; whoever made it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) address: u64,
    pub(crate) is_write: bool,
}

/// What a kernel does for the tracker. Every call may come from either of the tracker's threads.
pub(crate) trait Kernel: Send + Sync {
    /// Touches of `range` without permission become faults from now on.
    fn watch(&self, range: Extent) -> Result<(), Errno>;

    /// They no longer do, and whoever waits there goes on: all permissions are as before.
    fn unwatch(&self, range: Extent) -> Result<(), Errno>;

    /// Takes permission from ranges of shared memory; what is stored there stays.
    fn revoke(&self, ranges: &[Extent]) -> Result<(), Errno>;

    /// Gives permission back to the pages from the beginning of `range` on for which that is possible
    /// in one go, and says how many bytes these are. Whoever waits for them goes on.
    ///
    /// # Errors
    /// About the first page: `EXIST`, it has permission; `FAULT`, there is nothing stored, and a touch
    /// will be an ordinary one; anything else, it cannot be done.
    fn restore(&self, range: Extent) -> Result<u64, Errno>;

    /// Whoever waits in `range` tries again.
    fn wake(&self, range: Extent);

    /// Reads faults that wait; 0 when none do.
    fn read(&self, faults: &mut [Fault; FAULTS_MAX]) -> Result<usize, Errno>;

    /// Readable when faults wait.
    fn faults(&self) -> BorrowedFd<'_>;
}

/// How a granule was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenBack {
    /// Pages that got permission.
    pub(crate) pages: u64,
    /// What became of the fault.
    pub(crate) answer: Answer,
}

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Its page has permission.
    Resolved,
    /// Its page had permission or is not there any more; the touch is made again.
    Retried,
    /// Nothing that is watched is there any more.
    Gone,
    /// It cannot be: all must be given up, or whoever waits waits for ever.
    Failed(Errno),
}

/// Restores `granule`, in which the page at `address` is, so that whoever waits for that page goes on.
///
/// Cost: one call where all pages are there; at most three a page where they are not.
pub(crate) fn give_back(kernel: &dyn Kernel, granule: Extent, address: u64) -> GivenBack {
    let page = Extent::page(address);
    let mut pages = 0;
    let mut answer = None;
    let mut at = granule.start;
    let mut again = 0;
    while at < granule.end() {
        let rest = Extent::new(at, granule.end() - at);
        let step = match kernel.restore(rest) {
            Ok(bytes) => {
                let done = bytes.clamp(PAGE_SIZE, rest.len);
                pages += done / PAGE_SIZE;
                if Extent::new(at, done).has(page.start) {
                    answer = Some(Answer::Resolved);
                }
                done
            }
            // Page tables changed meanwhile.
            Err(Errno::AGAIN) if again < 2 => {
                again += 1;
                continue;
            }
            Err(error) => {
                if at == page.start {
                    answer = Some(about_first(kernel, page, error));
                }
                PAGE_SIZE
            }
        };
        again = 0;
        at += step;
    }
    // The granule may not have been where the page is, had the mapping changed meanwhile.
    let answer = answer.unwrap_or_else(|| match kernel.restore(page) {
        Ok(_) => Answer::Resolved,
        Err(error) => about_first(kernel, page, error),
    });
    GivenBack { pages, answer }
}

/// What an error about the faulting page means for it.
fn about_first(kernel: &dyn Kernel, page: Extent, error: Errno) -> Answer {
    match error {
        // Permission came by another fault; or the page was punched out; or try once more.
        Errno::EXIST | Errno::FAULT | Errno::AGAIN => {
            kernel.wake(page);
            Answer::Retried
        }
        // No longer watched, or no memory any more: nobody can wait there.
        Errno::NOENT | Errno::SRCH => {
            kernel.wake(page);
            Answer::Gone
        }
        error => Answer::Failed(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::Mutex;

    use super::*;

    /// A file in which nothing ever comes.
    pub(crate) struct Silent(OwnedFd);

    impl Default for Silent {
        fn default() -> Self {
            Silent(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap())
        }
    }

    /// A kernel of which every page is in a state of the test's choice.
    #[derive(Default)]
    pub(crate) struct Fake {
        silent: Silent,
        /// What restoring says of a page; those that are not here are without permission.
        pub(crate) errors: Mutex<BTreeMap<u64, Errno>>,
        pub(crate) restored: Mutex<BTreeSet<u64>>,
        pub(crate) woken: Mutex<Vec<u64>>,
        pub(crate) calls: Mutex<usize>,
    }

    impl Kernel for Fake {
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

        fn read(&self, _: &mut [Fault; FAULTS_MAX]) -> Result<usize, Errno> {
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
        let kernel = Fake::default();
        let given = give_back(&kernel, GRANULE, page(3) + 77);
        assert_eq!(given, GivenBack { pages: 32, answer: Answer::Resolved });
        assert_eq!(*kernel.calls.lock().unwrap(), 1);
    }

    #[test]
    fn holes_and_mapped_pages_are_stepped_over() {
        let kernel = Fake::default();
        let holes = [(page(0), Errno::FAULT), (page(9), Errno::FAULT), (page(31), Errno::EXIST)];
        kernel.errors.lock().unwrap().extend(holes);
        let given = give_back(&kernel, GRANULE, page(10));
        assert_eq!(given, GivenBack { pages: 29, answer: Answer::Resolved });
        assert!(kernel.woken.lock().unwrap().is_empty());
    }

    #[test]
    fn each_answer_to_the_faulting_page_by_name() {
        for (error, answer, wakes) in [
            (Errno::EXIST, Answer::Retried, true),
            (Errno::FAULT, Answer::Retried, true),
            (Errno::AGAIN, Answer::Retried, true),
            (Errno::NOENT, Answer::Gone, true),
            (Errno::NOMEM, Answer::Failed(Errno::NOMEM), false),
            (Errno::IO, Answer::Failed(Errno::IO), false),
        ] {
            let kernel = Fake::default();
            kernel.errors.lock().unwrap().insert(page(5), error);
            let given = give_back(&kernel, GRANULE, page(5));
            assert_eq!(given, GivenBack { pages: 31, answer }, "{error}");
            assert_eq!(kernel.woken.lock().unwrap().contains(&page(5)), wakes, "{error}");
        }
    }

    #[test]
    fn an_error_beside_the_faulting_page_does_not_matter() {
        let kernel = Fake::default();
        kernel.errors.lock().unwrap().insert(page(6), Errno::IO);
        let given = give_back(&kernel, GRANULE, page(5));
        assert_eq!(given, GivenBack { pages: 31, answer: Answer::Resolved });
    }

    #[test]
    fn a_page_outside_of_its_granule_is_answered() {
        let kernel = Fake::default();
        let given = give_back(&kernel, Extent::new(BASE, PAGE_SIZE), page(7));
        assert_eq!(given.answer, Answer::Resolved);
    }

    #[test]
    fn it_ends_whatever_the_kernel_says() {
        let kernel = Fake::default();
        let all = (0..1024).map(|number| (page(number), Errno::AGAIN));
        kernel.errors.lock().unwrap().extend(all);
        let granule = Extent::new(BASE, 1024 * PAGE_SIZE);
        assert_eq!(give_back(&kernel, granule, page(0)).answer, Answer::Retried);
        assert_eq!(*kernel.calls.lock().unwrap(), 3 * 1024);
    }
}
