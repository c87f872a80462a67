//! The commands Ballast sends.
//!
//! Idea: the whole vocabulary in one place; nothing else is ever sent to a hypervisor. Of these only
//! `balloon`, `qom-set`, `system_powerdown`, `quit` and `cont` change anything.
//! Source: `qapi/*.json` of QEMU 7.2.

use ballast_model::Bytes;
use serde::Serialize;

use crate::codec::encode_command;

/// A command, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Ends negotiation; no optional capability is asked for.
    QmpCapabilities,
    /// The run state.
    QueryStatus,
    /// Memory the guest holds now: its memory less the balloon.
    QueryBalloon,
    /// Memory it was booted with, and memory plugged in later.
    QueryMemorySizeSummary,
    /// Memory devices.
    QueryMemoryDevices,
    /// Sets the memory the guest is to keep. In bytes of memory kept, not the balloon's size.
    Balloon {
        /// Memory the guest keeps.
        target: Bytes,
    },
    /// Lists what an object of the device tree has.
    QomList {
        /// The object.
        path: &'a str,
    },
    /// Reads a property of an object of the device tree.
    QomGet {
        /// The object.
        path: &'a str,
        /// The property.
        property: &'a str,
    },
    /// Sets a whole-number property of an object of the device tree.
    QomSet {
        /// The object.
        path: &'a str,
        /// The property.
        property: &'a str,
        /// Its new value.
        value: u64,
    },
    /// Presses the guest's power button: it shuts down if it wants to.
    SystemPowerdown,
    /// Ends the hypervisor at once; the guest loses what it has not written.
    Quit,
    /// Lets a paused guest run.
    Cont,
}

#[derive(Serialize)]
struct NoArguments {}

#[derive(Serialize)]
struct Value<T> {
    value: T,
}

#[derive(Serialize)]
struct Object<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    property: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
}

impl Command<'_> {
    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Command::QmpCapabilities => "qmp_capabilities",
            Command::QueryStatus => "query-status",
            Command::QueryBalloon => "query-balloon",
            Command::QueryMemorySizeSummary => "query-memory-size-summary",
            Command::QueryMemoryDevices => "query-memory-devices",
            Command::Balloon { .. } => "balloon",
            Command::QomList { .. } => "qom-list",
            Command::QomGet { .. } => "qom-get",
            Command::QomSet { .. } => "qom-set",
            Command::SystemPowerdown => "system_powerdown",
            Command::Quit => "quit",
            Command::Cont => "cont",
        }
    }

    /// Appends it to `out` as the command numbered `id`.
    pub fn encode(&self, id: u64, out: &mut Vec<u8>) {
        let object = match *self {
            Command::Balloon { target } => {
                return encode_command(self.name(), Some(Value { value: target.get() }), id, out);
            }
            Command::QomList { path } => Object { path, property: None, value: None },
            Command::QomGet { path, property } => {
                Object { path, property: Some(property), value: None }
            }
            Command::QomSet { path, property, value } => {
                Object { path, property: Some(property), value: Some(value) }
            }
            _ => return encode_command(self.name(), None::<NoArguments>, id, out),
        };
        encode_command(self.name(), Some(object), id, out);
    }
}
