//! The event counters of a guest.
//!
//! Idea: the counters of a guest's kernel, and those of the simulator.

/// Events in a guest since it booted. Pages are 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) touches: u64,
    pub(crate) major_faults: u64,
    pub(crate) minor_faults: u64,
    pub(crate) swap_in_pages: u64,
    pub(crate) swap_out_pages: u64,
    pub(crate) refaulted_file_pages: u64,
    /// Read from files, again or for the first time.
    pub(crate) file_read_pages: u64,
    pub(crate) scanned_pages: u64,
    pub(crate) reclaimed_pages: u64,
    /// Time processes waited for disks, in ns.
    pub(crate) waited_ns: u64,
}

impl Counters {
    fn combine(&mut self, other: &Counters, with: impl Fn(u64, u64) -> u64) {
        let own = [
            &mut self.touches,
            &mut self.major_faults,
            &mut self.minor_faults,
            &mut self.swap_in_pages,
            &mut self.swap_out_pages,
            &mut self.refaulted_file_pages,
            &mut self.file_read_pages,
            &mut self.scanned_pages,
            &mut self.reclaimed_pages,
            &mut self.waited_ns,
        ];
        let others = [
            other.touches,
            other.major_faults,
            other.minor_faults,
            other.swap_in_pages,
            other.swap_out_pages,
            other.refaulted_file_pages,
            other.file_read_pages,
            other.scanned_pages,
            other.reclaimed_pages,
            other.waited_ns,
        ];
        for (own, other) in own.into_iter().zip(others) {
            *own = with(*own, other);
        }
    }

    /// The difference to `before`.
    pub(crate) fn since(mut self, before: &Counters) -> Counters {
        self.combine(before, u64::saturating_sub);
        self
    }

    /// Adds `part` scaled by `times / per`.
    pub(crate) fn repeat(&mut self, part: &Counters, times: u64, per: u64) {
        let scaled = |n: u64| {
            let n = u128::from(n) * u128::from(times) / u128::from(per.max(1));
            u64::try_from(n).unwrap_or(u64::MAX)
        };
        self.combine(part, |own, part| own.saturating_add(scaled(part)));
    }
}
