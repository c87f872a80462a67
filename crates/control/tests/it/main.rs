//! The integration tests of `ballast-control`.

mod external;
mod moving;
mod paused;
mod properties;
mod reserve;
mod restart;
mod stories;
mod world;
