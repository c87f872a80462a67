//! Restores every guest's first allocation when the daemon stops.
//!
//! Idea: floor and ceiling of each guest become its first allocation; then ordinary ticks move the
//! memory, as safely as ever.

use ballast_control::Event;
use ballast_model::{Bytes, GuestLimits, GuestPlan, HoldReason, PolicyName};
use tracing::info;

use super::Engine;

impl Engine {
    /// From now on, ticks restore the guests' first allocations, as far as the budget allows.
    ///
    /// # Errors
    /// Nothing is moved at present, so nothing can be restored.
    pub fn begin_restore(&mut self) -> Result<(), HoldReason> {
        if let Some(held) = self.controller.held() {
            return Err(held);
        }
        self.is_restoring = true;
        let mut settings = self.controller.settings().clone();
        settings.policy = PolicyName::Static;
        settings.guard.dead_band = Some(Bytes::ZERO);
        settings.guard.step_up_max = None;
        settings.guard.step_down_max = None;
        for (id, held) in self.guests.first_held() {
            let own = settings.limits.of(id).clone();
            let exactly = GuestLimits { floor: Some(held), ceiling: Some(held), ..own };
            settings.limits.named.insert(id.clone(), exactly);
        }
        self.controller.handle_event(Event::Reconfigure(Box::new(settings)));
        self.dry_run = None;
        info!("restoring the guests' first allocations");
        Ok(())
    }

    /// Whether every guest with an estimate held its first allocation at the last tick.
    pub fn is_restored(&self) -> bool {
        let Some((snapshot, plan)) = &self.latest else { return true };
        let is_restored = |guest: &GuestPlan| {
            let holds = snapshot.guest(&guest.id).and_then(|sample| sample.allocation);
            guest.estimate.is_none()
                || holds.map(|holds| holds.value) == self.guests.first_held_of(&guest.id)
        };
        plan.guests.iter().all(is_restored)
    }
}
