//! The integration tests of `ballast-sim`.

mod calibration;
mod demo;
mod properties;
