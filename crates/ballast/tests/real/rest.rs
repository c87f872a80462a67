//! The real daemon and the real agent, under a server of Cloud Hypervisor's and of
//! Firecracker's API before real guests of QEMU (see `support/hypervisor_api.rs`).
//!
//! Limits: not the real programs. The agent comes by vsock only where the kernel serves guests'
//! (`/dev/vhost-vsock`), as in an outer machine of `ballast-lab nested`, else by a port.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ballast_api::{AgentView, ExplainReply};
use ballast_lab_host::GuestSpec;
use ballast_model::Bytes;

use crate::harness::{Ground, guest, wait_for};
use crate::support::hypervisor_api::{Hypervisor, HypervisorApi, pass_port_on, pass_vsock_on};
use crate::support::{Lab, allocation, assert_unrefused, swapping, wait_settled, wait_ticks};

const SERVER: &str = "/dev/vhost-vsock";
const NAMES: [&str; 2] = ["starved", "idle"];
const CID_FIRST: u32 = 4711;
/// What each guest is booted with, and what both may have.
const BOOT: Bytes = Bytes::mib(256);
const BUDGET: Bytes = Bytes::mib(336);
/// What a guest always keeps, and what the starved one goes through.
const FLOOR: Bytes = Bytes::mib(96);
const WORK: Bytes = Bytes::mib(200);
/// The host counts in whole MiB, and moves in pages.
const SLACK: Bytes = Bytes::mib(2);

#[test]
fn cloud_hypervisor_guests_are_balanced_by_their_agents() {
    balance(Hypervisor::CloudHypervisor);
}

#[test]
fn firecracker_guests_are_balanced_by_balloon_and_agent() {
    balance(Hypervisor::Firecracker);
}

fn balance(hypervisor: Hypervisor) {
    let has_vsock = Path::new(SERVER).exists();
    eprintln!("agents come by {}", if has_vsock { "vsock" } else { "virtio-serial" });
    let spec = |(name, cid): (&str, u32)| {
        // With vsock it also runs the agent on a port, where nobody listens to it.
        let (vsock_cid, extra_args) = (has_vsock.then_some(cid), hypervisor.qemu_arguments());
        GuestSpec { agent: true, vsock_cid, extra_args, ..swapping(name, BOOT) }
    };
    let lab = Lab::boot(NAMES.into_iter().zip(CID_FIRST..).map(spec).collect());
    let ground = Ground::new();
    let sockets = ground.path("api");
    fs::create_dir(&sockets).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let serve =
        |name| Arc::new(HypervisorApi::start(hypervisor, lab.guest(name), name, BOOT, &sockets));
    let apis = NAMES.map(serve);
    let held = || [apis[0].held(), apis[1].held()];
    if has_vsock {
        pass_vsock_on(BTreeMap::from_iter((CID_FIRST..).zip(apis.iter().cloned())));
    }
    configure(&ground, hypervisor, &sockets);
    let daemon = ground.start();
    for name in NAMES {
        wait_for("the guest to be found by its socket", || {
            let status = daemon.status()?;
            let view = guest(&status, name)?;
            let is_whole = view.allocation_bytes == Some(BOOT.get());
            (is_whole && view.resident_bytes.is_some()).then_some(())
        });
    }
    if hypervisor == Hypervisor::CloudHypervisor {
        wait_settled(&daemon);
        let status = daemon.status().unwrap();
        for name in NAMES {
            let why = guest(&status, name).unwrap().change.as_ref().unwrap().why.as_ref();
            assert_eq!(why.unwrap().code, "no-statistics", "{name}");
        }
        assert_eq!(held(), [BOOT; 2], "nobody says what they need, and they are left as they are");
    }
    for (name, api) in NAMES.into_iter().zip(&apis) {
        if has_vsock {
            lab.shell(name, "/bin/ballast-agent --connect vsock >/dev/null 2>&1 &");
        } else {
            pass_port_on(Arc::clone(api), lab.guest(name).agent_socket().unwrap());
        }
        wait_for("an agent's report", || agent(&ground, name)?.committed_bytes);
    }
    wait_for("the budget to be kept", || {
        (held().into_iter().sum::<Bytes>() <= BUDGET).then_some(())
    });
    let [before, idle_before] = held();
    lab.start_constant("starved", WORK);
    wait_for("the starved guest to have what the idle one does not need", || {
        wait_ticks(&daemon, 1);
        let [starved, idle] = held();
        eprintln!("starved has {starved}, idle {idle}");
        assert!(idle.saturating_add(SLACK) >= FLOOR, "{idle}");
        let sum = starved.saturating_add(idle);
        assert!(sum <= BUDGET.saturating_add(SLACK), "{sum}");
        (starved > before && starved.get() >= idle.get() * 3 / 2).then_some(())
    });
    let [starved, idle] = held();
    assert!(idle <= idle_before, "{idle} of {idle_before}");
    let (_, told, _) = ground.ballast(&["explain", "starved"]);
    eprintln!("{before} to {starved}, idle {idle_before} to {idle}\n{told}");
    // It may still grow: what its own kernel counts is not more than what QEMU says after.
    let counted = lab.fresh_report("starved").memory.total.unwrap();
    let told = allocation(&daemon, "starved").unwrap();
    let [after, _] = held();
    assert!(counted <= after && told <= after.saturating_add(SLACK), "{counted} {told} {after}");
    assert!(told >= starved.saturating_sub(SLACK), "{told} of {starved}");
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
}

fn configure(ground: &Ground, hypervisor: Hypervisor, sockets: &Path) {
    let more = format!(
        "[{}]\nsockets = [\"{}/*.sock\"]\ntimeout = \"20s\"\n\
         [agents]\nfolders = []\nvsock = true\n\
         [host]\nbudget = \"{BUDGET}\"\nreserve = \"0B\"\n\
         [policy]\nname = \"global\"\nreserve_per_guest = \"16MiB\"\n\
         [defaults]\nfloor = \"{FLOOR}\"",
        hypervisor.table(),
        sockets.display(),
    );
    ground.configure("tick = \"1s\"", &more);
}

fn agent(ground: &Ground, name: &str) -> Option<AgentView> {
    let (_, out, _) = ground.ballast(&["explain", name, "--json"]);
    serde_json::from_str::<ExplainReply>(&out).ok()?.inputs.agent
}
