//! The host's memory and swap, and the effects of guests and paging on them.
//!
//! Idea: guests and the host itself never occupy more than the memory there is. A guest that
//! touches more makes the host's kernel write idle pages to swap first, then pages in use; if swap
//! has no room, the guest waits. Orders to page move what they can within the room there is.
//! Cost: O(n) a step. Limits: one speed for the daemon's orders, one for guests' reads; the memory
//! of the host itself is constant.

use std::time::Duration;

use ballast_actuation::fence::FenceOrder;
use ballast_model::{Bytes, GuestId, HostSample, Mechanism, Paging};

use crate::guest::{KERNEL, OVERHEAD, StormGuest};

/// How much the host pages out in a second, MiB.
const PAGE_OUT_PER_S: u64 = 500;

/// How much a guest reads back in a second, MiB.
const READ_BACK_PER_S: u64 = 60;

/// The part of swap that the daemon leaves free by the storm's settings, in percent.
pub(crate) const SWAP_LEFT_PERCENT: u64 = 5;

/// A host's memory; sizes in MiB.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostMemory {
    pub(crate) total: u64,
    /// Memory that the host itself occupies.
    pub(crate) own: u64,
    pub(crate) swap: u64,
    /// Swap used by others (first field) until then.
    others: (u64, Duration),
    /// How much swap moves in a second (first field) until then.
    slow: (u64, Duration),
    pub(crate) swap_hangs_until: Duration,
    /// Memory that guests could not touch in the last step because neither memory nor swap had
    /// room.
    pub(crate) refused: u64,
}

impl HostMemory {
    pub(crate) fn new(total: u64, own: u64, swap: u64) -> HostMemory {
        HostMemory { total, own, swap, ..HostMemory::default() }
    }

    /// Others fill the free swap until `until`; between nothing and an eighth of it stays free.
    pub(crate) fn fill_swap(&mut self, guests: &[StormGuest], until: Duration, amount: u64) {
        let free = self.swap_free(guests) + self.others.0;
        let left = free * [0, 10, 30, 125][(amount % 4) as usize] / 1000;
        self.others = (free - left, until);
    }

    /// Swap moves only 5 to 44 MiB a second until `until`.
    pub(crate) fn slow_swap(&mut self, until: Duration, amount: u64) {
        self.slow = (5 + amount % 40, until);
    }

    pub(crate) fn swap_free(&self, guests: &[StormGuest]) -> u64 {
        let in_swap = guests.iter().map(|guest| guest.paged_out).sum::<u64>();
        self.swap.saturating_sub(in_swap + self.others.0)
    }

    /// Whether the daemon may page out, by the true state of swap.
    pub(crate) fn has_room(&self, guests: &[StormGuest]) -> bool {
        self.swap_free(guests) * 100 > self.swap * SWAP_LEFT_PERCENT
    }

    /// Whether swap works at its usual speed.
    pub(crate) fn is_quick(&self, now: Duration) -> bool {
        now >= self.swap_hangs_until.max(self.slow.1)
    }

    /// Memory that the guests' processes occupy.
    pub(crate) fn resident(guests: &[StormGuest]) -> u64 {
        guests.iter().filter(|guest| !guest.is_gone()).map(|it| it.resident() + OVERHEAD).sum()
    }

    pub(crate) fn free(&self, guests: &[StormGuest]) -> u64 {
        self.total.saturating_sub(self.own + HostMemory::resident(guests))
    }

    /// The host's sample.
    pub(crate) fn sample(&self, guests: &[StormGuest]) -> HostSample {
        HostSample {
            merging: None,
            balloon_owner: None,
            memory_total: Some(Bytes::mib(self.total)),
            memory_available: Some(Bytes::mib(self.free(guests))),
            swap_total: Some(Bytes::mib(self.swap)),
            swap_free: Some(Bytes::mib(self.swap_free(guests))),
            pressure: None,
        }
    }

    /// Lets time pass.
    pub(crate) fn step(
        &mut self,
        guests: &mut [StormGuest],
        paging: &[Paging],
        fences: &[FenceOrder],
        now: Duration,
        passed: Duration,
    ) {
        let share = |per_s: u64| (u128::from(per_s) * passed.as_millis() / 1000) as u64;
        self.others.0 = if now < self.others.1 { self.others.0 } else { 0 };
        let slow = (now < self.slow.1).then(|| share(self.slow.0));
        for place in 0..guests.len() {
            let guest = &mut guests[place];
            if guest.leaves_at.is_some_and(|at| now >= at) {
                guest.exit(Duration::MAX);
            }
            // A process that does not have its first memory yet starts later.
            let is_due = guest.is_gone() && now >= guest.gone_until;
            if is_due && self.free(guests) >= OVERHEAD {
                guests[place].come_back();
            }
        }
        let mut touched: Vec<u64> = guests.iter().map(|guest| guest.touched).collect();
        for (guest, before) in guests.iter_mut().zip(&mut touched) {
            let boots = guest.boots;
            guest.step(now, passed);
            if guest.boots > boots {
                *before = KERNEL;
            }
        }
        for (guest, before) in guests.iter_mut().zip(&touched) {
            let fence = fences.iter().find(|fence| fence.guest == guest.id);
            if let Some(fence) = fence.filter(|fence| fence.process == guest.process) {
                let height = (fence.height.get() >> 20).saturating_sub(OVERHEAD);
                let beyond = guest.resident().saturating_sub(height);
                guest.touched -= beyond.min(guest.touched.saturating_sub(*before));
            }
        }
        self.reclaim(guests, &touched, slow.unwrap_or(u64::MAX), now);
        let (mut room, most) = (self.free(guests), share(READ_BACK_PER_S));
        for guest in &mut *guests {
            room -= guest.read_back(now, most.min(slow.unwrap_or(most)).min(room));
        }
        if now >= self.swap_hangs_until {
            let budget = share(PAGE_OUT_PER_S);
            self.page(guests, paging, budget.min(slow.unwrap_or(budget)));
        }
        let occupied = self.own + HostMemory::resident(guests);
        assert!(occupied <= self.total, "{occupied} MiB of {} are occupied", self.total);
    }

    /// Writes to swap what guests touched beyond the memory there is; what finds no room counts as
    /// not touched.
    fn reclaim(&mut self, guests: &mut [StormGuest], before: &[u64], most: u64, now: Duration) {
        let occupied = self.own + HostMemory::resident(guests);
        let mut excess = occupied.saturating_sub(self.total);
        self.refused = 0;
        if excess == 0 {
            return;
        }
        let is_full = self.swap_free(guests) < excess;
        let works = now >= self.swap_hangs_until;
        let mut room = if works { self.swap_free(guests).min(most) } else { 0 };
        let idle = |guest: &StormGuest| guest.spare().saturating_sub(guest.paged_out);
        let takes: [fn(&StormGuest, u64) -> u64; 2] =
            [|_, idle| idle, |guest, _| guest.resident() / 2];
        for take in takes {
            for guest in guests.iter_mut() {
                let taken = take(guest, idle(guest)).min(excess).min(room);
                guest.paged_out += taken;
                (excess, room) = (excess - taken, room - taken);
            }
        }
        self.refused = if is_full { excess } else { 0 };
        // Guests that began to run or to fill memory wait for room.
        for (guest, before) in guests.iter_mut().zip(before) {
            let waits = match *before <= KERNEL {
                true => guest.resident(),
                false => guest.touched.saturating_sub(*before).min(guest.resident()),
            };
            let waits = waits.min(excess);
            guest.touched -= waits;
            excess -= waits;
        }
    }

    /// Carries out orders to page; they move at most `budget` in all.
    fn page(&self, guests: &mut [StormGuest], paging: &[Paging], mut budget: u64) {
        for order in paging {
            let (room, free) = (self.swap_free(guests), self.free(guests));
            let Some(guest) = guests.iter_mut().find(|it| it.id == order.guest) else {
                continue;
            };
            let to = (order.resident.get() >> 20).saturating_sub(OVERHEAD);
            match order.mechanism {
                Mechanism::PageOut => {
                    let moved = guest.resident().saturating_sub(to).min(budget).min(room);
                    guest.paged_out += moved;
                    budget -= moved;
                }
                Mechanism::PageIn => {
                    let missing = to.saturating_sub(guest.resident()).min(guest.paged_out);
                    let moved = missing.min(budget).min(free);
                    guest.paged_out -= moved;
                    budget -= moved;
                }
                Mechanism::Balloon | Mechanism::VirtioMem | Mechanism::Dimm => {}
            }
        }
    }
}

/// The guests that `paging` pages out.
pub(crate) fn paged_out(paging: &[Paging]) -> impl Iterator<Item = &GuestId> {
    let is_out = |it: &&Paging| it.mechanism == Mechanism::PageOut;
    paging.iter().filter(is_out).map(|it| &it.guest)
}
