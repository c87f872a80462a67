//! Memory that operators move while nothing is moved by Ballast.

use std::time::Duration;

use ballast_guard::{ComplianceLog, GuardSettings, Holding};
use ballast_model::{
    Bytes, Capabilities, Compliance, GuestSample, GuestStats, LinkDown, LinkState, Measured,
    ProcessId, Timestamp,
};

/// A guest of 1 GiB that was granted 400 MiB, and its log.
struct Paused {
    log: ComplianceLog,
    holding: Holding,
    sample: GuestSample,
    is_held: bool,
    now: Timestamp,
}

impl Paused {
    fn new(is_shared: bool) -> Paused {
        let capabilities = Capabilities {
            balloon: Some(true),
            shared_control: is_shared.then_some(true),
            ..Capabilities::default()
        };
        let sample = GuestSample {
            process: Some(ProcessId { pid: 7, start_ticks: 70 }),
            boot_memory: Some(Bytes::gib(1)),
            overhead: Some(Bytes::ZERO),
            stats: Some(Measured::fresh(GuestStats::default())),
            capabilities,
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        };
        let (log, holding) = (ComplianceLog::default(), Holding::default());
        let now = Timestamp::from_millis(1000);
        let mut guest = Paused { log, holding, sample, is_held: false, now };
        guest.holds(400, 400, 1);
        guest.log.record_target(Bytes::mib(400), true);
        guest.holds(400, 400, 1);
        guest
    }

    /// It claims to hold `mib` for some seconds, and its process occupies `resident_mib`.
    fn holds(&mut self, mib: u64, resident_mib: u64, seconds: u64) -> Compliance {
        self.sample.allocation = Some(Measured::fresh(Bytes::mib(mib)));
        self.sample.resident = Some(Measured::fresh(Bytes::mib(resident_mib)));
        self.pass(seconds);
        self.log.compliance(self.now)
    }

    fn pass(&mut self, seconds: u64) {
        let settings = GuardSettings::default();
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            self.holding.observe(&self.sample, self.now);
            let (sample, holding) = (&self.sample, &self.holding);
            self.log.observe(sample, holding, true, self.is_held, self.now, &settings);
        }
    }

    fn granted_mib(&self) -> u64 {
        self.log.granted().unwrap().get() >> 20
    }
}

#[test]
fn nobody_is_late_while_nothing_is_asked() {
    for (moved, is_shared) in [(200, false), (700, false), (700, true)] {
        let mut guest = Paused::new(is_shared);
        guest.is_held = true;
        assert_eq!(guest.holds(moved, moved, 300), Compliance::Compliant, "{moved}");
        guest.is_held = false;
        let since = guest.holds(moved, moved, 5);
        assert!(!matches!(since, Compliance::Slow { .. } | Compliance::Stuck { .. }), "{since:?}");
        assert_eq!(guest.log.target(), Some(Bytes::mib(400)));
        assert_eq!(guest.holds(400, 400, 1), Compliance::Compliant);
    }
}

#[test]
fn a_release_begins_anew_after_a_pause() {
    let mut guest = Paused::new(false);
    guest.log.record_target(Bytes::mib(300), true);
    assert!(matches!(guest.holds(400, 400, 14), Compliance::Slow { .. }));
    guest.is_held = true;
    guest.holds(400, 400, 300);
    guest.is_held = false;
    assert!(matches!(guest.holds(400, 400, 5), Compliance::Releasing { .. }));
    assert!(matches!(guest.holds(400, 400, 20), Compliance::Stuck { .. }));
}

#[test]
fn what_others_moved_counts_as_far_as_it_is_seen() {
    for (is_shared, resident, granted) in [(true, 600, 600), (true, 700, 700), (false, 700, 400)] {
        let mut guest = Paused::new(is_shared);
        guest.is_held = true;
        guest.holds(700, resident, 3);
        assert_eq!(guest.granted_mib(), granted, "{is_shared} {resident}");
        guest.is_held = false;
        guest.holds(700, resident, 30);
        assert_eq!(guest.granted_mib(), granted, "{is_shared} {resident}");
    }
}

#[test]
fn what_is_taken_after_a_pause_earns_no_grant() {
    let mut guest = Paused::new(true);
    guest.is_held = true;
    guest.holds(400, 400, 3);
    guest.is_held = false;
    guest.holds(400, 400, 1);
    guest.holds(700, 700, 3);
    assert_eq!(guest.granted_mib(), 400);
}

#[test]
fn a_pause_forgives_no_debt() {
    let mut guest = Paused::new(true);
    guest.log.record_target(Bytes::mib(300), true);
    assert!(matches!(guest.holds(400, 400, 60), Compliance::Stuck { .. }));
    guest.is_held = true;
    assert!(matches!(guest.holds(400, 400, 300), Compliance::Stuck { .. }));
    assert_eq!(guest.log.asked(), Some(Bytes::mib(300)));
    assert_eq!(guest.granted_mib(), 300);
    guest.holds(500, 500, 3);
    assert_eq!(guest.granted_mib(), 400, "only what came since is no debt");
}

#[test]
fn what_came_unseen_before_a_pause_stays_a_debt() {
    let mut guest = Paused::new(true);
    guest.sample.link = LinkState::Down(LinkDown::Refused);
    guest.sample.allocation = None;
    guest.sample.resident = Some(Measured::fresh(Bytes::mib(700)));
    guest.pass(3);
    guest.is_held = true;
    guest.pass(3);
    guest.sample.link = LinkState::Up;
    guest.holds(700, 700, 3);
    assert_eq!(guest.granted_mib(), 416, "16 MiB of what came may be the hypervisor's");
}
