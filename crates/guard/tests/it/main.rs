//! The integration tests of `ballast-guard`.

mod check;
mod paused;
mod restart;
