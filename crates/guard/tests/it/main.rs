//! The integration tests of `ballast-guard`.

mod check;
mod restart;
