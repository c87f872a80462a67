//! Developer commands of the workspace, as a library so that the tests can run them too.

#![forbid(unsafe_code)]

pub mod census;
pub mod suite;
pub mod tidy;
