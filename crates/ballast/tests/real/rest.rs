//! The real daemon and the real agent, with a server of Cloud Hypervisor's and Firecracker's API in
//! front of real guests of QEMU (see `support/hypervisor_api.rs`).
//!
//! Limits: not the real programs. The agent uses vsock only if the kernel serves it to guests
//! (`/dev/vhost-vsock`), as in an outer machine of `ballast-lab nested`; otherwise a port.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ballast_api::{AgentView, ExplainReply};
use ballast_lab_host::GuestSpec;
use ballast_model::Bytes;
use ballast_rest::{Call, Method, exchange};

use crate::harness::{Daemon, PATIENCE, Testbed, guest, wait_for};
use crate::sampled::may_sample;
use crate::support::hypervisor_api::{Hypervisor, HypervisorApi, pass_port_on, pass_vsock_on};
use crate::support::{Lab, allocation, assert_unrefused, swapping, wait_settled, wait_ticks};

const SERVER: &str = "/dev/vhost-vsock";
const NAMES: [&str; 2] = ["starved", "idle"];
const CID_FIRST: u32 = 4711;
/// Boot memory of each guest, and the budget of both.
const BOOT: Bytes = Bytes::mib(256);
const BUDGET: Bytes = Bytes::mib(336);
/// The floor of a guest, and what the starved one's workload touches.
const FLOOR: Bytes = Bytes::mib(96);
const WORK: Bytes = Bytes::mib(200);
/// Slack in comparisons: the host counts whole MiB and moves pages.
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
        // With vsock the guest also runs an agent on a port, to which nobody listens.
        let (vsock_cid, extra_args) = (has_vsock.then_some(cid), hypervisor.qemu_arguments());
        GuestSpec { agent: true, vsock_cid, extra_args, ..swapping(name, BOOT) }
    };
    let lab = Lab::boot(NAMES.into_iter().zip(CID_FIRST..).map(spec).collect());
    let testbed = Testbed::new();
    let sockets = testbed.path("api");
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
    configure(&testbed, hypervisor, &sockets);
    let daemon = testbed.start();
    for name in NAMES {
        wait_for("the guest to be found by its socket", || {
            let status = daemon.status()?;
            let view = guest(&status, name)?;
            let held = Bytes::new(view.allocation_bytes?);
            // A guest that reports statistics may have been asked for memory in the first tick.
            let is_left_alone = hypervisor == Hypervisor::CloudHypervisor;
            let is_held = if is_left_alone { held == BOOT } else { held <= BOOT };
            (is_held && view.resident_bytes.is_some()).then_some(())
        });
    }
    if hypervisor == Hypervisor::CloudHypervisor {
        wait_settled(&daemon);
        let status = daemon.status().unwrap();
        for name in NAMES {
            let why = guest(&status, name).unwrap().change.as_ref().unwrap().why.as_ref();
            // If the kernel has DAMON, their working sets are sampled, and fit.
            let code = why.unwrap().code.as_str();
            assert!(["no-statistics", "sampled-alone"].contains(&code), "{name}: {code}");
        }
        assert_eq!(held(), [BOOT; 2], "nobody says what they need, and they are left as they are");
    }
    for (name, api) in NAMES.into_iter().zip(&apis) {
        if has_vsock {
            lab.shell(name, "/bin/ballast-agent --connect vsock >/dev/null 2>&1 &");
        } else {
            pass_port_on(Arc::clone(api), lab.guest(name).agent_socket().unwrap());
        }
        wait_for("an agent's report", || agent(&testbed, name)?.committed_bytes);
    }
    wait_for("the budget to be kept", || {
        (held().into_iter().sum::<Bytes>() <= BUDGET).then_some(())
    });
    let [before, idle_before] = held();
    lab.start_constant_at_full_speed("starved", WORK);
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
    let (_, output, _) = testbed.ballast(&["explain", "starved"]);
    eprintln!("{before} to {starved}, idle {idle_before} to {idle}\n{output}");
    // It may still grow, so QEMU is asked last: the kernel's count cannot be more than that.
    let counted = lab.fresh_report("starved").memory.total.unwrap();
    let reported = allocation(&daemon, "starved").unwrap();
    let [after, _] = held();
    assert!(
        counted <= after && reported <= after.saturating_add(SLACK),
        "{counted} {reported} {after}"
    );
    assert!(reported >= starved.saturating_sub(SLACK), "{reported} of {starved}");
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
}

/// A guest without an agent, whose working set the host samples, grows while it touches all that it
/// holds, and keeps what it got.
#[test]
fn a_silent_guest_grows_by_what_the_host_samples() {
    const HELD: Bytes = Bytes::mib(160);
    const LOOP: Bytes = Bytes::mib(140);
    if !may_sample("never") {
        return;
    }
    let hypervisor = Hypervisor::CloudHypervisor;
    let extra_args = hypervisor.qemu_arguments();
    let spec = GuestSpec { private_memory: true, extra_args, ..swapping("mute", BOOT) };
    let lab = Lab::boot(vec![spec]);
    let testbed = Testbed::new();
    let sockets = testbed.path("api");
    fs::create_dir(&sockets).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let api = HypervisorApi::start(hypervisor, lab.guest("mute"), "mute", BOOT, &sockets);
    // Shrinks the guest, as an operator would.
    let balloon = serde_json::json!({ "desired_balloon": (BOOT - HELD).get() });
    let resize = Call::send(Method::Put, "/api/v1/vm.resize", &balloon);
    let until = tokio::time::Instant::now() + PATIENCE;
    let socket = sockets.join("mute.sock");
    let asked = exchange(&socket, vec![resize], true, until);
    let (answers, error) = runtime.block_on(asked).into_answers();
    assert!(error.is_none() && answers[0].1.is_success(), "{answers:?} {error:?}");
    wait_for("the guest to shrink", || (api.held() <= HELD).then_some(()));
    configure(&testbed, hypervisor, &sockets);
    let text = fs::read_to_string(testbed.config_file()).unwrap();
    fs::write(testbed.config_file(), format!("{text}\n[tracking]\nsource = \"damon\"\n")).unwrap();
    let daemon = testbed.start();
    let is_said = || {
        let (why, seen) = change_and_working_set(&daemon, "mute")?;
        eprintln!("it touches {seen}: {why}");
        wait_ticks(&daemon, 1);
        (why == "sampled-alone").then_some(())
    };
    wait_for("its idle working set to be seen", is_said);
    assert_eq!(api.held(), HELD);
    // Its loop does not fit, so it swaps, and touches only what its kernel leaves it.
    lab.start_constant_at_full_speed("mute", LOOP);
    let grown = wait_for("the guest to grow until its loop is in memory", || {
        wait_ticks(&daemon, 1);
        let held = api.held();
        let (why, seen) = change_and_working_set(&daemon, "mute")?;
        eprintln!("it has {held}, touches {seen}: {why}");
        assert!(held >= HELD);
        (held >= LOOP.saturating_add(Bytes::mib(36)) && seen >= LOOP.fraction(9, 10))
            .then_some(held)
    });
    let (_, output, _) = testbed.ballast(&["explain", "mute"]);
    eprintln!("{output}");
    lab.stop_workload("mute");
    wait_for("it to be idle again", is_said);
    wait_settled(&daemon);
    assert!(api.held() >= grown, "it keeps that: {}", api.held());
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
}

fn configure(testbed: &Testbed, hypervisor: Hypervisor, sockets: &Path) {
    let more = format!(
        "[{}]\nsockets = [\"{}/*.sock\"]\ntimeout = \"20s\"\n\
         [agents]\nfolders = []\nvsock = true\n\
         [host]\nbudget = \"{BUDGET}\"\nreserve = \"0B\"\n\
         [policy]\nname = \"global\"\nreserve_per_guest = \"16MiB\"\n\
         [defaults]\nfloor = \"{FLOOR}\"",
        hypervisor.table(),
        sockets.display(),
    );
    testbed.configure("tick = \"1s\"", &more);
}

/// The reason for a guest's change, and the working set that the host sees.
fn change_and_working_set(daemon: &Daemon<'_>, name: &str) -> Option<(String, Bytes)> {
    let status = daemon.status()?;
    let view = guest(&status, name)?;
    let why = view.change.as_ref()?.why.as_ref().map_or("no reason", |why| &why.code);
    Some((why.to_owned(), Bytes::new(view.tracking.as_ref()?.working_set_bytes?)))
}

fn agent(testbed: &Testbed, name: &str) -> Option<AgentView> {
    let (_, out, _) = testbed.ballast(&["explain", name, "--json"]);
    serde_json::from_str::<ExplainReply>(&out).ok()?.inputs.agent
}
