//! What of one file is certainly on the disk, and what may be.
//!
//! Idea: a sync brings all earlier writes to the disk. Until then each write may be there as a
//! whole, in some of its sectors, or not at all, in any order; a disk that loses power promises
//! nothing more.
//! Cost: the file, and what was written since its last sync, in memory.

use fastrand::Rng;

/// How much a disk writes at once, bytes.
const SECTOR: usize = 512;

/// A change to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DiskChange {
    Write { at: usize, bytes: Vec<u8> },
    Cut { to: usize },
}

/// One file on a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// The contents as of the last sync.
    durable: Vec<u8>,
    /// The changes since then.
    pending: Vec<DiskChange>,
}

impl Image {
    /// A file without unsynced changes.
    pub(crate) fn of(durable: Vec<u8>) -> Image {
        Image { durable, pending: Vec::new() }
    }

    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.pending.push(DiskChange::Write { at, bytes: bytes.to_vec() });
    }

    pub(crate) fn cut(&mut self, to: usize) {
        self.pending.push(DiskChange::Cut { to });
    }

    pub(crate) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Loses the power; returns the contents that are found afterwards and that are on the disk
    /// from then on.
    pub(crate) fn lose_power(&mut self, rng: &mut Rng) -> &[u8] {
        // Some disks have written nearly everything by then, some hardly anything.
        let kept_percent = [0, 50, 90, 100][rng.usize(0..4)];
        for change in std::mem::take(&mut self.pending) {
            match change {
                _ if rng.u32(0..100) < kept_percent => change.apply(&mut self.durable),
                DiskChange::Write { at, bytes } if rng.bool() => self.tear(at, &bytes, rng),
                DiskChange::Write { .. } | DiskChange::Cut { .. } => {}
            }
        }
        &self.durable
    }

    /// Writes some sectors of a write, and not the others.
    fn tear(&mut self, at: usize, bytes: &[u8], rng: &mut Rng) {
        let mut start = at;
        while start < at + bytes.len() {
            let end = (start / SECTOR + 1) * SECTOR;
            let end = end.min(at + bytes.len());
            if rng.bool() {
                put(&mut self.durable, start, &bytes[start - at..end - at]);
            }
            start = end;
        }
    }
}

impl DiskChange {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            DiskChange::Write { at, bytes } => put(file, *at, bytes),
            DiskChange::Cut { to } => file.truncate(*to),
        }
    }
}

/// A write beyond the end of the file leaves zeros before it.
fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_any_loss_of_power() {
        for seed in 0..200 {
            let mut image = Image::of(vec![1; 2000]);
            image.write(1000, &[2; 3000]);
            image.sync();
            image.write(4000, &[3; 1000]);
            let found = image.lose_power(&mut Rng::with_seed(seed)).to_vec();
            assert_eq!(found[..1000], [1; 1000]);
            assert_eq!(found[1000..4000], [2; 3000]);
            assert!(found[4000..].iter().all(|byte| [0, 3].contains(byte)));
        }
    }

    #[test]
    fn a_write_is_kept_torn_or_lost() {
        let (mut kept, mut torn, mut lost) = (0, 0, 0);
        for seed in 0..200 {
            let mut image = Image::of(vec![0; 4096]);
            image.write(0, &[7; 4096]);
            let found = image.lose_power(&mut Rng::with_seed(seed));
            match found.iter().filter(|byte| **byte == 7).count() {
                0 => lost += 1,
                4096 => kept += 1,
                part => torn += usize::from(part.is_multiple_of(SECTOR)),
            }
        }
        assert_eq!(kept + torn + lost, 200);
        assert!(kept > 20 && torn > 20 && lost > 20, "{kept}, {torn}, {lost}");
    }

    #[test]
    fn writes_that_were_cut_off_do_not_come_back() {
        let mut image = Image::of(vec![1; 100]);
        image.cut(10);
        image.write(20, &[2; 10]);
        image.sync();
        let found = image.lose_power(&mut Rng::with_seed(0));
        assert_eq!(found, [[1; 10], [0; 10], [2; 10]].concat());
    }
}
