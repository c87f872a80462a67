//! Which pages of a guest a tracker found cold or hot.
//!
//! Idea: a tracker names guest memory by its file. The addresses in the hypervisor process are
//! looked up when pages are picked.
//!
//! Cost: O(parts × regions of guest memory).
//! Limits: nothing can be said about memory without a file.

use ballast_model::Bytes;

use crate::picker::Picker;
use crate::ram::GuestRegion;
use crate::ranges::AddressRange;

/// A part of a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode.
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length.
    pub len: Bytes,
}

/// Cold and hot pages; nothing is known about the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coldness {
    /// Paged out first, in this order.
    pub cold: Vec<FilePart>,
    /// Paged out last, in this order.
    pub hot: Vec<FilePart>,
}

impl Coldness {
    /// Adds the cold and hot pages to `picker`, for a process with guest memory in `regions`.
    pub fn apply_to(&self, picker: Picker, regions: &[GuestRegion]) -> Picker {
        picker.cold(addresses(&self.cold, regions)).hot(addresses(&self.hot, regions))
    }
}

fn addresses(parts: &[FilePart], regions: &[GuestRegion]) -> Vec<AddressRange> {
    let mut ranges = Vec::new();
    for FilePart { device, inode, offset, len } in parts {
        for region in regions {
            ranges.push(region.addresses(*device, *inode, *offset, *len));
        }
    }
    ranges.retain(|range| !range.is_empty());
    ranges
}
