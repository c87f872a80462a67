//! A whole connection to xenstored: see `try_session`.
#![no_main]

use ballast_xenstore::testing::try_session;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| try_session(data));
