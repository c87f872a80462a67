//! The thread that carries out orders to shrink, while the agent goes on reporting.
//!
//! Properties: one order at a time; every order is answered.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ballast_agent_proto::wire::message::short;
use ballast_agent_proto::wire::{GuestMessage, ShrinkerOffer, ShrinkerResult};

use crate::shrink::shrinker::{Shrinker, release_all};

/// Longest time for an order, whatever the host says.
pub const ORDER_TIME_MAX: Duration = Duration::from_secs(60);
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
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread or no socket left.
    pub fn start(mut shrinkers: Vec<Box<dyn Shrinker>>) -> io::Result<ShrinkWorker> {
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
            for job in job_receiver {
                let mut send = |message: GuestMessage| {
                    // Fails if the agent has ended, or a wake-up is already pending.
                    let _ = message_sender.send(message);
                    let _ = (&wake_sender).write(&[1]);
                };
                match job {
                    ShrinkJob::Order { number, bytes, deadline } => {
                        carry_out(&mut shrinkers, number, bytes, deadline, &mut send);
                        *is_thread_busy.lock().unwrap_or_else(PoisonError::into_inner) = false;
                    }
                    ShrinkJob::Release => release_all(&mut shrinkers),
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
        // If the channel is full, a release is already pending.
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
            Err(error) => (0, Some(short(&error))),
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
            self.2.lock().unwrap().push(format!("{} grows", self.0));
            Ok(())
        }
    }

    #[test]
    fn an_order_visits_shrinkers_until_it_is_filled() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let fake = |name, offer| {
            Box::new(FakeShrinker(name, offer, Arc::clone(&log))) as Box<dyn Shrinker>
        };
        let mut worker = ShrinkWorker::start(vec![
            fake("a", Ok(10)),
            fake("b", Err("asleep".to_owned())),
            fake("c", Ok(0)),
            fake("d", Ok(100)),
            fake("e", Ok(100)),
        ])
        .unwrap();
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
        while log.lock().unwrap().len() < 7 {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        let expected = ["a 10", "d 40", "a grows", "b grows", "c grows", "d grows", "e grows"];
        assert_eq!(*log.lock().unwrap(), expected);
        // It accepts the next order.
        assert!(worker.order(8, 1, ORDER_TIME_MAX));
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
