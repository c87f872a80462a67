//! The fence around a guest: the limit in force, and why it is missing.

use ballast_model::{Bytes, Fence};
use serde::{Deserialize, Serialize};

/// The fence around one guest whose configuration asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FenceView {
    /// The limit on the memory of its cgroup; `None`: none is in force.
    pub limit_bytes: Option<u64>,
    /// Why it does not stand as it is to, and what to do.
    pub trouble: Option<String>,
}

impl From<&Fence> for FenceView {
    fn from(fence: &Fence) -> Self {
        FenceView { limit_bytes: fence.limit.map(Bytes::get), trouble: fence.trouble.clone() }
    }
}
