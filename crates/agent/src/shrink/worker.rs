//! The thread that carries out orders to shrink, while the agent goes on reporting.
//!
//! Properties: one order at a time; every order is answered; after every order, programs may grow
//! again in the end, whatever becomes of the host.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ballast_agent_proto::wire::message::truncated;
use ballast_agent_proto::wire::{GuestMessage, ShrinkerOffer, ShrinkerResult};

use crate::shrink::shrinker::{Shrinker, release_all};

/// Longest time for an order, whatever the host says.
pub const ORDER_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time for which programs stay shrunk after the last order, and time between two attempts
/// to let them grow again. The host may not know that they are shrunk, if another host or the agent
/// itself gave the order. A guest with shrunk programs does not ask for more memory, so it might
/// never grow. If memory is still short then, the guest asks or the host orders again.
pub const SHRUNK_TIME_MAX: Duration = Duration::from_secs(300);
/// Stack of the thread, which calls nothing deep.
const STACK_BYTES: usize = 256 << 10;

/// A job for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShrinkJob {
    Order { number: u64, bytes: u64, deadline: Instant },
    Release,
}

/// The handle of the thread.
pub struct ShrinkWorker {
    names: Vec<String>,
    jobs: mpsc::SyncSender<ShrinkJob>,
    is_busy: Arc<Mutex<bool>>,
    messages: mpsc::Receiver<GuestMessage>,
    wake_receiver: UnixStream,
}

impl ShrinkWorker {
    /// Starts the thread, which first lets all programs grow again. It does so again `shrunk_max`
    /// after each order, [`SHRUNK_TIME_MAX`] except in tests, if no other came meanwhile.
    ///
    /// # Errors
    /// The system has no thread or no socket left.
    pub fn start(
        mut shrinkers: Vec<Box<dyn Shrinker>>,
        shrunk_max: Duration,
    ) -> io::Result<ShrinkWorker> {
        let (wake_sender, wake_receiver) = UnixStream::pair()?;
        wake_receiver.set_nonblocking(true)?;
        wake_sender.set_nonblocking(true)?;
        let names = shrinkers.iter().map(|it| it.name().to_owned()).collect();
        // Room for an order and a release after it.
        let (jobs, job_receiver) = mpsc::sync_channel::<ShrinkJob>(2);
        // Two messages per order.
        let (message_sender, messages) = mpsc::sync_channel(8);
        let is_busy = Arc::new(Mutex::new(false));
        let is_thread_busy = Arc::clone(&is_busy);
        let run = move || {
            // A killed agent may have left limits lowered.
            let mut release_at = give_back(&mut shrinkers, shrunk_max);
            while let Some(job) = next_job(&job_receiver, release_at) {
                let mut send = |message: GuestMessage| {
                    // Fails if the agent has ended, or a wake-up is already pending.
                    let _ = message_sender.send(message);
                    let _ = (&wake_sender).write(&[1]);
                };
                match job {
                    ShrinkJob::Order { number, bytes, deadline } => {
                        carry_out(&mut shrinkers, number, bytes, deadline, &mut send);
                        release_at = Some(Instant::now() + shrunk_max);
                        *is_thread_busy.lock().unwrap_or_else(PoisonError::into_inner) = false;
                    }
                    // No order came since the last release.
                    ShrinkJob::Release if release_at.is_none() => {}
                    ShrinkJob::Release => release_at = give_back(&mut shrinkers, shrunk_max),
                }
            }
        };
        let thread = std::thread::Builder::new().name("shrink".to_owned());
        thread.stack_size(STACK_BYTES).spawn(run)?;
        Ok(ShrinkWorker { names, jobs, is_busy, messages, wake_receiver })
    }

    /// Names of the shrinkers, in the order of use.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Starts an order; false if another one is in progress.
    pub fn order(&self, number: u64, bytes: u64, within: Duration) -> bool {
        let mut is_busy = self.is_busy.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + within.min(ORDER_TIME_MAX);
        let order = ShrinkJob::Order { number, bytes, deadline };
        if *is_busy || self.jobs.try_send(order).is_err() {
            return false;
        }
        *is_busy = true;
        true
    }

    /// Lets all shrinkers grow again, after the order in progress.
    pub fn release(&self) {
        // If the channel is full, a release is already pending. If an order follows it, programs
        // grow again some time after that order.
        let _ = self.jobs.try_send(ShrinkJob::Release);
    }

    /// Readable when there are messages.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake_receiver.as_fd()
    }

    /// Takes all pending messages to the host.
    pub fn messages(&mut self) -> impl Iterator<Item = GuestMessage> + '_ {
        let mut chunk = [0; 16];
        while matches!((&self.wake_receiver).read(&mut chunk), Ok(1..)) {}
        self.messages.try_iter()
    }
}

/// Waits for a job; at `release_at` a release is due. `None`: the agent has ended.
fn next_job(jobs: &mpsc::Receiver<ShrinkJob>, release_at: Option<Instant>) -> Option<ShrinkJob> {
    let Some(at) = release_at else { return jobs.recv().ok() };
    match jobs.recv_timeout(at.saturating_duration_since(Instant::now())) {
        Ok(job) => Some(job),
        Err(mpsc::RecvTimeoutError::Timeout) => Some(ShrinkJob::Release),
        Err(mpsc::RecvTimeoutError::Disconnected) => None,
    }
}

/// Lets all programs grow again; returns when to try again if one could not.
fn give_back(shrinkers: &mut [Box<dyn Shrinker>], again_after: Duration) -> Option<Instant> {
    (!release_all(shrinkers)).then(|| Instant::now() + again_after)
}

fn carry_out(
    shrinkers: &mut [Box<dyn Shrinker>],
    number: u64,
    bytes: u64,
    deadline: Instant,
    send: &mut dyn FnMut(GuestMessage),
) {
    let (mut offered, mut offers) = (Vec::new(), Vec::new());
    for shrinker in shrinkers.iter_mut() {
        let offer = shrinker.can_give();
        let can_give_bytes = offer.as_ref().copied().unwrap_or(0);
        offers.push(ShrinkerOffer { shrinker: shrinker.name().to_owned(), can_give_bytes });
        offered.push(offer);
    }
    send(GuestMessage::Shrinking { number, offers });
    let (mut gave_bytes, mut given) = (0u64, Vec::new());
    for (shrinker, offer) in shrinkers.iter_mut().zip(offered) {
        let wanted = bytes.saturating_sub(gave_bytes);
        let gave = match offer {
            Ok(_) if wanted == 0 => Ok(0),
            Ok(_) if Instant::now() >= deadline => Err("the order timed out".to_owned()),
            Ok(0) => Ok(0),
            Ok(offer) => shrinker.give(wanted.min(offer), deadline),
            Err(error) => Err(error),
        };
        let (gave, why) = match gave {
            Ok(gave) => (gave, None),
            Err(error) => (0, Some(truncated(&error))),
        };
        gave_bytes = gave_bytes.saturating_add(gave);
        given.push(ShrinkerResult { shrinker: shrinker.name().to_owned(), gave_bytes: gave, why });
    }
    send(GuestMessage::Shrunk { number, gave_bytes, given });
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FakeShrinker(&'static str, Result<u64, String>, Arc<Mutex<Vec<String>>>);

    impl Shrinker for FakeShrinker {
        fn name(&self) -> &str {
            self.0
        }
        fn can_give(&mut self) -> Result<u64, String> {
            self.1.clone()
        }
        fn give(&mut self, bytes: u64, _: Instant) -> Result<u64, String> {
            self.2.lock().unwrap().push(format!("{} {bytes}", self.0));
            Ok(bytes)
        }
        fn release(&mut self) -> Result<(), String> {
            let mut log = self.2.lock().unwrap();
            log.push(format!("{} grows", self.0));
            if self.0 == "deaf" && log.len() < 3 { Err("no answer".to_owned()) } else { Ok(()) }
        }
    }

    /// Waits until a log has this many entries; returns these.
    fn entries(log: &Mutex<Vec<String>>, count: usize) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let entries = log.lock().unwrap().clone();
            if entries.len() >= count {
                return entries[..count].to_vec();
            }
            assert!(Instant::now() < end, "{entries:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_order_visits_shrinkers_until_it_is_filled() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let fake = |name, offer| {
            Box::new(FakeShrinker(name, offer, Arc::clone(&log))) as Box<dyn Shrinker>
        };
        let shrinkers = vec![
            fake("a", Ok(10)),
            fake("b", Err("asleep".to_owned())),
            fake("c", Ok(0)),
            fake("d", Ok(100)),
            fake("e", Ok(100)),
        ];
        let mut worker = ShrinkWorker::start(shrinkers, SHRUNK_TIME_MAX).unwrap();
        assert!(worker.order(7, 50, ORDER_TIME_MAX));
        worker.release();
        let mut messages = Vec::new();
        let end = Instant::now() + Duration::from_secs(30);
        while messages.len() < 2 && Instant::now() < end {
            messages.extend(worker.messages());
        }
        let GuestMessage::Shrinking { number: 7, offers } = &messages[0] else {
            panic!("{messages:?}")
        };
        let offers: Vec<u64> = offers.iter().map(|offer| offer.can_give_bytes).collect();
        assert_eq!(offers, [10, 0, 0, 100, 100]);
        let GuestMessage::Shrunk { number: 7, gave_bytes: 50, given } = &messages[1] else {
            panic!("{messages:?}")
        };
        let gave: Vec<u64> = given.iter().map(|given| given.gave_bytes).collect();
        assert_eq!(gave, [10, 0, 0, 40, 0]);
        assert_eq!(given[1].why.as_deref(), Some("asleep"));
        let grow = ["a grows", "b grows", "c grows", "d grows", "e grows"];
        let expected = [&grow[..], &["a 10", "d 40"][..], &grow[..]].concat();
        assert_eq!(entries(&log, 12), expected);
        // It accepts the next order; what may grow already is not released again.
        worker.release();
        assert!(worker.order(8, 1, ORDER_TIME_MAX));
        assert_eq!(entries(&log, 13)[12], "a 1");
    }

    /// A worker of one program that grows again at once, and what the program did.
    fn eager(name: &'static str) -> (ShrinkWorker, Arc<Mutex<Vec<String>>>) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let shrinker = FakeShrinker(name, Ok(9), Arc::clone(&log));
        let worker = ShrinkWorker::start(vec![Box::new(shrinker)], Duration::from_millis(1));
        (worker.unwrap(), log)
    }

    #[test]
    fn programs_grow_again_without_a_word_of_the_host() {
        let (worker, log) = eager("a");
        assert!(worker.order(1, 5, ORDER_TIME_MAX));
        assert_eq!(entries(&log, 3), ["a grows", "a 5", "a grows"]);
    }

    #[test]
    fn a_program_that_was_not_released_is_released_later() {
        let (worker, log) = eager("deaf");
        assert_eq!(entries(&log, 3), ["deaf grows"; 3]);
        assert!(worker.order(1, 5, ORDER_TIME_MAX));
        assert_eq!(entries(&log, 4)[3], "deaf 5");
    }

    #[test]
    fn an_expired_order_is_answered_with_zero() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut all: Vec<Box<dyn Shrinker>> = vec![Box::new(FakeShrinker("a", Ok(9), log))];
        let mut messages = Vec::new();
        carry_out(&mut all, 1, 5, Instant::now(), &mut |message| messages.push(message));
        assert!(matches!(&messages[1], GuestMessage::Shrunk { gave_bytes: 0, .. }), "{messages:?}");
    }
}
