//! The kinds of fault, how often each strikes, and how often each did.
//!
//! Idea: every run draws a rate for every kind, most of them zero, so that some runs are storms of
//! one kind and others of many. Limits: rates are per second of virtual time.

use std::collections::BTreeMap;

use fastrand::Rng;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident => $code:literal),* $(,)?) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &'static [Fault] = &[$(Fault::$name),*];

            /// Stable word for machines.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Fault::$name => $code,)*
                }
            }
        }
    };
}

faults! {
    /// A guest's hypervisor does not answer for a while.
    Stall => "stall",
    /// A guest reboots: its balloon is empty and nothing is touched.
    Reboot => "reboot",
    /// A guest's process ends and another begins under the same name.
    Replace => "replace",
    /// A guest is stopped by its operator for a while.
    Stop => "stop",
    /// A guest's statistics stop for a while.
    Silence => "silence",
    /// An offender's driver claims to have given what it keeps.
    HideMemory => "hide-memory",
    /// An offender's driver claims to hold more than there is.
    ClaimTooMuch => "claim-too-much",
    /// An offender's driver takes back everything and fills it.
    TakeBack => "take-back",
    /// An offender's driver gives nothing.
    Refuse => "refuse",
    /// An offender claims to use everything it holds and to have no swap.
    ClaimUse => "claim-use",
    /// An offender's memory in use grows without end.
    Grow => "grow",
    /// An order to a guest is lost, and its outcome with it.
    LoseOrder => "lose-order",
    /// An order is carried out, and its outcome is lost.
    LoseOutcome => "lose-outcome",
    /// An order is carried out only at the next tick.
    DelayOrder => "delay-order",
    /// What a process occupies cannot be read.
    HideResident => "hide-resident",
    /// What a process occupies is some seconds old.
    AgeResident => "age-resident",
    /// The host's own figures cannot be read.
    HideHost => "hide-host",
    /// The host's swap does nothing for a while.
    HangSwap => "hang-swap",
    /// The daemon is killed after it decided and before it acted.
    CrashBeforeAct => "crash-before-act",
    /// The daemon is killed after it acted and before it recorded.
    CrashAfterAct => "crash-after-act",
    /// The machine sleeps.
    Suspend => "suspend",
    /// The wall clock jumps.
    JumpWall => "jump-wall",
    /// An operator pauses and resumes.
    Pause => "pause",
    /// An operator sets a guest's limits.
    SetGuest => "set-guest",
    /// The configuration is read again.
    Reload => "reload",
}

/// How often each kind strikes, per second, as parts of 10,000.
#[derive(Clone, Debug)]
pub(crate) struct Rates(BTreeMap<Fault, u32>);

impl Rates {
    /// Rates of one run: a third of the kinds strike at all.
    pub(crate) fn draw(rng: &mut Rng) -> Rates {
        let mut rates = BTreeMap::new();
        for &fault in Fault::ALL {
            if rng.u32(0..3) == 0 {
                rates.insert(fault, rng.u32(20..600));
            }
        }
        Rates(rates)
    }

    /// The kinds that strike in one second.
    pub(crate) fn strike(&self, rng: &mut Rng) -> Vec<Fault> {
        let strikes =
            |(&fault, &rate): (&Fault, &u32)| (rng.u32(0..10_000) < rate).then_some(fault);
        self.0.iter().filter_map(strikes).collect()
    }
}

/// How often each kind struck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected(BTreeMap<Fault, u64>);

impl Injected {
    pub(crate) fn count(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// Adds what another run injected.
    pub fn add(&mut self, other: &Injected) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each kind with its count; kinds that never struck have zero.
    pub fn by_kind(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.iter().map(|fault| (*fault, self.0.get(fault).copied().unwrap_or_default()))
    }
}
