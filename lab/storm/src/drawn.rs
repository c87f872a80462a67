//! What a seed draws before anything runs: guests, host, settings, and every strike of a fault.
//!
//! Idea: strikes are drawn ahead, so that a run can be repeated without some of them: with the
//! offenders honest (`twin.rs`), or with ever fewer faults (`story.rs`). Every seed draws a rate for
//! every kind of fault, most of them zero, so that some seeds are storms of one kind and others of
//! many. Limits: rates are per second of virtual time.

use std::fmt;
use std::time::Duration;

use ballast_actuation::paging::SwapRules;
use ballast_control::Settings;
use ballast_model::{Bytes, PolicyName};
use fastrand::Rng;

use crate::fault::{Fault, Seam};
use crate::guest::StormGuest;

/// One seed in so many has its journal on a disk: its ticks cost ten times as much.
const DISK_SEEDS: u32 = 10;

/// Makes the numbers from which the disk's answers are drawn others than those of the seed.
const IO_NUMBERS: u64 = 1 << 40;

/// One seed in so many runs once more with its guests on a wire.
const WIRE_SEEDS: u64 = 3;

/// Makes the numbers from which faults on the wire are drawn others than those of the seed.
const WIRE_NUMBERS: u64 = 1 << 41;

/// One seed in so many, those that leave this over, is a duel: one honest guest in need, and one that
/// merely claims to be.
const DUEL_SEEDS: (u64, u64) = (50, 7);

/// Ticks under faults.
pub(crate) const STORM_TICKS: u32 = 240;

/// One fault at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Before which tick, from 1 on.
    pub tick: u32,
    /// The kind.
    pub fault: Fault,
    /// The number of the guest, for kinds that strike one.
    pub guest: usize,
    /// How long it lasts, for kinds that last.
    pub lasting: Duration,
    /// How much, in the kind's own unit: seconds of clocks and ages, shares, what damage is drawn from.
    pub amount: u64,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strike { tick, fault, guest, lasting, amount } = self;
        write!(f, "tick {tick}: {}", fault.code())?;
        match fault {
            Fault::Stall | Fault::Stop | Fault::Silence | Fault::HideResident => {
                write!(f, " of g{guest} for {:.1} s", lasting.as_secs_f64())
            }
            Fault::HangSwap
            | Fault::Pause
            | Fault::LoseDisk
            | Fault::FailReads
            | Fault::FailWrites
            | Fault::FailSyncs
            | Fault::FillDisk => write!(f, " for {:.1} s", lasting.as_secs_f64()),
            Fault::HoldBytes | Fault::GreetLate | Fault::ForgeReplies | Fault::FalseActual => {
                write!(f, " of g{guest} for {:.1} s, drawn from {amount}", lasting.as_secs_f64())
            }
            Fault::SilenceAgent
            | Fault::FloodByAgent
            | Fault::CycleAgent
            | Fault::CallWithoutNeed
            | Fault::LieByAgent
            | Fault::GarbleAgent => write!(f, " of g{guest} for {:.1} s", lasting.as_secs_f64()),
            Fault::DoubleBytes
            | Fault::SwapReplies
            | Fault::RefuseCommands
            | Fault::DoubleEvents => write!(f, " of g{guest}, drawn from {amount}"),
            Fault::AgeResident => write!(f, " of g{guest} to {amount} s"),
            Fault::SetGuest => write!(f, " g{guest} to {amount} shares"),
            Fault::Suspend | Fault::JumpWall => write!(f, " by {amount} s"),
            Fault::Reboot
            | Fault::Replace
            | Fault::HideMemory
            | Fault::ClaimTooMuch
            | Fault::TakeBack
            | Fault::Refuse
            | Fault::ClaimUse
            | Fault::Grow
            | Fault::CutLink
            | Fault::DoubleReplies
            | Fault::SwapIds => write!(f, " of g{guest}"),
            Fault::LoseOrder
            | Fault::LoseOutcome
            | Fault::DelayOrder
            | Fault::HideHost
            | Fault::CrashBeforeAct
            | Fault::CrashAfterAct
            | Fault::Reload
            | Fault::TearJournal
            | Fault::CutJournal
            | Fault::LosePower => Ok(()),
        }
    }
}

/// What a seed draws; sizes in MiB.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) guests: Vec<StormGuest>,
    /// What guests may hold in all.
    pub(crate) budget: u64,
    /// The host's memory, and its swap.
    pub(crate) memory: u64,
    pub(crate) swap: u64,
    pub(crate) settings: Settings,
    /// Whether the journal is on a disk, in a file as the daemon's.
    pub(crate) has_disk: bool,
    /// Whether hypervisors are heard by QMP, from bytes.
    pub(crate) has_wire: bool,
    /// In the order in which they strike.
    pub(crate) strikes: Vec<Strike>,
}

impl Drawn {
    /// What a seed runs: guests that are simply heard and, for some seeds, the same on a wire.
    pub(crate) fn all_of(seed: u64) -> Vec<Drawn> {
        let drawn = Drawn::of(seed);
        let wired = seed.is_multiple_of(WIRE_SEEDS).then(|| drawn.clone().wired(seed));
        [drawn].into_iter().chain(wired).collect()
    }

    /// The same guests and faults on a wire, with agents, and faults of these; without a disk.
    fn wired(mut self, seed: u64) -> Drawn {
        let mut rng = Rng::with_seed(seed ^ WIRE_NUMBERS);
        self.strikes.retain(|strike| strike.fault.seam() == Seam::World);
        self.strikes.extend(strikes(&mut rng, Seam::Wire, 3, self.guests.len()));
        self.strikes.extend(strikes(&mut rng, Seam::Agent, 3, self.guests.len()));
        self.strikes.sort_by_key(|strike| strike.tick);
        Drawn { has_disk: false, has_wire: true, ..self }
    }

    fn of(seed: u64) -> Drawn {
        let mut rng = Rng::with_seed(seed);
        if seed % DUEL_SEEDS.0 == DUEL_SEEDS.1 {
            return Drawn::duel(&mut rng);
        }
        let count = rng.u64(2..7);
        let mut guests = Vec::new();
        for number in 0..count {
            let boot = rng.u64(512..4096);
            let wants = rng.u64(100..boot * 9 / 10);
            let is_offender = number > 0 && rng.u32(0..3) == 0;
            guests.push(guest(&mut rng, number, boot, wants, is_offender));
        }
        let held = guests.iter().map(|guest| guest.holds).sum::<u64>();
        let budget = held + rng.u64(0..1500);
        let policies = [PolicyName::Static, PolicyName::SelfScheduling, PolicyName::Global];
        let settings = settings(policies[rng.usize(0..policies.len())], budget);
        let mut strikes = strikes(&mut rng, Seam::World, 3, guests.len());
        // What later versions of the storm draw comes from numbers of its own: seeds stay what they
        // were.
        let mut rng = Rng::with_seed(!seed);
        let has_disk = rng.u32(0..DISK_SEEDS) == 0;
        if has_disk {
            strikes.extend(self::strikes(&mut rng, Seam::Disk, 2, guests.len()));
            let mut rng = Rng::with_seed(seed ^ IO_NUMBERS);
            strikes.extend(self::strikes(&mut rng, Seam::Io, 2, guests.len()));
        }
        strikes.sort_by_key(|strike| strike.tick);
        Drawn { has_disk, strikes, ..Drawn::calm(guests, budget, settings) }
    }

    /// Two guests: the first needs most of what there is, the second little, and says otherwise.
    fn duel(rng: &mut Rng) -> Drawn {
        let boot = rng.u64(512..4096);
        let wants = boot * rng.u64(6..9) / 10;
        // An odd size: it has swap, so that it is not left what it claims to use.
        let liar = 2 * rng.u64(256..2048) + 1;
        let guests = vec![guest(rng, 0, boot, wants, false), guest(rng, 1, liar, 100, true)];
        let budget = guests.iter().map(|guest| guest.holds).sum();
        let policies = [PolicyName::SelfScheduling, PolicyName::Global];
        let settings = settings(policies[rng.usize(0..policies.len())], budget);
        let claims = Strike {
            tick: rng.u32(1..STORM_TICKS / 2),
            fault: Fault::ClaimUse,
            guest: 1,
            lasting: Duration::ZERO,
            amount: 0,
        };
        Drawn { strikes: vec![claims], ..Drawn::calm(guests, budget, settings) }
    }

    /// Without a fault, and with a journal in memory.
    fn calm(guests: Vec<StormGuest>, budget: u64, settings: Settings) -> Drawn {
        let most = guests.iter().map(|guest| guest.boot + 64).sum::<u64>();
        let (memory, swap) = (most + budget, 2 * most);
        Drawn {
            guests,
            budget,
            memory,
            swap,
            settings,
            has_disk: false,
            has_wire: false,
            strikes: Vec::new(),
        }
    }

    /// Host and guests, a line each.
    pub(crate) fn scene(&self) -> Vec<String> {
        let policy = self.settings.policy;
        let mut lines =
            vec![format!("policy {policy}, {} MiB for {} guests", self.budget, self.guests.len())];
        for guest in &self.guests {
            let StormGuest { id, boot, holds, wants, rate, .. } = guest;
            let kind = if guest.is_offender { "offender" } else { "honest" };
            lines.push(format!(
                "{id}: {kind}, {boot} MiB, holds {holds}, uses {wants}, gives {rate} a second"
            ));
        }
        lines
    }
}

/// A guest that holds half of what it was booted with.
fn guest(rng: &mut Rng, number: u64, boot: u64, wants: u64, is_offender: bool) -> StormGuest {
    let id = format!("g{number}").parse().expect("a name");
    let mut guest = StormGuest::new(id, boot, (boot / 2).max(256), wants, is_offender);
    guest.rate = rng.u64(20..400);
    guest
}

fn settings(policy: PolicyName, budget: u64) -> Settings {
    let mut settings = Settings::new(policy);
    settings.guard.budget = Some(Bytes::mib(budget));
    settings.guard.host_reserve = Bytes::mib(256);
    settings.hotplug = None;
    settings.transfer_tick = Duration::from_millis(500);
    settings.paging = Some(SwapRules { use_max_percent: 95, reserve: Bytes::ZERO });
    settings
}

/// Every strike of the kinds of one seam. One kind in `one_in` strikes at all.
fn strikes(rng: &mut Rng, seam: Seam, one_in: u32, guests: usize) -> Vec<Strike> {
    let mut rates = Vec::new();
    for &fault in Fault::ALL.iter().filter(|fault| fault.seam() == seam) {
        if rng.u32(0..one_in) == 0 {
            // Parts of 10,000.
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
