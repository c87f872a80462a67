//! Safeties that can be taken away, to see that a storm finds out.
//!
//! Idea: what is taken away is an input that the safety works on, or its setting; the code under
//! test stays what the daemon runs. Limits: safeties without either cannot be taken away so.

use std::time::Duration;

use ballast_control::Settings;
use ballast_model::{Bytes, Snapshot};

/// A safety that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The host does not see what processes occupy: claims are all there is.
    Evidence,
    /// A process that takes another's name is not told apart.
    Identity,
    /// Claims are believed without evidence.
    Belief,
    /// Statistics never get stale.
    Staleness,
    /// Nothing is paged out, whoever owes what.
    Paging,
    /// An order counts as carried out, whatever became of it.
    Outcomes,
    /// Guests' claims of what they hold are taken for nothing but half of it.
    Allocation,
    /// Floors are not known.
    Floors,
    /// A daemon knows nothing of the last one's promises.
    Journal,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 9] = [
        Sabotage::Evidence,
        Sabotage::Identity,
        Sabotage::Belief,
        Sabotage::Staleness,
        Sabotage::Paging,
        Sabotage::Outcomes,
        Sabotage::Allocation,
        Sabotage::Floors,
        Sabotage::Journal,
    ];

    /// Stable word for machines and the command line.
    pub const fn code(self) -> &'static str {
        match self {
            Sabotage::Evidence => "evidence",
            Sabotage::Identity => "identity",
            Sabotage::Belief => "belief",
            Sabotage::Staleness => "staleness",
            Sabotage::Paging => "paging",
            Sabotage::Outcomes => "outcomes",
            Sabotage::Allocation => "allocation",
            Sabotage::Floors => "floors",
            Sabotage::Journal => "journal",
        }
    }

    /// The sabotage with this word.
    pub fn from_code(code: &str) -> Option<Sabotage> {
        Sabotage::ALL.into_iter().find(|it| it.code() == code)
    }

    pub(crate) fn set(self, settings: &mut Settings) {
        match self {
            Sabotage::Belief => settings.guard.believed_percent = 100_000,
            Sabotage::Staleness => settings.guard.stale_after = Duration::from_secs(1 << 30),
            Sabotage::Paging => settings.paging = None,
            Sabotage::Floors => settings.limits.default.floor = Some(Bytes::ZERO),
            Sabotage::Evidence
            | Sabotage::Identity
            | Sabotage::Outcomes
            | Sabotage::Allocation
            | Sabotage::Journal => {}
        }
    }

    /// What the engine is shown instead of `snapshot`.
    pub(crate) fn shown(self, snapshot: Snapshot) -> Snapshot {
        let (taken_at, host) = (snapshot.taken_at, snapshot.host.clone());
        let mut guests = snapshot.into_guests();
        for guest in &mut guests {
            match self {
                Sabotage::Evidence => (guest.resident, guest.overhead) = (None, None),
                Sabotage::Identity => guest.process = None,
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
}
