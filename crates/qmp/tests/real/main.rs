//! The tests of `ballast-qmp` with real guests.

mod qemu;
mod real_qemu;
