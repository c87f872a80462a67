//! What the fleet and the task of one connection share.
//!
//! Idea: the guest's state machine stands between them under a lock that is never held across an
//! await. The fleet puts questions and orders into it and wakes the task; the task moves bytes and
//! tells whoever waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ballast_model::{LinkDown, OutcomeKind, Timestamp};
use tokio::sync::{Notify, oneshot};

use super::gate::Gate;
use crate::guest::{Guest, Ticket};

/// Connections refused in a row after which nobody is expected to listen again: with the first waits
/// of [`Backoff`](crate::backoff::Backoff) some two seconds.
const REFUSALS_MAX: u32 = 5;

/// One guest, shared.
#[derive(Debug)]
pub(super) struct Slot(Mutex<State>);

/// See [`Slot`].
#[derive(Debug)]
pub(super) struct State {
    pub(super) guest: Guest,
    pub(super) gate: Gate,
    /// Who waits for an order's outcome.
    pub(super) orders: Vec<(Ticket, oneshot::Sender<OutcomeKind>)>,
    /// The tick that waits for this guest.
    pub(super) tick: Option<Arc<Tick>>,
    /// The socket is new: connect without waiting any longer.
    pub(super) retry: bool,
    /// Connections refused in a row.
    refusals: u32,
    pub(super) waker: Option<Waker>,
}

impl Slot {
    pub(super) fn new(guest: Guest) -> Self {
        Slot(Mutex::new(State {
            guest,
            gate: Gate::default(),
            orders: Vec::new(),
            tick: None,
            retry: false,
            refusals: 0,
            waker: None,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A connection was made.
    pub(super) fn connected(&mut self, now: Timestamp, pid: Option<u32>) {
        self.refusals = 0;
        self.guest.connected(now, pid);
    }

    /// A connection ended or could not be made.
    pub(super) fn disconnected(&mut self, why: LinkDown) {
        self.refusals = match why {
            LinkDown::Refused => self.refusals.saturating_add(1),
            _ => 0,
        };
        self.guest.disconnected(why);
        self.deliver();
    }

    /// Whether the socket is all that is left of the guest. The kernel refuses a connection only
    /// where no process has the socket open to listen.
    pub(super) fn is_deserted(&self) -> bool {
        self.refusals >= REFUSALS_MAX
    }

    /// Lets the task see what was put in.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Tells whoever waits for what has come to its end.
    pub(super) fn deliver(&mut self) {
        while let Some((ticket, outcome)) = self.guest.pop_finished() {
            if let Some(at) = self.orders.iter().position(|(waiting, _)| *waiting == ticket) {
                // Nobody listening any more is fine: the order itself was carried out.
                let _ = self.orders.swap_remove(at).1.send(outcome);
            }
        }
        if !self.guest.is_sampling()
            && let Some(tick) = self.tick.take()
        {
            tick.leave();
        }
    }
}

/// The guests for which one tick waits.
#[derive(Debug, Default)]
pub(super) struct Tick {
    waiting_for: AtomicUsize,
    all_done: Notify,
}

impl Tick {
    /// One more guest to wait for.
    pub(super) fn join(&self) {
        self.waiting_for.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        if self.waiting_for.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_done.notify_one();
        }
    }

    /// Waits until every guest that joined has left. Guests join before, not during.
    pub(super) async fn all_done(&self) {
        while self.waiting_for.load(Ordering::Acquire) > 0 {
            self.all_done.notified().await;
        }
    }
}
