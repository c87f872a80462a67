//! What wakes the daemon between ticks: guests' emergencies, and the host's tasks waiting for memory.
//!
//! Idea: a thread of its own waits for the kernel's trigger of pressure; it ends with the process.
//! Limits: where the kernel offers no trigger, pressure is found at the next tick as before, which is said once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballast_host::{PROC, PressureTrigger};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::Notify;
use tracing::info;

/// Least time between two ticks that guests' emergencies call for: a thousand guests that lie must not keep the
/// daemon from all else.
pub(super) const URGENT_APART: Duration = Duration::from_millis(25);

/// What is told when tasks wait for memory; never where the kernel does not say.
pub(super) fn alarm() -> Arc<Notify> {
    let alarm = Arc::new(Notify::new());
    let rings = Arc::clone(&alarm);
    let started = PressureTrigger::arm(Path::new(PROC)).and_then(|trigger| {
        std::thread::Builder::new()
            .name("pressure".to_owned())
            .spawn(move || watch(&trigger, &rings))
    });
    if let Err(why) = started {
        info!("the host's memory pressure wakes nobody: {why}");
    }
    alarm
}

/// Tells of every stall, until the trigger is gone.
fn watch(trigger: &PressureTrigger, alarm: &Notify) {
    loop {
        let mut waits = [PollFd::new(trigger, PollFlags::PRI)];
        match poll(&mut waits, None) {
            Ok(_) if waits[0].revents().contains(PollFlags::PRI) => alarm.notify_one(),
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Waits for an emergency, and then until `soonest`.
pub(super) async fn called(urgent: &Notify, soonest: Instant) {
    urgent.notified().await;
    tokio::time::sleep_until(soonest.into()).await;
}
