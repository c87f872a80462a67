//! Makes a host's record from what the daemon reports.
//!
//! Idea: the daemon knows sizes; the configuration knows what decides where a guest can run. For
//! what the daemon does not know the worst is assumed: a guest whose memory is not seen stays, and
//! counts with the most that it can hold.
//! The dirty rate of a guest is the configured one, else the measured one. The bandwidth of copies
//! is the measured one, but at most the configured one.
//! Limits: miss curves are asked for guest by guest, at most `EXPLAINED_MAX` at a time, starting
//! with those asked for longest ago.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_api::{
    CarriedView, Client, ClientError, ExplainReply, GuestView, Reserve, StatusReply, ThrashedView,
};
use ballast_fleet::{CompactCurve, GuestRecord, HostRecord, PinnedBy, ReservationRecord};
use ballast_fleet_move::{CarriedState, CarriedThrash};
use ballast_model::{Bytes, GuestChange, GuestId, Timestamp, overhead_assumed};

use crate::config::{FleetConfig, FleetMode, GuestConfig};

/// Most guests whose curves are asked for at a time.
const EXPLAINED_MAX: usize = 64;
/// Figures of the daemon that are older than this do not count.
const STATUS_AGE_MAX: Duration = Duration::from_secs(30);

/// The daemon's state of a guest that is still to arrive in its hypervisor.
const INCOMING: &str = "incoming";

/// Why there is no record of this host.
#[derive(Debug, thiserror::Error)]
pub enum ObserverError {
    /// The daemon does not answer.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// The daemon answers with old figures.
    #[error("the daemon's figures are {} s old: it is busy or hangs", .0.as_secs())]
    Stale(Duration),
    /// The daemon lacks a figure that every record needs.
    #[error("the daemon does not know {0}")]
    Missing(&'static str),
}

/// What was measured on this host.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    /// Dirty rate of each guest, in bytes a second.
    pub writes_per_s: BTreeMap<GuestId, Bytes>,
    /// Bandwidth of the last copy from this host, in bytes a second.
    pub bandwidth_per_s: Option<Bytes>,
}

/// The calls to the daemon.
#[expect(async_fn_in_trait, reason = "one thread runs them: the futures need not be Send")]
pub trait Daemon {
    /// The host and its guests.
    async fn status(&self) -> Result<StatusReply, ClientError>;
    /// All that the daemon knows of one guest.
    async fn explain(&self, guest: &GuestId) -> Result<ExplainReply, ClientError>;
    /// What is carried along with a guest that leaves.
    async fn carried(&self, guest: &GuestId) -> Result<CarriedState, ClientError>;
    /// Puts in force what an arriving guest carried.
    async fn take_over(&self, guest: &GuestId, carried: &CarriedState) -> Result<(), ClientError>;
    /// Changes a guest's limits.
    async fn set(&self, guest: &GuestId, change: &GuestChange) -> Result<(), ClientError>;
    /// Keeps memory free for an arriving guest.
    async fn reserve(&self, guest: &GuestId, reserve: &Reserve) -> Result<(), ClientError>;
    /// Ends such a reservation.
    async fn unreserve(&self, guest: &GuestId) -> Result<(), ClientError>;
}

impl Daemon for Client {
    async fn status(&self) -> Result<StatusReply, ClientError> {
        Client::status(self).await
    }

    async fn explain(&self, guest: &GuestId) -> Result<ExplainReply, ClientError> {
        Client::explain(self, guest).await
    }

    async fn carried(&self, guest: &GuestId) -> Result<CarriedState, ClientError> {
        let CarriedView { limits, credits, thrashed } = Client::carried(self, guest).await?.carried;
        let thrashed = thrashed.map(|it| CarriedThrash {
            least_bytes: it.least_bytes,
            left_ms: it.left_ms,
            pause_ms: it.pause_ms,
        });
        Ok(CarriedState { limits, credits, thrashed })
    }

    async fn take_over(&self, guest: &GuestId, carried: &CarriedState) -> Result<(), ClientError> {
        let thrashed = carried.thrashed.map(|it| ThrashedView {
            least_bytes: it.least_bytes,
            left_ms: it.left_ms,
            pause_ms: it.pause_ms,
        });
        let (limits, credits) = (carried.limits.clone(), carried.credits);
        self.take_carried(guest, &CarriedView { limits, credits, thrashed }).await.map(drop)
    }

    async fn set(&self, guest: &GuestId, change: &GuestChange) -> Result<(), ClientError> {
        self.set_guest(guest, change).await.map(drop)
    }

    async fn reserve(&self, guest: &GuestId, reserve: &Reserve) -> Result<(), ClientError> {
        Client::reserve(self, guest, reserve).await.map(drop)
    }

    async fn unreserve(&self, guest: &GuestId) -> Result<(), ClientError> {
        Client::unreserve(self, guest).await.map(drop)
    }
}

/// Asks the daemon, and remembers what is asked for less often.
#[derive(Debug, Default)]
pub struct Observer {
    looks: u64,
    explained: BTreeMap<GuestId, Explanation>,
}

/// What the daemon's explanation of a guest says.
#[derive(Clone, Debug, Default)]
struct Explanation {
    /// The number of the look that it is from.
    look: u64,
    curve: Option<CompactCurve>,
    misses_per_s_max: Option<u64>,
}

impl Observer {
    /// The host's record as of now, from what `daemon` reports.
    ///
    /// # Errors
    /// The daemon does not answer, or does not know enough.
    pub async fn look(
        &mut self,
        daemon: &impl Daemon,
        config: &FleetConfig,
        measured: &Measurements,
    ) -> Result<HostRecord, ObserverError> {
        let status = daemon.status().await?;
        self.looks += 1;
        let mut ids: Vec<GuestId> =
            status.guests.iter().filter_map(|guest| guest.guest.parse().ok()).collect();
        self.explained.retain(|id, _| ids.contains(id));
        ids.sort_by_key(|id| self.explained.get(id).map_or(0, |it| it.look));
        for id in ids.into_iter().take(EXPLAINED_MAX) {
            // A guest that has just ended has no explanation; the figures of the others are still
            // good.
            if let Ok(reply) = daemon.explain(&id).await {
                self.explained.insert(id, explained(self.looks, &reply));
            }
        }
        record(config, &status, &self.explained, measured)
    }
}

fn explained(look: u64, reply: &ExplainReply) -> Explanation {
    let points = reply.estimate.iter().flat_map(|it| &it.curve).flat_map(|curve| &curve.points);
    let points = points.map(|point| (Bytes::new(point.memory_bytes), point.misses_per_s)).collect();
    let misses_per_s_max = reply.limits.miss_rate_max_per_s;
    let curve = reply.estimate.as_ref().and_then(|it| it.curve.as_ref());
    let size = curve.and_then(|it| it.objective_bytes).map(Bytes::new);
    Explanation {
        look,
        // Without points, or with two of one size, there is no curve.
        curve: CompactCurve::with_objective(points, size.zip(misses_per_s_max)).ok(),
        misses_per_s_max,
    }
}

fn record(
    config: &FleetConfig,
    status: &StatusReply,
    explained: &BTreeMap<GuestId, Explanation>,
    measured: &Measurements,
) -> Result<HostRecord, ObserverError> {
    let age = Duration::from_millis(status.tick.age_ms);
    if age > STATUS_AGE_MAX {
        return Err(ObserverError::Stale(age));
    }
    let free = status.host.memory_available_bytes;
    let free = free.ok_or(ObserverError::Missing("how much memory of the host is available"))?;
    let reserve = status.daemon.as_ref().and_then(|daemon| daemon.host_reserve_bytes);
    let reserve =
        reserve.ok_or(ObserverError::Missing("the host's reserve: it is an earlier one"))?;
    let mut guests = Vec::new();
    for view in &status.guests {
        let Ok(id) = view.guest.parse() else { continue };
        let writes_per_s = measured.writes_per_s.get(&id).copied();
        guests.push(guest(config, id, view, explained, writes_per_s));
    }
    guests.sort_by(|a, b| a.id.cmp(&b.id));
    let mut reservations = Vec::new();
    for view in &status.reservations {
        let Ok(guest) = view.guest.parse::<GuestId>() else { continue };
        reservations.push(ReservationRecord {
            size: Bytes::new(view.size_bytes),
            resident: Bytes::ZERO,
            group: config.guests.get(&guest).and_then(|it| it.group.clone()),
            guest,
        });
    }
    let allocated: Bytes = guests.iter().map(|guest| guest.allocation).sum();
    let reserved: Bytes = reservations.iter().map(|it| it.size).sum();
    Ok(HostRecord {
        id: config.host.clone(),
        seen_at: Timestamp::ZERO,
        budget: Bytes::new(status.budget.distributable_bytes),
        reserve: Bytes::new(reserve),
        committed: Bytes::new(status.budget.committed_bytes).max(allocated + reserved),
        free: Bytes::new(free),
        bandwidth_per_s: measured
            .bandwidth_per_s
            .map_or(config.bandwidth_per_s, |it| it.min(config.bandwidth_per_s)),
        compatibility: config.compatibility.clone(),
        executes_moves: config.mode == FleetMode::Move,
        is_draining: false,
        reservations,
        guests,
    })
}

fn guest(
    config: &FleetConfig,
    id: GuestId,
    view: &GuestView,
    explained: &BTreeMap<GuestId, Explanation>,
    writes_per_s: Option<Bytes>,
) -> GuestRecord {
    let defaults = GuestConfig::default();
    let configured = config.guests.get(&id).unwrap_or(&defaults);
    let known = explained.get(&id).cloned().unwrap_or_default();
    let resident = view.resident_bytes.unwrap_or(0);
    let most = view.ceiling_bytes.or(view.boot_bytes).unwrap_or(0).max(resident);
    // A guest that is still to arrive holds what was reserved for it.
    let incoming = view.target_bytes.filter(|_| view.state.code == INCOMING);
    let holds = view.allocation_bytes.or(incoming.map(|target| target.max(resident)));
    let allocation = holds.unwrap_or(most);
    let memory = Bytes::new(view.boot_bytes.unwrap_or(0).max(most));
    let copied = view.copied_resident_bytes.map(Bytes::new);
    let is_seen = view.allocation_bytes.is_some() && view.floor_bytes.is_some();
    let pinned_by = match (configured.stays, &view.pinned, is_seen) {
        (true, _, _) => Some(PinnedBy::Operator),
        (false, Some(_), _) => Some(PinnedBy::Device),
        (false, None, false) => Some(PinnedBy::Unseen),
        (false, None, true) => None,
    };
    let releases = |code: &str| matches!(code, "compliant" | "releasing" | "slow");
    let can_shrink = view.managed == Some(true)
        && view.pinned.is_none()
        && view.compliance.as_ref().is_some_and(|it| releases(&it.code));
    let all = &config.compatibility;
    GuestRecord {
        floor: Bytes::new(view.floor_bytes.unwrap_or(allocation)),
        allocation: Bytes::new(allocation),
        demand: Bytes::new(view.demand_bytes.unwrap_or(allocation)),
        curve: known.curve,
        misses_per_s_max: known.misses_per_s_max,
        resident: Bytes::new(resident),
        copied_resident: copied.unwrap_or_else(|| memory.saturating_add(overhead_assumed(memory))),
        dirty_per_s: configured.writes_per_s.or(writes_per_s).unwrap_or(Bytes::ZERO),
        can_shrink,
        pinned_by,
        moving_to: None,
        group: configured.group.clone(),
        storage: configured.storage.clone().unwrap_or_else(|| all.storage.clone()),
        networks: configured.networks.clone().unwrap_or_else(|| all.networks.clone()),
        moves_in_24h: 0,
        last_move: None,
        id,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::local;

    const MIB: u64 = 1 << 20;

    /// The record of a guest of 1 GiB, from a daemon's figures in MiB.
    fn record_of(
        state: &str,
        allocation: Option<u64>,
        target: Option<u64>,
        resident: u64,
        copied: Option<u64>,
    ) -> GuestRecord {
        let bytes = |mib: Option<u64>| mib.map(|mib| mib * MIB);
        let view = json!({
            "guest": "g", "state": {"code": state, "text": ""}, "managed": true,
            "allocation_bytes": bytes(allocation), "target_bytes": bytes(target),
            "boot_bytes": 1024 * MIB, "floor_bytes": 128 * MIB, "resident_bytes": resident * MIB,
            "copied_resident_bytes": bytes(copied),
        });
        let config = local("a", "");
        let view = serde_json::from_value(view).unwrap();
        guest(&config, "g".parse().unwrap(), &view, &BTreeMap::new(), None)
    }

    #[test]
    fn an_unknown_size_of_a_copy_is_the_worst_case() {
        let filled = |copied| record_of("running", Some(512), None, 300, copied).filled_by_copy();
        assert_eq!(filled(Some(300)), Bytes::ZERO);
        assert_eq!(filled(Some(1080)), Bytes::mib(780));
        assert_eq!(filled(None), Bytes::mib(1024 + 64 + 128 - 300), "an earlier daemon");
    }

    #[test]
    fn a_guest_still_to_come_holds_what_was_reserved() {
        let holds = |target, resident| {
            let record = record_of("incoming", None, target, resident, None);
            assert_eq!(record.pinned_by, Some(PinnedBy::Unseen));
            record.allocation
        };
        assert_eq!(holds(Some(400), 20), Bytes::mib(400));
        assert_eq!(holds(Some(400), 450), Bytes::mib(450), "more has come");
        assert_eq!(holds(None, 20), Bytes::mib(1024), "nothing was reserved");
    }
}
