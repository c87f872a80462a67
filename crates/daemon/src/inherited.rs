//! What the last daemon left for this one in the journal.
//!
//! Idea: if the last daemon ran since the host's boot, what its last plan promised still holds. If
//! it ran before the boot, only guests' credits are taken over, because guests are other processes
//! then. What a tick promised to guests does not hold either if the tick is old
//! ([`Inherited::AGE_MAX`]): since then a daemon may have moved guests without recording it, or
//! operators may have by hand. Reservations hold until they end. An operator's pause holds until
//! the operator resumes or the host reboots, even if the daemon ended before its next tick, or
//! before its first one. A mode that an operator set holds until the mode in the configuration file
//! changes, across reboots.
//!
//! Limits: limits and policies that an operator set do not survive the daemon. If the mode in the
//! file changed in the very tick in which an operator set one, only the file's is known. What a
//! daemon ordered unrecorded in its last seconds is not known either.

use std::time::Duration;

use ballast_model::{GuestId, Mode, ModeChoice, Restart, Timestamp};
use ballast_store::{Event, JournalTail};

use super::view::Command;

/// The same as [`Inherited::AGE_MAX`] in ticks, where ticks are far apart.
const TICKS_MAX: u32 = 3;

/// What the last daemon left to this one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// State of guests that have run since then, and of the operator.
    pub restart: Restart,
    /// Each guest's credits, whether it still runs or not.
    pub credits: Vec<(GuestId, u64)>,
    /// The mode; `None`: unknown.
    pub mode: Option<ModeChoice>,
}

impl Inherited {
    /// What a last tick promised to guests is not taken over if it is older than this and than
    /// three ticks. A daemon that died is started again some 2 s later, and an upgrade stops it for
    /// about as long.
    pub const AGE_MAX: Duration = Duration::from_secs(10);

    /// The meaning of the journal's `tail` for a daemon that was started at `now` in the boot
    /// `boot_id`; `period` is the time between its ticks.
    pub fn of(tail: JournalTail, boot_id: &str, now: Timestamp, period: Duration) -> Inherited {
        let mut inherited = Inherited::default();
        if let Some((session, tick)) = tail.last {
            let age = now.saturating_since(tick.snapshot.taken_at);
            if session.start.boot_id == boot_id {
                inherited.restart =
                    Restart::of(&tick.snapshot, &tick.plan, &tick.handovers, tick.paused);
                if age > Inherited::AGE_MAX.max(period * TICKS_MAX) {
                    tracing::warn!(
                        "the last tick in the journal is {} s old: guests begin with what they \
                         hold",
                        age.as_secs()
                    );
                    inherited.restart.guests.clear();
                }
            }
            inherited.mode = Some(tick.mode);
            let guests = tick.plan.guests.into_iter();
            let credits = guests.filter_map(|guest| Some((guest.id, guest.credits?)));
            inherited.credits = credits.collect();
        }
        for (boot, event) in tail.events {
            let Event::Command { command, answer: Ok(_), .. } = event else { continue };
            let is_of_boot = boot == boot_id;
            if command == Command::Pause.words() && is_of_boot {
                inherited.restart.paused = true;
            } else if command == Command::Resume.words() && is_of_boot {
                inherited.restart.paused = false;
            }
            let set = Mode::ALL.into_iter().find(|it| command == Command::SetMode(*it).words());
            if let Some(mode) = set {
                inherited.mode.get_or_insert_default().set(mode);
            }
        }
        inherited
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ballast_model::{Bytes, ProcessId};
    use ballast_store::{Session, Start, TickEntry};

    use super::*;
    use crate::server::fixture;

    fn command(command: Command, answer: Result<String, String>) -> Event {
        Event::Command { who: "uid 0".to_owned(), command: command.words(), answer }
    }

    /// The last tick of a daemon that ran in boot `here`; guest `grow` is process 7.
    fn tail(paused: bool, events: Vec<Event>) -> JournalTail {
        let view = fixture::view();
        let mut guests = view.snapshot.guests().to_vec();
        for guest in guests.iter_mut().filter(|guest| guest.id.as_str() == "grow") {
            guest.process = Some(ProcessId { pid: 7, start_ticks: 70 });
        }
        let mut plan = view.plan;
        for guest in plan.guests.iter_mut().filter(|guest| guest.id.as_str() == "grow") {
            guest.credits = Some(55);
        }
        let start = Start {
            wall: SystemTime::UNIX_EPOCH,
            mono: Timestamp::ZERO,
            boot_id: "here".to_owned(),
            version: "0.1.0".to_owned(),
            pid: 1,
        };
        let snapshot =
            ballast_model::Snapshot::new(view.snapshot.taken_at, view.snapshot.host, guests);
        let tick = TickEntry {
            snapshot,
            answer: None,
            plan,
            outcomes: vec![],
            carried: vec![],
            handovers: vec![],
            limits: Default::default(),
            paused,
            mode: ModeChoice::default(),
            decision_cost: view.decision_cost,
        };
        let events = events.into_iter().map(|event| ("here".to_owned(), event)).collect();
        JournalTail { last: Some((Session { id: 1, start }, tick)), events }
    }

    /// What a daemon in the boot `boot_id` inherits whose ticks are a second apart, and which was
    /// started `age` after the last tick.
    fn inherited_after(age: Duration, tail: JournalTail, boot_id: &str) -> Inherited {
        let last = tail.last.as_ref().map_or(Timestamp::ZERO, |(_, tick)| tick.snapshot.taken_at);
        Inherited::of(tail, boot_id, last + age, Duration::from_secs(1))
    }

    fn inherited(tail: JournalTail, boot_id: &str) -> Inherited {
        inherited_after(Duration::from_secs(2), tail, boot_id)
    }

    #[test]
    fn an_old_tick_leaves_guests_no_promises() {
        let later = Inherited::AGE_MAX + Duration::from_millis(1);
        for (age, is_old) in
            [(Inherited::AGE_MAX, false), (later, true), (Duration::from_secs(3600), true)]
        {
            let observe = command(Command::SetMode(Mode::Observe), Ok(String::new()));
            let Inherited { restart, credits, mode } =
                inherited_after(age, tail(true, vec![observe]), "here");
            assert_eq!(restart.guests.is_empty(), is_old, "{age:?}");
            assert!(restart.paused && !credits.is_empty(), "{age:?}");
            assert_eq!(mode.unwrap().in_force(), Mode::Observe, "{age:?}");
        }
    }

    #[test]
    fn slow_ticks_may_be_older() {
        let guests = |period| {
            let tail = tail(false, vec![]);
            let now = tail.last.as_ref().unwrap().1.snapshot.taken_at + Duration::from_secs(100);
            Inherited::of(tail, "here", now, Duration::from_secs(period)).restart.guests.len()
        };
        assert_eq!((guests(30), guests(60)), (0, 1));
    }

    #[test]
    fn promises_outlive_a_daemon_and_credits_a_boot() {
        let same = inherited(tail(false, vec![]), "here");
        let [grow] = &same.restart.guests[..] else { panic!("{:?}", same.restart) };
        assert_eq!(grow.process.pid, 7);
        assert!(grow.target > Some(Bytes::ZERO), "{grow:?}");
        let rebooted = inherited(tail(true, vec![]), "there");
        assert_eq!(rebooted.restart, Restart::default());
        assert_eq!(rebooted.credits, same.credits);
        assert_eq!(same.credits, [("grow".parse().unwrap(), 55)]);
    }

    #[test]
    fn the_last_pause_or_resume_counts() {
        let ok = || Ok(String::new());
        let paused = |before, events| inherited(tail(before, events), "here").restart.paused;
        assert!(paused(true, vec![]));
        assert!(paused(false, vec![command(Command::Pause, ok())]));
        assert!(!paused(true, vec![command(Command::Resume, ok())]));
        let again = vec![command(Command::Resume, ok()), command(Command::Pause, ok())];
        assert!(paused(false, again));
        assert!(!paused(false, vec![command(Command::Pause, Err("busy".to_owned()))]));
    }

    #[test]
    fn a_pause_counts_before_any_tick_and_until_a_reboot() {
        let mut tail = tail(false, vec![command(Command::Pause, Ok(String::new()))]);
        assert!(!inherited(tail.clone(), "there").restart.paused);
        tail.last = None;
        assert!(inherited(tail, "here").restart.paused);
    }
}
