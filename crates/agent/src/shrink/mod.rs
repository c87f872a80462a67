//! Programs that can be made to give memory back.
//!
//! Idea (flexmemd's for OSv, here for any program): before the balloon takes what the kernel would have
//! to swap for, those who hold memory that they can do without are asked. Each [`Shrinker`] says how
//! much it can give and how much it gave; an order goes through them in turn, the cheapest first,
//! until it is filled or its time is up. A thread of its own does it: the agent goes on reporting.
//!
//! Properties: one order at a time; every order is answered; no shrinker is asked for more than it
//! offered; none takes a service down: what cannot be given without failing requests is not offered.
//! What was lowered is written to a file first, so that it is raised again even if the agent was
//! killed meanwhile.

mod client;
mod hooks;
mod ledger;
mod memcached;
mod page_cache;
mod redis;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ballast_agent_wire::message::{NAME_LEN_MAX, NAMES_MAX, short};
use ballast_agent_wire::{Given, GuestMessage, Offer};

use crate::config;

pub use hooks::Hook;
pub use ledger::Ledger;
pub use memcached::Memcached;
pub use page_cache::PageCache;
pub use redis::Redis;

/// Longest time an order may take, whatever the host says.
pub const ORDER_TIME_MAX: Duration = Duration::from_secs(60);
/// Stack of the thread that works for orders: it calls nothing deep.
const STACK_BYTES: usize = 256 << 10;

/// Something that can give memory back.
pub trait Shrinker: Send {
    /// Its name, unique among those of an agent.
    fn name(&self) -> &str;

    /// How much it can give, in bytes.
    ///
    /// # Errors
    /// Why it cannot say, or can give nothing.
    fn can_give(&mut self) -> Result<u64, String>;

    /// Gives up to `bytes` before `deadline`; how much it was.
    ///
    /// # Errors
    /// Why it gave nothing.
    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String>;

    /// It may grow again.
    ///
    /// # Errors
    /// Why that could not be told to it.
    fn release(&mut self) -> Result<(), String>;
}

/// The shrinkers of `config`, the cheapest first, with their notes in `state_folder`.
pub fn configured(config: &config::Shrinkers, state_folder: &Path) -> Vec<Box<dyn Shrinker>> {
    let mut all: Vec<Box<dyn Shrinker>> = Vec::new();
    if config.page_cache {
        all.push(Box::new(PageCache::new(Path::new("/"))));
    }
    if let Some(folder) = &config.hooks {
        for hook in Hook::all(folder) {
            all.push(Box::new(hook));
        }
    }
    if let Some(settings) = &config.memcached {
        let ledger = Ledger::new(state_folder.join("memcached"));
        all.push(Box::new(Memcached::new(settings.clone(), ledger)));
    }
    if let Some(settings) = &config.redis {
        let ledger = Ledger::new(state_folder.join("redis"));
        all.push(Box::new(Redis::new(settings.clone(), ledger)));
    }
    all.retain(|it| it.name().len() <= NAME_LEN_MAX);
    all.truncate(NAMES_MAX);
    all
}

/// Something to do for the shrinkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Order { number: u64, bytes: u64, deadline: Instant },
    Release,
}

/// The thread that works for orders.
pub struct Workers {
    names: Vec<String>,
    jobs: mpsc::SyncSender<Job>,
    busy: Arc<Mutex<bool>>,
    said: mpsc::Receiver<GuestMessage>,
    woken: UnixStream,
}

impl Workers {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread or no socket left.
    pub fn start(mut shrinkers: Vec<Box<dyn Shrinker>>) -> io::Result<Workers> {
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let names = shrinkers.iter().map(|it| it.name().to_owned()).collect();
        // An order, and a release behind it.
        let (jobs, todo) = mpsc::sync_channel::<Job>(2);
        // A beginning and an end for each.
        let (say, said) = mpsc::sync_channel(8);
        let busy = Arc::new(Mutex::new(false));
        let worker = Arc::clone(&busy);
        std::thread::Builder::new().name("shrink".to_owned()).stack_size(STACK_BYTES).spawn(
            move || {
                for job in todo {
                    let mut tell = |message: GuestMessage| {
                        // Nobody reads any more, or a wake-up is on its way already.
                        let _ = say.send(message);
                        let _ = (&wake).write(&[1]);
                    };
                    match job {
                        Job::Order { number, bytes, deadline } => {
                            work(&mut shrinkers, number, bytes, deadline, &mut tell);
                            *worker.lock().unwrap_or_else(PoisonError::into_inner) = false;
                        }
                        Job::Release => release(&mut shrinkers),
                    }
                }
            },
        )?;
        Ok(Workers { names, jobs, busy, said, woken })
    }

    /// Their names, in the order they are used.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Orders `bytes`; false where an order is being worked on.
    pub fn order(&self, number: u64, bytes: u64, within: Duration) -> bool {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + within.min(ORDER_TIME_MAX);
        if *busy || self.jobs.try_send(Job::Order { number, bytes, deadline }).is_err() {
            return false;
        }
        *busy = true;
        true
    }

    /// Lets everything grow again, after the order that is being worked on.
    pub fn release(&self) {
        // If there is no room, a release waits already.
        let _ = self.jobs.try_send(Job::Release);
    }

    /// Readable when there is something to tell.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// What there is to tell.
    pub fn told(&mut self) -> impl Iterator<Item = GuestMessage> + '_ {
        let mut chunk = [0; 16];
        while matches!((&self.woken).read(&mut chunk), Ok(1..)) {}
        self.said.try_iter()
    }
}

/// Lets everything grow again, telling on standard error what cannot.
pub fn release(shrinkers: &mut [Box<dyn Shrinker>]) {
    for shrinker in shrinkers {
        if let Err(why) = shrinker.release() {
            eprintln!("ballast-agent: {} may not grow again: {why}", shrinker.name());
        }
    }
}

fn work(
    shrinkers: &mut [Box<dyn Shrinker>],
    number: u64,
    bytes: u64,
    deadline: Instant,
    tell: &mut dyn FnMut(GuestMessage),
) {
    let offered: Vec<Result<u64, String>> =
        shrinkers.iter_mut().map(|shrinker| shrinker.can_give()).collect();
    let offers = shrinkers.iter().zip(&offered).map(|(shrinker, offer)| Offer {
        shrinker: shrinker.name().to_owned(),
        can_give_bytes: offer.as_ref().copied().unwrap_or(0),
    });
    tell(GuestMessage::Shrinking { number, offers: offers.collect() });
    let (mut gave_bytes, mut given) = (0u64, Vec::new());
    for (shrinker, offer) in shrinkers.iter_mut().zip(offered) {
        let wanted = bytes.saturating_sub(gave_bytes);
        let gave = match offer {
            Ok(_) if wanted == 0 => Ok(0),
            Ok(_) if Instant::now() >= deadline => Err("its time was up".to_owned()),
            Ok(0) => Ok(0),
            Ok(offer) => shrinker.give(wanted.min(offer), deadline),
            Err(why) => Err(why),
        };
        let (gave, why) = match gave {
            Ok(gave) => (gave, None),
            Err(why) => (0, Some(short(&why))),
        };
        gave_bytes = gave_bytes.saturating_add(gave);
        given.push(Given { shrinker: shrinker.name().to_owned(), gave_bytes: gave, why });
    }
    tell(GuestMessage::Shrunk { number, gave_bytes, given });
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(&'static str, Result<u64, String>, Arc<Mutex<Vec<String>>>);

    impl Shrinker for Fake {
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
    fn an_order_goes_through_them_until_it_is_filled() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let fake = |name, offer| Box::new(Fake(name, offer, Arc::clone(&log))) as Box<dyn Shrinker>;
        let mut workers = Workers::start(vec![
            fake("a", Ok(10)),
            fake("b", Err("asleep".to_owned())),
            fake("c", Ok(0)),
            fake("d", Ok(100)),
            fake("e", Ok(100)),
        ])
        .unwrap();
        assert!(workers.order(7, 50, ORDER_TIME_MAX));
        workers.release();
        let mut told = Vec::new();
        let end = Instant::now() + Duration::from_secs(30);
        while told.len() < 2 && Instant::now() < end {
            told.extend(workers.told());
        }
        let GuestMessage::Shrinking { number: 7, offers } = &told[0] else { panic!("{told:?}") };
        let offers: Vec<u64> = offers.iter().map(|offer| offer.can_give_bytes).collect();
        assert_eq!(offers, [10, 0, 0, 100, 100]);
        let GuestMessage::Shrunk { number: 7, gave_bytes: 50, given } = &told[1] else {
            panic!("{told:?}")
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
        // It is free for the next.
        assert!(workers.order(8, 1, ORDER_TIME_MAX));
    }

    #[test]
    fn an_order_whose_time_is_up_is_answered_with_nothing() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut all: Vec<Box<dyn Shrinker>> = vec![Box::new(Fake("a", Ok(9), log))];
        let mut told = Vec::new();
        work(&mut all, 1, 5, Instant::now(), &mut |message| told.push(message));
        assert!(matches!(&told[1], GuestMessage::Shrunk { gave_bytes: 0, .. }), "{told:?}");
    }
}
