//! What a guest's devices can do.

use ballast_model::Capabilities;
use serde::{Deserialize, Serialize};

/// A guest's devices and their features; `None`: not known yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapabilitiesView {
    /// A balloon device is present.
    pub balloon: Option<bool>,
    /// It reports statistics.
    pub statistics: Option<bool>,
    /// The guest reports free pages, which the host takes back.
    pub free_page_reporting: Option<bool>,
    /// The balloon deflates by itself when the guest runs out of memory.
    pub deflate_on_oom: Option<bool>,
    /// Hot-pluggable memory devices are present.
    pub memory_devices: Option<bool>,
    /// Ballooned pages stay on the host.
    pub discard_inhibited: Option<bool>,
    /// Others can order its balloon through the same manager.
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
