//! Safeties that can be taken away, to check that a storm notices.
//!
//! Idea: a sabotage changes an input of the safety, its setting, or what the world does with its
//! result; the code under test stays the daemon's. Limits: a safety without any of these cannot be
//! taken away in this way.

use std::time::Duration;

use ballast_control::Settings;
use ballast_model::{Bytes, Handover, Restart, RunState, Snapshot};

use crate::drawn::Drawn;
use crate::fault::Fault;

macro_rules! sabotages {
    ($($(#[$doc:meta])* $name:ident => $code:literal),* $(,)?) => {
        /// A safety to take away.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Sabotage {
            $($(#[$doc])* $name,)*
        }

        impl Sabotage {
            /// All sabotages.
            pub const ALL: &'static [Sabotage] = &[$(Sabotage::$name),*];

            /// Stable word for machines and the command line.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Sabotage::$name => $code,)*
                }
            }
        }
    };
}

sabotages! {
    /// The host does not see how much processes occupy, so there are only claims.
    Evidence => "evidence",
    /// A new process under a guest's name is taken for the old one.
    Identity => "identity",
    /// Claims are believed without evidence.
    Belief => "belief",
    /// Statistics never become stale.
    Staleness => "staleness",
    /// Nothing is paged out, whatever guests owe.
    Paging => "paging",
    /// Guests that owe memory should be paged out, but are not.
    Caps => "caps",
    /// Every order counts as carried out.
    Outcomes => "outcomes",
    /// The daemon sees only half of what guests claim to hold.
    Allocation => "allocation",
    /// The daemon does not know floors.
    Floors => "floors",
    /// Memory is granted at once, not after it was released.
    Grants => "grants",
    /// Orders are carried out that were not checked: half of the checked target.
    Checker => "checker",
    /// Nothing is held back for a guest that was found but not heard yet.
    Newcomers => "newcomers",
    /// A daemon knows none of the previous one's promises.
    Journal => "journal",
    /// A tick is recorded only after it is over.
    Intents => "intents",
    /// After a daemon's death guests are entitled to what they hold.
    Entitlement => "entitlement",
    /// A daemon knows the previous one's targets, but nothing else that it remembered.
    Handovers => "handovers",
    /// A pause ends with the daemon.
    Pause => "pause",
    /// The disk reports a sync as done but keeps nothing.
    Syncs => "syncs",
    /// Any reply of a hypervisor is taken for the answer to the current question.
    Replies => "replies",
    /// An agent that is started again gets new rations.
    Rations => "rations",
    /// All of the host's swap counts as free.
    Room => "room",
    /// A guest that its hypervisor moves or saves counts as paused by its operator.
    Moves => "moves",
    /// Memory that is kept free for guests that are to come is granted to others.
    Promises => "promises",
}

impl Sabotage {
    /// The sabotage with this word.
    pub fn from_code(code: &str) -> Option<Sabotage> {
        Sabotage::ALL.iter().copied().find(|it| it.code() == code)
    }

    /// Whether the safety matters in a run; if not, there is nothing to find.
    pub(crate) fn can_show_in(self, drawn: &Drawn) -> bool {
        let has = |fault: Fault| drawn.strikes.iter().any(|strike| strike.fault == fault);
        match self {
            Sabotage::Syncs => has(Fault::LosePower),
            Sabotage::Replies | Sabotage::Rations => drawn.has_wire,
            Sabotage::Moves => has(Fault::Migrate),
            Sabotage::Pause => has(Fault::Pause),
            Sabotage::Promises => has(Fault::Arrive),
            _ => true,
        }
    }

    pub(crate) fn set(self, settings: &mut Settings) {
        match self {
            Sabotage::Belief => settings.guard.believed_percent = 100_000,
            Sabotage::Staleness => settings.guard.stale_after = Duration::from_secs(1 << 30),
            Sabotage::Paging => settings.paging = None,
            Sabotage::Floors => settings.limits.default.floor = Some(Bytes::ZERO),
            _ => {}
        }
    }

    /// The snapshot that the engine gets instead of `snapshot`.
    pub(crate) fn shown(self, snapshot: Snapshot) -> Snapshot {
        let (taken_at, mut host) = (snapshot.taken_at, snapshot.host.clone());
        if self == Sabotage::Room {
            host.swap_free = host.swap_total;
        }
        let mut guests = snapshot.into_guests();
        for guest in &mut guests {
            match self {
                Sabotage::Evidence => (guest.resident, guest.overhead) = (None, None),
                Sabotage::Identity => guest.process = None,
                Sabotage::Moves if matches!(guest.run_state, Some(RunState::Other(_))) => {
                    guest.run_state = Some(RunState::Paused);
                }
                Sabotage::Allocation => {
                    if let Some(holds) = &mut guest.allocation {
                        holds.value = holds.value.fraction(1, 2);
                    }
                }
                _ => {}
            }
        }
        Snapshot::new(taken_at, host, guests)
    }

    /// What a new daemon finds of the previous one instead of `left`.
    pub(crate) fn left(self, mut left: Restart) -> Restart {
        match self {
            Sabotage::Journal => return Restart::default(),
            Sabotage::Pause => left.paused = false,
            _ => {}
        }
        for guest in &mut left.guests {
            match self {
                Sabotage::Entitlement => {
                    guest.target = guest.held.or(guest.target);
                    (guest.handover.granted, guest.handover.checked) = (None, None);
                }
                Sabotage::Handovers => {
                    guest.handover = Handover::nothing(guest.handover.guest.clone());
                }
                _ => {}
            }
        }
        left
    }
}
