//! The host names under which requests are answered.
//!
//! Idea: a page of another site can have its own name resolve to this machine ("DNS rebinding"),
//! and then send requests as if it were the daemon's page. The browser still sends that name in
//! `Host`. So only names that no stranger can own are answered: loopback names, and configured
//! ones. On the Unix socket, which browsers reach only through a proxy, names without a dot are
//! answered too: scripts put any name there, and none of these is on the internet.

use std::net::IpAddr;

use axum::http::uri::Authority;

/// Whether a request to `host`, a name with or without a port, is answered.
pub(super) fn is_answered(host: &str, configured: &[String], on_socket: bool) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    // `user@name` is not a plain host name.
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
    let has_more = host.len() > name.len();
    if has_more && authority.port_u16().is_none() {
        return false;
    }
    let address = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = address.parse::<IpAddr>() {
        return address.is_loopback();
    }
    name.eq_ignore_ascii_case("localhost")
        || configured.iter().any(|known| known.eq_ignore_ascii_case(name))
        || on_socket && !name.is_empty() && !name.contains('.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_names_that_no_stranger_owns_are_answered() {
        let configured = ["ballast.example.org".to_owned()];
        for (host, port, socket) in [
            ("localhost", true, true),
            ("LocalHost:7117", true, true),
            ("127.0.0.1:7117", true, true),
            ("127.9.9.9", true, true),
            ("[::1]:7117", true, true),
            ("ballast.example.org", true, true),
            ("Ballast.Example.Org:443", true, true),
            ("x", false, true),
            ("x:80", false, true),
            ("localhost.", false, false),
            ("evil.example", false, false),
            ("evil.example:7117", false, false),
            ("localhost.evil.example", false, false),
            ("ballast.example.org.evil.example", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("10.0.0.1:7117", false, false),
            ("[2001:db8::1]", false, false),
            ("0.0.0.0", false, false),
            ("localhost@evil.example", false, false),
            ("", false, false),
            (":80", false, false),
            (":.a", false, false),
            ("x:.a", false, false),
            ("x:65536", false, false),
            ("a b", false, false),
        ] {
            assert_eq!(is_answered(host, &configured, false), port, "{host:?} on the port");
            assert_eq!(is_answered(host, &configured, true), socket, "{host:?} on the socket");
        }
    }

    proptest! {
        #[test]
        fn no_other_name_with_a_dot_is_answered(host in "\\PC{0,20}\\.[a-z]{1,9}(:[0-9]{1,4})?") {
            prop_assert!(!is_answered(&host, &[], true));
        }
    }
}
