//! Why the pages of a guest stay on the host when its balloon takes them, and what still works.
//!
//! Idea: where a guest's memory is pinned, locked or encrypted, ballooning takes memory from the
//! guest but gives none to the host. Plugged memory can still leave the host, where a device gives
//! up whole blocks.
//! Source: QEMU's `ram_block_discard_disable` and its callers; Linux,
//! Documentation/driver-api/vfio.rst and Documentation/admin-guide/mm/hugetlbpage.rst. Limits: if
//! there are several reasons, one is kept.

use std::fmt;

/// What keeps a guest's pages on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum Pinned {
    /// AMD SEV or SEV-ES: encrypted memory is pinned by the kernel.
    Sev,
    /// AMD SEV-SNP: the guest's private memory is in guest_memfd.
    SevSnp,
    /// Intel TDX: likewise.
    Tdx,
    /// Private memory in guest_memfd for another reason.
    GuestMemfd,
    /// A device of the host reads and writes the memory by itself (VFIO, vDPA).
    Passthrough,
    /// The hypervisor locked it (`mlock`).
    Locked,
    /// It is in huge pages of hugetlbfs, which can only be freed whole.
    HugePages,
}

impl Pinned {
    /// Every reason.
    pub const ALL: [Pinned; 7] = [
        Pinned::Sev,
        Pinned::SevSnp,
        Pinned::Tdx,
        Pinned::GuestMemfd,
        Pinned::Passthrough,
        Pinned::Locked,
        Pinned::HugePages,
    ];

    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            Pinned::Sev => "sev",
            Pinned::SevSnp => "sev-snp",
            Pinned::Tdx => "tdx",
            Pinned::GuestMemfd => "guest-memfd",
            Pinned::Passthrough => "passthrough",
            Pinned::Locked => "locked",
            Pinned::HugePages => "huge-pages",
        }
    }

    /// Whether memory that a virtio-mem device plugs in and out still leaves the host.
    pub const fn leaves_by_plugging(self) -> bool {
        matches!(self, Pinned::Passthrough | Pinned::HugePages)
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pinned::Sev => "its memory is encrypted (SEV) and pinned",
            Pinned::SevSnp => "its memory is encrypted (SEV-SNP), in guest_memfd",
            Pinned::Tdx => "its memory is encrypted (TDX), in guest_memfd",
            Pinned::GuestMemfd => "its memory is private, in guest_memfd",
            Pinned::Passthrough => "a passthrough device pins its memory",
            Pinned::Locked => "its hypervisor locked its memory",
            Pinned::HugePages => "its memory is in huge pages, which are freed only whole",
        })?;
        f.write_str(match self.leaves_by_plugging() {
            true => ": virtio-mem alone gives memory back",
            false => ": nothing gives memory back",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_has_a_word_and_says_what_works() {
        let codes: BTreeSet<&str> = Pinned::ALL.iter().map(|it| it.code()).collect();
        assert_eq!(codes.len(), Pinned::ALL.len());
        for it in Pinned::ALL {
            let text = it.to_string();
            assert_eq!(text.contains("virtio-mem"), it.leaves_by_plugging(), "{text}");
        }
    }
}
