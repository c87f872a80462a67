//! Hosts with stand-ins for their daemons: on a coordinator in memory in virtual time, and on a
//! real etcd.

mod machine;
mod memory;
mod moving;
mod real_etcd;
mod real_libvirt;
mod rendered;
mod serving;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ballast_api::{ClientError, ExplainReply, Reserve, StatusReply};
use ballast_fleet_move::CarriedState;
use ballast_model::{GuestChange, GuestId};
use serde_json::{Value, json};

use crate::config::{self, FleetConfig};
use crate::host_record::Daemon;

const MIB: u64 = 1 << 20;

/// A stand-in for a host's daemon.
#[derive(Clone, Debug)]
pub(crate) struct FakeDaemon {
    budget_mib: Rc<Cell<u64>>,
    /// Floor and allocation of each guest, in MiB.
    guests: Rc<RefCell<Vec<(String, u64, u64)>>>,
    is_silent: Rc<Cell<bool>>,
    /// Whether guests need and occupy a little less than they hold.
    is_uneven: Rc<Cell<bool>>,
    /// Kept, because a thousand hosts may run in one process.
    explained: Rc<RefCell<BTreeMap<GuestId, ExplainReply>>>,
    status: Rc<RefCell<Option<StatusReply>>>,
}

impl FakeDaemon {
    pub(crate) fn new(budget_mib: u64, guests: &[(&str, u64, u64)]) -> FakeDaemon {
        let guests = guests.iter().map(|(name, floor, size)| ((*name).to_owned(), *floor, *size));
        FakeDaemon {
            budget_mib: Rc::new(Cell::new(budget_mib)),
            guests: Rc::new(RefCell::new(guests.collect())),
            is_silent: Rc::default(),
            is_uneven: Rc::default(),
            explained: Rc::default(),
            status: Rc::default(),
        }
    }

    fn answers(&self) -> Result<(), ClientError> {
        match self.is_silent.get() {
            true => Err(ClientError::NoDaemon { socket: "stand-in".into() }),
            false => Ok(()),
        }
    }

    pub(crate) fn reply(&self) -> StatusReply {
        let coded = json!({"code": "running", "text": "running"});
        let guests: Vec<Value> = self
            .guests
            .borrow()
            .iter()
            .map(|(name, floor, size)| {
                json!({
                    "guest": name, "state": coded, "managed": true, "boot_bytes": 4 * size * MIB,
                    "allocation_bytes": size * MIB, "demand_bytes": size * MIB,
                    "resident_bytes": size * MIB, "floor_bytes": floor * MIB,
                    "compliance": {"code": "compliant", "text": ""},
                })
            })
            .collect();
        let committed: u64 = self.guests.borrow().iter().map(|(_, _, size)| size * MIB).sum();
        let budget = self.budget_mib.get() * MIB;
        status_reply(512 * MIB, budget, committed, &guests, &[])
    }
}

/// What a daemon reports of a host whose available memory is its budget.
fn status_reply(
    reserve: u64,
    budget: u64,
    committed: u64,
    guests: &[Value],
    reservations: &[Value],
) -> StatusReply {
    serde_json::from_value(json!({
        "api_version": 1,
        "tick": tick(),
        "daemon": {
            "version": "0", "started_at_unix_ms": 0, "policy": "global", "tick_ms": 1000,
            "host_reserve_bytes": reserve, "ticks": 1, "plans_refused": 0,
        },
        "host": {"memory_available_bytes": budget},
        "budget": divided(budget, committed),
        "rung": {"code": "running", "text": "running"}, "notes": [], "guests": guests,
        "reservations": reservations,
    }))
    .unwrap()
}

fn tick() -> Value {
    json!({
        "source": "daemon", "seen_at_unix_ms": 0, "age_ms": 10, "generation": 1,
        "policy": "global", "paused": false, "decision_us": 1,
    })
}

fn divided(budget: u64, committed: u64) -> Value {
    json!({
        "distributable_bytes": budget, "committed_bytes": committed, "grantable_bytes": 0,
    })
}

impl Daemon for FakeDaemon {
    async fn status(&self) -> Result<StatusReply, ClientError> {
        self.answers()?;
        let mut status = self.status.borrow_mut();
        let reply = status.get_or_insert_with(|| self.reply());
        reply.budget.distributable_bytes = self.budget_mib.get() * MIB;
        let guests = self.guests.borrow();
        reply.budget.committed_bytes = guests.iter().map(|(_, _, size)| size * MIB).sum();
        for (view, (_, _, size)) in reply.guests.iter_mut().zip(guests.iter()) {
            let less = if self.is_uneven.get() { size / 10 } else { 0 };
            view.allocation_bytes = Some(size * MIB);
            view.demand_bytes = Some((size - less) * MIB);
            view.resident_bytes = Some((size - less / 2) * MIB);
            view.copied_resident_bytes = view.resident_bytes;
        }
        Ok(reply.clone())
    }

    async fn explain(&self, guest: &GuestId) -> Result<ExplainReply, ClientError> {
        self.answers()?;
        if let Some(reply) = self.explained.borrow().get(guest) {
            return Ok(reply.clone());
        }
        let guests = self.guests.borrow();
        let (_, _, size) = guests.iter().find(|(name, ..)| name == guest.as_str()).unwrap();
        let reply = explained(guest, *size);
        self.explained.borrow_mut().insert(guest.clone(), reply.clone());
        Ok(reply)
    }

    // Its guests are never moved.
    async fn carried(&self, _: &GuestId) -> Result<CarriedState, ClientError> {
        Ok(CarriedState::default())
    }

    async fn take_over(&self, _: &GuestId, _: &CarriedState) -> Result<(), ClientError> {
        Ok(())
    }

    async fn set(&self, _: &GuestId, _: &GuestChange) -> Result<(), ClientError> {
        Ok(())
    }

    async fn reserve(&self, _: &GuestId, _: &Reserve) -> Result<(), ClientError> {
        Ok(())
    }

    async fn unreserve(&self, _: &GuestId) -> Result<(), ClientError> {
        Ok(())
    }
}

/// A daemon's explanation of a guest that holds `size` MiB.
fn explained(guest: &GuestId, size: u64) -> ExplainReply {
    let point = |percent: u64| json!({"percent": percent, "memory_bytes": size * MIB * percent / 100, "misses_per_s": 150 - percent});
    let points: Vec<Value> = [25, 50, 75, 100, 125, 150].map(point).to_vec();
    serde_json::from_value(json!({
        "api_version": 1, "tick": tick(), "guest": guest.as_str(),
        "inputs": {"state": {"code": "running", "text": "running"}, "capabilities": {}},
        "limits": {"miss_rate_max_per_s": 20}, "budget": divided(0, 0),
        "notes": [], "clamps": [], "moves": [],
        "estimate": {
            "used_bytes": 0, "available_bytes": 0, "provenance": "", "passed_over": [],
            "demand": {
                "size_bytes": 0, "source": {"code": "used", "text": ""}, "age_ms": 0,
                "confidence_percent": 1,
            },
            "curve": {
                "interval_ms": 1000, "step_bytes": 4096, "points": points,
                "objective_bytes": size * MIB * 149 / 100,
            },
        },
    }))
    .unwrap()
}

/// The configuration of a host of the tests.
pub(crate) fn configured(host: &str, endpoints: &[String], more: &str) -> FleetConfig {
    let text = format!(
        "cluster = \"test\"\nhost = \"{host}\"\nendpoints = {endpoints:?}\nbandwidth = \"1GiB\"\n{more}\n\
         [compatibility]\nhypervisor = \"qemu\"\nversion = \"7.2\"\ncpu_model = \"EPYC\"\n"
    );
    config::parse(&text, Path::new("fleet.toml"), "").unwrap()
}

/// The same without an etcd.
pub(crate) fn local(host: &str, more: &str) -> FleetConfig {
    configured(host, &["http://127.0.0.1:1".to_owned()], more)
}

/// A host that is 1 GiB short of its guests' floors.
pub(crate) fn short() -> FakeDaemon {
    FakeDaemon::new(4096, &[("db", 3072, 3072), ("cache", 2048, 2048)])
}

/// A host with room for both of those guests.
pub(crate) fn roomy() -> FakeDaemon {
    FakeDaemon::new(16384, &[("web", 512, 1024)])
}

/// Runs a test in one thread.
pub(crate) fn block_on<T>(is_paused: bool, test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(is_paused).build().unwrap().block_on(test)
}

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
