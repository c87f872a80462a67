//! Why the tracker did not do what it was asked, or stopped by itself.
//!
//! Idea: a number on the wire, words with the remedy here, the same wherever they are shown.

use std::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Refusal { $($(#[$doc])* $name,)* }

        impl Refusal {
            /// Every one.
            pub const ALL: &[Refusal] = &[$(Refusal::$name,)*];

            /// Its number on the wire, which never changes.
            pub const fn code(self) -> u16 {
                match self { $(Refusal::$name => $code,)* }
            }

            /// That of a number; `None` for one that a later version may know.
            pub const fn from_code(code: u16) -> Option<Refusal> {
                match code { $($code => Some(Refusal::$name),)* _ => None }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Refusal::$name => $text,)* })
            }
        }
    };
}

refusals! {
    /// The two sides are of different versions.
    Version = 1, "the tracker library is of another version: restart the guest with the library of this ballast";
    /// Somebody else is connected.
    Busy = 2, "the guest is tracked by another client: stop that one first";
    /// The peer is another user.
    Peer = 3, "not the user to whom the guest belongs, nor root: run as either";
    /// Nothing is attached yet.
    NotAttached = 4, "nothing is attached: send a ring first";
    /// Something is attached already.
    Attached = 5, "a ring is attached already: detach first";
    /// A message that is none.
    Malformed = 6, "the message cannot be understood";
    /// The ring is not as it must be.
    Ring = 7, "the ring must be a memfd of the right size, sealed against shrinking and growing, with its header written";
    /// The kernel does not let this process have a userfaultfd for faults of the kernel too.
    Permission = 8, "userfaultfd is not permitted to the hypervisor: pass an open /dev/userfaultfd (a daemon run as root does), or set vm.unprivileged_userfaultfd=1";
    /// The kernel has no userfaultfd, or no minor faults on shared memory.
    Kernel = 9, "the kernel has no userfaultfd with minor faults on shared memory: Linux 5.14 or later with CONFIG_USERFAULTFD is needed";
    /// The hypervisor has no such file mapped.
    NoMapping = 10, "the hypervisor has not mapped that memory: ask it for its memory backends again";
    /// Mapped privately: what is written there would be lost.
    Private = 11, "guest memory is mapped privately: give its memory backend share=on";
    /// The mapping has pages of another size.
    HugePages = 12, "guest memory is in huge pages: they are not tracked";
    /// Mapped more than once.
    MappedTwice = 13, "the hypervisor has mapped that memory more than once: touches through the other mapping would go unseen";
    /// The region's number, pages or memory are taken.
    RegionTaken = 14, "a region with that number, those pages or that memory is there already";
    /// No such region.
    NoRegion = 15, "there is no region with that number";
    /// Registering failed.
    Register = 16, "registering the memory failed: another userfaultfd may have it (a snapshot, or a migration)";
    /// More granules than the tracker lists.
    TooManyGranules = 17, "more granules are watched than the tracker lists: use coarser ones, or fewer";
    /// Revoking failed.
    Revoke = 18, "revoking failed: locked memory cannot be tracked";
    /// The hypervisor has unmapped the region.
    RegionGone = 19, "the hypervisor has unmapped the region";
    /// Something the tracker needs from the system failed.
    System = 20, "the system refused a resource that the tracker needs";
    /// A fault could not be resolved; tracking has ended at once.
    Unresolved = 21, "a fault could not be resolved, so all permissions were restored: look for errors of memory or storage";
    /// Nothing was heard of the client for too long; tracking has ended.
    Silent = 22, "nothing was heard for a second, so all permissions were restored: connect again";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_different_and_lead_back() {
        for (place, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(usize::from(refusal.code()), place + 1);
            assert_eq!(Refusal::from_code(refusal.code()), Some(*refusal));
        }
        assert_eq!([0, 23, 9999].map(Refusal::from_code), [None; 3]);
        assert!(Refusal::Private.to_string().contains("share=on"));
    }
}
