//! Orders: turns actions into targets of domains.
//!
//! Idea: a maxmem that is too low for a target is raised first. Then `memory/target` is written, in
//! a transaction that fails if the number belongs to another domain now. All orders are sent at
//! once, and share one wait.
//! Limits: an order whose answer is late counts as failed, and may still be carried out; `xl` runs
//! [`RUNS_MAX`] at a time.

use std::collections::BTreeMap;

use ballast_model::{Action, Bytes, GuestId, Outcome, OutcomeKind, Timestamp};
use ballast_xenstore::{GuardedWrite, RequestId, StorePath};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::limits::{RUNS_MAX, set_maxmem};
use super::{RequestPurpose, XenHost};
use crate::key::{DomainId, DomainKey};

/// An order that can be sent.
struct DomainOrder {
    domain: DomainId,
    /// The size ordered.
    size: Bytes,
    /// The maxmem to set first; `None` if it is high enough.
    maxmem: Option<Bytes>,
    /// A key, and the value that it must have.
    expected: (StorePath, Vec<u8>),
    /// A key, and the value to write.
    written: (StorePath, Vec<u8>),
}

impl XenHost {
    /// Sends orders, and returns their outcomes.
    pub(super) async fn order_all(&mut self, now: Timestamp, actions: &[Action]) -> Vec<Outcome> {
        let until = Instant::now() + self.config.command_timeout;
        let guests = self.guests();
        let mut orders = Vec::with_capacity(actions.len());
        for action in actions {
            orders.push(self.order(action, &guests, now));
        }
        self.raise_limits(&mut orders, until).await;
        let kinds = self.write_all(actions, orders, until).await;
        let mut outcomes = Vec::with_capacity(actions.len());
        for (action, kind) in actions.iter().zip(kinds) {
            outcomes.push(Outcome {
                guest: action.guest.clone(),
                generation: action.generation,
                target: action.target,
                kind,
            });
        }
        outcomes
    }

    /// The order that carries out an action.
    fn order(
        &mut self,
        action: &Action,
        guests: &BTreeMap<GuestId, DomainId>,
        now: Timestamp,
    ) -> Result<DomainOrder, OutcomeKind> {
        let id = guests.get(&action.guest).copied();
        let domain = id.and_then(|id| self.domains.get_mut(&id));
        let domain = domain.ok_or_else(|| failed("not sent: the guest is gone".to_owned()))?;
        domain.gate.check(action, now)?;
        if action.plug.is_some() {
            return Err(failed("not sent: nothing can be plugged into a domain of Xen".to_owned()));
        }
        let Some(kib) = domain.target_kib(action.target) else {
            let why = format!("not sent: {} leave no memory beside its video's", action.target);
            return Err(failed(why));
        };
        let expected = domain.expected();
        let written = DomainKey::Target.path(domain.id).map(|path| (path, kib.to_string().into()));
        let (Some(expected), Some(written)) = (expected, written) else {
            return Err(failed("not sent: it is not known which domain that is".to_owned()));
        };
        // The maxmem of dom0 was set when the machine booted.
        let is_dom0 = domain.id == DomainId::DOM0;
        let maxmem = domain.maxmem.for_target(action.target, domain.ceiling());
        Ok(DomainOrder {
            domain: domain.id,
            size: action.target,
            maxmem: maxmem.filter(|_| !is_dom0),
            expected,
            written,
        })
    }

    /// Raises the maxmem of domains that need it. Where that fails, the order fails.
    async fn raise_limits(
        &mut self,
        orders: &mut [Result<DomainOrder, OutcomeKind>],
        until: Instant,
    ) {
        let mut waiting = Vec::new();
        for (index, order) in orders.iter().enumerate() {
            if let Ok(DomainOrder { domain, maxmem: Some(to), .. }) = order {
                waiting.push((index, *domain, *to));
            }
        }
        waiting.reverse();
        let mut ended: BTreeMap<usize, Result<(), String>> = BTreeMap::new();
        let mut runs = JoinSet::new();
        loop {
            while runs.len() < RUNS_MAX
                && let Some((index, id, to)) = waiting.pop()
            {
                let xl = self.xl.clone();
                runs.spawn(async move { (index, id, to, set_maxmem(&xl, id, to).await) });
            }
            match timeout_at(until, runs.join_next()).await {
                Ok(Some(Ok((index, id, to, result)))) => {
                    if let (Ok(()), Some(domain)) = (&result, self.domains.get_mut(&id)) {
                        domain.maxmem.was_set(to, false);
                        self.say(format!("domain {id}: the hypervisor lets it hold {to:#} now"));
                    }
                    ended.insert(index, result);
                }
                Ok(Some(Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        for (index, order) in orders.iter_mut().enumerate() {
            let Ok(DomainOrder { maxmem: Some(to), .. }) = order else { continue };
            let to = *to;
            let why = match ended.remove(&index) {
                Some(Ok(())) => continue,
                Some(Err(why)) => why,
                None => "xl has not answered in time".to_owned(),
            };
            *order = Err(failed(format!("not sent: its maxmem is not raised to {to:#}: {why}")));
        }
    }

    /// Writes all orders, and waits for their outcomes.
    async fn write_all(
        &mut self,
        actions: &[Action],
        orders: Vec<Result<DomainOrder, OutcomeKind>>,
        until: Instant,
    ) -> Vec<OutcomeKind> {
        let mut kinds = Vec::with_capacity(orders.len());
        let mut writes: BTreeMap<RequestId, (usize, GuardedWrite)> = BTreeMap::new();
        for (index, order) in orders.into_iter().enumerate() {
            let sent = order.and_then(|order| self.send(&actions[index], order));
            kinds.push(match sent {
                Err(kind) => kind,
                Ok(write) => {
                    if let Some(id) = write.awaited() {
                        writes.insert(id, (index, write));
                    }
                    failed("no answer of xenstored in time; it may still be done".to_owned())
                }
            });
        }
        loop {
            self.take_answers();
            for (id, answer) in std::mem::take(&mut self.order_answers) {
                let Some((index, mut write)) = writes.remove(&id) else { continue };
                let Some(connection) = &mut self.connection else { continue };
                let ended = write.take(&mut connection.session, answer);
                match (ended, write.awaited()) {
                    (Some(Ok(())), _) => kinds[index] = OutcomeKind::Accepted,
                    (Some(Err(error)), _) => kinds[index] = failed(error.to_string()),
                    (None, Some(next)) => {
                        self.asked.insert(next, RequestPurpose::Order);
                        writes.insert(next, (index, write));
                    }
                    (None, None) => {}
                }
            }
            if writes.is_empty() {
                return kinds;
            }
            let Some(connection) = &mut self.connection else { break };
            match timeout_at(until, connection.exchange()).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => {
                    self.disconnected(why);
                    break;
                }
                Err(_) => break,
            }
        }
        // Later answers are dropped.
        self.asked.retain(|_, purpose| *purpose != RequestPurpose::Order);
        kinds
    }

    /// Sends an order.
    fn send(&mut self, action: &Action, order: DomainOrder) -> Result<GuardedWrite, OutcomeKind> {
        let down = self.down.clone();
        let Some(connection) = &mut self.connection else {
            let why = down.map_or("connecting".to_owned(), |down| down.to_string());
            return Err(failed(format!("not sent: xenstored: {why}")));
        };
        let write = GuardedWrite::begin(&mut connection.session, order.expected, order.written);
        let write = write.map_err(|error| failed(format!("not sent: {error}")))?;
        if let Some(id) = write.awaited() {
            self.asked.insert(id, RequestPurpose::Order);
        }
        if let Some(domain) = self.domains.get_mut(&order.domain) {
            domain.gate.sent(action);
            domain.order_was_sent(order.size);
        }
        Ok(write)
    }
}

fn failed(why: String) -> OutcomeKind {
    OutcomeKind::Failed(why)
}
