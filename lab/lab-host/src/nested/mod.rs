//! A real host on any machine: an outer machine in which QEMU runs guests under KVM, or Xen does.
//!
//! Idea: QEMU's emulator emulates AMD's hardware virtualization with nested paging, so a stock
//! Debian kernel in it is a complete KVM host, with cgroup v2, DAMON and the multi-generational
//! LRU. The outer machine is a guest of this lab like any other ([`crate::Run`]), with a disk that
//! has what a host needs: QEMU, the lab's programs, and kernels. The output of a command in it is
//! passed on while the command runs.
//! Cost: 300 MB in the cache for each of [`image::IMAGES_MAX`] disks, a boot of ten seconds, and
//! 0.5 GB of memory in addition to the machine's own.
//! Source: QEMU 7.2's `target/i386/tcg/sysemu/svm_helper.c`; AMD64 Architecture Programmer's
//! Manual, volume 2, chapter 15.
//! Limits: one processor, on one thread of the emulator, because with several threads the kernel
//! panics now and then (it patches code that another thread has translated). Counts and states are
//! those of a KVM host; times mean nothing. One command at a time.

mod apparmor;
mod files;
mod guest_modules;
mod image;
mod machine;
mod output;
mod terminal;
mod xen;

pub(crate) use guest_modules::modules;
pub use machine::{Nested, NestedOptions, with_one_retry};
pub use xen::DOM0_MEMORY;

use ballast_model::Bytes;

/// Environment variable that is set inside an outer machine.
pub const NESTED_VARIABLE: &str = "BALLAST_NESTED";
/// Its value if the machine is Xen's dom0.
pub(crate) const NESTED_XEN: &str = "xen";
/// How reports describe the accelerator inside an outer machine.
pub(crate) const KVM_TEXT: &str = "kvm (nested, emulated: no figure of time means anything)";
pub(crate) const XEN_TEXT: &str = "xen (nested, emulated: no figure of time means anything)";
/// Serial number of the outer machine's disk.
pub(crate) const DISK_SERIAL: &str = "host";
/// Names of its ports for a command's standard output and standard error.
pub(crate) const PORTS: [&str; 2] = ["ballast.out", "ballast.err"];
/// Smallest memory of an outer machine: enough to boot it and one small guest in it.
pub(crate) const MEMORY_MIN: Bytes = Bytes::mib(1536);

/// Whether this program runs inside an outer machine.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(NESTED_VARIABLE).is_some()
}

/// Whether it runs in dom0 of an outer machine under Xen.
pub fn is_inside_xen() -> bool {
    std::env::var_os(NESTED_VARIABLE).is_some_and(|value| value == NESTED_XEN)
}
