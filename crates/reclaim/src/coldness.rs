//! What somebody knows of a guest's pages.
//!
//! Idea: a tracker knows guest memory by the file it is in, and tells cold pages from hot ones; where the file is
//! mapped in the hypervisor's process is looked up when pages are chosen.
//!
//! Cost: O(parts × mappings of guest memory). Limits: memory without a file is not known so.

use ballast_model::Bytes;

use crate::{AddressRange, Picker, Region};

/// A part of a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file.
    pub inode: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// How long it is.
    pub len: Bytes,
}

/// Pages of which something is known; of all others nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coldness {
    /// What goes first, in this order.
    pub cold: Vec<FilePart>,
    /// What goes when nothing else is left, in this order.
    pub hot: Vec<FilePart>,
}

impl Coldness {
    /// The picker that takes this into account, in a process that has guest memory in `regions`.
    pub fn tell(&self, picker: Picker, regions: &[Region]) -> Picker {
        let addresses = |parts: &[FilePart]| -> Vec<AddressRange> {
            let of_part = |part: &FilePart| {
                let FilePart { device, inode, offset, len } = *part;
                regions.iter().map(move |region| region.addresses(device, inode, offset, len))
            };
            parts.iter().flat_map(of_part).filter(|range| !range.is_empty()).collect()
        };
        picker.cold(addresses(&self.cold)).hot(addresses(&self.hot))
    }
}
