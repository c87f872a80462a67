//! Handmade replies for tests.

use ballast_api::{
    API_VERSION, BudgetView, CapabilitiesView, ChangeView, Coded, ComplianceView, DaemonView,
    GuestView, HostView, Source, StatusReply, TickView,
};

/// 2026-01-02 03:04:00 UTC, in milliseconds since 1970.
pub(crate) const BEGAN_MS: u64 = 1_767_323_040_000;
const MIB: u64 = 1 << 20;

/// A change; `why` and `text` are the reason that holds a guest.
pub(crate) fn change(code: &str, why: &str, text: &str) -> ChangeView {
    let (by, why) = match code {
        "hold" => (None, Some(Coded::new(why, text))),
        _ => (Some(64 * MIB), None),
    };
    let text = match by {
        Some(_) => format!("{code} by 64MiB"),
        None => format!("hold: {text}"),
    };
    ChangeView { code: code.to_owned(), text, by_bytes: by, why }
}

/// A guest that grows.
pub(crate) fn guest(name: &str) -> GuestView {
    GuestView {
        guest: name.to_owned(),
        state: Coded::new("running", "running"),
        allocation_bytes: Some(512 * MIB),
        wanted_bytes: Some(640 * MIB),
        target_bytes: Some(576 * MIB),
        used_bytes: Some(452 * MIB),
        available_bytes: Some(60 * MIB),
        demand_bytes: Some(600 * MIB),
        demand_confidence_percent: Some(90),
        resident_bytes: Some(540 * MIB),
        copied_resident_bytes: None,
        merged_bytes: None,
        boot_bytes: Some(1024 * MIB),
        hotplug: None,
        floor_bytes: Some(128 * MIB),
        ceiling_bytes: Some(1024 * MIB),
        shares: Some(1000),
        priority: Some(0),
        managed: Some(true),
        stats_age_ms: Some(200),
        swap_in_bytes: Some(0),
        tracking: None,
        fence: None,
        pinned: None,
        compliance: Some(ComplianceView {
            code: "compliant".to_owned(),
            text: "compliant".to_owned(),
            left_bytes: None,
            idle_ms: None,
            asked_ms: None,
            balloon_bytes_per_s: None,
        }),
        change: Some(change("grow", "", "")),
        regret: None,
        capabilities: CapabilitiesView::default(),
    }
}

/// The status of a daemon, `second` seconds after [`BEGAN_MS`]; `second` is also its plan's number.
pub(crate) fn status(second: u64, guests: Vec<GuestView>) -> StatusReply {
    StatusReply {
        api_version: API_VERSION,
        tick: TickView {
            source: Source::Daemon,
            seen_at_unix_ms: BEGAN_MS + second * 1000,
            age_ms: 400,
            generation: second,
            policy: "global".to_owned(),
            paused: false,
            observing: false,
            decision_us: 420,
        },
        daemon: Some(DaemonView {
            version: "0.1.0".to_owned(),
            started_at_unix_ms: BEGAN_MS,
            policy: "global".to_owned(),
            tick_ms: 1000,
            host_reserve_bytes: Some(512 * MIB),
            ticks: second,
            plans_refused: 0,
            fairness: None,
            reload_error: None,
            journal_error: None,
            journal_aside: vec![],
            guests_refused: 0,
            api_restarts: 0,
            api_trouble: None,
            page_error: None,
            metrics_trouble: None,
        }),
        host: HostView {
            memory_total_bytes: Some(16 * 1024 * MIB),
            memory_available_bytes: Some(9420 * MIB),
            swap_total_bytes: Some(2048 * MIB),
            swap_free_bytes: Some(1024 * MIB),
            pressure_some_basis_points: Some(112),
            pressure_full_basis_points: Some(3),
            ksm: None,
        },
        budget: BudgetView {
            distributable_bytes: 2048 * MIB,
            committed_bytes: 1434 * MIB,
            grantable_bytes: 64 * MIB,
        },
        host_pressure: Coded::new("normal", "enough memory"),
        reservations: vec![],
        notes: vec![],
        guests,
    }
}

/// A host with a guest of each kind, `second` seconds after [`BEGAN_MS`].
pub(crate) fn mixed(second: u64) -> StatusReply {
    let mut web = guest("web-1");
    let grown = (second * 7).min(60);
    web.allocation_bytes = Some((400 + grown * 2) * MIB);
    web.swap_in_bytes = Some(second * second * MIB / 4);
    let mut batch = guest("batch-7");
    batch.allocation_bytes = Some((300 - grown) * MIB);
    batch.demand_bytes = Some(90 * MIB);
    batch.wanted_bytes = Some(100 * MIB);
    batch.target_bytes = Some(200 * MIB);
    batch.change = Some(change("shrink", "", ""));
    let mut old = guest("db-of-the-accounting-department");
    old.demand_bytes = None;
    old.target_bytes = old.allocation_bytes;
    old.change = Some(change("hold", "stale", "statistics 12.0s old, limit 5.0s"));
    let mut mute = guest("mute");
    mute.state = Coded::new("unknown", "its state is not known yet");
    (mute.allocation_bytes, mute.demand_bytes, mute.target_bytes) = (None, None, None);
    mute.wanted_bytes = None;
    (mute.floor_bytes, mute.ceiling_bytes) = (None, None);
    (mute.swap_in_bytes, mute.stats_age_ms) = (None, None);
    mute.change = Some(change("hold", "no-allocation", "allocation not known yet"));
    let mut guests = vec![batch, old, mute, web];
    for nth in 1..=3 {
        let mut idle = guest(&format!("idle-{nth}"));
        idle.allocation_bytes = Some(128 * MIB);
        idle.wanted_bytes = Some(124 * MIB);
        idle.target_bytes = Some(128 * MIB);
        idle.demand_bytes = Some(100 * MIB);
        let text = "a change of 4.5MiB is within the dead band of 10MiB";
        idle.change = Some(change("hold", "dead-band", text));
        guests.push(idle);
    }
    guests.sort_by(|a, b| a.guest.cmp(&b.guest));
    status(second, guests)
}
