//! The commands Ballast sends.
//!
//! Idea: the whole vocabulary in one place; nothing else is ever sent to a hypervisor. Of these only
//! `balloon`, `qom-set`, `object-add`, `object-del`, `device_add`, `device_del`, `system_powerdown`,
//! `quit` and `cont` change anything, and of devices and objects only memory modules of our own names
//! are made and removed.
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
    /// Makes memory for a module; the guest does not see it yet.
    AddMemory {
        /// Its number among our own.
        number: ModuleNumber,
        /// How much.
        size: Bytes,
    },
    /// Gives such memory back to the host.
    RemoveMemory {
        /// Its number.
        number: ModuleNumber,
    },
    /// Plugs a module with the memory of the same number into the guest.
    PlugModule {
        /// Its number.
        number: ModuleNumber,
    },
    /// Asks the guest to let go of a module; an event says when it has, or that it will not.
    UnplugModule {
        /// Its number.
        number: ModuleNumber,
    },
    /// Presses the guest's power button: it shuts down if it wants to.
    SystemPowerdown,
    /// Ends the hypervisor at once; the guest loses what it has not written.
    Quit,
    /// Lets a paused guest run.
    Cont,
}

/// A memory module of our own making. Its device and its memory are known by this number, in a guest
/// and to whoever looks at it; modules with other names are not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleNumber(pub u16);

impl ModuleNumber {
    const DEVICE: &str = "ballast-dimm-";
    const MEMORY: &str = "ballast-mem-";

    /// The id of its device.
    pub fn device(self) -> String {
        format!("{}{}", ModuleNumber::DEVICE, self.0)
    }

    /// The id of its memory.
    pub fn memory(self) -> String {
        format!("{}{}", ModuleNumber::MEMORY, self.0)
    }

    /// The module whose device has this id; `None`: none of ours.
    pub fn of_device(id: &str) -> Option<ModuleNumber> {
        let number = id.strip_prefix(ModuleNumber::DEVICE)?.parse().map(ModuleNumber).ok()?;
        (number.device() == id).then_some(number)
    }

    /// The module whose memory has this id; `None`: none of ours.
    pub fn of_memory(id: &str) -> Option<ModuleNumber> {
        let number = id.strip_prefix(ModuleNumber::MEMORY)?.parse().map(ModuleNumber).ok()?;
        (number.memory() == id).then_some(number)
    }
}

#[derive(Serialize)]
struct NoArguments {}

#[derive(Serialize)]
struct Id {
    id: String,
}

/// Memory in a file without a name, which a process beside QEMU (vhost-user) can share too.
#[derive(Serialize)]
struct Backend {
    #[serde(rename = "qom-type")]
    kind: &'static str,
    id: String,
    size: u64,
    share: bool,
}

#[derive(Serialize)]
struct Module {
    driver: &'static str,
    id: String,
    memdev: String,
}

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
            Command::AddMemory { .. } => "object-add",
            Command::RemoveMemory { .. } => "object-del",
            Command::PlugModule { .. } => "device_add",
            Command::UnplugModule { .. } => "device_del",
            Command::SystemPowerdown => "system_powerdown",
            Command::Quit => "quit",
            Command::Cont => "cont",
        }
    }

    /// Appends it to `out` as the command numbered `id_of_command`.
    pub fn encode(&self, id_of_command: u64, out: &mut Vec<u8>) {
        let object = match *self {
            Command::Balloon { target } => {
                return encode_command(
                    self.name(),
                    Some(Value { value: target.get() }),
                    id_of_command,
                    out,
                );
            }
            Command::AddMemory { number, size } => {
                let (kind, id) = ("memory-backend-memfd", number.memory());
                let backend = Backend { kind, id, size: size.get(), share: true };
                return encode_command(self.name(), Some(backend), id_of_command, out);
            }
            Command::RemoveMemory { number } => {
                let id = number.memory();
                return encode_command(self.name(), Some(Id { id }), id_of_command, out);
            }
            Command::PlugModule { number } => {
                let (driver, id, memdev) = ("pc-dimm", number.device(), number.memory());
                let module = Module { driver, id, memdev };
                return encode_command(self.name(), Some(module), id_of_command, out);
            }
            Command::UnplugModule { number } => {
                let id = number.device();
                return encode_command(self.name(), Some(Id { id }), id_of_command, out);
            }
            Command::QomList { path } => Object { path, property: None, value: None },
            Command::QomGet { path, property } => {
                Object { path, property: Some(property), value: None }
            }
            Command::QomSet { path, property, value } => {
                Object { path, property: Some(property), value: Some(value) }
            }
            _ => return encode_command(self.name(), None::<NoArguments>, id_of_command, out),
        };
        encode_command(self.name(), Some(object), id_of_command, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_ours_by_their_names_and_by_nothing_else() {
        let number = ModuleNumber(12);
        assert_eq!(ModuleNumber::of_device(&number.device()), Some(number));
        assert_eq!(ModuleNumber::of_memory(&number.memory()), Some(number));
        for other in [
            "dimm12",
            "ballast-dimm-",
            "ballast-dimm-x",
            "ballast-dimm-70000",
            "ballast-dimm-+1",
            "ballast-mem-12",
        ] {
            assert_eq!(ModuleNumber::of_device(other), None, "{other}");
        }
    }

    #[test]
    fn memory_and_module_are_made_and_removed_under_the_same_number() {
        let number = ModuleNumber(3);
        let mut out = Vec::new();
        for command in [
            Command::AddMemory { number, size: Bytes::mib(128) },
            Command::PlugModule { number },
            Command::UnplugModule { number },
            Command::RemoveMemory { number },
        ] {
            command.encode(7, &mut out);
        }
        let expected = concat!(
            r#"{"execute":"object-add","arguments":{"qom-type":"memory-backend-memfd","#,
            r#""id":"ballast-mem-3","size":134217728,"share":true},"id":7}"#,
            "\n",
            r#"{"execute":"device_add","arguments":{"driver":"pc-dimm","id":"ballast-dimm-3","#,
            r#""memdev":"ballast-mem-3"},"id":7}"#,
            "\n",
            r#"{"execute":"device_del","arguments":{"id":"ballast-dimm-3"},"id":7}"#,
            "\n",
            r#"{"execute":"object-del","arguments":{"id":"ballast-mem-3"},"id":7}"#,
            "\n",
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
