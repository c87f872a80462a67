//! The QMP commands that Ballast sends.
//!
//! Idea: all commands are listed here; nothing else is ever sent to a hypervisor. Only `balloon`,
//! `qom-set`, `object-add`, `object-del`, `device_add`, `device_del`, `system_powerdown`, `quit`,
//! `cont` and the migration commands change anything, and the only devices and objects added or
//! removed are memory modules with our own names. A migration target is always an IP address and a
//! port, so an `exec:` URI, which runs a shell command, cannot be sent.
//! Source: `qapi/*.json` of QEMU 7.2.

use std::net::SocketAddr;

use ballast_model::Bytes;
use serde::Serialize;

use crate::codec::encode_command;

/// A command, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QmpCommand<'a> {
    /// Ends negotiation, without optional capabilities.
    QmpCapabilities,
    /// Reads the run state.
    QueryStatus,
    /// Reads the guest's memory less the balloon.
    QueryBalloon,
    /// Reads boot memory, and memory plugged later.
    QueryMemorySizeSummary,
    /// Lists memory devices.
    QueryMemoryDevices,
    /// Reads the counters of all block devices.
    QueryBlockStats,
    /// Sets the balloon's target.
    Balloon {
        /// Memory left to the guest (not the balloon's size).
        target: Bytes,
    },
    /// Lists the properties of an object in the device tree.
    QomList {
        /// The object.
        path: &'a str,
    },
    /// Reads a property of an object in the device tree.
    QomGet {
        /// The object.
        path: &'a str,
        /// The property.
        property: &'a str,
    },
    /// Sets a whole-number property of an object in the device tree.
    QomSet {
        /// The object.
        path: &'a str,
        /// The property.
        property: &'a str,
        /// The new value.
        value: u64,
    },
    /// Creates the memory object of a module; the guest does not see it yet.
    AddMemory {
        /// The module's number.
        number: ModuleNumber,
        /// The size.
        size: Bytes,
    },
    /// Removes a memory object, which frees its memory on the host.
    RemoveMemory {
        /// The module's number.
        number: ModuleNumber,
    },
    /// Plugs a module backed by the memory object of the same number.
    PlugModule {
        /// The module's number.
        number: ModuleNumber,
    },
    /// Asks the guest to release a module; an event reports success or failure.
    UnplugModule {
        /// The module's number.
        number: ModuleNumber,
    },
    /// Presses the guest's power button; the guest may ignore it.
    SystemPowerdown,
    /// Ends the hypervisor at once; the guest loses unwritten data.
    Quit,
    /// Resumes a paused guest.
    Cont,
    /// Enables migration events and the return path. With the return path, the source waits until
    /// the destination has loaded everything.
    MigrateSetCapabilities,
    /// Sets the limits of a migration.
    MigrateSetParameters {
        /// Bandwidth limit, in bytes per second.
        bandwidth_per_s: Bytes,
        /// How long the guest may be paused at the end, in milliseconds.
        downtime_ms: u64,
    },
    /// Starts to migrate the guest.
    Migrate {
        /// The address at which the destination listens.
        to: SocketAddr,
    },
    /// Cancels the migration.
    MigrateCancel,
    /// Starts to listen for an incoming migration.
    MigrateIncoming {
        /// The address to listen at; with port 0 QEMU picks a port.
        at: SocketAddr,
    },
    /// Reads the progress of a migration.
    QueryMigrate,
    /// Starts a measurement of the dirty rate (how fast the guest writes to its memory), by
    /// sampling its pages.
    CalcDirtyRate {
        /// Length of the measurement, in seconds.
        seconds: u64,
        /// Pages sampled per GiB of memory.
        sampled_per_gib: u32,
    },
    /// Reads the state and the result of that measurement.
    QueryDirtyRate,
}

/// The number of one of our own memory modules. The ids of its device and memory object contain it;
/// modules with other ids are not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleNumber(pub u16);

impl ModuleNumber {
    const DEVICE: &str = "ballast-dimm-";
    const MEMORY: &str = "ballast-mem-";

    /// The id of its device.
    pub fn device(self) -> String {
        format!("{}{}", ModuleNumber::DEVICE, self.0)
    }

    /// The id of its memory object.
    pub fn memory(self) -> String {
        format!("{}{}", ModuleNumber::MEMORY, self.0)
    }

    /// The module whose device has this id; `None` if it is not ours.
    pub fn of_device(id: &str) -> Option<ModuleNumber> {
        let number = id.strip_prefix(ModuleNumber::DEVICE)?.parse().map(ModuleNumber).ok()?;
        (number.device() == id).then_some(number)
    }

    /// The module whose memory object has this id; `None` if it is not ours.
    pub fn of_memory(id: &str) -> Option<ModuleNumber> {
        let number = id.strip_prefix(ModuleNumber::MEMORY)?.parse().map(ModuleNumber).ok()?;
        (number.memory() == id).then_some(number)
    }
}

#[derive(Serialize)]
struct NoArguments {}

#[derive(Serialize)]
struct IdArgument {
    id: String,
}

/// Memory in an anonymous file, which a vhost-user process can share too.
#[derive(Serialize)]
struct MemoryBackendArguments {
    #[serde(rename = "qom-type")]
    kind: &'static str,
    id: String,
    size: u64,
    share: bool,
}

#[derive(Serialize)]
struct DimmArguments {
    driver: &'static str,
    id: String,
    memdev: String,
}

#[derive(Serialize)]
struct CapabilityArguments {
    capabilities: [CapabilityArgument; 2],
}

#[derive(Serialize)]
struct CapabilityArgument {
    capability: &'static str,
    state: bool,
}

#[derive(Serialize)]
struct ParameterArguments {
    #[serde(rename = "max-bandwidth")]
    bandwidth_per_s: u64,
    #[serde(rename = "downtime-limit")]
    downtime_ms: u64,
}

#[derive(Serialize)]
struct DirtyRateArguments {
    #[serde(rename = "calc-time")]
    seconds: u64,
    #[serde(rename = "sample-pages")]
    sampled_per_gib: u32,
    mode: &'static str,
}

#[derive(Serialize)]
struct DestinationArgument {
    uri: String,
}

#[derive(Serialize)]
struct BalloonArguments {
    value: u64,
}

#[derive(Serialize)]
struct QomArguments<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    property: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
}

impl QmpCommand<'_> {
    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            QmpCommand::QmpCapabilities => "qmp_capabilities",
            QmpCommand::QueryStatus => "query-status",
            QmpCommand::QueryBalloon => "query-balloon",
            QmpCommand::QueryMemorySizeSummary => "query-memory-size-summary",
            QmpCommand::QueryMemoryDevices => "query-memory-devices",
            QmpCommand::QueryBlockStats => "query-blockstats",
            QmpCommand::Balloon { .. } => "balloon",
            QmpCommand::QomList { .. } => "qom-list",
            QmpCommand::QomGet { .. } => "qom-get",
            QmpCommand::QomSet { .. } => "qom-set",
            QmpCommand::AddMemory { .. } => "object-add",
            QmpCommand::RemoveMemory { .. } => "object-del",
            QmpCommand::PlugModule { .. } => "device_add",
            QmpCommand::UnplugModule { .. } => "device_del",
            QmpCommand::SystemPowerdown => "system_powerdown",
            QmpCommand::Quit => "quit",
            QmpCommand::Cont => "cont",
            QmpCommand::MigrateSetCapabilities => "migrate-set-capabilities",
            QmpCommand::MigrateSetParameters { .. } => "migrate-set-parameters",
            QmpCommand::Migrate { .. } => "migrate",
            QmpCommand::MigrateCancel => "migrate_cancel",
            QmpCommand::MigrateIncoming { .. } => "migrate-incoming",
            QmpCommand::QueryMigrate => "query-migrate",
            QmpCommand::CalcDirtyRate { .. } => "calc-dirty-rate",
            QmpCommand::QueryDirtyRate => "query-dirty-rate",
        }
    }

    /// Appends the command to `out`, with this id.
    pub fn encode(&self, command_id: u64, out: &mut Vec<u8>) {
        match *self {
            QmpCommand::Balloon { target } => {
                self.encode_with(BalloonArguments { value: target.get() }, command_id, out);
            }
            QmpCommand::AddMemory { number, size } => {
                let (kind, id) = ("memory-backend-memfd", number.memory());
                let backend = MemoryBackendArguments { kind, id, size: size.get(), share: true };
                self.encode_with(backend, command_id, out);
            }
            QmpCommand::RemoveMemory { number } => {
                self.encode_with(IdArgument { id: number.memory() }, command_id, out);
            }
            QmpCommand::PlugModule { number } => {
                let (driver, id, memdev) = ("pc-dimm", number.device(), number.memory());
                self.encode_with(DimmArguments { driver, id, memdev }, command_id, out);
            }
            QmpCommand::UnplugModule { number } => {
                self.encode_with(IdArgument { id: number.device() }, command_id, out);
            }
            QmpCommand::QomList { path } => {
                self.encode_with(
                    QomArguments { path, property: None, value: None },
                    command_id,
                    out,
                );
            }
            QmpCommand::QomGet { path, property } => {
                let property = Some(property);
                self.encode_with(QomArguments { path, property, value: None }, command_id, out);
            }
            QmpCommand::QomSet { path, property, value } => {
                let (property, value) = (Some(property), Some(value));
                self.encode_with(QomArguments { path, property, value }, command_id, out);
            }
            QmpCommand::MigrateSetCapabilities => {
                let on = |capability| CapabilityArgument { capability, state: true };
                let capabilities = [on("return-path"), on("events")];
                self.encode_with(CapabilityArguments { capabilities }, command_id, out);
            }
            QmpCommand::MigrateSetParameters { bandwidth_per_s, downtime_ms } => {
                let bandwidth_per_s = bandwidth_per_s.get();
                self.encode_with(
                    ParameterArguments { bandwidth_per_s, downtime_ms },
                    command_id,
                    out,
                );
            }
            QmpCommand::Migrate { to: address } | QmpCommand::MigrateIncoming { at: address } => {
                self.encode_with(
                    DestinationArgument { uri: format!("tcp:{address}") },
                    command_id,
                    out,
                );
            }
            QmpCommand::CalcDirtyRate { seconds, sampled_per_gib } => {
                let mode = "page-sampling";
                let arguments = DirtyRateArguments { seconds, sampled_per_gib, mode };
                self.encode_with(arguments, command_id, out);
            }
            QmpCommand::QmpCapabilities
            | QmpCommand::QueryStatus
            | QmpCommand::QueryDirtyRate
            | QmpCommand::MigrateCancel
            | QmpCommand::QueryMigrate
            | QmpCommand::QueryBalloon
            | QmpCommand::QueryMemorySizeSummary
            | QmpCommand::QueryMemoryDevices
            | QmpCommand::QueryBlockStats
            | QmpCommand::SystemPowerdown
            | QmpCommand::Quit
            | QmpCommand::Cont => encode_command(self.name(), None::<NoArguments>, command_id, out),
        }
    }

    fn encode_with(&self, arguments: impl Serialize, command_id: u64, out: &mut Vec<u8>) {
        encode_command(self.name(), Some(arguments), command_id, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_our_own_modules_are_recognized() {
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
    fn a_guest_migrates_to_an_address_and_nothing_else() {
        let mut out = Vec::new();
        for command in [
            QmpCommand::MigrateSetCapabilities,
            QmpCommand::MigrateSetParameters { bandwidth_per_s: Bytes::mib(1), downtime_ms: 300 },
            QmpCommand::Migrate { to: "192.0.2.1:49152".parse().unwrap() },
            QmpCommand::MigrateIncoming { at: "[2001:db8::1]:0".parse().unwrap() },
            QmpCommand::MigrateCancel,
            QmpCommand::CalcDirtyRate { seconds: 1, sampled_per_gib: 512 },
        ] {
            command.encode(7, &mut out);
        }
        let expected = concat!(
            r#"{"execute":"migrate-set-capabilities","arguments":{"capabilities":["#,
            r#"{"capability":"return-path","state":true},{"capability":"events","state":true}]},"id":7}"#,
            "\n",
            r#"{"execute":"migrate-set-parameters","arguments":{"max-bandwidth":1048576,"#,
            r#""downtime-limit":300},"id":7}"#,
            "\n",
            r#"{"execute":"migrate","arguments":{"uri":"tcp:192.0.2.1:49152"},"id":7}"#,
            "\n",
            r#"{"execute":"migrate-incoming","arguments":{"uri":"tcp:[2001:db8::1]:0"},"id":7}"#,
            "\n",
            r#"{"execute":"migrate_cancel","id":7}"#,
            "\n",
            r#"{"execute":"calc-dirty-rate","arguments":{"calc-time":1,"sample-pages":512,"#,
            r#""mode":"page-sampling"},"id":7}"#,
            "\n",
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn module_commands_use_the_ids_of_one_number() {
        let number = ModuleNumber(3);
        let mut out = Vec::new();
        for command in [
            QmpCommand::AddMemory { number, size: Bytes::mib(128) },
            QmpCommand::PlugModule { number },
            QmpCommand::UnplugModule { number },
            QmpCommand::RemoveMemory { number },
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
