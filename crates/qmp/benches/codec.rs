//! Decode throughput.
fn main() {}
