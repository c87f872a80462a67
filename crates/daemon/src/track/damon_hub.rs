//! One DAMON for all guests of a program.
//!
//! Idea: a kernel has one set of DAMON's files and guests have a thread each. So one thread more
//! has the [`DamonSession`]; guests join and leave, and take their windows as they come. While
//! nobody is sampled, DAMON is free for others.
//! Cost: one thread, which looks ten times a second.
//! Limits: [`GUESTS_MAX`] guests; when one joins or leaves, all lose the window in progress.
//! Windows that a guest does not take are dropped, the oldest first.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ballast_damon::{DamonError, DamonPaths, DamonSession, DamonTarget, SAMPLES_MAX, WINDOW_MIN};
use ballast_host::PROC;

/// Pages sampled of each guest: the standard error of a working set of a tenth of memory is then a
/// tenth of it, and less where touched memory is contiguous, which the hash samples evenly.
pub(super) const SAMPLES: usize = 1024;
/// Most guests sampled.
const GUESTS_MAX: usize = SAMPLES_MAX / SAMPLES;
/// Windows kept for a guest that does not take them.
const WINDOWS_MAX: usize = 4;
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for the thread to leave DAMON as it was; it takes some milliseconds.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// DAMON, shared by the guests of this program. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct DamonHub {
    shared: Arc<HubShared>,
    paths: DamonPaths,
    window: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct HubShared {
    state: Mutex<HubState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HubState {
    guests: BTreeMap<u64, SampledGuest>,
    /// Number of the next guest to join.
    next: u64,
    /// Counts guests that joined or left.
    generation: u64,
    is_over: bool,
}

#[derive(Debug)]
struct SampledGuest {
    target: DamonTarget,
    windows: VecDeque<GuestWindow>,
    failure: Option<Arc<DamonError>>,
}

/// What was seen of a guest in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GuestWindow {
    /// The positions of the touched pages among those sampled.
    pub(super) touched: Vec<u32>,
    /// The guest's part of the kernel's processor time since the window before.
    pub(super) cost: Duration,
}

/// A guest that is sampled, until this is dropped.
#[derive(Debug)]
pub(super) struct Membership {
    shared: Arc<HubShared>,
    number: u64,
}

impl DamonHub {
    /// Samples nobody yet. Windows are `window` long, at least [`WINDOW_MIN`].
    pub fn new(window: Duration) -> DamonHub {
        DamonHub::of(DamonPaths::default(), window)
    }

    fn of(paths: DamonPaths, window: Duration) -> DamonHub {
        let window = window.max(WINDOW_MIN);
        DamonHub { shared: Arc::default(), paths, window, thread: Mutex::default() }
    }

    /// Length of a window.
    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// Samples one guest more; `None`: there are as many as can be.
    pub(super) fn join(&self, target: DamonTarget) -> Option<Membership> {
        let mut state = self.shared.lock();
        if state.guests.len() >= GUESTS_MAX {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.generation += 1;
        let guest = SampledGuest { target, windows: VecDeque::new(), failure: None };
        state.guests.insert(number, guest);
        drop(state);
        self.shared.changed.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let (shared, paths) = (Arc::clone(&self.shared), self.paths.clone());
            let window = self.window;
            let serve = move || serve(&shared, window, &paths);
            // Without a thread no window comes, which the guest's own thread reports.
            *thread = std::thread::Builder::new().name("damon".to_owned()).spawn(serve).ok();
        }
        Some(Membership { shared: Arc::clone(&self.shared), number })
    }

    /// Most guests sampled.
    pub(super) const fn guests_max() -> usize {
        GUESTS_MAX
    }

    /// Ends all sampling and waits until DAMON is free.
    pub(super) fn close(&self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let end = Instant::now() + END_PATIENCE;
        while thread.as_ref().is_some_and(|it| !it.is_finished()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for DamonHub {
    fn drop(&mut self) {
        self.close();
    }
}

impl Membership {
    /// The guest's next window, waiting up to `longest` for it; `None`: not yet.
    ///
    /// # Errors
    /// DAMON cannot be used, or was turned off.
    pub(super) fn next(&self, longest: Duration) -> Result<Option<GuestWindow>, Arc<DamonError>> {
        let is_waiting = |state: &mut HubState| {
            state
                .guests
                .get(&self.number)
                .is_some_and(|guest| guest.windows.is_empty() && guest.failure.is_none())
        };
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.lock(), longest, is_waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(guest) = state.guests.get_mut(&self.number) else { return Ok(None) };
        match (guest.windows.pop_front(), guest.failure.take()) {
            (Some(window), _) => Ok(Some(window)),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.guests.remove(&self.number);
        state.generation += 1;
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl HubShared {
    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a window for a guest, if that is still there.
    fn hand_on(&self, number: u64, window: GuestWindow) {
        if let Some(guest) = self.lock().guests.get_mut(&number) {
            if guest.windows.len() >= WINDOWS_MAX {
                guest.windows.pop_front();
            }
            guest.windows.push_back(window);
        }
        self.changed.notify_all();
    }

    /// Tells all guests why nothing more is seen.
    fn fail(&self, error: DamonError) {
        let error = Arc::new(error);
        for guest in self.lock().guests.values_mut() {
            guest.failure = Some(Arc::clone(&error));
        }
        self.changed.notify_all();
    }
}

/// DAMON in use, with the guests that it samples.
struct Served {
    session: DamonSession,
    /// The guests' numbers, by the positions of their targets.
    numbers: Vec<u64>,
    cost: Duration,
}

/// Serves the guests until it is over.
fn serve(shared: &HubShared, window: Duration, paths: &DamonPaths) {
    let mut served: Option<Served> = None;
    let mut generation = 0;
    loop {
        let guests = {
            let is_idle = |state: &mut HubState| !state.is_over && state.generation == generation;
            let waited = shared.changed.wait_timeout_while(shared.lock(), LOOK_EVERY, is_idle);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let is_changed = state.generation != generation;
            generation = state.generation;
            is_changed.then(|| {
                let guests = state.guests.iter();
                guests.map(|(number, guest)| (*number, guest.target.clone())).collect::<Vec<_>>()
            })
        };
        let done = match (guests, &mut served) {
            (Some(guests), _) => {
                let session = served.take().map(|served| served.session);
                begin(session, guests, window, paths).map(|begun| served = begun)
            }
            (None, Some(served)) => served.read(shared),
            (None, None) => Ok(()),
        };
        if let Err(error) = done {
            served = None;
            shared.fail(error);
        }
    }
}

/// Samples `guests` from now on; with none of them DAMON is freed.
fn begin(
    session: Option<DamonSession>,
    mut guests: Vec<(u64, DamonTarget)>,
    window: Duration,
    paths: &DamonPaths,
) -> Result<Option<Served>, DamonError> {
    // The kernel refuses all guests if one has ended.
    guests.retain(|(_, target)| Path::new(PROC).join(target.pid.to_string()).exists());
    if guests.is_empty() {
        return Ok(None);
    }
    let mut session = match session {
        Some(session) => session,
        None => DamonSession::begin(paths.clone())?,
    };
    let (numbers, targets): (Vec<u64>, Vec<DamonTarget>) = guests.into_iter().unzip();
    session.watch(&targets, window)?;
    Ok(Some(Served { session, numbers, cost: Duration::ZERO }))
}

impl Served {
    /// Hands on the windows that have ended.
    fn read(&mut self, shared: &HubShared) -> Result<(), DamonError> {
        let windows = self.session.read()?;
        if windows.is_empty() {
            return Ok(());
        }
        let cost = self.session.cost().unwrap_or(self.cost);
        let each = cost.saturating_sub(self.cost) / u32::try_from(windows.len()).unwrap_or(1);
        self.cost = cost;
        for window in windows {
            if let Some(&number) = self.numbers.get(window.target) {
                shared.hand_on(number, GuestWindow { touched: window.touched, cost: each });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hub on a machine without DAMON.
    fn hub(root: &Path) -> DamonHub {
        DamonHub::of(DamonPaths::under(root), Duration::ZERO)
    }

    fn target(pid: u32) -> DamonTarget {
        DamonTarget { pid, pages: vec![4096, 8192, 16384] }
    }

    #[test]
    fn what_fails_is_told_to_every_guest() {
        let root = tempfile::tempdir().unwrap();
        let hub = hub(root.path());
        assert_eq!(hub.window(), WINDOW_MIN);
        let guests = [(); 2].map(|()| hub.join(target(std::process::id())).unwrap());
        for guest in guests {
            let end = Instant::now() + Duration::from_secs(60);
            let error = loop {
                match guest.next(LOOK_EVERY) {
                    Err(error) => break error,
                    Ok(window) => assert!(window.is_none() && Instant::now() < end),
                }
            };
            assert!(matches!(*error, DamonError::Absent(_)), "{error}");
        }
    }

    #[test]
    fn guests_are_bounded_in_number() {
        let root = tempfile::tempdir().unwrap();
        let hub = hub(root.path());
        let mut guests: Vec<Membership> = (0..).map_while(|pid| hub.join(target(pid))).collect();
        assert_eq!(guests.len(), DamonHub::guests_max());
        guests.pop();
        assert!(hub.join(target(1)).is_some());
    }

    #[test]
    fn windows_go_to_their_guest_and_the_oldest_are_dropped() {
        let root = tempfile::tempdir().unwrap();
        let hub = hub(root.path());
        // Of processes that are gone: the thread samples nobody.
        let guests = [(); 2].map(|()| hub.join(target(u32::MAX)).unwrap());
        let window = |touched| GuestWindow { touched: vec![touched], cost: Duration::ZERO };
        for touched in 0..6 {
            hub.shared.hand_on(guests[1].number, window(touched));
        }
        assert_eq!(guests[0].next(Duration::ZERO).unwrap(), None);
        let seen: Vec<_> = std::iter::from_fn(|| guests[1].next(Duration::ZERO).unwrap()).collect();
        assert_eq!(seen, [2, 3, 4, 5].map(window));
        hub.close();
        assert!(hub.thread.lock().unwrap().is_none());
    }
}
