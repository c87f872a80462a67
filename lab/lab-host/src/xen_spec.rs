//! Xen below a guest: what QEMU boots first.

use std::path::PathBuf;

use ballast_model::Bytes;
use serde::{Deserialize, Serialize};

/// Xen below a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XenSpec {
    /// The hypervisor, not compressed.
    pub hypervisor: PathBuf,
    /// Memory of the first domain, in whole MiB; the rest is for others.
    pub dom0_memory: Bytes,
}
