//! Measures how fast guests of this host write; `MoveExecutor` notes how fast copies are.
//!
//! Idea: each tick the hypervisor of one guest is asked, in turn, unless a move of that guest is
//! under way. The bandwidth is that of the last copy from this host. `host_record` says how these
//! figures and those of the configuration are combined.
//! Cost: one connection a tick.
//! Limits: each guest is measured once in as many ticks as there are guests. A rate counts until
//! the next one.

use ballast_fleet_proto::Coordinator;
use ballast_model::GuestId;
use tokio::time::sleep;

use super::{Hypervisor, MoveExecutor};
use crate::host_record::Daemon;

impl<C: Coordinator, D: Daemon, H: Hypervisor> MoveExecutor<'_, C, D, H> {
    /// Measures one guest after the other, for ever.
    pub(super) async fn measure(&self) {
        let mut last: Option<GuestId> = None;
        loop {
            sleep(self.member.config.tick).await;
            let Ok(status) = self.member.daemon.status().await else { continue };
            let mut guests: Vec<GuestId> =
                status.guests.iter().filter_map(|it| it.guest.parse().ok()).collect();
            guests.sort();
            self.member.measured.borrow_mut().writes_per_s.retain(|id, _| guests.contains(id));
            guests.retain(|id| self.notes.borrow().of(id).is_none());
            let next = guests.iter().find(|id| last.as_ref().is_none_or(|last| *id > last));
            let Some(guest) = next.or(guests.first()).cloned() else { continue };
            if let Some(rate) = self.hypervisor.writes_per_s(&guest).await {
                self.member.measured.borrow_mut().writes_per_s.insert(guest.clone(), rate);
            }
            last = Some(guest);
        }
    }
}
