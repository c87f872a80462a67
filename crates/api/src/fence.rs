//! The fence around a guest: the limit in force, and why it is missing.

use ballast_model::{Bytes, Fence};
use serde::{Deserialize, Serialize};

/// The fence around a guest whose configuration asks for one: a limit on the memory of its cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FenceView {
    /// The limit in force; `null`: none.
    pub limit_bytes: Option<u64>,
    /// Why the fence is not as it should be, and what to do; `null`: nothing is wrong.
    pub trouble: Option<String>,
}

impl From<&Fence> for FenceView {
    fn from(fence: &Fence) -> Self {
        FenceView { limit_bytes: fence.limit.map(Bytes::get), trouble: fence.trouble.clone() }
    }
}
