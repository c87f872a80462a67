//! Whom the host pages out or in, all guests together.
//!
//! Idea (flexmemd §3.2.2): a guest that has not given what it was asked for within its grace does not have to be asked
//! any more: the host writes pages of its process to swap until what the process occupies is what the guest was asked
//! to hold. A guest that grows gets back what was taken so, before it touches it. As the host gets shorter, grace ends
//! and those who hold most beyond what the policy wants for them follow.
//!
//! What a process is to occupy: the guest's target and what the hypervisor needs for itself. The latter is learnt: the
//! most by which the process was seen to exceed what its guest held, within bounds. Too little would page out the
//! hypervisor's own memory, too much leaves some of the guest's: the bounds make either cost little.
//!
//! Cost: O(n) a tick, O(n log n) for those owing most first. Limits: never below a floor, never more swap than its
//! bound, at most so much a plan. Guests whose pages are locked are left alone. Nothing waits for free memory: where
//! there is none, nobody is paged in.

use std::time::Duration;

use ballast_model::{
    Bytes, Compliance, Generation, GuestId, GuestSample, HostSample, Mechanism, Move, Paging, Rung,
    Timestamp, Why,
};

/// A hypervisor's own memory, at least: a small QEMU's code, heap and stacks.
const OVERHEAD_MIN: Bytes = Bytes::mib(32);

/// At most: beyond that a process holds guest memory that its balloon does not give back.
const OVERHEAD_MAX: Bytes = Bytes::mib(128);

/// Less is not worth walking a process for.
const PAGING_MIN: Bytes = Bytes::mib(8);

/// Settings of paging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagingSettings {
    /// Most that one plan pages out, all guests together.
    pub out_max: Bytes,
    /// Most that one plan pages in, all guests together.
    pub in_max: Bytes,
    /// A guest found slow or stuck gets this much longer, while the host is not short.
    pub grace: Duration,
    /// A guest paged in because it grows is not paged out for this long, while the host is not short.
    pub hold: Duration,
    /// Part of the host's swap that may be in use, in hundredths.
    pub swap_percent_max: u64,
    /// Memory of the host that stays available: paging in takes nothing of it.
    pub reserve: Bytes,
    /// Figures older than this are not acted on.
    pub stale_after: Duration,
}

impl Default for PagingSettings {
    fn default() -> Self {
        PagingSettings {
            out_max: PagingSettings::OUT_MAX_DEFAULT,
            in_max: PagingSettings::IN_MAX_DEFAULT,
            grace: PagingSettings::GRACE_DEFAULT,
            hold: PagingSettings::HOLD_DEFAULT,
            swap_percent_max: PagingSettings::SWAP_PERCENT_MAX_DEFAULT,
            reserve: PagingSettings::RESERVE_DEFAULT,
            stale_after: PagingSettings::STALE_AFTER_DEFAULT,
        }
    }
}

impl PagingSettings {
    /// Pages go out at 0.6 to 2 GB/s: within a tick even the slower swap takes this.
    pub const OUT_MAX_DEFAULT: Bytes = Bytes::mib(512);
    /// As much in as out.
    pub const IN_MAX_DEFAULT: Bytes = Bytes::mib(512);
    /// The ledger finds a guest slow or stuck after a time of its own already.
    pub const GRACE_DEFAULT: Duration = Duration::from_secs(10);
    /// Three times the time that a look back takes to find a guest thrash.
    pub const HOLD_DEFAULT: Duration = Duration::from_secs(30);
    /// The rest is for the host's own processes: without swap their cold pages would stay instead.
    pub const SWAP_PERCENT_MAX_DEFAULT: u64 = 75;
    /// As the guard's.
    pub const RESERVE_DEFAULT: Bytes = Bytes::mib(512);
    /// As the guard's.
    pub const STALE_AFTER_DEFAULT: Duration = Duration::from_secs(10);
}

/// What is remembered of one guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paged {
    /// Most by which the process exceeded what its guest held.
    exceeded: Bytes,
    /// What it occupied before it was paged out, while not all of that is back.
    before: Option<Bytes>,
    paged_in_at: Option<Timestamp>,
}

impl Paged {
    /// Takes a sample in.
    pub fn observe(&mut self, sample: &GuestSample, settings: &PagingSettings) {
        let (Some(resident), Some(allocation)) = (sample.resident, sample.allocation) else {
            return;
        };
        if resident.age.max(allocation.age) > settings.stale_after {
            return;
        }
        let beyond = resident.value.saturating_sub(allocation.value);
        self.exceeded = self.exceeded.max(beyond);
        if self.before.is_some_and(|before| resident.value.saturating_add(PAGING_MIN) > before) {
            self.before = None;
        }
    }

    /// An order of a plan for this guest is being carried out.
    pub fn ordered(&mut self, paging: &Paging, from: Bytes, now: Timestamp) {
        match paging.mechanism {
            Mechanism::PageOut => self.before = Some(self.before.unwrap_or(from).max(from)),
            _ => self.paged_in_at = Some(now),
        }
    }

    /// The hypervisor's own memory, as far as it is known.
    pub fn overhead(&self) -> Bytes {
        self.exceeded.clamp(OVERHEAD_MIN, OVERHEAD_MAX)
    }

    /// Memory of it that the host has paged out and that did not come back, at a moment when its process occupies
    /// `resident`; zero if none ever was.
    pub fn out(&self, resident: Bytes) -> Bytes {
        self.before.map_or(Bytes::ZERO, |before| before.saturating_sub(resident))
    }
}

/// One guest, as far as paging goes by it.
#[derive(Clone, Copy, Debug)]
pub struct PagingGuest<'a> {
    /// What was seen of it.
    pub sample: &'a GuestSample,
    /// What is remembered of it.
    pub paged: &'a Paged,
    /// Whether it gives what it was asked for.
    pub compliance: Compliance,
    /// The target in force; `None`: nothing was ever asked.
    pub asked: Option<Bytes>,
    /// What the policy wants for it; `None`: it was not asked.
    pub desired: Option<Bytes>,
    /// Its guaranteed minimum; `None`: not known, and it is not paged out.
    pub floor: Option<Bytes>,
    /// Whether it is to hold more than it did.
    pub grows: bool,
    /// Whether it may be touched at all.
    pub managed: bool,
}

/// Everything a paging plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PagingInput<'a> {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The plan's number.
    pub generation: Generation,
    /// Orders are not gone on with after this.
    pub deadline: Timestamp,
    /// The host.
    pub host: &'a HostSample,
    /// How far it goes.
    pub rung: Rung,
    /// Every guest.
    pub guests: &'a [PagingGuest<'a>],
    /// Places in `guests`, of those who hold most beyond what the policy wants for them first.
    pub richest: &'a [usize],
    /// What the operator set.
    pub settings: &'a PagingSettings,
}

/// Why nobody is paged out though somebody should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPaging {
    /// The host has no swap.
    NoSwap,
    /// It is not known how much swap there is.
    SwapUnknown,
    /// As much of it is in use as may be.
    SwapFull {
        /// Not in use.
        free: Bytes,
        /// Configured.
        total: Bytes,
    },
}

impl NoPaging {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            NoPaging::NoSwap => "no-swap",
            NoPaging::SwapUnknown => "swap-unknown",
            NoPaging::SwapFull { .. } => "swap-full",
        }
    }
}

impl std::fmt::Display for NoPaging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoPaging::NoSwap => f.write_str("the host has no swap: turn some on, or lower floors"),
            NoPaging::SwapUnknown => f.write_str("the host's swap could not be read"),
            NoPaging::SwapFull { free, total } => {
                write!(f, "no more of the host's swap may be filled: {free} of {total} are free")
            }
        }
    }
}

/// Who is paged, and by how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagingPlan {
    /// Orders with their moves, each guest at most once.
    pub orders: Vec<(Paging, Move)>,
    /// Why nobody is paged out, where somebody should be.
    pub refused: Option<NoPaging>,
}

/// The paging of one tick.
pub fn plan_paging(input: &PagingInput<'_>) -> PagingPlan {
    let mut plan = PagingPlan::default();
    let outs = outs(input);
    if !outs.is_empty() {
        match swap_left(input) {
            Err(why) => plan.refused = Some(why),
            Ok(swap) => {
                let mut left = swap.min(input.settings.out_max);
                for out in outs {
                    let by = out.by.min(left).page_floor();
                    if by >= PAGING_MIN {
                        left = left.saturating_sub(by);
                        let to = out.resident.saturating_sub(by);
                        plan.orders.push(order(input, &out, Mechanism::PageOut, to));
                    }
                }
            }
        }
    }
    let available = input.host.memory_available.unwrap_or_default();
    let mut left = available.saturating_sub(input.settings.reserve).min(input.settings.in_max);
    for back in ins(input) {
        let by = back.by.min(left).page_floor();
        if by >= PAGING_MIN {
            left = left.saturating_sub(by);
            let to = back.resident.saturating_add(by);
            plan.orders.push(order(input, &back, Mechanism::PageIn, to));
        }
    }
    plan
}

/// A guest that should be paged, and how far.
struct Wish<'a> {
    id: &'a GuestId,
    resident: Bytes,
    by: Bytes,
    why: Why,
}

fn order(
    input: &PagingInput<'_>,
    wish: &Wish<'_>,
    mechanism: Mechanism,
    to: Bytes,
) -> (Paging, Move) {
    let paging = Paging {
        guest: wish.id.clone(),
        mechanism,
        resident: to,
        generation: input.generation,
        deadline: input.deadline,
    };
    (paging, Move { mechanism, from: wish.resident, to, why: wish.why.clone() })
}

/// Swap that may be filled.
fn swap_left(input: &PagingInput<'_>) -> Result<Bytes, NoPaging> {
    let total = input.host.swap_total.ok_or(NoPaging::SwapUnknown)?;
    if total == Bytes::ZERO {
        return Err(NoPaging::NoSwap);
    }
    let free = input.host.swap_free.ok_or(NoPaging::SwapUnknown)?;
    let used = total.saturating_sub(free);
    let left = total.fraction(input.settings.swap_percent_max.min(100), 100).saturating_sub(used);
    if left < PAGING_MIN { Err(NoPaging::SwapFull { free, total }) } else { Ok(left) }
}

/// What a guest's process occupies, if that may be acted on.
fn resident(guest: &PagingGuest<'_>, settings: &PagingSettings) -> Option<Bytes> {
    let resident = guest.sample.resident.filter(|resident| resident.age <= settings.stale_after)?;
    guest.managed.then_some(resident.value)
}

/// Those who owe, most first, then the richest in the order given, each once.
fn outs<'a>(input: &PagingInput<'a>) -> Vec<Wish<'a>> {
    let mut taken = vec![false; input.guests.len()];
    let mut owing: Vec<(usize, Wish<'a>)> = Vec::new();
    for (place, guest) in input.guests.iter().enumerate() {
        let Some(why) = owes(input, guest) else { continue };
        if let Some(wish) = wish(input, guest, guest.asked, why) {
            taken[place] = true;
            owing.push((place, wish));
        }
    }
    owing.sort_by_key(|(place, wish)| (std::cmp::Reverse(wish.by), *place));
    let mut wishes: Vec<Wish<'a>> = owing.into_iter().map(|(_, wish)| wish).collect();
    if input.rung >= Rung::ReclaimRichest {
        for &place in input.richest {
            let Some(guest) = input.guests.get(place) else { continue };
            if std::mem::replace(&mut taken[place], true) {
                continue;
            }
            wishes.extend(wish(input, guest, guest.desired, Why::HostShort { rung: input.rung }));
        }
    }
    wishes
}

/// Why a guest is paged out for what it was asked for, if it is.
fn owes(input: &PagingInput<'_>, guest: &PagingGuest<'_>) -> Option<Why> {
    let settings = input.settings;
    let short = input.rung >= Rung::ReclaimOwed;
    let held =
        guest.paged.paged_in_at.is_some_and(|at| input.now.saturating_since(at) < settings.hold);
    if held && !short {
        return None;
    }
    let holds = guest.sample.allocation?.value;
    let left = holds.saturating_sub(guest.asked?);
    let not_given = |asked| Some(Why::NotGiven { left, asked });
    match guest.compliance {
        Compliance::Slow { asked, .. } if short || asked >= settings.grace => not_given(asked),
        Compliance::Stuck { idle } if short || idle >= settings.grace => not_given(idle),
        Compliance::Releasing { .. } if short => Some(Why::HostShort { rung: input.rung }),
        _ => None,
    }
}

/// A wish to page a guest out down to what holding `target` means.
fn wish<'a>(
    input: &PagingInput<'a>,
    guest: &PagingGuest<'a>,
    target: Option<Bytes>,
    why: Why,
) -> Option<Wish<'a>> {
    let locked = guest.compliance == Compliance::Inhibited
        || guest.sample.capabilities.discard_inhibited == Some(true);
    if guest.grows || locked {
        return None;
    }
    let resident = resident(guest, input.settings)?;
    let least = target?.max(guest.floor?).saturating_add(guest.paged.overhead());
    let by = resident.saturating_sub(least);
    (by >= PAGING_MIN).then_some(Wish { id: &guest.sample.id, resident, by, why })
}

/// Guests that grow and have memory paged out, those with most of it first.
fn ins<'a>(input: &PagingInput<'a>) -> Vec<Wish<'a>> {
    if input.rung >= Rung::ReclaimRichest {
        return Vec::new();
    }
    let back = |guest: &PagingGuest<'a>| {
        let resident = resident(guest, input.settings).filter(|_| guest.grows)?;
        let most = guest.asked?.saturating_add(guest.paged.overhead()).saturating_sub(resident);
        let by = guest.paged.out(resident).min(most);
        (by >= PAGING_MIN).then_some(Wish { id: &guest.sample.id, resident, by, why: Why::Growing })
    };
    let mut wishes: Vec<Wish<'a>> = input.guests.iter().filter_map(back).collect();
    wishes.sort_by_key(|wish| std::cmp::Reverse(wish.by));
    wishes
}
