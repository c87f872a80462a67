//! The Xen hypervisor that QEMU boots before a guest.

use std::path::PathBuf;

use ballast_model::Bytes;
use serde::{Deserialize, Serialize};

/// The Xen hypervisor that boots before a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XenSpec {
    /// The hypervisor, not compressed.
    pub hypervisor: PathBuf,
    /// Memory of dom0, in whole MiB; the rest is for other domains.
    pub dom0_memory: Bytes,
}
