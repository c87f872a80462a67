//! A thread that works for the main loop and may hang or panic without harm to it.
//!
//! Idea: the loop leaves the latest order in an inbox and never waits for the thread. An order
//! replaces the one before it, so orders do not pile up when a thread hangs. The loop checks the
//! thread now and then, and replaces one that panicked.
//!
//! Cost: one thread, and a lock for each order.
//! Limits: a thread that hangs in the kernel cannot be ended. Whoever starts workers bounds their
//! number, including those that hang.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::warn_once::WarnOnce;

/// Longest text of a panic in the log, in characters.
const PANIC_CHARS_MAX: usize = 200;
/// Longest wait for most threads when the daemon stops.
pub(crate) const END_WAIT_MAX: Duration = Duration::from_secs(2);
/// Pause between two checks whether they have ended.
const END_PAUSE: Duration = Duration::from_millis(2);

/// State shared by the loop and the thread.
#[derive(Debug)]
pub(crate) struct Inbox<Order> {
    state: Mutex<InboxState<Order>>,
    changed: Condvar,
}

#[derive(Debug)]
struct InboxState<Order> {
    order: Option<Order>,
    /// Since when the thread has worked; `None`: it waits.
    working_since: Option<Instant>,
    is_closed: bool,
}

/// The content of the inbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Letter<Order> {
    /// An order, which replaces the one before it.
    Order(Order),
    /// No order came in time: continue with the one before.
    None,
    /// The thread has to end.
    End,
}

impl<Order> Inbox<Order> {
    /// Waits for an order, at most for `longest` if given. Until the next call, the thread works.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> Letter<Order> {
        let mut state = lock(&self.state);
        state.working_since = None;
        let is_idle = |state: &mut InboxState<Order>| state.order.is_none() && !state.is_closed;
        state = match longest {
            None => self.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner),
            Some(longest) => {
                let waited = self.changed.wait_timeout_while(state, longest, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.working_since = Some(Instant::now());
        match state.order.take() {
            _ if state.is_closed => Letter::End,
            Some(order) => Letter::Order(order),
            None => Letter::None,
        }
    }
}

/// The state of a worker's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkerState {
    /// It waits, or has worked at one thing for this long.
    Lives(Duration),
    /// It ended because it was asked to.
    Ended,
    /// It panicked, with this text.
    Panicked(String),
}

/// How long a step may take before its thread counts as hanging, and the warning that follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerDeadline<'a> {
    pub(crate) after: Duration,
    pub(crate) subject: &'a str,
    pub(crate) what: &'a str,
}

impl WorkerState {
    /// Whether the thread still runs. Warns about a thread that hangs and, under `subject`, about
    /// one that panicked.
    pub(crate) fn lives_on(
        self,
        subject: &str,
        deadline: WorkerDeadline<'_>,
        warnings: &mut WarnOnce,
    ) -> bool {
        match self {
            WorkerState::Lives(time) if time >= deadline.after => {
                warnings.warn(deadline.subject, deadline.what);
                true
            }
            WorkerState::Lives(_) => {
                warnings.clear(deadline.subject);
                true
            }
            WorkerState::Ended => false,
            WorkerState::Panicked(how) => {
                warnings.warn(subject, &format!("a thread panicked: {how}"));
                false
            }
        }
    }
}

/// The loop's handle for a thread. Dropping it tells the thread to end, without waiting for it.
#[derive(Debug)]
pub(crate) struct Worker<Order> {
    inbox: Arc<Inbox<Order>>,
    /// `None`: it was found to have ended.
    thread: Option<JoinHandle<()>>,
}

impl<Order: Send + 'static> Worker<Order> {
    /// Starts a thread that does `work`, which ends when it finds [`Letter::End`].
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(&Inbox<Order>) + Send + 'static,
    ) -> io::Result<Worker<Order>> {
        let state = InboxState { order: None, working_since: None, is_closed: false };
        let inbox = Arc::new(Inbox { state: Mutex::new(state), changed: Condvar::new() });
        let theirs = Arc::clone(&inbox);
        let thread = start_thread(name, Box::new(move || work(&theirs)))?;
        Ok(Worker { inbox, thread: Some(thread) })
    }
}

impl<Order> Worker<Order> {
    /// Leaves an order, replacing one that was not taken yet.
    pub(crate) fn order(&self, order: Order) {
        lock(&self.inbox.state).order = Some(order);
        self.inbox.changed.notify_all();
    }

    /// Tells the thread to end, without waiting for it.
    pub(crate) fn end(&self) {
        lock(&self.inbox.state).is_closed = true;
        self.inbox.changed.notify_all();
    }

    /// The state of the thread.
    pub(crate) fn state(&mut self) -> WorkerState {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            return match thread.join() {
                Ok(()) => WorkerState::Ended,
                Err(panic) => WorkerState::Panicked(panic_text(&*panic)),
            };
        }
        if self.thread.is_none() {
            return WorkerState::Ended;
        }
        let working_since = lock(&self.inbox.state).working_since;
        WorkerState::Lives(working_since.map_or(Duration::ZERO, |since| since.elapsed()))
    }
}

impl<Order> Drop for Worker<Order> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a thread. The work is boxed, so that the program has the standard library's code for it
/// once, and not for each kind of work.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start_thread(
    name: &str,
    work: Box<dyn FnOnce() + Send>,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Waits until `are_over` says that threads have ended, but at most for `longest`.
pub(crate) fn wait_for_end(longest: Duration, mut are_over: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !are_over() && Instant::now() < end {
        std::thread::sleep(END_PAUSE);
    }
}

/// Locks `mutex`, even if a thread that held it has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text").chars().take(PANIC_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Waits until the worker is in such a state.
    fn until<Order>(
        worker: &mut Worker<Order>,
        wanted: impl Fn(&WorkerState) -> bool,
    ) -> WorkerState {
        let begun = Instant::now();
        loop {
            let state = worker.state();
            if wanted(&state) {
                return state;
            }
            assert!(begun.elapsed() < PATIENCE, "{state:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn only_the_latest_order_reaches_a_thread_that_hangs() {
        let (let_go, hangs) = mpsc::channel::<()>();
        let (seen, orders) = mpsc::channel();
        let mut worker = Worker::start("test", move |inbox: &Inbox<u32>| {
            while let Letter::Order(order) = inbox.wait(None) {
                seen.send(order).unwrap();
                hangs.recv().unwrap();
            }
        })
        .unwrap();
        worker.order(1);
        assert_eq!(orders.recv_timeout(PATIENCE), Ok(1));
        (2..=9).for_each(|order| worker.order(order));
        until(&mut worker, |state| matches!(state, WorkerState::Lives(time) if !time.is_zero()));
        let_go.send(()).unwrap();
        assert_eq!(orders.recv_timeout(PATIENCE), Ok(9));
        worker.end();
        let_go.send(()).unwrap();
        until(&mut worker, |state| *state == WorkerState::Ended);
        assert!(orders.try_recv().is_err());
    }

    #[test]
    fn a_panic_is_told_once_with_its_text() {
        let work = |inbox: &Inbox<u32>| match inbox.wait(None) {
            Letter::Order(order) => panic!("order {order}"),
            other => panic!("{other:?}"),
        };
        let mut worker = Worker::start("test", work).unwrap();
        worker.order(7);
        let lives = |state: &WorkerState| matches!(state, WorkerState::Lives(_));
        let state = until(&mut worker, |state| !lives(state));
        assert_eq!(state, WorkerState::Panicked("order 7".to_owned()));
        assert_eq!(worker.state(), WorkerState::Ended);
    }

    #[test]
    fn without_a_new_order_a_thread_goes_on() {
        let (seen, letters) = mpsc::channel();
        let _worker = Worker::start("test", move |inbox: &Inbox<u32>| {
            seen.send(inbox.wait(Some(Duration::ZERO))).unwrap();
        });
        assert_eq!(letters.recv_timeout(PATIENCE), Ok(Letter::None));
    }
}
