//! Strikes of faults, drawn beforehand.
//!
//! Idea: a strike contains everything that it needs, so that a run can be repeated without some
//! strikes.
//! Limits: rates are per tick.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::fault::{Fault, Seam, Strikes};

/// The number of ticks with faults.
pub(crate) const STORM_TICKS: u32 = 240;

/// One fault at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// The tick before which it strikes, from 1.
    pub tick: u32,
    /// The kind.
    pub fault: Fault,
    /// The index of the guest, for kinds that strike a guest.
    pub guest: usize,
    /// How long it lasts, for kinds that last.
    pub lasting: Duration,
    /// How much, in the kind's own unit: seconds of a clock or age, a share, a seed for the damage.
    pub amount: u64,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strike { tick, fault, guest, lasting, amount } = self;
        write!(f, "tick {tick}: {}", fault.code())?;
        match fault {
            Fault::Stall
            | Fault::Stop
            | Fault::Silence
            | Fault::HideResident
            | Fault::Migrate
            | Fault::Depart
            | Fault::Arrive
            | Fault::Panic
            | Fault::SilenceAgent
            | Fault::FloodByAgent
            | Fault::CycleAgent
            | Fault::CallWithoutNeed
            | Fault::LieByAgent
            | Fault::GarbleAgent => write!(f, " of g{guest} for {:.1} s", lasting.as_secs_f64()),
            Fault::HangSwap
            | Fault::Pause
            | Fault::LoseDisk
            | Fault::FailReads
            | Fault::FailWrites
            | Fault::FailSyncs
            | Fault::FillDisk => write!(f, " for {:.1} s", lasting.as_secs_f64()),
            Fault::FillSwap | Fault::SlowSwap => {
                write!(f, " for {:.1} s, drawn from {amount}", lasting.as_secs_f64())
            }
            Fault::HoldBytes
            | Fault::GreetLate
            | Fault::ForgeReplies
            | Fault::FalseActual
            | Fault::Exit
            | Fault::TakeCarried => {
                write!(f, " of g{guest} for {:.1} s, drawn from {amount}", lasting.as_secs_f64())
            }
            Fault::DoubleBytes
            | Fault::SwapReplies
            | Fault::RefuseCommands
            | Fault::DoubleEvents
            | Fault::SetBounds => write!(f, " of g{guest}, drawn from {amount}"),
            Fault::CrashInAct => write!(f, ", drawn from {amount}"),
            Fault::AgeResident => write!(f, " of g{guest} to {amount} s"),
            Fault::SetGuest => write!(f, " g{guest} to {amount} shares"),
            Fault::Suspend | Fault::JumpWall => write!(f, " by {amount} s"),
            Fault::AbandonMove => write!(f, " of g{guest}"),
            fault if fault.strikes() != Strikes::Other => write!(f, " of g{guest}"),
            _ => Ok(()),
        }
    }
}

/// All strikes of the kinds of one seam. One in `one_in` kinds strikes at all.
pub(crate) fn strikes(rng: &mut Rng, seam: Seam, one_in: u32, guests: usize) -> Vec<Strike> {
    let mut rates = Vec::new();
    for &fault in Fault::ALL.iter().filter(|fault| fault.seam() == seam) {
        if rng.u32(0..one_in) == 0 {
            // Rates are in parts of 10,000.
            rates.push((fault, rng.u32(20..600)));
        }
    }
    let mut strikes = Vec::new();
    for tick in 1..=STORM_TICKS {
        let struck: Vec<Fault> = rates
            .iter()
            .filter_map(|&(fault, rate)| (rng.u32(0..10_000) < rate).then_some(fault))
            .collect();
        for fault in struck {
            let lasting = Duration::from_millis(rng.u64(300..25_000));
            let guest = rng.usize(0..guests);
            let amount = amount(fault, rng);
            strikes.push(Strike { tick, fault, guest, lasting, amount });
        }
    }
    strikes
}

fn amount(fault: Fault, rng: &mut Rng) -> u64 {
    match fault {
        Fault::AgeResident => rng.u64(0..9),
        Fault::Suspend => rng.u64(5..7200),
        Fault::JumpWall => rng.u64(0..100_000),
        Fault::SetGuest => rng.u32(500..2000).into(),
        fault if fault.seam() != Seam::World => rng.u64(..),
        _ => 0,
    }
}
