//! The integration tests of `ballast-control`.

mod moving;
mod properties;
mod stories;
mod world;
