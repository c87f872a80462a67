//! What a seed draws before anything runs: guests, host, settings, and every strike of a fault.
//!
//! Idea: strikes are drawn beforehand, so that a run can be repeated without some of them: with
//! honest offenders (`twin.rs`), or with fewer and fewer faults (`story.rs`). Every seed draws a
//! rate for each kind of fault, and most rates are zero, so that some seeds are storms of one kind
//! and others of many. Limits: kinds of runs that were added later draw from separate random
//! numbers, so that a seed stays what it was.

use std::time::Duration;

use ballast_actuation::paging::SwapRules;
use ballast_control::Settings;
use ballast_model::{Bytes, PolicyName};
use fastrand::Rng;

use crate::fault::{Fault, Seam};
use crate::guest::{OVERHEAD, StormGuest};
use crate::host::SWAP_LEFT_PERCENT;
use crate::strike::{STORM_TICKS, Strike, strikes};

/// One in this many seeds has its journal on a disk; its ticks cost ten times as much.
const DISK_SEEDS: u32 = 10;

/// Mixed into the seed for the disk's random numbers, so that they differ from the others.
const IO_NUMBERS: u64 = 1 << 40;

/// One in this many seeds runs once more with its guests on a wire.
const WIRE_SEEDS: u64 = 3;

/// Mixed into the seed for the random numbers of faults on the wire.
const WIRE_NUMBERS: u64 = 1 << 41;

/// Seeds that run once more on a hard host: (divisor, remainder).
const HARD_SEEDS: (u64, u64) = (4, 1);

/// Mixed into the seed for the random numbers of that host.
const HARD_NUMBERS: u64 = 1 << 42;

/// Seeds that run once more on a host of a fleet: (divisor, remainder).
const FLEET_SEEDS: (u64, u64) = (6, 5);

/// Mixed into the seed for the random numbers of faults on such a host.
const FLEET_NUMBERS: u64 = 1 << 43;

/// Memory that the host keeps for itself, MiB.
const HOST_RESERVE: u64 = 256;

/// The policies of hard hosts: all that decide by themselves, the default one twice. `fcfs` and
/// `demand-proportional` act on requests, which come from agents on a wire.
const POLICIES: [PolicyName; 13] = [
    PolicyName::Static,
    PolicyName::SelfBalloon,
    PolicyName::SelfScheduling,
    PolicyName::Global,
    PolicyName::Global,
    PolicyName::Tws,
    PolicyName::Proportional,
    PolicyName::DirectAssign,
    PolicyName::Auction,
    PolicyName::RoundRobin,
    PolicyName::Meb,
    PolicyName::Fcfs,
    PolicyName::DemandProportional,
];

/// Seeds that are duels: (divisor, remainder). A duel has one honest guest in need, and one that
/// only claims to be.
const DUEL_SEEDS: (u64, u64) = (50, 7);

/// Everything that a seed draws; sizes in MiB.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) guests: Vec<StormGuest>,
    /// The memory that all guests together may hold.
    pub(crate) budget: u64,
    /// The host's memory, and its swap.
    pub(crate) memory: u64,
    pub(crate) swap: u64,
    /// The memory that the host itself occupies.
    pub(crate) own: u64,
    pub(crate) settings: Settings,
    /// Whether the journal is in a file on a disk, as the daemon's is.
    pub(crate) has_disk: bool,
    /// Whether hypervisors are asked over QMP, as bytes.
    pub(crate) has_wire: bool,
    /// The strikes in the order in which they happen.
    pub(crate) strikes: Vec<Strike>,
}

impl Drawn {
    /// All runs of a seed: one in which guests are sampled directly and, for some seeds, the same
    /// on a wire, on a hard host, or on a host of a fleet.
    pub(crate) fn all_of(seed: u64) -> Vec<Drawn> {
        let drawn = Drawn::of(seed);
        let wired = seed.is_multiple_of(WIRE_SEEDS).then(|| drawn.clone().wired(seed));
        let is_hard = seed % HARD_SEEDS.0 == HARD_SEEDS.1;
        let hard = is_hard.then(|| drawn.clone().on_hard_host(seed));
        let is_in_fleet = seed % FLEET_SEEDS.0 == FLEET_SEEDS.1;
        let in_fleet = is_in_fleet.then(|| drawn.clone().in_fleet(seed));
        [drawn].into_iter().chain(wired).chain(hard).chain(in_fleet).collect()
    }

    /// The same guests and faults on a host with little spare memory, under any policy, with
    /// additional faults; for some seeds on a wire, with a journal on a disk, or both.
    fn on_hard_host(mut self, seed: u64) -> Drawn {
        let mut rng = Rng::with_seed(seed ^ HARD_NUMBERS);
        let count = self.guests.len();
        let (has_wire, has_disk) = (rng.u32(0..3) == 0, rng.u32(0..6) == 0);
        self.settings.policy = POLICIES[rng.usize(0..POLICIES.len())];
        self.settings.limits.default.fence = rng.u32(0..3) == 0;
        self.guests.iter_mut().for_each(|guest| guest.tells_free = true);
        if rng.bool() {
            let (reserve, spare) = (rng.u64(0..192), rng.u64(0..100));
            self.own = rng.u64(100..500);
            self.budget =
                self.guests.iter().map(|guest| guest.holds).sum::<u64>() + rng.u64(0..200);
            (self.settings.guard.budget, self.settings.guard.host_reserve) =
                (Some(Bytes::mib(self.budget)), Bytes::mib(reserve));
            self.memory = self.own + reserve + self.budget + OVERHEAD * count as u64 + spare;
        }
        if rng.bool() {
            self.swap = rng.u64(0..=self.swap / 8);
        }
        let mut seams = vec![Seam::Hard];
        if has_wire {
            seams.extend([Seam::Wire, Seam::Agent]);
        }
        if has_disk {
            seams.extend([Seam::Disk, Seam::Io]);
        }
        self.strike_also(&mut rng, &seams, 3);
        Drawn { has_disk, has_wire, ..self }
    }

    /// The same guests and faults on a host that guests leave for other hosts and come back to; its
    /// journal is in memory.
    fn in_fleet(mut self, seed: u64) -> Drawn {
        let mut rng = Rng::with_seed(seed ^ FLEET_NUMBERS);
        self.strike_also(&mut rng, &[Seam::Fleet], 1);
        Drawn { has_disk: false, ..self }
    }

    /// The same guests and faults on a wire, with agents, and with faults of both; without a disk.
    fn wired(mut self, seed: u64) -> Drawn {
        let mut rng = Rng::with_seed(seed ^ WIRE_NUMBERS);
        self.strike_also(&mut rng, &[Seam::Wire, Seam::Agent], 3);
        Drawn { has_disk: false, has_wire: true, ..self }
    }

    /// Replaces all strikes outside of the world by those of some seams. One in `one_in` kinds
    /// strikes at all.
    fn strike_also(&mut self, rng: &mut Rng, seams: &[Seam], one_in: u32) {
        self.strikes.retain(|strike| strike.fault.seam() == Seam::World);
        for &seam in seams {
            self.strikes.extend(strikes(rng, seam, one_in, self.guests.len()));
        }
        self.strikes.sort_by_key(|strike| strike.tick);
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
        // Later versions of the storm draw from separate numbers, so that seeds stay what they
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

    /// Two guests: the first needs most of the memory; the second needs little and claims
    /// otherwise.
    fn duel(rng: &mut Rng) -> Drawn {
        let boot = rng.u64(512..4096);
        let wants = boot * rng.u64(6..9) / 10;
        // An odd size: the guest reports swap, so it is not simply left what it claims to use.
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

    /// A draw without faults, with a journal in memory.
    fn calm(guests: Vec<StormGuest>, budget: u64, settings: Settings) -> Drawn {
        let most = guests.iter().map(|guest| guest.boot + 64).sum::<u64>();
        let (memory, swap) = (most + budget, 2 * most);
        Drawn {
            guests,
            budget,
            memory,
            swap,
            own: 0,
            settings,
            has_disk: false,
            has_wire: false,
            strikes: Vec::new(),
        }
    }

    /// Host and guests, one line each.
    pub(crate) fn scene(&self) -> Vec<String> {
        let policy = self.settings.policy;
        let mut lines =
            vec![format!("policy {policy}, {} MiB for {} guests", self.budget, self.guests.len())];
        if self.own > 0 {
            let Drawn { memory, own, swap, .. } = self;
            lines.push(format!("host: {memory} MiB, {own} of these its own, {swap} MiB of swap"));
        }
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

/// A guest that holds half of its boot memory.
fn guest(rng: &mut Rng, number: u64, boot: u64, wants: u64, is_offender: bool) -> StormGuest {
    let id = format!("g{number}").parse().expect("a name");
    let mut guest = StormGuest::new(id, boot, (boot / 2).max(256), wants, is_offender);
    guest.rate = rng.u64(20..400);
    guest
}

fn settings(policy: PolicyName, budget: u64) -> Settings {
    let mut settings = Settings::new(policy);
    settings.guard.budget = Some(Bytes::mib(budget));
    settings.guard.host_reserve = Bytes::mib(HOST_RESERVE);
    settings.hotplug = None;
    settings.transfer_tick = Duration::from_millis(500);
    settings.paging =
        Some(SwapRules { use_max_percent: 100 - SWAP_LEFT_PERCENT, reserve: Bytes::ZERO });
    settings
}
