//! The tests of `ballast-qmp` with real guests.

mod migration;
mod qemu;
mod real_qemu;
