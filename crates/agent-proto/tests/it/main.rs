//! The integration tests of `ballast-agent-proto`.

mod session;
mod vectors;
