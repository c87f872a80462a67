//! What was requested of each guest, and whether it complies.
//!
//! Idea: a target is worth only what the guest makes of it. For each guest, the log keeps the
//! target in force and watches the allocation follow it:
//!
//! ```text
//!            asked to shrink            gave nothing for stuck_after
//! compliant ────────────────▶ releasing ────────────────────────────▶ stuck ◀─┐
//!     ▲                          │  ▲                                   │     │ nothing again:
//!     └──────── has given ───────┘  │     gives           after a pause │     │ twice the pause
//!                                   └──────────────── retrying ◀────────┘ ────┘
//! ```
//!
//! A guest that is releasing and should have finished by now is slow.
//!
//! A stuck guest keeps what it holds and takes no part in the division, even while it is asked
//! again: other guests must not be moved on the strength of memory that may never come.
//!
//! While nothing is moved (a pause, or observing), operators move memory by hand. Nothing is asked
//! of a guest then, so none is late, and afterwards its target is sent again.
//!
//! Cost: O(1) per guest and tick. Limits: knows nothing of other guests.

mod restart;

use std::time::Duration;

use ballast_model::{
    Bytes, Compliance, GuestLimits, GuestSample, HoldReason, LinkState, Timestamp,
};

use crate::swap_room::{min_without_swap, used_by};
use crate::{GuardSettings, Holding};

/// A guest within this much of its target has complied: balloons stop a little short when the last
/// pages are hard to find.
const COMPLIANCE_SLACK: Bytes = Bytes::mib(4);

/// A smaller decrease since the last mark is no progress.
const PROGRESS_MIN: Bytes = Bytes::mib(1);

/// The slowest rate, per second, at which a balloon is expected to take memory. The slowest seen
/// under swap load was 80 MB/s.
const RATE_MIN_PER_S: Bytes = Bytes::mib(32);

/// A guest's statistics belong to its allocation once that has been the same for this long before
/// them: devices give times in whole seconds.
const SETTLED_FOR: Duration = Duration::from_secs(1);

/// Samples further apart say nothing about the time between them.
const UNSEEN_MAX: Duration = Duration::from_secs(5);

/// A guest that seems to hold less than it may for this long is nudged.
const NUDGE_AFTER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, Default)]
enum Release {
    #[default]
    Settled,
    Releasing {
        mark: Bytes,
        progress_at: Timestamp,
        /// The target it moves to, when that was requested, and when it should have arrived.
        asked: Bytes,
        since: Timestamp,
        due: Timestamp,
    },
    Stuck {
        asked: Bytes,
        since: Timestamp,
        retry_at: Timestamp,
        pause: Duration,
    },
    Retrying {
        asked: Bytes,
        since: Timestamp,
        begun: Timestamp,
        mark: Bytes,
        pause: Duration,
    },
}

impl Release {
    /// The same while nothing is asked. A stuck guest is still to be asked again.
    fn suspended(self) -> Release {
        match self {
            Release::Settled | Release::Releasing { .. } => Release::Settled,
            Release::Stuck { .. } => self,
            Release::Retrying { asked, since, begun, pause, .. } => {
                Release::Stuck { asked, since, retry_at: begun, pause }
            }
        }
    }

    /// Excludes `unseen` from every time span that is measured.
    fn resume(&mut self, unseen: Duration) {
        let spans: &mut [&mut Timestamp] = match self {
            Release::Settled | Release::Stuck { .. } => return,
            Release::Releasing { progress_at, since, due, .. } => &mut [progress_at, since, due],
            Release::Retrying { since, begun, .. } => &mut [since, begun],
        };
        for moment in spans {
            **moment = **moment + unseen;
        }
    }

    /// The guest holds `over` more than it should and is releasing from now on.
    fn begin(allocation: Bytes, over: Bytes, now: Timestamp, settings: &GuardSettings) -> Release {
        let slowest = over.get() / RATE_MIN_PER_S.get();
        Release::Releasing {
            mark: allocation,
            progress_at: now,
            asked: allocation.saturating_sub(over),
            since: now,
            due: now + settings.release_grace + Duration::from_secs(slowest),
        }
    }
}

/// What was requested of one guest, and how it complied.
#[derive(Clone, Debug, Default)]
pub struct ComplianceLog {
    target: Option<Bytes>,
    /// The last target that was granted, or that the guest was to release to; more if operators
    /// gave it more since. Calling off a reduction grants nothing.
    granted: Option<Bytes>,
    /// The highest grant since the guest last complied, including the one in force then. At first,
    /// what it held when it was first granted anything.
    granted_lately: Bytes,
    /// While nothing is moved: what it held beyond its grant when that began, as far as it has not
    /// given that since.
    owed: Option<Bytes>,
    /// What it may hold on top of the target while memory is plugged in or out.
    transient_grant: Bytes,
    send_again: bool,
    /// The target in force has to be sent a page smaller. QEMU reports what the guest's driver
    /// wrote last, and a driver that starts with nothing to move writes nothing. So after a reboot
    /// QEMU reports the size from before, until the balloon moves.
    nudge: bool,
    last_seen: Option<Bytes>,
    /// What the host saw of that too, where it can see.
    proven: Bytes,
    /// When the guest was last seen.
    seen_at: Timestamp,
    /// When it first appeared; `None` before its first snapshot.
    known_since: Option<Timestamp>,
    changed_at: Timestamp,
    /// What it last claimed to hold, and since when.
    claimed: Option<(Bytes, Timestamp)>,
    /// What it used when its statistics last belonged to its allocation; more if it has said so
    /// since.
    used: Option<Bytes>,
    release: Release,
    /// Whether the host keeps the pages that its balloon takes.
    is_inhibited: bool,
}

impl ComplianceLog {
    /// The target in force.
    pub fn target(&self) -> Option<Bytes> {
        self.target
    }

    /// What it may hold on top of the target while memory is plugged in or out.
    pub fn transient_grant(&self) -> Bytes {
        self.transient_grant
    }

    /// The target in force plus the transient grant: the guest may hold this at any time.
    pub fn promised(&self) -> Option<Bytes> {
        self.target.map(|target| target.saturating_add(self.transient_grant))
    }

    /// A plan made from the last observed sample is carried out and moves the guest to `target`.
    /// `entitles`: the guest is granted that, and not just left it for the moment.
    pub fn record_target(&mut self, target: Bytes, entitles: bool) {
        self.target = Some(target);
        if entitles {
            self.grant(target);
        }
        self.send_again = false;
        self.nudge = false;
    }

    /// A stuck guest is asked to hold `ask` from now on.
    pub fn ask_anew(&mut self, ask: Bytes) {
        if let Release::Stuck { asked, .. } | Release::Retrying { asked, .. } = &mut self.release {
            *asked = ask;
            self.grant(ask);
        }
    }

    fn grant(&mut self, target: Bytes) {
        let had = self.granted.unwrap_or(self.proven);
        self.granted_lately = self.granted_lately.max(had).max(target);
        self.granted = Some(target);
    }

    /// The most it was entitled to since it last complied: while it releases memory, it may still
    /// use what it is about to release. `None`: nothing was granted yet.
    pub(crate) fn entitled_lately(&self) -> Option<Bytes> {
        Some(self.entitlement()?.max(self.granted_lately))
    }

    /// The last target that it was granted or was to release to. `None`: nothing was granted yet.
    pub fn granted(&self) -> Option<Bytes> {
        self.granted
    }

    /// What the guest may hold, whatever it claims and whether or not it answers: its last granted
    /// target plus the transient grant. `None`: nothing was granted yet.
    pub fn entitlement(&self) -> Option<Bytes> {
        Some(self.granted?.saturating_add(self.transient_grant))
    }

    /// Sets what the guest is promised beyond its target from now on.
    pub fn set_transient_grant(&mut self, amount: Bytes) {
        self.transient_grant = amount;
    }

    /// Sending a target failed, and it is unknown whether it reached the guest. It is sent again,
    /// and what it may have promised stays promised.
    pub fn record_send_failure(&mut self) {
        self.send_again = true;
    }

    /// What the guest was last seen to hold, even if it cannot be seen now: memory does not become
    /// free because its holder cannot be asked.
    pub fn last_seen(&self) -> Option<Bytes> {
        self.last_seen
    }

    /// How long the guest has been known.
    pub fn known_for(&self, now: Timestamp) -> Duration {
        self.known_since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }

    /// What a guest that does not comply was asked to hold; `None`: it complies.
    pub fn asked(&self) -> Option<Bytes> {
        match self.release {
            Release::Settled => None,
            // A target that only let the guest keep what it held is no entitlement; what it was
            // asked to hold while it was stuck is.
            Release::Releasing { .. } => self.entitlement().or(self.promised()),
            Release::Stuck { asked, .. } | Release::Retrying { asked, .. } => Some(asked),
        }
    }

    /// Whether the target in force has to be sent again.
    pub(crate) fn must_send_again(&self) -> bool {
        self.send_again || self.nudge
    }

    /// Whether that target has to be a page smaller, so that the balloon moves.
    pub(crate) fn must_nudge(&self) -> bool {
        self.nudge
    }

    /// What a stuck guest was asked to hold; `None`: it is not stuck.
    pub fn asked_of_stuck(&self) -> Option<Bytes> {
        match self.release {
            Release::Stuck { asked, .. } | Release::Retrying { asked, .. } => Some(asked),
            Release::Settled | Release::Releasing { .. } => None,
        }
    }

    /// Why a guest that does not comply is left alone; `None`: it is not.
    pub fn stuck(&self, now: Timestamp) -> Option<HoldReason> {
        let (asked, since, retry_in) = match self.release {
            Release::Stuck { asked, since, retry_at, .. } => {
                (asked, since, retry_at.saturating_since(now))
            }
            Release::Retrying { asked, since, .. } => (asked, since, Duration::ZERO),
            Release::Settled | Release::Releasing { .. } => return None,
        };
        Some(HoldReason::Stuck { idle: now.saturating_since(since), asked, retry_in })
    }

    /// The target that is sent again to a stuck guest in this tick.
    pub(crate) fn retrying(&self) -> Option<Bytes> {
        match self.release {
            Release::Retrying { asked, .. } => Some(asked),
            _ => None,
        }
    }

    /// Whether the guest does what it was asked for.
    pub fn compliance(&self, now: Timestamp) -> Compliance {
        match self.release {
            Release::Settled if self.is_inhibited => Compliance::Inhibited,
            Release::Settled => Compliance::Compliant,
            Release::Releasing { progress_at, since, due, .. } => {
                let left = match (self.last_seen, self.target) {
                    (Some(holds), Some(target)) => holds.saturating_sub(target),
                    _ => Bytes::ZERO,
                };
                if now > due {
                    Compliance::Slow { left, asked: now.saturating_since(since) }
                } else {
                    Compliance::Releasing { left, idle: now.saturating_since(progress_at) }
                }
            }
            Release::Stuck { since, .. } | Release::Retrying { since, .. } => {
                Compliance::Stuck { idle: now.saturating_since(since) }
            }
        }
    }

    /// The least that must be left to the guest because it has no swap for what it uses. Counts no
    /// more use than `believed`, unless the operator says that the guest has no swap. `None`: its
    /// floor alone decides.
    pub fn min_without_swap(
        &self,
        sample: &GuestSample,
        limits: &GuestLimits,
        stale_after: Duration,
        believed: Bytes,
    ) -> Option<Bytes> {
        let least = min_without_swap(self.used?, sample, limits, stale_after)?;
        Some(if limits.swap == Some(false) { least } else { least.min(believed.page_floor()) })
    }

    /// While a balloon takes memory, the statistics are of a time when the guest held more, so its
    /// use seems to fall with its allocation. During that time only increases are believed.
    fn remember_use(&mut self, sample: &GuestSample, now: Timestamp) {
        let (Some(used), Some(stats)) = (used_by(sample), sample.stats) else { return };
        let settled_after = stats.age.saturating_add(SETTLED_FOR);
        let since = self.claimed.map_or(now, |(_, since)| since);
        let belongs = now.saturating_since(since) >= settled_after;
        self.used = Some(match self.used {
            Some(before) if !belongs => before.max(used),
            _ => used,
        });
    }

    /// Counts memory that came while nothing was moved as granted, where others can order the
    /// balloon too, and as far as the host sees it. What the guest owed before, it still owes.
    fn grant_moved_by_hand(&mut self, sample: &GuestSample, holding: &Holding, holds: Bytes) {
        let (Some(owed), Some(granted)) = (self.owed, self.granted) else { return };
        let owed = owed.min(holds.saturating_sub(granted));
        self.owed = Some(owed);
        if let Some(in_use) = holding.in_use()
            && sample.capabilities.shared_control == Some(true)
        {
            let own = in_use.min(holds).saturating_sub(owed).page_floor();
            self.granted = Some(granted.max(own));
        }
    }

    /// Takes in a sample before anything is decided. `holding` must have taken it in already.
    /// `usable`: the figures may be acted on. `is_held`: nothing is moved at all.
    pub fn observe(
        &mut self,
        sample: &GuestSample,
        holding: &Holding,
        usable: bool,
        is_held: bool,
        now: Timestamp,
        settings: &GuardSettings,
    ) {
        self.known_since.get_or_insert(now);
        if is_held {
            // A guest that could not be reached may hold something else than it last claimed.
            let claimed = self.claimed.map(|(claimed, _)| claimed).or(self.last_seen);
            let held = claimed.max(holding.seen_before()).unwrap_or_default();
            self.owed.get_or_insert(held.saturating_sub(self.granted.unwrap_or_default()));
            self.release = self.release.suspended();
            self.send_again = self.target.is_some();
        } else {
            self.owed = None;
        }
        if matches!(sample.link, LinkState::Down(_)) {
            // Whoever answers next may not have heard of the target. A debt remains: a guest in
            // another process has another log.
            self.send_again = self.target.is_some();
            if sample.process.is_none() {
                self.release = Release::Settled;
            }
            return;
        }
        self.is_inhibited = sample.capabilities.discard_inhibited == Some(true);
        let Some(allocation) = sample.allocation.and(holding.held()) else { return };
        self.proven = holding.in_use().map_or(allocation, |in_use| in_use.min(allocation));
        // Time in which the guest was not seen, or the machine slept, does not count as idle.
        if now > self.seen_at + UNSEEN_MAX {
            self.release.resume(now.saturating_since(self.seen_at));
        }
        self.seen_at = now;
        if self.last_seen != Some(allocation) {
            self.last_seen = Some(allocation);
            self.changed_at = now;
        }
        if let Some(claims) = sample.claimed()
            && self.claimed.is_none_or(|(before, _)| before != claims)
        {
            self.claimed = Some((claims, now));
        }
        self.remember_use(sample, now);
        self.grant_moved_by_hand(sample, holding, allocation);
        let over = match self.promised() {
            Some(target) => allocation.saturating_sub(target),
            None => Bytes::ZERO,
        };
        self.release = match self.release {
            Release::Settled | Release::Releasing { .. } if is_held || over <= COMPLIANCE_SLACK => {
                Release::Settled
            }
            Release::Stuck { asked, .. }
                if over <= COMPLIANCE_SLACK
                    && allocation <= asked.saturating_add(COMPLIANCE_SLACK) =>
            {
                Release::Settled
            }
            Release::Settled => Release::begin(allocation, over, now, settings),
            // A lower target is a new request with its own time.
            Release::Releasing { asked, .. }
                if self.target.is_some_and(|target| target < asked) =>
            {
                Release::begin(allocation, over, now, settings)
            }
            Release::Releasing { mark, progress_at, asked, since, due } => {
                if mark.saturating_sub(allocation) >= PROGRESS_MIN || allocation > mark {
                    Release::Releasing { mark: allocation, progress_at: now, asked, since, due }
                } else if now.saturating_since(progress_at) >= settings.stuck_after {
                    Release::Stuck {
                        asked: self.granted.or(self.target).unwrap_or(allocation),
                        since: progress_at,
                        retry_at: now + settings.stuck_retry,
                        pause: settings.stuck_retry,
                    }
                } else {
                    Release::Releasing { mark, progress_at, asked, since, due }
                }
            }
            Release::Stuck { asked, since, retry_at, pause }
                if now >= retry_at && usable && !is_held =>
            {
                Release::Retrying { asked, since, begun: now, mark: allocation, pause }
            }
            stuck @ Release::Stuck { .. } => stuck,
            Release::Retrying { asked, since, begun, mark, pause } => {
                if mark.saturating_sub(allocation) >= PROGRESS_MIN || allocation <= asked {
                    Release::begin(allocation, over, now, settings)
                } else if now.saturating_since(begun) >= settings.stuck_after || !usable {
                    let pause = (pause * 2).min(GuardSettings::STUCK_RETRY_MAX);
                    Release::Stuck { asked, since, retry_at: now + pause, pause }
                } else {
                    Release::Retrying { asked, since, begun, mark, pause }
                }
            }
        };
        // The allowance of a stuck guest ends once it holds no more than its target.
        if over <= COMPLIANCE_SLACK {
            self.granted = self.granted.min(self.target);
        }
        if self.granted.is_some_and(|own| allocation <= own.saturating_add(COMPLIANCE_SLACK)) {
            self.granted_lately = Bytes::ZERO;
        }
        let is_less = self.target.is_some_and(|target| target > allocation + COMPLIANCE_SLACK);
        if is_less && now.saturating_since(self.changed_at) >= NUDGE_AFTER {
            self.nudge = true;
            self.changed_at = now;
        }
    }
}
