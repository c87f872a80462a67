//! The integration tests of `ballast-mrc`.

mod sampling;
mod stacks;
