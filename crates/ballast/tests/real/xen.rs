//! Paravirtualized guests of a real Xen under the real daemon.
//!
//! Limits: only in the first domain of an outer machine of `ballast-lab nested --xen`; asserts
//! states and amounts, never times.

use ballast_agent_proto::wire::{
    GuestFrame, GuestMessage, RequestReason, RequestRule, WireRequestKind,
};
use ballast_lab_host::{
    DOM0_MEMORY, DiskSpec, GuestSpec, Manager, Speed, domain_memory, is_inside_xen, xl,
};
use ballast_model::{Bytes, GuestId, PolicyName};
use ballast_xenstore::{Message, MessageKind};

use crate::harness::{Daemon, Testbed, guest, wait_for};
use crate::support::{Lab, wait_ticks};

/// The most memory of a guest.
const MEMORY: Bytes = Bytes::mib(256);
/// What each of two guests has at the start.
const START: Bytes = Bytes::mib(160);
/// What the workload of the starved guest touches.
const WORK: Bytes = Bytes::mib(208);
/// What a policy has to give a guest in need, more than any dead band; and the ticks it has for
/// that.
const GAIN: Bytes = Bytes::mib(12);
const TICKS_MAX: u64 = 60;
/// The floor of a guest.
const FLOOR: Bytes = Bytes::mib(96);
/// How far a guest may stay from its target: the hypervisor counts whole MiB, and counts some pages
/// that the guest's driver does not.
const SLACK: Bytes = Bytes::mib(2);

/// Boots guests with swap of their own size, changed by `more`. Prints a message and returns `None`
/// outside of Xen.
fn boot(names: &[&str], more: impl Fn(&mut GuestSpec)) -> Option<Lab> {
    if !is_inside_xen() {
        println!("SKIPPED: needs an outer machine of `ballast-lab nested --xen`");
        return None;
    }
    let guests = names.iter().map(|name| {
        let mut guest = GuestSpec::new(name.parse().unwrap(), MEMORY);
        guest.swap = Some(DiskSpec { size: MEMORY, speed: Speed::Host });
        more(&mut guest);
        guest
    });
    let manage = |options: &mut ballast_lab_host::RunOptions| options.manager = Manager::Xen;
    Some(Lab::boot_with(guests.collect(), manage).unwrap())
}

fn id(name: &str) -> GuestId {
    name.parse().unwrap()
}

/// What a guest has, by the hypervisor.
fn held(name: &str) -> Bytes {
    domain_memory(&id(name)).unwrap()
}

/// Writes a guest's target into xenstore, as a toolstack does, and does nothing else.
fn write_target(name: &str, target: Bytes) {
    let number = xl(&["domid", name]).unwrap();
    let key = format!("/local/domain/{}/memory/target", number.trim());
    let value = (target.get() >> 10).to_string();
    let status = std::process::Command::new("xenstore-write").args([&key, &value]).status();
    assert!(status.unwrap().success());
}

/// Sets the most that the hypervisor lets a guest have.
fn set_limit(name: &str, limit: Bytes) {
    xl(&["mem-max", name, &format!("{}k", limit.get() >> 10)]).unwrap();
}

fn wait_held(what: &str, name: &str, target: Bytes) {
    let is_there = |held: Bytes| held.max(target).saturating_sub(held.min(target)) <= SLACK;
    wait_for(what, || Some(held(name)).filter(|it| is_there(*it)));
}

#[test]
fn domains_follow_xenstore_up_to_the_hypervisors_limit() {
    let Some(lab) = boot(&["a", "b"], |_| {}) else { return };
    for name in ["a", "b"] {
        wait_held("its memory", name, MEMORY);
        let swap = lab.guest(name).ready().unwrap().swap_total;
        assert!(swap.is_some(), "{name} has no swap");
    }
    write_target("a", Bytes::mib(160));
    wait_held("a to shrink", "a", Bytes::mib(160));
    assert!(held("b") >= MEMORY.saturating_sub(SLACK));
    // The guest's kernel agrees.
    let total = lab.fresh_report("a").memory.total.unwrap();
    assert!(total < Bytes::mib(160), "{total}");
    // A target in xenstore cannot exceed what the hypervisor allows.
    let limit = Bytes::mib(176);
    set_limit("a", limit);
    write_target("a", Bytes::mib(224));
    wait_held("a to meet its limit", "a", limit);
    lab.fresh_report("a");
    wait_held("a to stay there", "a", limit);
    set_limit("a", MEMORY);
    write_target("a", Bytes::mib(224));
    wait_held("a to grow", "a", Bytes::mib(224));
}

#[test]
fn nothing_is_left_of_domains_that_end() {
    let Some(lab) = boot(&["a"], |_| {}) else { return };
    drop(lab);
    let listing = xl(&["list"]).unwrap();
    assert_eq!(listing.lines().count(), 2, "{listing}");
    wait_for("its disk to go", || {
        let loops = std::fs::read_dir("/sys/block").unwrap().flatten();
        let mut used = loops.filter(|it| it.path().join("loop/backing_file").exists());
        used.next().is_none().then_some(())
    });
}

/// Brings both guests to their start.
fn bring_to_start() {
    for name in ["starved", "idle"] {
        xl(&["mem-set", name, &format!("{}k", START.get() >> 10)]).unwrap();
    }
    for name in ["starved", "idle"] {
        wait_held("its start", name, START);
    }
}

/// A daemon's configuration with `budget` for guests, in addition to dom0's memory.
fn configured(budget: Bytes, policy: &str) -> Testbed {
    let testbed = Testbed::new();
    let more = format!(
        "[xen]\nenabled = true\ndom0_floor = \"{DOM0_MEMORY}\"\ntimeout = \"20s\"\n\
         [host]\nbudget = \"{}MiB\"\nreserve = \"0B\"\n\
         [policy]\nreserve_per_guest = \"16MiB\"\n{policy}\n\
         [guests.Domain-0]\nmanaged = false\n\
         [guests.starved]\nfloor = \"{FLOOR}\"\n[guests.idle]\nfloor = \"{FLOOR}\"",
        budget.saturating_add(DOM0_MEMORY).get() >> 20,
    );
    testbed.configure("tick = \"1s\"", &more);
    testbed
}

/// Why the guest has its memory, as text. Callers print it, because an emulated machine without
/// output for long would be taken to hang.
fn explained(testbed: &Testbed, name: &str) -> String {
    let (code, output, error) = testbed.ballast(&["explain", name]);
    assert_eq!(code, Some(0), "{error}");
    output
}

fn target(daemon: &Daemon<'_>, name: &str) -> Option<Bytes> {
    guest(&daemon.status()?, name)?.target_bytes.map(Bytes::new)
}

/// Lets the daemon decide by `policy` for up to [`TICKS_MAX`] ticks. Returns whether the starved
/// guest then has [`GAIN`] more, by the hypervisor.
fn grows_under(lab: &Lab, policy: PolicyName, budget: Bytes) -> bool {
    // A guest that has thrashed gives nothing for minutes, so its workload begins at its start.
    bring_to_start();
    lab.start_constant_at_full_speed("starved", WORK);
    let testbed = configured(budget, &format!("name = \"{policy}\""));
    let daemon = testbed.start();
    let wanted = START.saturating_add(GAIN);
    let has_grown = (0..TICKS_MAX).any(|_| {
        wait_ticks(&daemon, 1);
        held("starved") >= wanted
    });
    let [starved, idle] = ["starved", "idle"].map(held);
    eprintln!("{policy}: starved has {starved}, idle {idle}\n{}", explained(&testbed, "starved"));
    assert!(explained(&testbed, "starved").contains(&policy.to_string()));
    // By the hypervisor, the guests are within the budget, and none is below its floor.
    let sum = starved.saturating_add(idle);
    assert!(sum <= budget.saturating_add(SLACK), "{policy}: {sum}");
    assert!(idle.saturating_add(SLACK) >= FLOOR, "{policy}: {idle}");
    assert!(target(&daemon, "starved").is_some(), "{policy}");
    assert!(daemon.stop().success());
    lab.stop_workload("starved");
    has_grown
}

#[test]
fn each_policy_moves_domains_as_the_hypervisor_confirms() {
    let Some(lab) = boot(&["starved", "idle"], |guest| guest.agent = true) else { return };
    let both = START.saturating_add(START);
    // Some policies take from one guest what the other needs; others grant only what is free.
    let more = both.saturating_add(Bytes::mib(64));
    let idle: Vec<PolicyName> = [
        (PolicyName::Global, both),
        (PolicyName::Tws, both),
        (PolicyName::SelfScheduling, more),
        (PolicyName::Fcfs, more),
        (PolicyName::DemandProportional, more),
    ]
    .into_iter()
    .filter(|(policy, budget)| !grows_under(&lab, *policy, *budget))
    .map(|(policy, _)| policy)
    .collect();
    assert!(idle.is_empty(), "{idle:?} did not let the starved guest grow");
}

/// Makes a guest send a message through its own part of xenstore, as its agent does.
fn say(lab: &Lab, name: &str, message: GuestMessage) {
    // The sequence number has to be higher than those of its agent so far.
    let uptime_ms = lab.fresh_report(name).uptime_ms;
    let frame = GuestFrame { seq: 1_000_000, uptime_ms, message };
    let mut payload = b"data/mem_req\0".to_vec();
    payload.extend(serde_json::to_vec(&frame).unwrap());
    let mut bytes = Vec::new();
    Message { kind: MessageKind::Write, request: 1, transaction: 0, payload }
        .write(&mut bytes)
        .unwrap();
    let escaped: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    lab.shell(name, &format!("printf '{escaped}' >/dev/xen/xenbus"));
}

#[test]
fn an_emergency_in_xenstore_is_answered_by_a_target() {
    let Some(lab) = boot(&["starved", "idle"], |guest| guest.agent = true) else { return };
    bring_to_start();
    // The policy decides again only after an hour, or in an emergency.
    let budget = START.saturating_add(START).saturating_add(Bytes::mib(64));
    let policy = "name = \"demand-proportional\"\n[policy.flexmemd]\nperiod = \"1h\"\n\
                  frequency = \"periodic\"\ndemand = \"explicit\"";
    let testbed = configured(budget, policy);
    let daemon = testbed.start();
    wait_ticks(&daemon, 5);
    let before = held("starved");
    let why = RequestReason { rule: RequestRule::ReclaimFails, text: "a test".to_owned() };
    let (kind, bytes) = (WireRequestKind::Emergency, Bytes::mib(32).get());
    say(&lab, "starved", GuestMessage::Request { number: 1_000, kind, bytes, why });
    let wanted = before.saturating_add(Bytes::mib(32)).saturating_sub(SLACK);
    wait_for("the emergency to be answered", || {
        let held = held("starved");
        eprintln!("starved has {held}");
        (held >= wanted).then_some(())
    });
    eprintln!("{}", explained(&testbed, "starved"));
    assert!(daemon.stop().success());
}
