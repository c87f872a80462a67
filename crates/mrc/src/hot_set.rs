//! Miss ratios over all accesses, where a hot set hides most of them.
//!
//! Trapping every access is too dear, so MEB §3.4 lets the pages that trapped last keep their
//! permission: a FIFO of `HSS` pages whose accesses nobody sees. A curve of what still traps is one
//! of misses of the hot set: all its distances are above `HSS`, and its ratios are of the wrong
//! whole.
//!
//! Idea: hidden accesses are hits. While a page is in the FIFO fewer than `HSS` others enter, and
//! only they and the `HSS` that were there can be accessed, so the distance of a hidden access is
//! below `2 × HSS`. Added back with these distances ([`with_hidden`]) they make the ratio one of real
//! accesses; only for memory smaller than that does it matter how they are spread, and they are
//! spread so that each doubling of the distance gets as many.
//!
//! How many there were is told by a known total of accesses, or by *watched* entries: one in so many
//! enters the FIFO like any other, but without permission, so that each access to it is seen while
//! it is there. Watching entries rather than chosen pages is what keeps the estimate from hanging on
//! whether the hottest page was chosen: the hottest pages enter again and again.
//!
//! TABLE
//!
//! Cost: O(1) an access. Source: MEB §3.4; the correction is ours.
//! Limits: a page's place in the LRU order is that of its last trap, so distances of trapped
//! accesses stay approximate; a watched page that is very hot traps on each access until it leaves.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::Histogram;

/// What became of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It trapped: the page was not in the hot set, and is now.
    Trapped,
    /// It trapped although the page is in the hot set: it is one of the watched.
    Watched,
    /// Nobody saw it.
    Hidden,
}

/// Accesses since an interval started, as far as they are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// [`Access::Trapped`] ones.
    pub trapped: u64,
    /// [`Access::Watched`] ones.
    pub watched: u64,
}

impl Seen {
    /// Accesses to the hot set, where all accesses are known to be `total`.
    #[must_use]
    pub fn hidden_of_total(self, total: u64) -> u64 {
        total.saturating_sub(self.trapped)
    }

    /// Accesses to the hot set, estimated from the watched ones, where one entry in `watch_every`
    /// was watched.
    #[must_use]
    pub fn hidden_of_watched(self, watch_every: u32) -> u64 {
        self.watched.saturating_mul(u64::from(watch_every))
    }
}

/// The pages with permission, first in first out.
#[derive(Clone, Debug)]
pub struct HotSet {
    pages_max: usize,
    /// Of so many entries one is watched; 0 watches none.
    watch_every: u32,
    queue: VecDeque<u64>,
    /// Those in the queue, and whether they are watched.
    members: HashMap<u64, bool>,
    entered: u64,
    seen: Seen,
}

impl HotSet {
    /// A hot set of up to `pages_max` pages (0 hides nothing), that watches one entry in
    /// `watch_every` (0 watches none).
    #[must_use]
    pub fn new(pages_max: usize, watch_every: u32) -> Self {
        Self {
            pages_max,
            watch_every,
            queue: VecDeque::new(),
            members: HashMap::new(),
            entered: 0,
            seen: Seen::default(),
        }
    }

    /// Most pages it holds.
    #[must_use]
    pub fn pages_max(&self) -> usize {
        self.pages_max
    }

    /// What was seen since the interval started.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// Starts an interval: counts start anew, the hot set stays.
    pub fn start_interval(&mut self) {
        self.seen = Seen::default();
    }

    /// Accesses `page`. One that is [`Access::Trapped`] belongs in the LRU stack, no other.
    pub fn access(&mut self, page: u64) -> Access {
        match self.members.get(&page) {
            Some(false) => Access::Hidden,
            Some(true) => {
                self.seen.watched += 1;
                Access::Watched
            }
            None => {
                self.seen.trapped += 1;
                self.enter(page);
                Access::Trapped
            }
        }
    }

    /// Changes the size; the pages that entered first lose their permission.
    pub fn resize(&mut self, pages_max: usize) {
        self.pages_max = pages_max;
        self.shrink_to(pages_max);
    }

    fn enter(&mut self, page: u64) {
        if self.pages_max == 0 {
            return;
        }
        self.shrink_to(self.pages_max - 1);
        self.queue.push_back(page);
        self.members.insert(page, self.is_watched());
        self.entered += 1;
    }

    /// Of each `watch_every` entries a different one, lest it be the same page each time round.
    fn is_watched(&self) -> bool {
        let Some(round) = self.entered.checked_div(u64::from(self.watch_every)) else {
            return false;
        };
        let hash = (round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let chosen = ((hash >> 32) * u64::from(self.watch_every)) >> 32;
        self.entered % u64::from(self.watch_every) == chosen
    }

    fn shrink_to(&mut self, pages: usize) {
        while self.queue.len() > pages {
            let first = self.queue.pop_front();
            first.map(|page| self.members.remove(&page));
        }
    }
}

/// The histogram of trapped accesses with `hidden` accesses added, that found their page in a hot set
/// of `hot_set` tags: spread over the distances below `2 × hot_set`, as many over each doubling.
///
/// # Panics
/// When `hidden` is negative or not finite.
#[must_use]
pub fn with_hidden(trapped: &Histogram, hidden: f64, hot_set: u64) -> Histogram {
    let mut all = trapped.clone();
    let end = hot_set.saturating_mul(2).max(2);
    let whole = (end as f64).ln();
    // Steps of 1/64, which a log-linear histogram cannot tell apart, keep it short.
    let mut distance = 1;
    while distance < end {
        let next = (distance + (distance / 64).max(1)).min(end);
        all.add(distance, hidden * (next as f64 / distance as f64).ln() / whole);
        distance = next;
    }
    all
}
