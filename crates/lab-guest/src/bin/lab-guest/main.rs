//! The program inside a lab guest.

fn main() {}
