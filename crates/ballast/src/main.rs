//! The `ballast` program.

fn main() {}
