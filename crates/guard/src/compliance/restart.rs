//! Handing one guest's log over to the next daemon, and taking it over from the last one.
//!
//! Limits: what a guest may still use of a release under way is handed over, its time is not: that
//! starts anew. Nor is the settled use of the guest: the next sample gives the same or a greater
//! one.

use ballast_model::{Bytes, Handover, LeftGuest, Stuck, Timestamp};

use super::{ComplianceLog, Release};

impl ComplianceLog {
    /// Adds to `handover` what the next daemon cannot see.
    pub fn hand_over(&self, handover: &mut Handover) {
        handover.transient_grant = self.transient_grant;
        handover.granted = self.granted.filter(|_| self.granted != self.target);
        let is_releasing = |granted: &Bytes| self.granted_lately > *granted;
        handover.granted_lately = self.granted.filter(is_releasing).map(|_| self.granted_lately);
        handover.stuck = match self.release.suspended() {
            Release::Stuck { asked, since, retry_at, pause } => {
                Some(Stuck { asked, since, retry_at, pause })
            }
            Release::Settled | Release::Releasing { .. } | Release::Retrying { .. } => None,
        };
    }

    /// Promises of the last daemon stay in force. It may have ended before it sent the target, so
    /// the target is sent again.
    pub fn restore(&mut self, left: &LeftGuest, now: Timestamp) {
        self.last_seen = left.held;
        self.changed_at = now;
        self.target = left.target;
        self.transient_grant = left.handover.transient_grant;
        self.granted = left.handover.granted.or(left.target);
        self.granted_lately = left.handover.granted_lately.unwrap_or_default();
        self.send_again = left.target.is_some();
    }

    /// The guest was stuck under the last daemon and stays so.
    pub fn restore_stuck(&mut self, stuck: Stuck) {
        let Stuck { asked, since, retry_at, pause } = stuck;
        self.release = Release::Stuck { asked, since, retry_at, pause };
    }
}
