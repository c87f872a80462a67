//! What a daemon hands over of one guest's log, and takes over from the last one.
//!
//! Limits: that a guest is on the way is not handed over; its time begins anew. What it used when
//! its figures belonged together is not either: the next sample says so, or something greater.

use ballast_model::{Handover, LeftGuest, Stuck, Timestamp};

use super::{ComplianceLog, Release};

impl ComplianceLog {
    /// Adds what the next daemon cannot see to `handover`.
    pub fn hand_over(&self, handover: &mut Handover) {
        handover.transient_grant = self.transient_grant;
        handover.granted = self.granted.filter(|_| self.granted != self.target);
        handover.stuck = match self.release {
            Release::Settled | Release::Under { .. } => None,
            Release::Stuck { asked, since, retry_at, pause } => {
                Some(Stuck { asked, since, retry_at, pause })
            }
            Release::Retrying { asked, since, begun, pause, .. } => {
                Some(Stuck { asked, since, retry_at: begun, pause })
            }
        };
    }

    /// What the last daemon promised is promised. It may have ended before it sent the target, so
    /// that is sent again.
    pub fn restore(&mut self, left: &LeftGuest, now: Timestamp) {
        self.last_seen = left.held;
        self.changed_at = now;
        self.target = left.target;
        self.transient_grant = left.handover.transient_grant;
        self.granted = left.handover.granted.or(left.target);
        self.send_again = left.target.is_some();
    }

    /// The guest gave nothing to the last daemon either.
    pub fn restore_stuck(&mut self, stuck: Stuck) {
        let Stuck { asked, since, retry_at, pause } = stuck;
        self.release = Release::Stuck { asked, since, retry_at, pause };
    }
}
