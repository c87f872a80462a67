//! A host that can be a member of a fleet, and one registration of it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_fleet::HostId;
use ballast_fleet_proto::{Coordinator, CoordinatorError, LeaseId, RecordError, Revision};
use ballast_model::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::FleetConfig;
use crate::host_record::{Daemon, Measurements, Observer, ObserverError};
use crate::metrics::FleetMetrics;
use crate::status_log::StatusLog;

/// Time until something that failed is tried again.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// A record that could not be made or written for this long does not count as true.
pub(crate) const RECORD_AGE_MAX: Duration = Duration::from_secs(30);

/// A host that is, or tries to be, a member of a fleet.
pub struct Member<C, D> {
    pub(crate) coordinator: C,
    pub(crate) config: FleetConfig,
    pub(crate) machine: String,
    pub(crate) daemon: D,
    pub(crate) observer: Mutex<Observer>,
    /// The revision that wrote the host's identity, while it is registered.
    pub(crate) identity: Cell<Option<Revision>>,
    /// What was measured of guests and copies here.
    pub(crate) measured: RefCell<Measurements>,
    began: Instant,
    /// The time since 1970 at `began`.
    began_at: Timestamp,
    pub(crate) status_log: StatusLog,
    pub(crate) metrics: Arc<FleetMetrics>,
}

/// One registration.
pub(crate) struct Session {
    pub(crate) lease: LeaseId,
    /// The revision that wrote the identity.
    pub(crate) identity: Revision,
    /// When the record was last known to be true.
    pub(crate) confirmed_at: Cell<Instant>,
    /// Until when etcd keeps the lease in any case.
    pub(crate) held_until: Cell<Instant>,
}

/// Why a session ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    /// The daemon gives no figures to register with.
    #[error("not in the fleet: {0}")]
    Look(#[from] ObserverError),
    /// Another machine has this host's name: the name, and the machine.
    #[error(
        "not in the fleet: another machine ({1}) is registered as {0}: give one of them another \
         `host`"
    )]
    NameTaken(HostId, String),
    /// A call to the coordinator failed.
    #[error("etcd is out of reach, the host works on alone: {0}")]
    Coordinator(#[from] CoordinatorError),
    /// The lease was not renewed in time.
    #[error("the lease has ended, the host works on alone: {0}")]
    LeaseEnded(CoordinatorError),
    /// Another machine or an operator has changed the host's identity.
    #[error("the registration was taken over or removed: registering again")]
    Fenced,
    /// The record was not true for too long.
    #[error(
        "left the fleet: the record could not be kept true for {} s",
        RECORD_AGE_MAX.as_secs()
    )]
    RecordStale,
    /// The record cannot be written, as it is too large.
    #[error("not in the fleet: {0}")]
    Record(#[from] RecordError),
}

impl<C: Coordinator, D: Daemon> Member<C, D> {
    /// A member by its configuration, on a machine with the identity `machine`.
    pub fn new(coordinator: C, daemon: D, config: FleetConfig, machine: String) -> Member<C, D> {
        Member {
            coordinator,
            config,
            machine,
            daemon,
            observer: Mutex::default(),
            identity: Cell::new(None),
            measured: RefCell::default(),
            began: Instant::now(),
            began_at: wall_clock(),
            status_log: StatusLog::default(),
            metrics: Arc::default(),
        }
    }

    /// The same, counting in `metrics`.
    pub fn with_metrics(self, metrics: Arc<FleetMetrics>) -> Member<C, D> {
        Member { metrics, ..self }
    }

    /// The time since 1970: the wall clock at the start plus the time since, so it never goes back.
    pub(crate) fn now(&self) -> Timestamp {
        self.began_at + self.began.elapsed()
    }
}

/// The time since 1970 by this machine's clock.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::ZERO + since.unwrap_or_default()
}
