//! Host memory that a guest occupies while it is copied to another host.
//!
//! Idea: a copy reads all of the guest's memory, even what its balloon gave back. Reading leaves
//! private memory as empty as it was, but fills memory in files.
//! Limits: an upper bound, because it is unknown which pages of a partly file-backed guest are
//! resident.

use crate::{Bytes, GuestSample, overhead_at_most};

impl GuestSample {
    /// The most host memory that its process occupies while it is copied to another host. `None`:
    /// unknown.
    pub fn occupied_while_copied(&self) -> Option<Bytes> {
        let resident = self.resident?.value;
        let memory = self.present_memory()?;
        let in_files = self.file_backed?.min(memory);
        let most = if in_files < memory {
            // Which part of it is resident already is unknown.
            resident.saturating_add(in_files)
        } else {
            in_files.saturating_add(overhead_at_most(self.overhead, memory))
        };
        Some(resident.max(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkState, Measured};

    /// A guest with 1,024 MiB; all amounts in MiB.
    fn copied(file_backed: Option<u64>, resident: u64, overhead: Option<u64>) -> Option<u64> {
        let sample = GuestSample {
            boot_memory: Some(Bytes::gib(1)),
            resident: Some(Measured::fresh(Bytes::mib(resident))),
            file_backed: file_backed.map(Bytes::mib),
            overhead: overhead.map(Bytes::mib),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        };
        Some(sample.occupied_while_copied()?.get() >> 20)
    }

    #[test]
    fn a_copy_fills_memory_in_files_and_no_other() {
        assert_eq!(copied(Some(0), 300, None), Some(300));
        assert_eq!(copied(Some(1024), 300, Some(40)), Some(1024 + 40 + 16));
        assert_eq!(copied(Some(1024), 300, None), Some(1024 + 64 + 128), "at most an eighth");
        assert_eq!(
            copied(Some(4096), 300, Some(40)),
            Some(1080),
            "what can be plugged is not there"
        );
        assert_eq!(copied(Some(1024), 1200, Some(40)), Some(1200), "no less than now");
        assert_eq!(copied(Some(256), 700, None), Some(956), "a module plugged into private memory");
        assert_eq!(copied(None, 300, None), None);
    }
}
