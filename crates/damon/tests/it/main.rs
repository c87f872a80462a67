//! The tests of `ballast-damon`, on files in place of a kernel's.

mod damo;
mod fake_kernel;
mod session;
