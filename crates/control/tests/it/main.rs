//! The integration tests of `ballast-control`.

mod moving;
mod properties;
mod restart;
mod stories;
mod world;
