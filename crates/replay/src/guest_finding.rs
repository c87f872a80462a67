//! What is wrong with a guest, and the command that fixes it.
//!
//! Idea: a finding is a value with figures; its sentence and its command are written only here.

use std::fmt;

use ballast_model::{Bytes, GuestId};

/// Sizes in commands are multiples of this, in bytes.
const ROUNDED_TO: u64 = 64 << 20;

/// Something about a guest that an operator can fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestFinding {
    /// It has no balloon device.
    NoBalloon {
        /// Whether it is a domain of libvirt, or of another manager that others use too.
        is_domain: bool,
    },
    /// Its statistics did not arrive, or arrived too late.
    NoStatistics {
        /// In this part of its time.
        percent: u8,
    },
    /// Its hypervisor did not answer.
    Unreachable {
        /// In this part of its time.
        percent: u8,
    },
    /// Shrinking it would gain the host nothing.
    DiscardInhibited,
    /// The operator excluded it.
    OptedOut,
    /// Another program moves its balloon.
    AnotherOwner,
    /// It reads back from swap, and no agent reports what else is in there.
    HiddenNeed {
        /// In this part of its time.
        percent: u8,
    },
    /// It never needed more than half of what it has.
    TooBig {
        /// What it has.
        size: Bytes,
        /// The most it needed, and the reserve.
        enough: Bytes,
    },
    /// It needed as much as it may have.
    TooSmall {
        /// What it may have.
        ceiling: Bytes,
        /// In this part of its time.
        percent: u8,
        /// The most it needed, and the reserve.
        enough: Bytes,
        /// Whether a higher ceiling is enough: it has the memory.
        has_memory: bool,
        /// Whether it is a domain of libvirt, or of another manager that others use too.
        is_domain: bool,
    },
    /// Its floor keeps memory that it does not need.
    FloorHigh {
        /// Its floor.
        floor: Bytes,
        /// What it needed in 95 % of its time, and the reserve.
        enough: Bytes,
    },
}

impl GuestFinding {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            GuestFinding::NoBalloon { .. } => "no-balloon",
            GuestFinding::NoStatistics { .. } => "no-statistics",
            GuestFinding::Unreachable { .. } => "unreachable",
            GuestFinding::DiscardInhibited => "discard-inhibited",
            GuestFinding::OptedOut => "opted-out",
            GuestFinding::AnotherOwner => "another-owner",
            GuestFinding::HiddenNeed { .. } => "hidden-need",
            GuestFinding::TooBig { .. } => "too-big",
            GuestFinding::TooSmall { .. } => "too-small",
            GuestFinding::FloorHigh { .. } => "floor-high",
        }
    }

    /// The command that fixes it, for the guest called `id`.
    pub fn remedy(self, id: &GuestId) -> String {
        let device = |is_domain: bool, domain: &str, proxmox: &str, option: &str| match is_domain {
            true => format!("virsh edit {id}    # {domain}; Proxmox VE: qm set VMID {proxmox}"),
            false => format!("qemu-system-x86_64 … {option}    # for {id}"),
        };
        match self {
            GuestFinding::NoBalloon { is_domain } => {
                let domain = "<memballoon model='virtio'/>";
                device(is_domain, domain, "--delete balloon", "-device virtio-balloon-pci")
            }
            GuestFinding::NoStatistics { .. } => {
                format!("modprobe virtio_balloon    # inside {id}")
            }
            GuestFinding::Unreachable { .. } => format!("ballast doctor guests {id}"),
            GuestFinding::DiscardInhibited => format!("ballast set {id} --managed false"),
            GuestFinding::OptedOut => format!("ballast set {id} --managed true"),
            GuestFinding::AnotherOwner => format!("ballast set {id} --take-over"),
            GuestFinding::HiddenNeed { .. } => {
                format!("apt install ./ballast-agent_*.deb    # inside {id}")
            }
            GuestFinding::TooBig { enough, .. } => {
                format!("ballast set {id} --ceiling {:#}", rounded(enough))
            }
            GuestFinding::TooSmall { enough, has_memory: true, .. } => {
                format!("ballast set {id} --ceiling {:#}", rounded(enough))
            }
            GuestFinding::TooSmall { enough, is_domain, .. } => {
                let mib = rounded(enough).get() >> 20;
                let element = format!("<memory unit='MiB'>{mib}</memory>");
                let proxmox = format!("--memory {mib}");
                device(is_domain, &element, &proxmox, &format!("-m {mib}"))
            }
            GuestFinding::FloorHigh { enough, .. } => {
                format!("ballast set {id} --floor {:#}", rounded(enough))
            }
        }
    }
}

impl fmt::Display for GuestFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GuestFinding::NoBalloon { .. } => {
                f.write_str("no balloon device: its memory cannot be moved")
            }
            GuestFinding::NoStatistics { percent } => {
                write!(f, "no fresh statistics in {percent} % of its time: it is left as it is")
            }
            GuestFinding::Unreachable { percent } => {
                write!(f, "its hypervisor did not answer in {percent} % of its time")
            }
            GuestFinding::DiscardInhibited => f.write_str(
                "a passthrough device or locked memory keeps ballooned pages on the host",
            ),
            GuestFinding::OptedOut => f.write_str("excluded from balancing (managed = false)"),
            GuestFinding::AnotherOwner => f.write_str("another program moves its balloon"),
            GuestFinding::HiddenNeed { percent } => write!(
                f,
                "it read back from swap in {percent} % of its time, and no agent says what is in \
                 there: it may need more"
            ),
            GuestFinding::TooBig { size, enough } => write!(
                f,
                "too big: it has {size} and never needed more than {}, the reserve included",
                rounded(enough)
            ),
            GuestFinding::TooSmall { ceiling, percent, enough, .. } => write!(
                f,
                "too small: in {percent} % of its time it needed all of the {ceiling} that it may \
                 have; {} would do",
                rounded(enough)
            ),
            GuestFinding::FloorHigh { floor, enough } => write!(
                f,
                "its floor of {floor} keeps what it does not need: {} do in 95 % of its time",
                rounded(enough)
            ),
        }
    }
}

/// `size` rounded up to a size that people write.
pub(crate) fn rounded(size: Bytes) -> Bytes {
    Bytes::new(size.get().div_ceil(ROUNDED_TO).saturating_mul(ROUNDED_TO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_a_line_that_names_the_guest() {
        let (mib, id) = (Bytes::mib, "web-1".parse().unwrap());
        let small = |has_memory, is_domain| GuestFinding::TooSmall {
            ceiling: mib(512),
            percent: 12,
            enough: mib(700),
            has_memory,
            is_domain,
        };
        for (finding, code, line) in [
            (
                GuestFinding::NoBalloon { is_domain: true },
                "no-balloon",
                "virsh edit web-1    # <memballoon model='virtio'/>; Proxmox VE: qm set VMID \
                 --delete balloon",
            ),
            (
                GuestFinding::NoBalloon { is_domain: false },
                "no-balloon",
                "qemu-system-x86_64 … -device virtio-balloon-pci    # for web-1",
            ),
            (
                GuestFinding::NoStatistics { percent: 80 },
                "no-statistics",
                "modprobe virtio_balloon    # inside web-1",
            ),
            (
                GuestFinding::Unreachable { percent: 80 },
                "unreachable",
                "ballast doctor guests web-1",
            ),
            (
                GuestFinding::DiscardInhibited,
                "discard-inhibited",
                "ballast set web-1 --managed false",
            ),
            (GuestFinding::OptedOut, "opted-out", "ballast set web-1 --managed true"),
            (GuestFinding::AnotherOwner, "another-owner", "ballast set web-1 --take-over"),
            (
                GuestFinding::HiddenNeed { percent: 80 },
                "hidden-need",
                "apt install ./ballast-agent_*.deb    # inside web-1",
            ),
            (
                GuestFinding::TooBig { size: mib(4096), enough: mib(600) },
                "too-big",
                "ballast set web-1 --ceiling 640MiB",
            ),
            (small(true, false), "too-small", "ballast set web-1 --ceiling 704MiB"),
            (small(false, false), "too-small", "qemu-system-x86_64 … -m 704    # for web-1"),
            (
                small(false, true),
                "too-small",
                "virsh edit web-1    # <memory unit='MiB'>704</memory>; Proxmox VE: qm set VMID \
                 --memory 704",
            ),
            (
                GuestFinding::FloorHigh { floor: mib(1024), enough: mib(200) },
                "floor-high",
                "ballast set web-1 --floor 256MiB",
            ),
        ] {
            assert_eq!((finding.code(), finding.remedy(&id).as_str()), (code, line));
            assert!(!finding.to_string().is_empty());
        }
    }
}
