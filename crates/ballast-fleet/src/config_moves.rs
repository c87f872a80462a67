//! The tables of the configuration that say how guests are moved to and from this host.
//!
//! Idea: each table becomes what its hypervisor needs, or an error about one of its keys.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ballast_model::Bytes;
use ballast_toml_strict::duration;
use serde::Deserialize;

use crate::carry::{ADDRESS_PLACEHOLDER, GUEST_PLACEHOLDER, LibvirtConfig, QemuConfig};

/// Longest time that a guest may stand still at the end of a copy.
const DOWNTIME_MAX: Duration = Duration::from_secs(60);

/// The table `[qemu]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QemuTable {
    qmp: String,
    start: Vec<String>,
    listen: IpAddr,
    #[serde(default = "downtime_default", with = "duration")]
    downtime: Duration,
}

/// The table `[libvirt]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LibvirtTable {
    #[serde(default = "uri_default")]
    uri: String,
    #[serde(default = "peer_default")]
    peer: String,
    listen: SocketAddr,
}

fn uri_default() -> String {
    "qemu:///system".to_owned()
}

fn peer_default() -> String {
    format!("qemu+tls://{ADDRESS_PLACEHOLDER}/system")
}

fn downtime_default() -> Duration {
    Duration::from_millis(300)
}

impl QemuTable {
    /// Checks the table; a copy sends at most `bandwidth_per_s`. An error has its key and the
    /// reason.
    pub(crate) fn config(
        self,
        bandwidth_per_s: Bytes,
    ) -> Result<QemuConfig, (&'static str, String)> {
        let QemuTable { qmp, start, listen, downtime } = self;
        if !qmp.starts_with('/') || !qmp.contains(GUEST_PLACEHOLDER) {
            let why = format!("expected an absolute path with {GUEST_PLACEHOLDER} in it");
            return Err(("qmp", why));
        }
        let is_program = start.first().is_some_and(|it| it.starts_with('/'));
        if !is_program || !start.iter().skip(1).any(|it| it.contains(GUEST_PLACEHOLDER)) {
            let why = format!(
                "expected a program's absolute path, and {GUEST_PLACEHOLDER} in an argument"
            );
            return Err(("start", why));
        }
        if listen.is_unspecified() {
            let why = format!("{listen}: expected the address at which other hosts reach this one");
            return Err(("listen", why));
        }
        if downtime.is_zero() || downtime > DOWNTIME_MAX {
            return Err(("downtime", "expected 1ms to 60s".to_owned()));
        }
        Ok(QemuConfig { qmp, start, listen, downtime, bandwidth_per_s })
    }
}

impl LibvirtTable {
    /// Checks the table; a copy sends at most `bandwidth_per_s`. An error has its key and the
    /// reason.
    pub(crate) fn config(
        self,
        bandwidth_per_s: Bytes,
    ) -> Result<LibvirtConfig, (&'static str, String)> {
        let LibvirtTable { uri, peer, listen } = self;
        if !uri.contains("://") {
            let why = format!("`{uri}`: expected a URI of libvirt, such as qemu:///system");
            return Err(("uri", why));
        }
        if !peer.contains("://") || !peer.contains(ADDRESS_PLACEHOLDER) {
            let why =
                format!("`{peer}`: expected a URI of libvirt with {ADDRESS_PLACEHOLDER} in it");
            return Err(("peer", why));
        }
        if listen.ip().is_unspecified() || listen.port() == 0 {
            let why =
                format!("{listen}: expected address and port of this host's libvirt for others");
            return Err(("listen", why));
        }
        Ok(LibvirtConfig { uri, peer, listen, bandwidth_per_s })
    }
}
