//! One DAMON for all guests of a program.
//!
//! Idea: a kernel has one set of DAMON files, but each guest has its own thread. So one more thread
//! owns the [`DamonSession`]; the guests' threads join, leave, and fetch their windows. While no
//! guest is sampled, DAMON is free for other programs. A failure of DAMON hardly ever concerns a
//! single guest: after a failure all guests are refused for a growing pause, and then one of them
//! tries again.
//!
//! Cost: one thread, which checks ten times a second, and the kernel's thread, within its budget
//! (`damon_budget.rs`).
//! Limits: [`GUESTS_MAX`] guests. When guests join or leave, all lose the window in progress;
//! `damon_changes.rs` bounds how often. Windows that a guest does not fetch are dropped, the oldest
//! first.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ballast_damon::{
    DamonError, DamonPaths, DamonSession, DamonTarget, DamonWindow, SAMPLES_MAX, WINDOW_MIN,
};
use ballast_host::{PROC, give_up_raised_priority};

use super::damon_budget::window_within_budget;
use super::damon_changes::{Changes, SETTLE_MAX, WINDOWS_KEPT};
use super::source::SourceError;
use crate::worker::{lock, start_thread, wait_for_end};

/// Pages sampled of each guest. With this many, the standard error of a working set of a tenth of
/// memory is a tenth of it, and less where touched memory is contiguous, because the hash samples
/// it evenly.
pub(super) const SAMPLES: usize = 1024;
/// Most guests sampled.
const GUESTS_MAX: usize = SAMPLES_MAX / SAMPLES;
/// Longest window that may result: if one window is lost, the next comes before a working set is
/// stale (30 s).
pub(super) const WINDOW_MAX: Duration = Duration::from_secs(12);
/// Windows over which the cost is measured.
const WINDOWS_MEASURED: u32 = 4;
/// Windows kept for a guest that does not fetch them.
const WINDOWS_MAX: usize = 4;
/// Time between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait of a joining guest until DAMON is in use; that takes some milliseconds.
const JOIN_PATIENCE: Duration = Duration::from_secs(3);
/// Pause after a failure: the first and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the thread to restore DAMON; that takes some milliseconds.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// DAMON, shared by the guests of this program. Dropping it restores DAMON.
#[derive(Debug)]
pub struct DamonHub {
    shared: Arc<HubShared>,
    paths: DamonPaths,
    /// Shortest window.
    shortest: Duration,
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
    /// Counts changes of the set of sampled pages.
    generation: u64,
    /// Whether DAMON is in use by this program.
    is_open: bool,
    refusal: Option<HubRefusal>,
    is_over: bool,
}

/// Why no guest may join now.
#[derive(Debug)]
struct HubRefusal {
    error: Arc<DamonError>,
    pause: Duration,
    /// When one guest may try again.
    until: Instant,
}

#[derive(Debug, Default)]
struct SampledGuest {
    /// `None`: the pages to sample are not known yet.
    target: Option<DamonTarget>,
    /// The generation that has this target first.
    sampled_since: u64,
    windows: VecDeque<GuestWindow>,
    /// Whether the window in progress is to be dropped, because the guest did not always run.
    drops_next: bool,
    failure: Option<Arc<DamonError>>,
}

/// What was seen of a guest in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GuestWindow {
    /// The positions of the touched pages among the sampled ones.
    pub(super) touched: Vec<u32>,
    pub(super) length: Duration,
    /// The guest's part of the kernel's processor time since the previous window.
    pub(super) cost: Duration,
}

/// A guest's membership; dropping it ends its sampling.
#[derive(Debug)]
pub(super) struct Membership {
    shared: Arc<HubShared>,
    number: u64,
}

impl DamonHub {
    /// Without guests yet. Windows are at least `shortest` long, and at least [`WINDOW_MIN`].
    pub fn new(shortest: Duration) -> DamonHub {
        DamonHub::of(DamonPaths::default(), shortest)
    }

    fn of(paths: DamonPaths, shortest: Duration) -> DamonHub {
        let shortest = shortest.max(WINDOW_MIN);
        DamonHub { shared: Arc::default(), paths, shortest, thread: Mutex::default() }
    }

    /// The longest wait for a guest's next window: other guests have their windows first, and one
    /// of its own may be dropped.
    pub(super) fn longest_wait(&self) -> Duration {
        self.shortest.max(WINDOW_MAX) * (WINDOWS_KEPT + 2) + SETTLE_MAX * 2
    }

    /// Takes a place for one more guest and waits until DAMON is in use. Before that, there is no
    /// point in looking for the guest's memory.
    ///
    /// # Errors
    /// [`SourceError::Full`], or why DAMON cannot be used, as found now or recently.
    pub(super) fn join(&self) -> Result<Membership, SourceError> {
        let membership = self.take_place()?;
        let mut thread = lock(&self.thread);
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let (shared, paths) = (Arc::clone(&self.shared), self.paths.clone());
            let shortest = self.shortest;
            let serve = Box::new(move || serve(&shared, shortest, &paths));
            // Without a thread no window comes, which the guest's own thread reports.
            *thread = start_thread("damon", serve).ok();
        }
        drop(thread);
        membership.wait_for_damon()?;
        Ok(membership)
    }

    fn take_place(&self) -> Result<Membership, SourceError> {
        let mut state = self.shared.lock();
        if state.guests.len() >= GUESTS_MAX {
            return Err(SourceError::Full(GUESTS_MAX));
        }
        let now = Instant::now();
        match &mut state.refusal {
            Some(refusal) if now < refusal.until => return Err(Arc::clone(&refusal.error).into()),
            // This guest tries; the others wait for the result.
            Some(refusal) => refusal.until = now + refusal.pause,
            None => {}
        }
        let number = state.next;
        state.next += 1;
        state.guests.insert(number, SampledGuest::default());
        drop(state);
        self.shared.changed.notify_all();
        Ok(Membership { shared: Arc::clone(&self.shared), number })
    }

    /// Ends all sampling and waits until DAMON is free.
    pub(super) fn close(&self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        let thread = lock(&self.thread).take();
        wait_for_end(END_PATIENCE, || thread.as_ref().is_none_or(JoinHandle::is_finished));
    }
}

impl Drop for DamonHub {
    fn drop(&mut self) {
        self.close();
    }
}

impl Membership {
    fn wait_for_damon(&self) -> Result<(), Arc<DamonError>> {
        let is_waiting = |state: &mut HubState| {
            let guest = state.guests.get(&self.number);
            !state.is_open && !state.is_over && guest.is_some_and(|guest| guest.failure.is_none())
        };
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.lock(), JOIN_PATIENCE, is_waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let guest = state.guests.get_mut(&self.number);
        guest.and_then(|guest| guest.failure.take()).map_or(Ok(()), Err)
    }

    /// From now on, samples these pages of the guest.
    pub(super) fn sample(&self, target: DamonTarget) {
        let mut state = self.shared.lock();
        let next = state.generation + 1;
        if let Some(guest) = state.guests.get_mut(&self.number) {
            guest.target = Some(target);
            guest.sampled_since = next;
            guest.windows.clear();
            state.generation = next;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Drops the windows so far and the one in progress, because the guest did not run all the
    /// time. It keeps its place, so no other guest loses a window.
    pub(super) fn drop_windows(&self) {
        if let Some(guest) = self.shared.lock().guests.get_mut(&self.number) {
            guest.windows.clear();
            guest.drops_next = true;
        }
    }

    /// The guest's next window, waiting up to `longest` for it; `None`: it has not come.
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
        let guest = state.guests.remove(&self.number);
        if guest.is_some_and(|guest| guest.target.is_some()) {
            state.generation += 1;
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl HubState {
    /// Whether any guest needs DAMON.
    fn is_needed(&self) -> bool {
        self.guests.values().any(|guest| guest.failure.is_none())
    }

    /// The guests to sample, by number.
    fn sampled(&self) -> Vec<(u64, DamonTarget)> {
        let guests = self.guests.iter().filter(|(_, guest)| guest.failure.is_none());
        guests.filter_map(|(&number, guest)| Some((number, guest.target.clone()?))).collect()
    }
}

impl HubShared {
    fn lock(&self) -> MutexGuard<'_, HubState> {
        lock(&self.state)
    }

    /// Queues a window for a guest, if that is still a member and its pages are those that were
    /// sampled in `generation`.
    fn deliver(&self, number: u64, generation: u64, window: GuestWindow) {
        let mut state = self.lock();
        state.refusal = None;
        if let Some(guest) = state.guests.get_mut(&number)
            && guest.sampled_since <= generation
            && !std::mem::take(&mut guest.drops_next)
        {
            if guest.windows.len() >= WINDOWS_MAX {
                guest.windows.pop_front();
            }
            guest.windows.push_back(window);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Tells all guests why no more windows come.
    fn fail(&self, error: DamonError) {
        let error = Arc::new(error);
        let mut state = self.lock();
        for guest in state.guests.values_mut() {
            guest.failure = Some(Arc::clone(&error));
        }
        let before = state.refusal.take();
        let pause = before.map_or(PAUSE_FIRST, |refusal| (refusal.pause * 2).min(PAUSE_MAX));
        state.refusal = Some(HubRefusal { error, pause, until: Instant::now() + pause });
        drop(state);
        self.changed.notify_all();
    }
}

/// DAMON in use, with the guests that it samples.
struct Served {
    session: DamonSession,
    /// The guests by number, in the order of the targets.
    guests: Vec<(u64, DamonTarget)>,
    /// The generation of these targets.
    generation: u64,
    /// When their windows were begun anew; `None`: no guest is sampled.
    begun: Option<Instant>,
    shortest: Duration,
    window: Duration,
    /// The kernel's processor time when windows were last passed on.
    cost: Duration,
    measured: MeasuredWindows,
}

/// Cost so far of windows of the present length.
#[derive(Default)]
struct MeasuredWindows {
    /// Number of windows, of all guests.
    windows: u32,
    cost: Duration,
}

/// Serves the guests until the hub is closed.
fn serve(shared: &HubShared, shortest: Duration, paths: &DamonPaths) {
    give_up_raised_priority();
    let mut served: Option<Served> = None;
    let mut generation = 0;
    let mut changes = Changes::default();
    loop {
        let (is_needed, changed) = {
            let is_idle = |state: &mut HubState| {
                !state.is_over
                    && state.generation == generation
                    && state.is_needed() == state.is_open
            };
            let waited = shared.changed.wait_timeout_while(shared.lock(), LOOK_EVERY, is_idle);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let now = Instant::now();
            if state.generation != generation {
                generation = state.generation;
                if changes.add(now) {
                    continue; // More guests may follow.
                }
            }
            let begun = served.as_ref().and_then(|served| served.windows_at_stake(&state));
            (state.is_needed(), changes.take(now, begun).then(|| state.sampled()))
        };
        if !is_needed {
            served = None;
        }
        let done = match &mut served {
            None if is_needed => Served::begin(paths, shortest).map(|begun| served = Some(begun)),
            None => Ok(()),
            Some(served) => served.read(shared),
        };
        let done = done.and_then(|()| match (&mut served, changed) {
            (Some(served), Some(guests)) => served.watch(guests, generation),
            _ => Ok(()),
        });
        if done.is_err() {
            served = None;
        }
        let was_open = std::mem::replace(&mut shared.lock().is_open, served.is_some());
        match done {
            Ok(()) if was_open == served.is_some() => {}
            Ok(()) => shared.changed.notify_all(), // Guests may be waiting for it.
            Err(error) => shared.fail(error),
        }
    }
}

impl Served {
    /// Takes DAMON into use, without guests yet.
    fn begin(paths: &DamonPaths, shortest: Duration) -> Result<Served, DamonError> {
        let session = DamonSession::begin(paths.clone())?;
        Ok(Served {
            session,
            guests: Vec::new(),
            generation: 0,
            begun: None,
            shortest,
            window: shortest,
            cost: Duration::ZERO,
            measured: MeasuredWindows::default(),
        })
    }

    /// When the windows in progress were begun, and their length. `None`: no present member would
    /// lose one by a set-up.
    fn windows_at_stake(&self, state: &HubState) -> Option<(Instant, Duration)> {
        let has_member = self.guests.iter().any(|(number, _)| state.guests.contains_key(number));
        self.begun.filter(|_| has_member).map(|begun| (begun, self.window))
    }

    /// From now on, samples `guests`, which are those of `generation`, instead of the earlier ones.
    fn watch(
        &mut self,
        guests: Vec<(u64, DamonTarget)>,
        generation: u64,
    ) -> Result<(), DamonError> {
        (self.guests, self.generation) = (guests, generation);
        // The measured costs are kept: joining and leaving must not keep windows short.
        self.cost = Duration::ZERO;
        loop {
            self.guests.retain(is_alive);
            let targets = self.guests.iter().map(|(_, target)| target.clone());
            let targets: Vec<DamonTarget> = targets.collect();
            let done = match targets.as_slice() {
                [] => {
                    self.session.stop();
                    Ok(())
                }
                targets => self.session.watch(targets, self.window),
            };
            self.begun = (!targets.is_empty()).then(Instant::now);
            // A guest that has ended meanwhile is left out of the next attempt.
            if done.is_ok() || self.guests.iter().all(is_alive) {
                return done;
            }
        }
    }

    /// Passes on the windows that have ended. Lengthens or shortens those that follow.
    fn read(&mut self, shared: &HubShared) -> Result<(), DamonError> {
        let windows = match self.session.read() {
            // All guests have ended; DAMON has not failed.
            Err(DamonError::Stopped) if !self.guests.iter().any(is_alive) => {
                return self.watch(Vec::new(), self.generation);
            }
            read => read?,
        };
        if windows.is_empty() {
            return Ok(());
        }
        let cost = self.session.cost().unwrap_or(self.cost);
        let spent = cost.saturating_sub(self.cost);
        let count = u32::try_from(windows.len()).unwrap_or(1);
        self.cost = cost;
        self.measured.cost += spent;
        self.measured.windows += count;
        for DamonWindow { target, touched } in windows {
            if let Some(&(number, _)) = self.guests.get(target) {
                let window = GuestWindow { touched, length: self.window, cost: spent / count };
                shared.deliver(number, self.generation, window);
            }
        }
        self.keep_within_budget()
    }

    fn keep_within_budget(&mut self) -> Result<(), DamonError> {
        let guests = u32::try_from(self.guests.len()).unwrap_or(u32::MAX);
        if self.measured.windows < guests.saturating_mul(WINDOWS_MEASURED) {
            return Ok(());
        }
        let MeasuredWindows { windows, cost } = std::mem::take(&mut self.measured);
        let cost_of_all = cost * guests / windows;
        let longest = self.shortest.max(WINDOW_MAX);
        let window = window_within_budget(self.window, cost_of_all, self.shortest, longest);
        if window == self.window {
            return Ok(());
        }
        tracing::debug!("DAMON's windows are {window:?} from now on, for what they cost");
        self.window = window;
        self.cost = Duration::ZERO;
        self.begun = Some(Instant::now());
        if self.guests.iter().all(is_alive) && self.session.set_window(window).is_ok() {
            return Ok(());
        }
        let guests = std::mem::take(&mut self.guests);
        self.watch(guests, self.generation)
    }
}

/// Whether a guest's process still runs. The kernel refuses all targets if one process has ended.
fn is_alive((_, target): &(u64, DamonTarget)) -> bool {
    Path::new(PROC).join(target.pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hub on a machine without DAMON.
    fn hub(root: &Path) -> DamonHub {
        DamonHub::of(DamonPaths::under(root), Duration::ZERO)
    }

    fn sampled(hub: &DamonHub, pid: u32) -> Membership {
        let membership = hub.take_place().unwrap();
        membership.sample(DamonTarget { pid, pages: vec![4096, 8192, 16384] });
        membership
    }

    fn window(touched: u32) -> GuestWindow {
        GuestWindow { touched: vec![touched], length: WINDOW_MIN, cost: Duration::ZERO }
    }

    #[test]
    fn what_fails_is_told_to_every_guest() {
        let root = tempfile::tempdir().unwrap();
        let hub = hub(root.path());
        assert_eq!(hub.shortest, WINDOW_MIN);
        let guests = [(); 2].map(|()| sampled(&hub, std::process::id()));
        let is_absent = |error: &DamonError| matches!(error, DamonError::Absent(_));
        let absent = |joined: Result<Membership, SourceError>| matches!(joined, Err(SourceError::Damon(error)) if is_absent(&error));
        assert!(absent(hub.join()), "a guest that joins waits for what is found");
        for guest in &guests {
            assert!(is_absent(&guest.next(Duration::ZERO).unwrap_err()));
        }
        // No guest joins before the pause is over; then one does, and the others wait for it.
        let until = |at| hub.shared.lock().refusal.as_mut().unwrap().until = at;
        until(Instant::now() + PAUSE_MAX);
        assert!(absent(hub.join()));
        hub.shared.lock().refusal.as_mut().unwrap().pause = PAUSE_MAX;
        until(Instant::now());
        let one = hub.take_place().unwrap();
        assert!(absent(hub.take_place()));
        // A window came: all may join.
        hub.shared.deliver(one.number, 0, window(1));
        assert!(hub.take_place().is_ok());
    }

    #[test]
    fn pauses_after_failures_grow() {
        let shared = HubShared::default();
        let pauses: Vec<Duration> = (0..10)
            .map(|_| {
                shared.fail(DamonError::Stopped);
                shared.lock().refusal.as_ref().unwrap().pause
            })
            .collect();
        assert_eq!((pauses[0], pauses[1], pauses[9]), (PAUSE_FIRST, PAUSE_FIRST * 2, PAUSE_MAX));
    }

    #[test]
    fn guests_are_bounded_in_number() {
        let root = tempfile::tempdir().unwrap();
        let hub = hub(root.path());
        let mut guests: Vec<Membership> = (0..).map_while(|_| hub.take_place().ok()).collect();
        assert_eq!(guests.len(), GUESTS_MAX);
        assert!(matches!(hub.join(), Err(SourceError::Full(GUESTS_MAX))));
        guests.pop();
        assert!(hub.take_place().is_ok());
    }

    #[test]
    fn windows_go_to_their_guest_and_the_oldest_are_dropped() {
        let root = tempfile::tempdir().unwrap();
        let hub = hub(root.path());
        let guests = [(); 2].map(|()| sampled(&hub, u32::MAX));
        for touched in 0..6 {
            hub.shared.deliver(guests[1].number, 2, window(touched));
        }
        assert_eq!(guests[0].next(Duration::ZERO).unwrap(), None);
        let seen: Vec<_> = std::iter::from_fn(|| guests[1].next(Duration::ZERO).unwrap()).collect();
        assert_eq!(seen, [2, 3, 4, 5].map(window));
    }

    #[test]
    fn windows_of_other_pages_or_of_a_pause_are_dropped() {
        let root = tempfile::tempdir().unwrap();
        let hub = hub(root.path());
        let guest = sampled(&hub, u32::MAX);
        let next = || guest.next(Duration::ZERO).unwrap();
        hub.shared.deliver(guest.number, 1, window(1));
        guest.sample(DamonTarget { pid: u32::MAX, pages: vec![4096] });
        assert_eq!(next(), None, "its positions are those of other pages");
        hub.shared.deliver(guest.number, 1, window(2));
        assert_eq!(next(), None, "DAMON is not set up for the new pages yet");
        hub.shared.deliver(guest.number, 2, window(3));
        guest.drop_windows();
        hub.shared.deliver(guest.number, 2, window(4));
        assert_eq!(next(), None, "it did not run all the time");
        hub.shared.deliver(guest.number, 2, window(5));
        assert_eq!(next(), Some(window(5)));
        assert_eq!(hub.shared.lock().generation, 2, "a pause changes nothing for others");
    }
}
