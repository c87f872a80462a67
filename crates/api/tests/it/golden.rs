//! The wire format, byte for byte: a change here is a change for every reader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_api::{
    Coded, CommandReply, DaemonView, ErrorReply, ExplainReply, FairnessView, GuestChange,
    GuestsReply, ModeReply, PlanReply, SetMode, SetPolicy, Source, StatusReply, Tick,
};
use ballast_model::{
    Action, Bounds, Budget, Bytes, Capabilities, Change, Clamped, Compliance, Confidence, Demand,
    DemandSource, Desired, Estimate, Fence, Generation, GuestId, GuestLimits, GuestPlan,
    GuestSample, GuestStats, HoldReason, HostSample, Hotplug, HotplugKind, LimitSource,
    LimitSources, LinkDown, LinkState, Measured, Mechanism, MechanismReason, MemoryRoom, MissCurve,
    Mode, ModeChoice, Move, Note, Outcome, OutcomeKind, Paging, PassedOver, PassedOverReason, Plan,
    PolicyName, Pressure, PressureLevel, Provenance, Reason, Regret, Reservation, RunState, Share,
    Snapshot, Timestamp, TrackerReport, Tracking, TrackingSource, TrackingState,
};
use expect_test::{Expect, expect};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a [`Tick`] borrows.
struct TickParts {
    snapshot: Snapshot,
    plan: Plan,
    limits: BTreeMap<GuestId, GuestLimits>,
    limit_sources: BTreeMap<GuestId, LimitSources>,
    outcomes: BTreeMap<GuestId, (SystemTime, Outcome)>,
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn id(text: &str) -> GuestId {
    text.parse().unwrap()
}

/// The estimate of a guest whose working set is tracked and whose misses are known by size.
fn estimated(age: Duration) -> Estimate {
    let provenance = Provenance::BalloonStatistics { age };
    let plain = Estimate::of_used(Bytes::mib(452), Bytes::mib(60), provenance);
    let Demand { source, size, .. } = plain.demand;
    let misses = vec![9000, 4000, 2500, 1200, 40, 0];
    let curve = MissCurve::new(Bytes::mib(128), Duration::from_secs(1), misses).unwrap();
    Estimate {
        demand: Demand {
            size: Bytes::mib(600),
            source: DemandSource::WorkingSet,
            age: Duration::from_secs(3),
            confidence: Confidence::from_percent(90),
        },
        passed_over: vec![PassedOver { source, size, age, why: PassedOverReason::LessTrusted }],
        curve: Some(Arc::new(curve)),
        ..plain
    }
}

/// Two guests: everything is known about `a`, nothing about `b`.
fn tick_parts() -> TickParts {
    let age = Duration::from_millis(800);
    let a = GuestSample {
        run_state: Some(RunState::Running),
        allocation: Some(Measured::fresh(Bytes::mib(512))),
        boot_memory: Some(Bytes::gib(1)),
        hotplug: Some(Hotplug {
            kind: HotplugKind::VirtioMem,
            plugged: Bytes::mib(128),
            requested: Bytes::mib(256),
            max: Bytes::gib(2),
            block: Bytes::mib(2),
        }),
        resident: Some(Measured::fresh(Bytes::mib(540))),
        file_backed: Some(Bytes::mib(1152)),
        stats: Some(Measured {
            value: GuestStats {
                total: Some(Bytes::mib(980)),
                available: Some(Bytes::mib(60)),
                swap_in: Some(Bytes::ZERO),
                major_faults: Some(7),
                ..GuestStats::default()
            },
            age,
        }),
        tracker: Some(Box::new(Measured {
            value: TrackerReport {
                working_set: Bytes::mib(460),
                curve: None,
                source: TrackingSource::Library,
            },
            age: Duration::from_secs(3),
        })),
        tracking: Some(Box::new(Tracking {
            state: TrackingState::Failing,
            watched: Some(Share::from_millionths(3_906)),
            cost: Some(Share::from_millionths(5_500)),
            trouble: Some("tracked by another client: stop that one first".to_owned()),
        })),
        fence: Some(Fence {
            limit: Some(Bytes::mib(640)),
            trouble: Some("swap is full".to_owned()),
        }),
        rooms: vec![MemoryRoom {
            by: "/sys/fs/cgroup/machine.slice/memory.max".to_owned(),
            limit: Bytes::gib(8),
            left: Bytes::gib(1),
        }],
        capabilities: Capabilities { balloon: Some(true), ..Capabilities::default() },
        ..GuestSample::unknown(id("a"), LinkState::Up)
    };
    let b = GuestSample::unknown(id("b"), LinkState::Down(LinkDown::TimedOut));
    let planned_a = GuestPlan {
        id: id("a"),
        allocation: Some(Bytes::mib(512)),
        bounds: Some(Bounds { floor: Bytes::mib(128), ceiling: Bytes::gib(1) }),
        estimate: Some(estimated(age)),
        desired: Some(Desired {
            target: Bytes::mib(256),
            reason: Reason::Share { budget: Bytes::gib(1), shares: 1, shares_total: 4 },
        }),
        clamps: vec![Clamped::StepDown { limit: Bytes::mib(64) }],
        credits: None,
        compliance: Compliance::Releasing { left: Bytes::mib(3), idle: Duration::from_secs(2) },
        target: Some(Bytes::mib(448)),
        change: Change::Shrink { by: Bytes::mib(64) },
        moves: vec![Move {
            mechanism: Mechanism::Balloon,
            from: Bytes::mib(512),
            to: Bytes::mib(448),
            why: MechanismReason::BalloonTakesIt,
        }],
        balloon_rate: Some(Bytes::mib(80)),
        regret: Some(Regret { taken: Bytes::mib(64), read_back: Bytes::mib(16), undone: 1 }),
    };
    let planned_b = GuestPlan {
        id: id("b"),
        allocation: None,
        bounds: None,
        estimate: None,
        desired: None,
        clamps: vec![],
        credits: None,
        compliance: Compliance::Compliant,
        target: None,
        change: Change::Hold(HoldReason::Unreachable { why: "no answer in time".to_owned() }),
        moves: vec![],
        balloon_rate: None,
        regret: None,
    };
    let sources = LimitSources {
        shares: LimitSource::Metadata,
        managed: LimitSource::File,
        ..LimitSources::default()
    };
    let host = HostSample {
        memory_total: Some(Bytes::gib(4)),
        memory_available: Some(Bytes::gib(2)),
        pressure: Some(Pressure { some_basis_points: 5, full_basis_points: 0 }),
        ..HostSample::default()
    };
    let generation = Generation(9);
    let action = |deadline| Action {
        guest: id("a"),
        target: Bytes::mib(448),
        plug: Some(Bytes::mib(128)),
        generation,
        deadline: Timestamp::from_millis(deadline),
    };
    let outcome = Outcome {
        guest: id("a"),
        generation: Generation(8),
        target: Bytes::mib(512),
        kind: OutcomeKind::Failed("no answer in time".to_owned()),
    };
    TickParts {
        snapshot: Snapshot::new(Timestamp::from_millis(5000), host, vec![a, b]),
        plan: Plan {
            generation,
            decided_at: Timestamp::from_millis(5000),
            policy: PolicyName::Static,
            budget: Budget {
                distributable: Bytes::gib(1),
                committed: Bytes::mib(512),
                grantable: Bytes::mib(512),
            },
            guests: vec![planned_a, planned_b],
            actions: vec![action(7000)],
            paging: vec![Paging {
                guest: id("a"),
                mechanism: Mechanism::PageOut,
                resident: Bytes::mib(460),
                generation,
                deadline: Timestamp::from_millis(7000),
            }],
            host_pressure: PressureLevel::ReclaimOwed,
            reservations: vec![Reservation {
                guest: "new".parse().unwrap(),
                size: Bytes::gib(1),
                until: Timestamp::from_millis(90_000),
                free: Bytes::mib(300),
            }],
            notes: vec![Note::Infeasible { shortfall: Bytes::mib(1) }],
        },
        limits: BTreeMap::from([(id("a"), GuestLimits::default())]),
        limit_sources: BTreeMap::from([(id("a"), sources)]),
        outcomes: BTreeMap::from([(id("a"), (at(1_767_323_044), outcome))]),
    }
}

fn tick(tick_parts: &TickParts) -> Tick<'_> {
    Tick {
        source: Source::Daemon,
        now: at(1_767_323_046),
        seen_at: at(1_767_323_045),
        snapshot: &tick_parts.snapshot,
        plan: &tick_parts.plan,
        limits: &tick_parts.limits,
        limit_sources: &tick_parts.limit_sources,
        outcomes: &tick_parts.outcomes,
        paused: false,
        mode: Mode::Observe,
        decision_cost: Duration::from_micros(420),
        daemon: Some(DaemonView {
            version: "0.1.0".to_owned(),
            started_at_unix_ms: 1_767_320_000_000,
            policy: "static".to_owned(),
            tick_ms: 1000,
            host_reserve_bytes: Some(512 << 20),
            ticks: 9,
            plans_refused: 0,
            fairness: Some(FairnessView {
                latest_basis_points: 10_000,
                mean_basis_points: 9_312,
                decisions: 300,
            }),
            reload_error: None,
            journal_error: None,
            journal_aside: vec!["/var/lib/ballast/journal.db.aside-20260102T030405Z".to_owned()],
            guests_refused: 3,
            api_restarts: 1,
            api_trouble: Some("its thread panicked: a fault".to_owned()),
            page_error: Some("port 7117 of 127.0.0.1 is in use".to_owned()),
            metrics_trouble: None,
        }),
    }
}

/// Compares the JSON of `value` and reads it back.
fn golden<T>(value: &T, expected: Expect)
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let text = serde_json::to_string_pretty(value).unwrap();
    expected.assert_eq(&text);
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value);
}

#[test]
fn status_has_its_golden_form() {
    golden(
        &StatusReply::from(&tick(&tick_parts())),
        expect![[r#"
            {
              "api_version": 1,
              "tick": {
                "source": "daemon",
                "seen_at_unix_ms": 1767323045000,
                "age_ms": 1000,
                "generation": 9,
                "policy": "static",
                "paused": false,
                "observing": true,
                "decision_us": 420
              },
              "daemon": {
                "version": "0.1.0",
                "started_at_unix_ms": 1767320000000,
                "policy": "static",
                "tick_ms": 1000,
                "host_reserve_bytes": 536870912,
                "ticks": 9,
                "plans_refused": 0,
                "fairness": {
                  "latest_basis_points": 10000,
                  "mean_basis_points": 9312,
                  "decisions": 300
                },
                "reload_error": null,
                "journal_error": null,
                "journal_aside": [
                  "/var/lib/ballast/journal.db.aside-20260102T030405Z"
                ],
                "guests_refused": 3,
                "api_restarts": 1,
                "api_trouble": "its thread panicked: a fault",
                "page_error": "port 7117 of 127.0.0.1 is in use",
                "metrics_trouble": null
              },
              "host": {
                "memory_total_bytes": 4294967296,
                "memory_available_bytes": 2147483648,
                "swap_total_bytes": null,
                "swap_free_bytes": null,
                "pressure_some_basis_points": 5,
                "pressure_full_basis_points": 0,
                "ksm": null
              },
              "budget": {
                "distributable_bytes": 1073741824,
                "committed_bytes": 536870912,
                "grantable_bytes": 536870912
              },
              "rung": {
                "code": "reclaim-owed",
                "text": "overdue guests are paged out"
              },
              "reservations": [
                {
                  "guest": "new",
                  "size_bytes": 1073741824,
                  "free_bytes": 314572800,
                  "ends_in_ms": 85000
                }
              ],
              "notes": [
                {
                  "code": "infeasible",
                  "text": "floors and immovable guests exceed the budget by 1MiB: lower floors or raise the budget"
                }
              ],
              "guests": [
                {
                  "guest": "a",
                  "state": {
                    "code": "running",
                    "text": "running"
                  },
                  "allocation_bytes": 536870912,
                  "wanted_bytes": 268435456,
                  "target_bytes": 469762048,
                  "used_bytes": 473956352,
                  "available_bytes": 62914560,
                  "demand_bytes": 629145600,
                  "demand_confidence_percent": 90,
                  "resident_bytes": 566231040,
                  "copied_resident_bytes": 1426063360,
                  "merged_bytes": null,
                  "boot_bytes": 1073741824,
                  "hotplug": {
                    "kind": "virtio-mem",
                    "plugged_bytes": 134217728,
                    "requested_bytes": 268435456,
                    "max_bytes": 2147483648,
                    "block_bytes": 2097152
                  },
                  "floor_bytes": 134217728,
                  "ceiling_bytes": 1073741824,
                  "shares": 1000,
                  "priority": 0,
                  "managed": true,
                  "stats_age_ms": 800,
                  "swap_in_bytes": 0,
                  "tracking": {
                    "state": {
                      "code": "failing",
                      "text": "does not work"
                    },
                    "source": {
                      "code": "library",
                      "text": "the tracker in its hypervisor"
                    },
                    "working_set_bytes": 482344960,
                    "age_ms": 3000,
                    "watched_millionths": 3906,
                    "cost_millionths": 5500,
                    "trouble": "tracked by another client: stop that one first"
                  },
                  "fence": {
                    "limit_bytes": 671088640,
                    "trouble": "swap is full"
                  },
                  "compliance": {
                    "code": "releasing",
                    "text": "releasing, 3MiB left",
                    "left_bytes": 3145728,
                    "idle_ms": 2000,
                    "asked_ms": null,
                    "balloon_bytes_per_s": 83886080
                  },
                  "change": {
                    "code": "shrink",
                    "text": "shrink by 64MiB",
                    "by_bytes": 67108864,
                    "why": null
                  },
                  "regret": {
                    "taken_bytes": 67108864,
                    "read_back_bytes": 16777216,
                    "basis_points": 2500,
                    "undone": 1
                  },
                  "capabilities": {
                    "balloon": true,
                    "statistics": null,
                    "free_page_reporting": null,
                    "deflate_on_oom": null,
                    "memory_devices": null,
                    "discard_inhibited": null,
                    "shared_control": null
                  }
                },
                {
                  "guest": "b",
                  "state": {
                    "code": "timed-out",
                    "text": "no answer in time"
                  },
                  "allocation_bytes": null,
                  "wanted_bytes": null,
                  "target_bytes": null,
                  "used_bytes": null,
                  "available_bytes": null,
                  "demand_bytes": null,
                  "demand_confidence_percent": null,
                  "resident_bytes": null,
                  "copied_resident_bytes": null,
                  "merged_bytes": null,
                  "boot_bytes": null,
                  "hotplug": null,
                  "floor_bytes": null,
                  "ceiling_bytes": null,
                  "shares": null,
                  "priority": null,
                  "managed": null,
                  "stats_age_ms": null,
                  "swap_in_bytes": null,
                  "tracking": null,
                  "fence": null,
                  "compliance": {
                    "code": "compliant",
                    "text": "compliant",
                    "left_bytes": null,
                    "idle_ms": null,
                    "asked_ms": null,
                    "balloon_bytes_per_s": null
                  },
                  "change": {
                    "code": "hold",
                    "text": "hold: unreachable: no answer in time",
                    "by_bytes": null,
                    "why": {
                      "code": "unreachable",
                      "text": "unreachable: no answer in time"
                    }
                  },
                  "regret": null,
                  "capabilities": {
                    "balloon": null,
                    "statistics": null,
                    "free_page_reporting": null,
                    "deflate_on_oom": null,
                    "memory_devices": null,
                    "discard_inhibited": null,
                    "shared_control": null
                  }
                }
              ]
            }"#]],
    );
}

#[test]
fn guests_reply_equals_the_guests_of_status() {
    let tick_parts = tick_parts();
    let (status, guests) =
        (StatusReply::from(&tick(&tick_parts)), GuestsReply::from(&tick(&tick_parts)));
    assert_eq!(guests.guests, status.guests);
    let json = serde_json::to_value(&guests).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["api_version", "guests", "tick"]);
}

#[test]
fn explain_of_a_known_guest_has_its_golden_form() {
    golden(
        &ExplainReply::new(&tick(&tick_parts()), &id("a")).unwrap(),
        expect![[r#"
            {
              "api_version": 1,
              "tick": {
                "source": "daemon",
                "seen_at_unix_ms": 1767323045000,
                "age_ms": 1000,
                "generation": 9,
                "policy": "static",
                "paused": false,
                "observing": true,
                "decision_us": 420
              },
              "guest": "a",
              "inputs": {
                "state": {
                  "code": "running",
                  "text": "running"
                },
                "allocation_bytes": 536870912,
                "allocation_age_ms": 0,
                "boot_bytes": 1073741824,
                "hotplug": {
                  "kind": "virtio-mem",
                  "plugged_bytes": 134217728,
                  "requested_bytes": 268435456,
                  "max_bytes": 2147483648,
                  "block_bytes": 2097152
                },
                "resident_bytes": 566231040,
                "resident_age_ms": 0,
                "stats": {
                  "age_ms": 800,
                  "total_bytes": 1027604480,
                  "free_bytes": null,
                  "available_bytes": 62914560,
                  "disk_caches_bytes": null,
                  "swap_in_bytes": 0,
                  "swap_out_bytes": null,
                  "major_faults": 7,
                  "minor_faults": null
                },
                "tracking": {
                  "state": {
                    "code": "failing",
                    "text": "does not work"
                  },
                  "source": {
                    "code": "library",
                    "text": "the tracker in its hypervisor"
                  },
                  "working_set_bytes": 482344960,
                  "age_ms": 3000,
                  "watched_millionths": 3906,
                  "cost_millionths": 5500,
                  "trouble": "tracked by another client: stop that one first"
                },
                "fence": {
                  "limit_bytes": 671088640,
                  "trouble": "swap is full"
                },
                "rooms": [
                  {
                    "by": "/sys/fs/cgroup/machine.slice/memory.max",
                    "limit_bytes": 8589934592,
                    "left_bytes": 1073741824
                  }
                ],
                "agent": null,
                "capabilities": {
                  "balloon": true,
                  "statistics": null,
                  "free_page_reporting": null,
                  "deflate_on_oom": null,
                  "memory_devices": null,
                  "discard_inhibited": null,
                  "shared_control": null
                }
              },
              "limits": {
                "floor_set_bytes": null,
                "ceiling_set_bytes": null,
                "floor_bytes": 134217728,
                "ceiling_bytes": 1073741824,
                "shares": 1000,
                "priority": 0,
                "miss_rate_max_per_s": null,
                "managed": true,
                "take_over": false,
                "sources": {
                  "floor": "default",
                  "ceiling": "default",
                  "shares": "metadata",
                  "priority": "default",
                  "miss_rate_max": "default",
                  "managed": "file",
                  "take_over": "default"
                }
              },
              "budget": {
                "distributable_bytes": 1073741824,
                "committed_bytes": 536870912,
                "grantable_bytes": 536870912
              },
              "notes": [
                {
                  "code": "infeasible",
                  "text": "floors and immovable guests exceed the budget by 1MiB: lower floors or raise the budget"
                }
              ],
              "estimate": {
                "used_bytes": 473956352,
                "available_bytes": 62914560,
                "swap_need_bytes": 0,
                "cache_need_bytes": 0,
                "provenance": "balloon statistics 0.8s old",
                "demand": {
                  "size_bytes": 629145600,
                  "source": {
                    "code": "working-set",
                    "text": "tracked working set"
                  },
                  "age_ms": 3000,
                  "confidence_percent": 90
                },
                "passed_over": [
                  {
                    "source": {
                      "code": "used",
                      "text": "used memory"
                    },
                    "size_bytes": 473956352,
                    "age_ms": 800,
                    "why": {
                      "code": "less-trusted",
                      "text": "trusted less"
                    }
                  }
                ],
                "curve": {
                  "interval_ms": 1000,
                  "step_bytes": 134217728,
                  "points": [
                    {
                      "percent": 25,
                      "memory_bytes": 134217728,
                      "misses_per_s": 4000
                    },
                    {
                      "percent": 50,
                      "memory_bytes": 268435456,
                      "misses_per_s": 2500
                    },
                    {
                      "percent": 75,
                      "memory_bytes": 402653184,
                      "misses_per_s": 1200
                    },
                    {
                      "percent": 100,
                      "memory_bytes": 536870912,
                      "misses_per_s": 40
                    },
                    {
                      "percent": 125,
                      "memory_bytes": 671088640,
                      "misses_per_s": 0
                    },
                    {
                      "percent": 150,
                      "memory_bytes": 805306368,
                      "misses_per_s": 0
                    }
                  ]
                }
              },
              "desired": {
                "target_bytes": 268435456,
                "reason": {
                  "code": "share",
                  "text": "1 of 4 shares of 1GiB"
                }
              },
              "clamps": [
                {
                  "code": "step-down",
                  "text": "shrinking limited to 64MiB a decision"
                }
              ],
              "compliance": {
                "code": "releasing",
                "text": "releasing, 3MiB left",
                "left_bytes": 3145728,
                "idle_ms": 2000,
                "asked_ms": null,
                "balloon_bytes_per_s": 83886080
              },
              "target_bytes": 469762048,
              "change": {
                "code": "shrink",
                "text": "shrink by 64MiB",
                "by_bytes": 67108864,
                "why": null
              },
              "moves": [
                {
                  "mechanism": "balloon",
                  "text": "balloon 512MiB to 448MiB: ballooning is fastest and exact to the page",
                  "from_bytes": 536870912,
                  "to_bytes": 469762048,
                  "why": {
                    "code": "balloon-takes-it",
                    "text": "ballooning is fastest and exact to the page"
                  }
                }
              ],
              "regret": {
                "taken_bytes": 67108864,
                "read_back_bytes": 16777216,
                "basis_points": 2500,
                "undone": 1
              },
              "outcome": {
                "at_unix_ms": 1767323044000,
                "age_ms": 2000,
                "generation": 8,
                "target_bytes": 536870912,
                "kind": {
                  "code": "failed",
                  "text": "failed: no answer in time"
                }
              }
            }"#]],
    );
}

#[test]
fn explain_of_an_unknown_guest_has_its_golden_form() {
    let tick_parts = tick_parts();
    let tick = Tick { source: Source::Journal, daemon: None, ..tick(&tick_parts) };
    golden(
        &ExplainReply::new(&tick, &id("b")).unwrap(),
        expect![[r#"
            {
              "api_version": 1,
              "tick": {
                "source": "journal",
                "seen_at_unix_ms": 1767323045000,
                "age_ms": 1000,
                "generation": 9,
                "policy": "static",
                "paused": false,
                "observing": true,
                "decision_us": 420
              },
              "guest": "b",
              "inputs": {
                "state": {
                  "code": "timed-out",
                  "text": "no answer in time"
                },
                "allocation_bytes": null,
                "allocation_age_ms": null,
                "boot_bytes": null,
                "hotplug": null,
                "resident_bytes": null,
                "resident_age_ms": null,
                "stats": null,
                "tracking": null,
                "fence": null,
                "agent": null,
                "capabilities": {
                  "balloon": null,
                  "statistics": null,
                  "free_page_reporting": null,
                  "deflate_on_oom": null,
                  "memory_devices": null,
                  "discard_inhibited": null,
                  "shared_control": null
                }
              },
              "limits": {
                "floor_set_bytes": null,
                "ceiling_set_bytes": null,
                "floor_bytes": null,
                "ceiling_bytes": null,
                "shares": null,
                "priority": null,
                "miss_rate_max_per_s": null,
                "managed": null,
                "take_over": null,
                "sources": null
              },
              "budget": {
                "distributable_bytes": 1073741824,
                "committed_bytes": 536870912,
                "grantable_bytes": 536870912
              },
              "notes": [
                {
                  "code": "infeasible",
                  "text": "floors and immovable guests exceed the budget by 1MiB: lower floors or raise the budget"
                }
              ],
              "estimate": null,
              "desired": null,
              "clamps": [],
              "compliance": {
                "code": "compliant",
                "text": "compliant",
                "left_bytes": null,
                "idle_ms": null,
                "asked_ms": null,
                "balloon_bytes_per_s": null
              },
              "target_bytes": null,
              "change": {
                "code": "hold",
                "text": "hold: unreachable: no answer in time",
                "by_bytes": null,
                "why": {
                  "code": "unreachable",
                  "text": "unreachable: no answer in time"
                }
              },
              "moves": [],
              "regret": null,
              "outcome": null
            }"#]],
    );
    assert_eq!(ExplainReply::new(&tick, &id("c")), None);
}

#[test]
fn plan_has_its_golden_form() {
    let tick_parts = tick_parts();
    golden(
        &PlanReply::latest(&tick(&tick_parts)),
        expect![[r#"
            {
              "api_version": 1,
              "tick": {
                "source": "daemon",
                "seen_at_unix_ms": 1767323045000,
                "age_ms": 1000,
                "generation": 9,
                "policy": "static",
                "paused": false,
                "observing": true,
                "decision_us": 420
              },
              "dry_run": false,
              "generation": 9,
              "policy": "static",
              "budget": {
                "distributable_bytes": 1073741824,
                "committed_bytes": 536870912,
                "grantable_bytes": 536870912
              },
              "notes": [
                {
                  "code": "infeasible",
                  "text": "floors and immovable guests exceed the budget by 1MiB: lower floors or raise the budget"
                }
              ],
              "guests": [
                {
                  "guest": "a",
                  "allocation_bytes": 536870912,
                  "desired": {
                    "target_bytes": 268435456,
                    "reason": {
                      "code": "share",
                      "text": "1 of 4 shares of 1GiB"
                    }
                  },
                  "clamps": [
                    {
                      "code": "step-down",
                      "text": "shrinking limited to 64MiB a decision"
                    }
                  ],
                  "compliance": {
                    "code": "releasing",
                    "text": "releasing, 3MiB left",
                    "left_bytes": 3145728,
                    "idle_ms": 2000,
                    "asked_ms": null,
                    "balloon_bytes_per_s": 83886080
                  },
                  "target_bytes": 469762048,
                  "change": {
                    "code": "shrink",
                    "text": "shrink by 64MiB",
                    "by_bytes": 67108864,
                    "why": null
                  },
                  "moves": [
                    {
                      "mechanism": "balloon",
                      "text": "balloon 512MiB to 448MiB: ballooning is fastest and exact to the page",
                      "from_bytes": 536870912,
                      "to_bytes": 469762048,
                      "why": {
                        "code": "balloon-takes-it",
                        "text": "ballooning is fastest and exact to the page"
                      }
                    }
                  ],
                  "regret": {
                    "taken_bytes": 67108864,
                    "read_back_bytes": 16777216,
                    "basis_points": 2500,
                    "undone": 1
                  }
                },
                {
                  "guest": "b",
                  "allocation_bytes": null,
                  "desired": null,
                  "clamps": [],
                  "compliance": {
                    "code": "compliant",
                    "text": "compliant",
                    "left_bytes": null,
                    "idle_ms": null,
                    "asked_ms": null,
                    "balloon_bytes_per_s": null
                  },
                  "target_bytes": null,
                  "change": {
                    "code": "hold",
                    "text": "hold: unreachable: no answer in time",
                    "by_bytes": null,
                    "why": {
                      "code": "unreachable",
                      "text": "unreachable: no answer in time"
                    }
                  },
                  "moves": [],
                  "regret": null
                }
              ],
              "actions": [
                {
                  "guest": "a",
                  "target_bytes": 469762048,
                  "plug_bytes": 134217728,
                  "deadline_ms": 2000
                }
              ],
              "rung": {
                "code": "reclaim-owed",
                "text": "overdue guests are paged out"
              },
              "paging": [
                {
                  "guest": "a",
                  "mechanism": "page-out",
                  "resident_bytes": 482344960,
                  "deadline_ms": 2000
                }
              ]
            }"#]],
    );
    assert!(PlanReply::dry_run(&tick(&tick_parts), &tick_parts.plan).dry_run);
}

#[test]
fn commands_and_refusals_have_their_golden_forms() {
    golden(
        &CommandReply::new("paused"),
        expect![[r#"
        {
          "api_version": 1,
          "message": "paused"
        }"#]],
    );
    golden(
        &ErrorReply::new("unknown-guest", "there is no guest `x`"),
        expect![[r#"
        {
          "api_version": 1,
          "error": {
            "code": "unknown-guest",
            "text": "there is no guest `x`"
          },
          "nearest": null
        }"#]],
    );
    golden(
        &GuestChange {
            floor: Some(Bytes::new(4096)),
            ceiling: None,
            ceiling_unset: true,
            shares: Some(2),
            priority: Some(3),
            miss_rate_max: Some(500),
            managed: Some(false),
            take_over: Some(true),
        },
        expect![[r#"
            {
              "floor_bytes": 4096,
              "ceiling_unset": true,
              "shares": 2,
              "priority": 3,
              "miss_rate_max_per_s": 500,
              "managed": false,
              "take_over": true
            }"#]],
    );
    golden(
        &SetMode { mode: "observe".to_owned() },
        expect![[r#"
        {
          "mode": "observe"
        }"#]],
    );
    let mut choice = ModeChoice::new(Mode::Observe);
    choice.set(Mode::Balance);
    golden(
        &ModeReply::from(choice),
        expect![[r#"
        {
          "api_version": 1,
          "mode": "balance",
          "configured": "observe"
        }"#]],
    );
    golden(
        &SetPolicy { policy: "global".to_owned() },
        expect![[r#"
        {
          "policy": "global"
        }"#]],
    );
}

#[test]
fn every_reason_has_its_stable_code() {
    let zero = Bytes::ZERO;
    let idle = Duration::from_secs(42);
    let changes = [
        Change::Grow { by: zero },
        Change::Shrink { by: zero },
        Change::CancelShrink { why: HoldReason::Paused },
        Change::Hold(HoldReason::Paused),
    ];
    let codes: Vec<_> = changes.iter().map(|c| ballast_api::ChangeView::from(c).code).collect();
    assert_eq!(codes, ["grow", "shrink", "cancel-shrink", "hold"]);
    let compliances = [
        Compliance::Compliant,
        Compliance::Releasing { left: zero, idle: Duration::ZERO },
        Compliance::Stuck { idle },
        Compliance::Slow { left: zero, asked: idle },
        Compliance::Inhibited,
    ];
    let view = |compliance: &Compliance| {
        let guest = GuestPlan { compliance: *compliance, ..tick_parts().plan.guests[0].clone() };
        ballast_api::ComplianceView::new(&guest)
    };
    let codes: Vec<_> = compliances.iter().map(|c| view(c).code).collect();
    assert_eq!(codes, ["compliant", "releasing", "stuck", "slow", "inhibited"]);
    assert_eq!(view(&compliances[2]).idle_ms, Some(42_000));
    assert_eq!(view(&compliances[3]).asked_ms, Some(42_000));
    let outcomes = [
        OutcomeKind::Accepted,
        OutcomeKind::Failed(String::new()),
        OutcomeKind::Expired,
        OutcomeKind::Superseded,
        OutcomeKind::Waiting,
    ];
    let codes: Vec<_> = outcomes.iter().map(|kind| Coded::from(kind).code).collect();
    assert_eq!(codes, ["accepted", "failed", "expired", "superseded", "waiting"]);
    let downs = [
        LinkDown::Connecting,
        LinkDown::Taken,
        LinkDown::PermissionDenied,
        LinkDown::Refused,
        LinkDown::TimedOut,
        LinkDown::Protocol(String::new()),
        LinkDown::Closed(String::new()),
    ];
    let codes: Vec<_> = downs.iter().map(|down| Coded::from(down).code).collect();
    assert_eq!(
        codes,
        [
            "connecting",
            "taken",
            "permission-denied",
            "refused",
            "timed-out",
            "protocol-error",
            "closed"
        ]
    );
}

#[test]
fn readers_ignore_unknown_fields_and_requests_refuse_them() {
    let later = r#"{"api_version": 1, "message": "paused", "since": 5}"#;
    assert_eq!(serde_json::from_str::<CommandReply>(later).unwrap(), CommandReply::new("paused"));
    let error =
        serde_json::from_str::<GuestChange>(r#"{"flor_bytes": 1}"#).unwrap_err().to_string();
    assert!(error.contains("unknown field `flor_bytes`, expected one of `floor_bytes`"), "{error}");
    assert!(serde_json::from_str::<GuestChange>("{}").unwrap().is_empty());
}
