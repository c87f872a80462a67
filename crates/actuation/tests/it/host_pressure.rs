//! The pressure level: named cases, and properties over random hosts.

use ballast_actuation::host_pressure::{HostPressure, HostPressureSettings};
use ballast_model::{Bytes, HostSample, Pressure, PressureLevel, Timestamp};
use proptest::prelude::*;

fn host(available: Option<u64>, full: u32, some: u32) -> HostSample {
    HostSample {
        memory_available: available.map(Bytes::mib),
        pressure: Some(Pressure { some_basis_points: some, full_basis_points: full }),
        ..HostSample::default()
    }
}

/// Levels of successive seconds.
fn levels(pressure: &mut HostPressure, from: u64, hosts: &[HostSample]) -> Vec<PressureLevel> {
    let settings = HostPressureSettings::default();
    let at = |second: usize| Timestamp::from_millis((from + second as u64) * 1000);
    hosts.iter().enumerate().map(|(n, host)| pressure.observe(at(n), host, &settings)).collect()
}

#[test]
fn each_level_is_entered_at_its_threshold() {
    // Available MiB of a reserve of 512, full and some in basis points; the level after three
    // seconds.
    for (available, full, some, level) in [
        (4096, 0, 0, PressureLevel::Normal),
        (4096, 10_000, 10_000, PressureLevel::Normal),
        (384, 0, 0, PressureLevel::Normal),
        (383, 0, 0, PressureLevel::BalloonOnly),
        (256, 0, 0, PressureLevel::BalloonOnly),
        (255, 0, 0, PressureLevel::ReclaimOwed),
        (191, 0, 0, PressureLevel::ReclaimRichest),
        (127, 0, 0, PressureLevel::Freeze),
        (1023, 500, 500, PressureLevel::BalloonOnly),
        (1023, 0, 1_999, PressureLevel::Normal),
        (1023, 0, 2_000, PressureLevel::BalloonOnly),
        (1023, 1_000, 1_000, PressureLevel::ReclaimOwed),
        (1023, 2_000, 2_000, PressureLevel::ReclaimRichest),
        (1023, 4_000, 4_000, PressureLevel::Freeze),
    ] {
        let hosts = vec![host(Some(available), full, some); 3];
        let levels = levels(&mut HostPressure::default(), 10, &hosts);
        assert_eq!(levels[2], level, "{available} MiB, full {full}, some {some}");
    }
}

#[test]
fn pressure_rises_quickly_and_falls_level_by_level() {
    let mut pressure = HostPressure::default();
    let short = vec![host(Some(200), 0, 0); 3];
    assert_eq!(
        levels(&mut pressure, 0, &short),
        [PressureLevel::Normal, PressureLevel::Normal, PressureLevel::ReclaimOwed]
    );
    assert_eq!(levels(&mut pressure, 3, &[host(Some(100), 0, 0)]), [PressureLevel::Freeze]);
    let plenty = vec![host(Some(4096), 0, 0); 15];
    let down = levels(&mut pressure, 4, &plenty);
    for (at, level) in [(2, 4), (3, 3), (5, 3), (6, 2), (9, 1), (11, 1), (12, 0)] {
        assert_eq!(down[at], PressureLevel::ALL[level], "after {at}s");
    }
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    let mut pressure = HostPressure::default();
    levels(&mut pressure, 0, &[host(Some(100), 0, 0)]);
    assert_eq!(levels(&mut pressure, 1, &vec![host(None, 0, 0); 100])[99], PressureLevel::Freeze);
    // Time without figures does not count as calm.
    assert_eq!(
        levels(&mut pressure, 101, &vec![host(Some(4096), 0, 0); 3])[2],
        PressureLevel::Freeze
    );
    let without = HostSample { pressure: None, ..host(Some(4096), 0, 0) };
    assert_eq!(levels(&mut pressure, 104, &[without])[0], PressureLevel::ReclaimRichest);
}

fn any_host() -> impl Strategy<Value = HostSample> {
    (prop::option::weighted(0.9, 0..1500u64), 0..6_000u32, 0..10_000u32)
        .prop_map(|(available, full, some)| host(available, full.min(some), some))
}

proptest! {
    /// Whatever comes, the level falls by one at a time, and not faster than the time to leave a
    /// level.
    #[test]
    fn transitions_are_bounded(hosts in prop::collection::vec(any_host(), 1..300)) {
        let levels = levels(&mut HostPressure::default(), 0, &hosts);
        let mut last = None;
        for (at, pair) in levels.windows(2).enumerate() {
            if pair[1] < pair[0] {
                prop_assert_eq!(pair[1] as usize + 1, pair[0] as usize);
                prop_assert!(last.is_none_or(|last| at - last >= 3));
            }
            if pair[1] != pair[0] {
                last = Some(at);
            }
        }
    }

    /// Between the two thresholds of a level nothing changes once the level is reached.
    #[test]
    fn noise_between_two_thresholds_changes_no_level(
        place in 0..4usize,
        noise in prop::collection::vec((0..64u64, 0..250u32), 20..300),
    ) {
        let mut pressure = HostPressure::default();
        let below = [384, 256, 192, 128][place];
        levels(&mut pressure, 0, &vec![host(Some(below - 1), 0, 0); 3]);
        let before = pressure.level();
        prop_assert_eq!(before, PressureLevel::ALL[place + 1]);
        let hosts: Vec<_> =
            noise.iter().map(|(more, full)| host(Some(below + more), *full, *full)).collect();
        prop_assert!(levels(&mut pressure, 3, &hosts).iter().all(|level| *level == before));
    }

    /// A host that is always worse off is never on a lower level.
    #[test]
    fn more_pressure_never_means_a_lower_level(
        hosts in prop::collection::vec((0..1500u64, 0..6_000u32, 0..4_000u32, 0..400u64, 0..3_000u32), 1..200),
    ) {
        let better: Vec<_> =
            hosts.iter().map(|(available, full, some, ..)| host(Some(*available), *full, full + some)).collect();
        let worse: Vec<_> = hosts
            .iter()
            .map(|(available, full, some, less, more)| {
                host(Some(available.saturating_sub(*less)), full + more, full + some + more)
            })
            .collect();
        let (better, worse) =
            (levels(&mut HostPressure::default(), 0, &better), levels(&mut HostPressure::default(), 0, &worse));
        for (better, worse) in better.iter().zip(&worse) {
            prop_assert!(worse >= better, "{worse:?} {better:?}");
        }
    }
}

#[test]
fn a_host_that_keeps_no_reserve_is_never_short() {
    let settings = HostPressureSettings { reserve: Bytes::ZERO, ..HostPressureSettings::default() };
    let mut pressure = HostPressure::default();
    for second in 0..10 {
        let now = Timestamp::from_millis(second * 1000);
        assert_eq!(
            pressure.observe(now, &host(Some(0), 9_000, 9_000), &settings),
            PressureLevel::Normal
        );
    }
}
