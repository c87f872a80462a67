//! An agent that connects by vsock, with the real daemon and a real QEMU.
//!
//! Limits: only if the kernel serves vsock to guests (`/dev/vhost-vsock`), as in an outer machine
//! of `ballast-lab nested`.

use std::path::Path;

use ballast_lab_host::GuestSpec;
use ballast_model::Bytes;

use crate::harness::{Testbed, wait_for};
use crate::support::{Lab, swapping};

const BOOT: Bytes = Bytes::mib(256);
const SERVER: &str = "/dev/vhost-vsock";

/// The daemon learns the context id of the guest's device by QMP, and the kernel reports it for
/// each connection. So the agent is heard without a port, and again after it was killed and
/// restarted. Nobody can speak for a guest without such a device.
#[test]
fn an_agent_is_heard_by_vsock() {
    if !Path::new(SERVER).exists() {
        return println!("SKIPPED: there is no {SERVER}: load the module vhost_vsock");
    }
    let spec = |name: &str, vsock_cid| {
        // The guest also runs an agent on a port, to which nobody listens.
        GuestSpec { agent: true, vsock_cid, ..swapping(name, BOOT) }
    };
    let lab = Lab::boot(vec![spec("asks", Some(4711)), spec("mute", None)]);
    let testbed = Testbed::new();
    let settings = "[agents]\nfolders = []\nvsock = true";
    testbed.configure_for(lab.sockets(), "tick = \"250ms\"", settings);
    let daemon = testbed.start();
    let agent = |name: &str| -> Option<ballast_api::AgentView> {
        let (_, out, _) = testbed.ballast(&["explain", name, "--json"]);
        serde_json::from_str::<ballast_api::ExplainReply>(&out).ok()?.inputs.agent
    };
    lab.shell("asks", "/bin/ballast-agent --connect vsock >/dev/null 2>&1 &");
    let view = wait_for("an agent's report", || agent("asks"));
    assert!(view.committed_bytes.is_some(), "{view:?}");
    assert_eq!(agent("mute"), None);
    lab.shell("asks", "kill -9 $(pidof ballast-agent); sleep 1");
    lab.shell("asks", "/bin/ballast-agent --connect vsock >/dev/null 2>&1 &");
    let line = ", restarted";
    wait_for(line, || testbed.log().contains(line).then_some(()));
    wait_for("a report of the new one", || agent("asks").filter(|view| view.age_ms < 5000));
    assert!(daemon.stop().success());
}
