//! Answers of any program that listens on a guest's socket: see `try_rest_guest`.
#![no_main]

use ballast_firecracker::FirecrackerGuest;
use ballast_rest::testing::try_rest_guest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| try_rest_guest::<FirecrackerGuest>(data));
