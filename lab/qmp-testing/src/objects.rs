//! A machine's device tree, its statistics, and the counters of its disk.
//!
//! Source: replies of QEMU 7.2.

use ballast_model::{Bytes, DiskReads, GuestStats};
use serde_json::{Value, json};

use super::failure::Failure;
use super::peer_config::PeerConfig;
use super::plugged::Plugged;

/// The reply to `qom-list` for a path.
pub(crate) fn list(
    path: &str,
    config: &PeerConfig,
    plugged: Option<&Plugged>,
) -> Result<Value, Failure> {
    let kind = json!({"name": "type", "type": "string"});
    match path {
        "/machine/peripheral-anon" if config.has_balloon => {
            Ok(json!([kind, {"name": "device[0]", "type": "child<virtio-balloon-pci>"}]))
        }
        "/machine/peripheral" if config.vsock_cid.is_some() => {
            Ok(json!([kind, {"name": "vsock0", "type": "child<vhost-vsock-pci>"}]))
        }
        "/machine/peripheral" | "/machine/peripheral-anon" => Ok(json!([kind])),
        "/objects" => {
            let ram = json!({"name": "pc.ram", "type": "child<memory-backend-ram>"});
            let more = plugged.into_iter().flat_map(Plugged::objects);
            Ok([kind, ram].into_iter().chain(more).collect())
        }
        _ => Err(("DeviceNotFound", format!("Device '{path}' not found"))),
    }
}

/// Statistics in the balloon device's form, which also has those that the guest does not send.
pub(crate) fn stats(stats: &GuestStats, at: u64) -> Value {
    let bytes = |value: Option<Bytes>| value.map_or(u64::MAX, Bytes::get);
    json!({"last-update": at, "stats": {
        "stat-total-memory": bytes(stats.total),
        "stat-free-memory": bytes(stats.free),
        "stat-available-memory": bytes(stats.available),
        "stat-disk-caches": bytes(stats.disk_caches),
        "stat-swap-in": bytes(stats.swap_in),
        "stat-swap-out": bytes(stats.swap_out),
        "stat-major-faults": stats.major_faults.unwrap_or(u64::MAX),
        "stat-minor-faults": stats.minor_faults.unwrap_or(u64::MAX),
    }})
}

/// The reply to `query-blockstats` of a machine with one disk; `None`: it lacks the command.
pub(crate) fn block_stats(reads: Option<DiskReads>) -> Result<Value, Failure> {
    let Some(DiskReads { read, requests, .. }) = reads else {
        let desc = "The command query-blockstats has not been found".to_owned();
        return Err(("CommandNotFound", desc));
    };
    let stats = json!({"rd_bytes": read.get(), "rd_operations": requests, "timed_stats": []});
    Ok(json!([{
        "device": "", "node-name": "disk0", "stats": stats,
        "qdev": "/machine/peripheral-anon/device[1]/virtio-backend",
        "parent": {"stats": {"rd_bytes": 0, "rd_operations": 0, "timed_stats": []}},
    }]))
}
