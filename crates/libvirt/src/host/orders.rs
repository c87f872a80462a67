//! Orders: turns actions into calls to libvirt.
//!
//! Idea: memory is plugged in before balloons move and out after, so that both never squeeze a
//! guest at once. Libvirt answers calls in any order, so each step waits for the one before it.
//! Limits: an order whose answer is late counts as failed, and may still be carried out.

use ballast_model::{Action, Bytes, Outcome, OutcomeKind, Timestamp};
use tokio::time::Instant;

use super::LibvirtHost;
use crate::call::Call;
use crate::connection::Purpose;
use crate::session::Serial;
use crate::virtio_mem::{plan, total_hotplug};

impl LibvirtHost {
    /// Sends orders in three steps, each of all guests together, and returns their outcomes.
    pub(super) async fn order_all(&mut self, now: Timestamp, actions: &[Action]) -> Vec<Outcome> {
        let until = Instant::now() + self.config.command_timeout;
        let mut orders: Vec<Result<[Vec<Call>; 3], OutcomeKind>> =
            actions.iter().map(|action| self.order(action, now)).collect();
        for step in 0..3 {
            let mut sent = Vec::new();
            for (place, order) in orders.iter_mut().enumerate() {
                let Ok(steps) = order else { continue };
                for call in std::mem::take(&mut steps[step]) {
                    let Some(serial) = self.call(call, Purpose::Order) else {
                        *order = Err(failed(format!("not sent: libvirt: {}", self.down())));
                        break;
                    };
                    sent.push((place, serial));
                }
            }
            if !sent.is_empty() {
                self.run(until, |it| !it.is_pending(&Purpose::Order)).await;
            }
            for (place, serial) in sent {
                let outcome = self.outcome(serial);
                if outcome != OutcomeKind::Accepted && orders[place].is_ok() {
                    orders[place] = Err(outcome);
                }
            }
            if let Some(connection) = &mut self.connection {
                // Later answers are dropped.
                connection.pending.retain(|_, purpose| *purpose != Purpose::Order);
                connection.outcomes.clear();
            }
        }
        let mut outcomes = Vec::with_capacity(actions.len());
        for (action, order) in actions.iter().zip(orders) {
            outcomes.push(Outcome {
                guest: action.guest.clone(),
                generation: action.generation,
                target: action.target,
                kind: order.err().unwrap_or(OutcomeKind::Accepted),
            });
        }
        outcomes
    }

    /// The calls that carry out an action, in three steps: those before the balloon moves, the
    /// balloon's, and those after. Fails with the outcome of an action that is not sent.
    fn order(&mut self, action: &Action, now: Timestamp) -> Result<[Vec<Call>; 3], OutcomeKind> {
        let Some(guest) = self.guests.get_mut(&action.guest) else {
            return Err(failed("not sent: the guest is gone".to_owned()));
        };
        guest.gate.check(action, now)?;
        let hotplug = total_hotplug(guest.virtio_mem());
        let most = hotplug.map_or(Bytes::ZERO, |it| it.max);
        if let Some(plug) = action.plug.filter(|plug| *plug > most) {
            let why = format!("not sent: cannot plug {plug}: expected at most {most}");
            return Err(failed(why));
        }
        let plan = plan(guest.virtio_mem(), action.plug);
        let domain = guest.domain.clone();
        let update = |element| Call::UpdateDevice { domain: domain.clone(), element };
        let mut balloon = Vec::new();
        // An order that moves the balloon only is sent to a guest without one too: libvirt's error
        // is its outcome.
        if guest.has_balloon() || action.plug.is_none() {
            let left = action.target.saturating_sub(plan.requested);
            if left == Bytes::ZERO {
                return Err(failed(format!(
                    "not sent: {} of plugged memory leave nothing of {} for boot memory",
                    plan.requested, action.target
                )));
            }
            let kib = left.min(guest.boot_memory().unwrap_or(Bytes::MAX)).get() >> 10;
            balloon.push(Call::SetMemory { domain: domain.clone(), kib });
        }
        let steps = [
            plan.growing.into_iter().map(update).collect(),
            balloon,
            plan.shrinking.into_iter().map(update).collect(),
        ];
        guest.gate.sent(action);
        guest.order_was_sent(action.target.get() >> 10);
        Ok(steps)
    }

    fn outcome(&mut self, serial: Serial) -> OutcomeKind {
        let Some(connection) = &mut self.connection else {
            return failed("the connection was closed before the reply".to_owned());
        };
        let outcome = connection.outcomes.remove(&serial);
        outcome
            .unwrap_or_else(|| failed("no outcome in time; it may still be carried out".to_owned()))
    }
}

fn failed(why: String) -> OutcomeKind {
    OutcomeKind::Failed(why)
}
