//! Why the tracker refused a request or ended tracking: a number on the wire, and a text with the
//! remedy.

use std::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The reason for a refusal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RefusalReason { $($(#[$doc])* $name,)* }

        impl RefusalReason {
            /// All reasons.
            pub const ALL: &[RefusalReason] = &[$(RefusalReason::$name,)*];

            /// The number on the wire, which never changes.
            pub const fn code(self) -> u16 {
                match self { $(RefusalReason::$name => $code,)* }
            }

            /// The reason with a number; `None` if this version does not know it.
            pub const fn from_code(code: u16) -> Option<RefusalReason> {
                match code { $($code => Some(RefusalReason::$name),)* _ => None }
            }
        }

        impl fmt::Display for RefusalReason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(RefusalReason::$name => $text,)* })
            }
        }
    };
}

refusals! {
    /// The two sides are of different versions.
    Version = 1, "the tracker library is of another version: restart the guest with the library of this ballast";
    /// Another client is connected.
    Busy = 2, "the guest is tracked by another client: stop that one first";
    /// The peer is another user.
    Peer = 3, "only root and the user in BALLAST_TRACK_USER (by default QEMU's own) are answered: run as either";
    /// No ring is attached.
    NotAttached = 4, "no ring is attached: send a ring first";
    /// A ring is attached already.
    Attached = 5, "a ring is attached already: detach first";
    /// Not a message.
    Malformed = 6, "the message cannot be decoded";
    /// An unusable ring.
    Ring = 7, "the ring must be a memfd of the right size, sealed against shrinking and growing, with its header written";
    /// The kernel does not allow this process a userfaultfd that handles faults of the kernel too.
    Permission = 8, "userfaultfd is not permitted to the hypervisor: pass an open /dev/userfaultfd (a daemon run as root does), or set vm.unprivileged_userfaultfd=1";
    /// The kernel has no userfaultfd, or no minor faults on shared memory.
    Kernel = 9, "the kernel has no userfaultfd with minor faults on shared memory: Linux 5.14 or later with CONFIG_USERFAULTFD is needed";
    /// The hypervisor has not mapped this file.
    NoMapping = 10, "the hypervisor has not mapped that memory: ask it for its memory backends again";
    /// Mapped privately: dropping pages would lose data.
    Private = 11, "guest memory is mapped privately: give its memory backend share=on";
    /// The mapping has pages of another size.
    HugePages = 12, "guest memory is in huge pages, which cannot be tracked";
    /// Mapped more than once.
    MappedTwice = 13, "the hypervisor has mapped that memory more than once: touches through the other mapping would go unseen";
    /// The region's number, pages or memory are in use.
    RegionTaken = 14, "a region with this number, these pages or this memory exists already";
    /// Unknown region.
    NoRegion = 15, "there is no region with this number";
    /// Registering failed.
    Register = 16, "registering the memory failed: another userfaultfd may have it (a snapshot, or a migration)";
    /// Too many granules.
    TooManyGranules = 17, "too many granules are watched: use larger ones, or fewer";
    /// Revoking failed.
    Revoke = 18, "revoking failed: locked memory cannot be tracked";
    /// The hypervisor has unmapped the region.
    RegionGone = 19, "the hypervisor has unmapped the region";
    /// The system refused a resource.
    System = 20, "the system refused a resource that the tracker needs";
    /// A fault could not be resolved, or a thread did not go on; tracking has ended.
    Unresolved = 21, "a fault could not be resolved, or a thread of the tracker did not go on for a second, so all permissions were restored: look for memory or storage errors, and for real-time priorities";
    /// The client was silent for too long; tracking has ended.
    Silent = 22, "the client was silent for a second, so all permissions were restored: connect again";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_round_trip() {
        for (place, refusal) in RefusalReason::ALL.iter().enumerate() {
            assert_eq!(usize::from(refusal.code()), place + 1);
            assert_eq!(RefusalReason::from_code(refusal.code()), Some(*refusal));
        }
        assert_eq!([0, 23, 9999].map(RefusalReason::from_code), [None; 3]);
        assert!(RefusalReason::Private.to_string().contains("share=on"));
    }
}
