//! What a guest's devices can do.

use ballast_model::Capabilities;
use serde::{Deserialize, Serialize};

/// What a guest's devices can do; `null`: not known yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapabilitiesView {
    /// Whether there is a balloon device.
    pub balloon: Option<bool>,
    /// Whether the balloon device reports statistics.
    pub statistics: Option<bool>,
    /// Whether the guest gives free pages back to the host by itself.
    pub free_page_reporting: Option<bool>,
    /// Whether the balloon deflates by itself when the guest runs out of memory.
    pub deflate_on_oom: Option<bool>,
    /// Whether there are devices for memory that can be plugged in.
    pub memory_devices: Option<bool>,
    /// Whether ballooned pages stay on the host, so that a balloon frees no host memory.
    pub discard_inhibited: Option<bool>,
    /// Whether others can move its balloon too, through the same manager.
    #[serde(default)]
    pub shared_control: Option<bool>,
}

impl From<&Capabilities> for CapabilitiesView {
    fn from(capabilities: &Capabilities) -> Self {
        CapabilitiesView {
            balloon: capabilities.balloon,
            statistics: capabilities.statistics,
            free_page_reporting: capabilities.free_page_reporting,
            deflate_on_oom: capabilities.deflate_on_oom,
            memory_devices: capabilities.memory_devices,
            discard_inhibited: capabilities.discard_inhibited,
            shared_control: capabilities.shared_control,
        }
    }
}
