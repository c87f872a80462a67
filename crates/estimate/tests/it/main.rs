//! The integration tests of `ballast-estimate`.

mod phase;
mod recorded_series;
