//! The migration of a machine's guest, out of the machine or into it.
//!
//! Idea: a number of copied bytes that grows with time, at the configured bandwidth. With the last
//! byte the guest stops and the migration is complete.
//! Source: replies of QEMU 7.2.
//! Limits: nothing is really sent; the test says when the other side fails.

use std::time::Duration;

use ballast_model::Bytes;
use serde_json::{Value, json};

use super::failure::Failure;

/// QEMU's default: 128 MiB a second.
const BANDWIDTH: Bytes = Bytes::mib(128);
/// The port that it reports if it may choose one.
const PORT_PICKED: &str = "49152";

/// The progress of a migration, and its settings.
#[derive(Debug)]
pub(crate) struct MigrationState {
    pub(crate) status: &'static str,
    bandwidth_per_s: u64,
    sent: u64,
    at: Duration,
    listens_at: Option<(String, String)>,
    has_events: bool,
}

/// The effect of a migration on its machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MigrationEffect {
    /// Nothing visible.
    Nothing,
    /// A stage begins.
    Stage(&'static str),
    /// The guest stops, because all of it has been sent.
    Completed,
}

impl MigrationState {
    pub(crate) fn new() -> MigrationState {
        MigrationState {
            status: "none",
            bandwidth_per_s: BANDWIDTH.get(),
            sent: 0,
            at: Duration::ZERO,
            listens_at: None,
            has_events: false,
        }
    }

    /// Whether stages are announced by events.
    pub(crate) fn has_events(&self) -> bool {
        self.has_events
    }

    /// Copies as much of `total` as is possible until `now`.
    pub(crate) fn advance(&mut self, total: Bytes, now: Duration) -> MigrationEffect {
        if self.status != "active" {
            return MigrationEffect::Nothing;
        }
        let passed = u64::try_from((now - self.at).as_millis()).unwrap_or(u64::MAX);
        let more = Bytes::new(self.bandwidth_per_s).fraction(passed, 1000).get();
        self.at = now;
        self.sent = self.sent.saturating_add(more).min(total.get());
        if self.sent < total.get() {
            return MigrationEffect::Nothing;
        }
        self.status = "completed";
        MigrationEffect::Completed
    }

    /// The other side is gone.
    pub(crate) fn fail(&mut self) -> MigrationEffect {
        match self.status {
            "active" => {
                self.status = "failed";
                MigrationEffect::Stage("failed")
            }
            _ => MigrationEffect::Nothing,
        }
    }

    /// Executes a command of a migration; `None`: it is another kind of command.
    pub(crate) fn execute(
        &mut self,
        name: &str,
        arguments: &Value,
        run_state: &str,
        now: Duration,
    ) -> Option<Result<MigrationEffect, Failure>> {
        let refused = |desc: &str| Some(Err(("GenericError", desc.to_owned())));
        let uri = || Some(arguments["uri"].as_str()?.strip_prefix("tcp:")?.rsplit_once(':'))?;
        match name {
            "migrate-set-capabilities" => {
                for one in arguments["capabilities"].as_array().into_iter().flatten() {
                    if one["capability"] == "events" {
                        self.has_events = one["state"] == true;
                    }
                }
                Some(Ok(MigrationEffect::Nothing))
            }
            "migrate-set-parameters" => {
                if let Some(bandwidth) = arguments["max-bandwidth"].as_u64() {
                    self.bandwidth_per_s = bandwidth;
                }
                Some(Ok(MigrationEffect::Nothing))
            }
            "migrate" if run_state == "inmigrate" => {
                refused("Guest is waiting for an incoming migration")
            }
            "migrate" if run_state == "postmigrate" => {
                refused("Can't migrate the vm that was paused due to previous migration")
            }
            "migrate" if self.status == "active" => {
                refused("There's a migration process in progress")
            }
            "migrate" if uri().is_none() => refused("unknown migration protocol"),
            "migrate" => {
                (self.status, self.sent, self.at) = ("active", 0, now);
                Some(Ok(MigrationEffect::Stage("active")))
            }
            "migrate_cancel" if self.status == "active" => {
                self.status = "cancelled";
                Some(Ok(MigrationEffect::Stage("cancelled")))
            }
            "migrate_cancel" => Some(Ok(MigrationEffect::Nothing)),
            "migrate-incoming" if run_state != "inmigrate" => {
                refused("'-incoming' was not specified on the command line")
            }
            "migrate-incoming" if self.listens_at.is_some() => {
                refused("The incoming migration has already been started")
            }
            "migrate-incoming" => match uri() {
                None => refused("unknown migration protocol"),
                Some((host, port)) => {
                    let port = if port == "0" { PORT_PICKED } else { port };
                    self.listens_at = Some((host.to_owned(), port.to_owned()));
                    self.status = "setup";
                    Some(Ok(MigrationEffect::Stage("setup")))
                }
            },
            _ => None,
        }
    }

    /// The whole guest has arrived.
    pub(crate) fn arrive(&mut self) {
        self.status = "completed";
    }

    /// The reply to `query-migrate`.
    pub(crate) fn query(&self, total: Bytes) -> Value {
        let mut reply = json!({});
        if self.status != "none" {
            reply["status"] = json!(self.status);
        }
        if self.sent > 0 || self.status == "active" {
            reply["ram"] = json!({
                "total": total.get(), "transferred": self.sent,
                "remaining": total.get() - self.sent, "dirty-pages-rate": 0,
            });
            reply["expected-downtime"] = json!(300);
        }
        if let Some((host, port)) = &self.listens_at {
            reply["socket-address"] =
                json!([{"host": host, "port": port, "type": "inet", "ipv4": true}]);
        }
        reply
    }
}
