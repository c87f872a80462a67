//! The integration tests of `ballast-reclaim`.

mod cgroups;
mod common;
mod fence;
mod generations;
mod paging;
