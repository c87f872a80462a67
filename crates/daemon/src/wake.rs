//! Wakes the daemon between ticks: on guests' emergencies and on host memory pressure.
//!
//! Idea: a thread waits for the kernel's memory-pressure trigger (PSI). It ends with the process.
//! Limits: without such a trigger, pressure is noticed only at the next tick; this is logged once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballast_host::{PROC, PressureTrigger};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::Notify;
use tracing::info;

use super::worker::start_thread;

/// Shortest time between two ticks caused by guests' emergencies: false alarms of a thousand guests
/// must not occupy the daemon.
pub(super) const URGENT_APART: Duration = Duration::from_millis(25);

/// Notified when host tasks stall on memory; never notified if the kernel has no trigger.
pub(super) fn alarm() -> Arc<Notify> {
    let alarm = Arc::new(Notify::new());
    let theirs = Arc::clone(&alarm);
    let started = PressureTrigger::arm(Path::new(PROC))
        .and_then(|trigger| start_thread("pressure", Box::new(move || watch(&trigger, &theirs))));
    if let Err(why) = started {
        info!("no memory-pressure trigger, pressure is noticed only at the next tick: {why}");
    }
    alarm
}

/// Notifies `alarm` of every stall, until the trigger is gone.
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
