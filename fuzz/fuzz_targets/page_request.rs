//! Requests to the page's port from any user of the host: with any name and cookie, they may do
//! nothing before a login, and only names that no stranger can own are answered.
#![no_main]

use ballast_daemon::server::{Access, fixture};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (host, cookie) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(access) = fixture::access_on_port(host, cookie) else { return };
    assert_eq!(access, Access::None);
    let host = String::from_utf8_lossy(host).to_lowercase();
    let known = ["localhost", "127.", "[", "ballast.example.org"];
    assert!(known.iter().any(|name| host.starts_with(name)), "{host}");
});
