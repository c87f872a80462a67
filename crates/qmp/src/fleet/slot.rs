//! State shared by the fleet and the task of one guest.
//!
//! Idea: the guest's monitor is behind a lock that is never held across an await. The fleet adds
//! queries and orders and wakes the task; the task moves bytes and notifies those who wait.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ballast_model::{LinkDown, OutcomeKind, Timestamp};
use tokio::sync::{Notify, oneshot};

use crate::guest::Ticket;
use crate::link::GuestLink;

/// The shared state of one guest.
#[derive(Debug)]
pub(super) struct GuestSlot(Mutex<SlotState>);

/// See [`GuestSlot`].
#[derive(Debug)]
pub(super) struct SlotState {
    pub(super) link: GuestLink,
    /// The socket of the process that the link is to, as that process named it.
    pub(super) listens_at: Option<Arc<Path>>,
    /// Receivers of the outcomes of orders.
    pub(super) waiting: Vec<(Ticket, oneshot::Sender<OutcomeKind>)>,
    /// The tick that waits for this guest.
    pub(super) tick: Option<Arc<TickBarrier>>,
    /// The socket is new: connect at once.
    pub(super) retry: bool,
    pub(super) waker: Option<Waker>,
}

impl GuestSlot {
    pub(super) fn new(link: GuestLink) -> Self {
        GuestSlot(Mutex::new(SlotState {
            link,
            listens_at: None,
            waiting: Vec::new(),
            tick: None,
            retry: false,
            waker: None,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    /// A connection to process `pid` was made, which listens at `listens_at`.
    pub(super) fn connected(
        &mut self,
        now: Timestamp,
        pid: Option<u32>,
        listens_at: Option<Arc<Path>>,
    ) {
        self.listens_at = listens_at;
        self.link.connected(now, pid);
    }

    /// Records that a connection ended or could not be made. Returns the wait before the next
    /// attempt.
    pub(super) fn disconnected(&mut self, why: LinkDown) -> Duration {
        let wait = self.link.disconnected(why);
        self.deliver();
        wait
    }

    /// Wakes the task to handle new queries or orders.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Delivers outcomes, and releases the tick if all queries are answered.
    pub(super) fn deliver(&mut self) {
        while let Some((ticket, outcome)) = self.link.guest.pop_finished() {
            if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == ticket) {
                // If the caller no longer waits, the order was carried out all the same.
                let _ = self.waiting.swap_remove(at).1.send(outcome);
            }
        }
        if !self.link.guest.is_sampling()
            && let Some(tick) = self.tick.take()
        {
            tick.leave();
        }
    }
}

/// Lets a tick wait for several guests.
#[derive(Debug, Default)]
pub(super) struct TickBarrier {
    waiting_for: AtomicUsize,
    all_done: Notify,
}

impl TickBarrier {
    /// Adds a guest to wait for.
    pub(super) fn join(&self) {
        self.waiting_for.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        if self.waiting_for.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_done.notify_one();
        }
    }

    /// Waits until every guest that joined has left. All guests must have joined before.
    pub(super) async fn all_done(&self) {
        while self.waiting_for.load(Ordering::Acquire) > 0 {
            self.all_done.notified().await;
        }
    }
}
