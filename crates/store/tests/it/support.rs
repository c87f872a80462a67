//! Ticks to record: any at all for properties, and ones like a real host's for sizes and speed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::*;
use ballast_store::{Start, Tick};
use proptest::option;
use proptest::prelude::*;

/// What a [`Tick`] borrows.
#[derive(Clone, Debug)]
pub(crate) struct OwnedTick {
    pub(crate) wall_ms: i64,
    pub(crate) snapshot: Snapshot,
    pub(crate) answer: Option<PolicyAnswer>,
    pub(crate) plan: Plan,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) carried: Vec<CarriedGuest>,
    pub(crate) handovers: Vec<Handover>,
    pub(crate) limits: BTreeMap<GuestId, GuestLimits>,
    pub(crate) paused: bool,
    pub(crate) mode: ModeChoice,
    pub(crate) decision_cost: Duration,
}

impl OwnedTick {
    pub(crate) fn tick(&self) -> Tick<'_> {
        Tick {
            wall: wall(self.wall_ms),
            snapshot: &self.snapshot,
            answer: self.answer.as_ref(),
            plan: &self.plan,
            outcomes: &self.outcomes,
            carried: &self.carried,
            handovers: &self.handovers,
            limits: &self.limits,
            paused: self.paused,
            mode: self.mode,
            decision_cost: self.decision_cost,
        }
    }
}

pub(crate) fn wall(ms: i64) -> SystemTime {
    let span = Duration::from_millis(ms.unsigned_abs());
    if ms < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
}

pub(crate) fn start() -> Start {
    Start {
        wall: wall(1_700_000_000_000),
        mono: Timestamp::from_millis(1_000),
        boot_id: "1b4e28ba-2fa1-41d2-883f-0016d3cca427".into(),
        version: "0.1.0".into(),
        pid: 4711,
    }
}

/// Numbers that differ from tick to tick and guest to guest as a real host's do, the same in each
/// run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Tick `nth` of a host with `guests` guests: all report statistics that change a little, every
/// tenth guest is resized, every fourth has bounds of its own.
pub(crate) fn realistic(nth: u64, guests: u64) -> OwnedTick {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15 ^ (nth + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let now = Timestamp::from_millis(60_000 + nth * 1_000);
    let mut samples = Vec::new();
    let mut plans = Vec::new();
    let mut actions = Vec::new();
    let mut outcomes = Vec::new();
    let mut limits = BTreeMap::new();
    for i in 0..guests {
        let id: GuestId = format!("guest-{i:03}").parse().unwrap();
        let boot = Bytes::gib(2);
        let moves = (i + nth).is_multiple_of(10);
        let allocation = Bytes::mib(700 + i * 3 % 400 + if moves { nth % 7 } else { 0 });
        let available = Bytes::pages(20_000 + i * 100 + noise.below(4_000));
        let used = allocation.saturating_sub(available);
        let target =
            Bytes::pages(allocation.to_pages() + if moves { noise.below(9_000) } else { 0 });
        let age = Duration::from_millis(noise.below(1_000));
        samples.push(GuestSample {
            run_state: Some(RunState::Running),
            allocation: Some(Measured::fresh(allocation)),
            boot_memory: Some(boot),
            resident: Some(Measured {
                value: Bytes::kib(allocation.get() / 1024 + noise.below(3_000) * 4),
                age: Duration::from_millis(3),
            }),
            stats: Some(Measured {
                value: GuestStats {
                    total: Some(Bytes::new(allocation.get() - (60 << 20))),
                    free: Some(Bytes::pages(9_000 + noise.below(5_000))),
                    available: Some(available),
                    disk_caches: Some(Bytes::pages(12_000 + noise.below(300))),
                    swap_in: Some(Bytes::pages(i * 10)),
                    swap_out: Some(Bytes::pages(i * 17)),
                    major_faults: Some(1_000 + i + nth / 9),
                    minor_faults: Some(50_000 * i + nth * 40 + noise.below(40)),
                },
                age,
            }),
            capabilities: Capabilities {
                shared_control: None,
                balloon: Some(true),
                statistics: Some(true),
                free_page_reporting: Some(false),
                deflate_on_oom: Some(true),
                memory_devices: Some(false),
                discard_inhibited: Some(false),
            },
            ..GuestSample::unknown(id.clone(), LinkState::Up)
        });
        let change = if moves && target > allocation {
            Change::Grow { by: target - allocation }
        } else {
            let change = Bytes::pages(noise.below(2_000));
            Change::Hold(HoldReason::DeadBand { change, band: Bytes::mib(8) })
        };
        if moves {
            let generation = Generation(nth + 1);
            let deadline = now + Duration::from_secs(1);
            let guest = id.clone();
            actions.push(Action { guest, target, plug: None, generation, deadline });
            let kind = OutcomeKind::Accepted;
            outcomes.push(Outcome { guest: id.clone(), generation: Generation(nth), target, kind });
        }
        if i.is_multiple_of(4) {
            let floor = Some(Bytes::mib(256));
            limits.insert(id.clone(), GuestLimits { floor, shares: 2_000, ..Default::default() });
        }
        plans.push(GuestPlan {
            id,
            allocation: Some(allocation),
            bounds: Some(Bounds { floor: Bytes::mib(256), ceiling: boot }),
            estimate: Some(Estimate::of_used(
                used,
                available,
                Provenance::BalloonStatistics { age },
            )),
            desired: Some(Desired {
                target: Bytes::pages(target.to_pages() + noise.below(2_000)),
                reason: Reason::IdleTax {
                    used,
                    tax: Tax::from_fraction(3_000_000_000 + nth * 1_000),
                    budget: Bytes::gib(96),
                },
            }),
            clamps: if moves { vec![Clamped::StepUp { limit: Bytes::mib(64) }] } else { vec![] },
            credits: None,
            compliance: Compliance::Compliant,
            target: Some(target),
            change,
            moves: vec![],
            balloon_rate: None,
            regret: None,
        });
    }
    let host = HostSample {
        merging: None,
        balloon_owner: None,
        memory_total: Some(Bytes::gib(128)),
        memory_available: Some(Bytes::kib(20_000_000 + noise.below(100_000))),
        swap_total: Some(Bytes::gib(8)),
        swap_free: Some(Bytes::gib(8)),
        pressure: Some(Pressure { some_basis_points: 12, full_basis_points: 3 }),
    };
    let plan = Plan {
        generation: Generation(nth + 1),
        decided_at: now,
        policy: PolicyName::Global,
        budget: Budget {
            distributable: Bytes::gib(96),
            committed: Bytes::gib(90),
            grantable: Bytes::pages(noise.below(1_000_000)),
        },
        guests: plans,
        actions,
        paging: vec![],
        host_pressure: PressureLevel::Normal,
        reservations: Vec::new(),
        notes: vec![],
    };
    OwnedTick {
        wall_ms: 1_700_000_000_000 + nth as i64 * 1_000,
        snapshot: Snapshot::new(now, host, samples),
        answer: None,
        plan,
        outcomes,
        carried: vec![],
        handovers: vec![],
        limits,
        paused: false,
        mode: ModeChoice::default(),
        decision_cost: Duration::from_micros(400 + noise.below(200)),
    }
}

/// A tick of one guest that takes about `bytes` in the file, and is cheap to make.
pub(crate) fn bulky(nth: u64, bytes: u64) -> OwnedTick {
    let mut owned = realistic(nth, 1);
    let mut noise = Noise(nth * 2 + 1);
    // 64 different characters: six bits of noise in each byte.
    let text = (0..bytes * 8 / 6).map(|_| char::from(b'0' + noise.below(64) as u8)).collect();
    let Some(first) = owned.plan.guests.first() else { return owned };
    owned.outcomes = vec![Outcome {
        guest: first.id.clone(),
        generation: owned.plan.generation,
        target: Bytes::ZERO,
        kind: OutcomeKind::Failed(text),
    }];
    owned
}

fn bytes() -> impl Strategy<Value = Bytes> + Clone {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..1u64 << 40].prop_map(Bytes::new)
}

fn span() -> impl Strategy<Value = Duration> + Clone {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(Duration::from_nanos)
}

fn moment() -> impl Strategy<Value = Timestamp> + Clone {
    any::<u64>().prop_map(Timestamp::from_millis)
}

fn text() -> impl Strategy<Value = String> + Clone {
    prop_oneof!["[a-z ]{0,12}", ".{0,12}"]
}

fn id() -> impl Strategy<Value = GuestId> + Clone {
    "[A-Za-z0-9_][A-Za-z0-9._-]{0,9}".prop_map(|name| name.parse().unwrap())
}

fn run_state() -> impl Strategy<Value = RunState> + Clone {
    prop_oneof![
        Just(RunState::Running),
        Just(RunState::Paused),
        Just(RunState::Shutdown),
        Just(RunState::Panicked),
        Just(RunState::Incoming),
        text().prop_map(RunState::Other),
    ]
}

fn link() -> impl Strategy<Value = LinkState> {
    prop_oneof![
        Just(LinkState::Up),
        Just(LinkState::Down(LinkDown::Connecting)),
        Just(LinkState::Down(LinkDown::Taken)),
        Just(LinkState::Down(LinkDown::PermissionDenied)),
        Just(LinkState::Down(LinkDown::Refused)),
        Just(LinkState::Down(LinkDown::TimedOut)),
        text().prop_map(|what| LinkState::Down(LinkDown::Protocol(what))),
        text().prop_map(|how| LinkState::Down(LinkDown::Closed(how))),
    ]
}

fn measured() -> impl Strategy<Value = Measured<Bytes>> {
    (bytes(), span()).prop_map(|(value, age)| Measured { value, age })
}

fn stats() -> impl Strategy<Value = Measured<GuestStats>> {
    let sizes = prop::array::uniform6(option::of(bytes()));
    (sizes, any::<[Option<u64>; 2]>(), span()).prop_map(|(sizes, faults, age)| {
        let [total, free, available, disk_caches, swap_in, swap_out] = sizes;
        let [major_faults, minor_faults] = faults;
        let value = GuestStats {
            total,
            free,
            available,
            disk_caches,
            swap_in,
            swap_out,
            major_faults,
            minor_faults,
        };
        Measured { value, age }
    })
}

fn capabilities() -> impl Strategy<Value = Capabilities> {
    any::<[Option<bool>; 7]>().prop_map(|flags| {
        let [balloon, statistics, reporting, deflate_on_oom, memory_devices, inhibited, shared] =
            flags;
        Capabilities {
            balloon,
            statistics,
            free_page_reporting: reporting,
            deflate_on_oom,
            memory_devices,
            discard_inhibited: inhibited,
            shared_control: shared,
        }
    })
}

fn fence() -> impl Strategy<Value = Fence> {
    (option::of(bytes()), any::<Option<String>>())
        .prop_map(|(limit, trouble)| Fence { limit, trouble })
}

fn guest_sample() -> impl Strategy<Value = GuestSample> {
    (
        id(),
        link(),
        option::of(run_state()),
        option::of(measured()),
        (option::of(bytes()), option::of(hotplug())),
        option::of(measured()),
        option::of(stats()),
        (option::of(agent()), option::of(tracker()), option::of(tracking()), option::of(fence())),
        (capabilities(), option::of(prop::sample::select(&Pinned::ALL[..]))),
    )
        .prop_map(
            |(
                id,
                link,
                run_state,
                allocation,
                boot_memory,
                resident,
                stats,
                reports,
                capabilities,
            )| {
                GuestSample {
                    id,
                    link,
                    run_state,
                    allocation,
                    boot_memory: boot_memory.0,
                    hotplug: boot_memory.1,
                    process: resident.as_ref().map(|it| ProcessId {
                        pid: it.age.subsec_nanos(),
                        start_ticks: it.value.get(),
                    }),
                    unmapped: resident.as_ref().map(|it| it.value),
                    overhead: resident.as_ref().map(|it| it.value),
                    file_backed: resident.as_ref().map(|it| it.value),
                    rooms: resident
                        .iter()
                        .map(|it| MemoryRoom {
                            by: format!("/sys/fs/cgroup/{}", it.value.get()),
                            limit: it.value,
                            left: it.value,
                        })
                        .collect(),
                    merged: resident.as_ref().map(|it| it.value),
                    disk_reads: resident.map(|it| Measured {
                        value: DiskReads { read: it.value, requests: it.value.get(), took: it.age },
                        age: it.age,
                    }),
                    resident,
                    stats,
                    agent: reports.0.map(Box::new),
                    tracker: reports.1.map(Box::new),
                    tracking: reports.2.map(Box::new),
                    fence: reports.3,
                    pinned: capabilities.1,
                    capabilities: capabilities.0,
                }
            },
        )
}

fn host() -> impl Strategy<Value = HostSample> {
    (prop::array::uniform4(option::of(bytes())), any::<Option<(u32, u32)>>()).prop_map(
        |([memory_total, memory_available, swap_total, swap_free], pressure)| HostSample {
            merging: swap_free.map(|saved| PageMerging {
                knobs: MergingKnobs { is_running: true, pages_to_scan: 100, sleep: Duration::ZERO },
                shared: saved,
                saved,
                full_scans: saved.get(),
            }),
            balloon_owner: pressure.map(|_| BalloonOwner::Pvestatd),
            memory_total,
            memory_available,
            swap_total,
            swap_free,
            pressure: pressure.map(|(some_basis_points, full_basis_points)| Pressure {
                some_basis_points,
                full_basis_points,
            }),
        },
    )
}

/// Any snapshot.
pub(crate) fn snapshot() -> impl Strategy<Value = Snapshot> {
    (moment(), host(), prop::collection::vec(guest_sample(), 0..4))
        .prop_map(|(at, host, guests)| Snapshot::new(at, host, guests))
}

fn clamped() -> BoxedStrategy<Clamped> {
    prop_oneof![
        bytes().prop_map(|floor| Clamped::Floor { floor }),
        bytes().prop_map(|ceiling| Clamped::Ceiling { ceiling }),
        bytes().prop_map(|limit| Clamped::StepUp { limit }),
        bytes().prop_map(|limit| Clamped::StepDown { limit }),
        (bytes(), bytes(), bytes()).prop_map(|(claimed, believed, filled)| Clamped::Unproven {
            claimed,
            believed,
            filled
        }),
        bytes().prop_map(|held| Clamped::Thrashed { held }),
        bytes().prop_map(|least| Clamped::NoSwap { least }),
        bytes().prop_map(|most| Clamped::SampledAlone { most }),
        bytes().prop_map(|short| Clamped::AwaitingRelease { short }),
        bytes().prop_map(|short| Clamped::HostReserve { short }),
        (bytes(), "[a-z/]{0,9}", bytes()).prop_map(|(short, by, limit)| Clamped::NoRoom {
            short,
            by,
            limit
        }),
    ]
    .boxed()
}

fn input() -> impl Strategy<Value = Input> {
    prop::sample::select(Input::ALL.to_vec())
}

fn others() -> impl Strategy<Value = Others> {
    (id(), any::<usize>()).prop_map(|(first, more)| Others { first, more })
}

/// Any reason; some contain another one. Boxed, like the larger strategies below: nested by value,
/// they would overflow a test's stack.
pub(crate) fn reason() -> BoxedStrategy<Reason> {
    let because = prop_oneof![plain_reason(), standing_on(plain_reason())].boxed();
    prop_oneof![plain_reason(), standing_on(because)].boxed()
}

fn standing_on(because: BoxedStrategy<Reason>) -> BoxedStrategy<Reason> {
    let because = because.prop_map(Box::new).boxed();
    prop_oneof![
        (bytes(), any::<u32>(), because.clone())
            .prop_map(|(wanted, shares, because)| Reason::Scarce { wanted, shares, because }),
        ((bytes(), bytes(), any::<u8>()), option::of(others()), because.clone()).prop_map(
            |((need, taken, priority), payers, because)| {
                Reason::Raised { need, priority, taken, payers, because }
            }
        ),
        ((bytes(), any::<u8>()), others(), because).prop_map(
            |((given, priority), takers, because)| {
                Reason::Lowered { given, priority, takers, because }
            }
        ),
    ]
    .boxed()
}

fn plain_reason() -> BoxedStrategy<Reason> {
    prop_oneof![
        (bytes(), bytes()).prop_map(|(target, used)| Reason::Answered { target, used }),
        bytes().prop_map(|committed| Reason::Committed { committed }),
        bytes().prop_map(|working_set| Reason::Probed { working_set }),
        bytes().prop_map(|demand| Reason::DemandAndBonus { demand }),
        (bytes(), any::<Option<u64>>())
            .prop_map(|(demand, misses_per_s)| Reason::FewestMisses { demand, misses_per_s }),
        (input(), bytes(), bytes()).prop_map(|(what, used, reserve)| Reason::Missing {
            what,
            used,
            reserve
        }),
        (bytes(), any::<u32>(), any::<u64>()).prop_map(|(budget, shares, shares_total)| {
            Reason::Share { budget, shares, shares_total }
        }),
        (bytes(), bytes()).prop_map(|(used, reserve)| Reason::UsedPlusReserve { used, reserve }),
        (bytes(), any::<u64>(), bytes()).prop_map(|(used, tax, budget)| Reason::IdleTax {
            used,
            tax: Tax::from_fraction(tax),
            budget
        }),
        (".{0,40}", bytes()).prop_map(|(rule, used)| Reason::Custom { rule: rule.into(), used }),
        (bytes(), bytes()).prop_map(|(floor, rentable)| Reason::RentableShare { floor, rentable }),
        (bytes(), bytes(), any::<(u64, u64)>(), prop::sample::select(RentLimit::ALL.to_vec()))
            .prop_map(|(floor, wanted, (price_thousandths_per_kib, credits), limit)| {
                Reason::Rent { floor, wanted, price_thousandths_per_kib, credits, limit }
            }),
        clamped().prop_map(Reason::Bound),
    ]
    .boxed()
}

fn implausible() -> impl Strategy<Value = Implausible> + Clone {
    (0..4, bytes(), bytes()).prop_map(|(which, a, b)| match which {
        0 => Implausible::TotalOverBoot { total: a, boot: b },
        1 => Implausible::FreeOverTotal { free: a, total: b },
        2 => Implausible::AvailableOverTotal { available: a, total: b },
        _ => Implausible::AvailableOverAllocation { available: a, allocation: b },
    })
}

/// Any hold.
pub(crate) fn held() -> impl Strategy<Value = HoldReason> + Clone {
    prop_oneof![
        Just(HoldReason::Observing),
        Just(HoldReason::Paused),
        Just(HoldReason::OptedOut),
        text().prop_map(|why| HoldReason::Unreachable { why }),
        run_state().prop_map(|state| HoldReason::NotRunning { state }),
        Just(HoldReason::NoBalloon),
        Just(HoldReason::NoAllocation),
        Just(HoldReason::DiscardInhibited),
        prop::sample::select(&Pinned::ALL[..]).prop_map(|by| HoldReason::Pinned { by }),
        Just(HoldReason::NoStatistics),
        bytes().prop_map(|working_set| HoldReason::SampledAlone { working_set }),
        (span(), span()).prop_map(|(age, limit)| HoldReason::Stale { age, limit }),
        implausible().prop_map(HoldReason::Implausible),
        (span(), bytes(), span()).prop_map(|(idle, asked, retry_in)| HoldReason::Stuck {
            idle,
            asked,
            retry_in
        }),
        (bytes(), bytes()).prop_map(|(change, band)| HoldReason::DeadBand { change, band }),
        Just(HoldReason::AnotherOwner { owner: Some(BalloonOwner::Mom) }),
        Just(HoldReason::OnTarget),
        ("[a-z/]{0,9}", bytes()).prop_map(|(by, limit)| HoldReason::NoRoom { by, limit }),
        text().prop_map(|violation| HoldReason::PlanRefused { violation }),
        Just(HoldReason::ClockBackwards),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        bytes().prop_map(|by| Change::Grow { by }),
        bytes().prop_map(|by| Change::Shrink { by }),
        held().prop_map(|why| Change::CancelShrink { why }),
        held().prop_map(Change::Hold),
    ]
}

fn compliance() -> impl Strategy<Value = Compliance> {
    prop_oneof![
        Just(Compliance::Compliant),
        (bytes(), span()).prop_map(|(left, idle)| Compliance::Releasing { left, idle }),
        (bytes(), span()).prop_map(|(left, asked)| Compliance::Slow { left, asked }),
        span().prop_map(|idle| Compliance::Stuck { idle }),
        Just(Compliance::Inhibited),
    ]
}

fn estimate() -> impl Strategy<Value = Estimate> {
    let source = || prop::sample::select(DemandSource::ALL.to_vec());
    let demand = (bytes(), source(), span(), 0..=100u8).prop_map(|(size, source, age, percent)| {
        Demand { size, source, age, confidence: Confidence::from_percent(percent) }
    });
    let why = prop_oneof![
        Just(PassedOverReason::LessTrusted),
        Just(PassedOverReason::Contradicts),
        span().prop_map(|age_max| PassedOverReason::Stale { age_max }),
    ];
    let passed_over = (bytes(), source(), span(), why)
        .prop_map(|(size, source, age, why)| PassedOver { size, source, age, why });
    let passed_over = prop::collection::vec(passed_over, 0..3);
    let signals =
        (prop::array::uniform3(option::of(bytes())), any::<Option<u64>>(), option::of(request()))
            .prop_map(|([free, committed, probed], swapped_pages_per_s, request)| Signals {
                free,
                committed,
                probed,
                swapped_pages_per_s,
                request,
            });
    let demand = (option::of(demand), passed_over);
    let sizes = prop::array::uniform4(bytes());
    (sizes, span(), demand, option::of(curve()), signals).prop_map(
        |([used, available, swap_need, cache_need], age, (demand, passed_over), curve, signals)| {
            let provenance = Provenance::BalloonStatistics { age };
            let plain = Estimate::of_used(used, available, provenance);
            let demand = demand.unwrap_or(plain.demand);
            Estimate { swap_need, cache_need, demand, passed_over, curve, signals, ..plain }
        },
    )
}

fn request() -> impl Strategy<Value = MemoryRequest> {
    let kinds = vec![RequestKind::More, RequestKind::Less, RequestKind::Emergency];
    (any::<u64>(), prop::sample::select(kinds), bytes())
        .prop_map(|(number, kind, amount)| MemoryRequest { number, kind, amount })
}

fn curve() -> impl Strategy<Value = Arc<MissCurve>> {
    (1..1u64 << 20, 1..u64::MAX, prop::collection::vec(any::<u64>(), 1..9)).prop_map(
        |(pages, interval_ns, mut misses)| {
            misses.sort_unstable_by(|a, b| b.cmp(a));
            let interval = Duration::from_nanos(interval_ns);
            Arc::new(MissCurve::new(Bytes::pages(pages), interval, misses).unwrap())
        },
    )
}

fn agent() -> BoxedStrategy<Measured<AgentReport>> {
    let sizes = prop::array::uniform6(option::of(bytes()));
    (sizes, any::<[Option<u64>; 3]>(), option::of(request()), span())
        .prop_map(|(sizes, counters, request, age)| {
            let [committed, swap_used, swap_free, active, inactive, watermark_high] = sizes;
            let [refaulted_file_pages, scanned_pages, reclaimed_pages] = counters;
            let value = AgentReport {
                committed,
                swap_used,
                swap_free,
                active,
                inactive,
                watermark_high,
                refaulted_file_pages,
                scanned_pages,
                reclaimed_pages,
                request,
            };
            Measured { value, age }
        })
        .boxed()
}

fn tracker() -> impl Strategy<Value = Measured<TrackerReport>> {
    let sources = [
        TrackingSource::Library,
        TrackingSource::Damon,
        TrackingSource::DamonHuge,
        TrackingSource::Mglru,
        TrackingSource::MglruHuge,
        TrackingSource::Referenced,
    ];
    let source = prop::sample::select(sources.to_vec());
    (bytes(), option::of(curve()), source, span()).prop_map(|(working_set, curve, source, age)| {
        Measured { value: TrackerReport { working_set, curve, source }, age }
    })
}

fn tracking() -> impl Strategy<Value = Tracking> {
    let states = [
        TrackingState::Waiting,
        TrackingState::Watching,
        TrackingState::Resting,
        TrackingState::Referenced,
        TrackingState::Absent,
        TrackingState::Failing,
        TrackingState::Sampling,
        TrackingState::Aging,
    ];
    let share = || option::of(any::<u32>().prop_map(Share::from_millionths));
    let state = prop::sample::select(states.to_vec());
    (state, share(), share(), option::of(any::<String>()))
        .prop_map(|(state, watched, cost, trouble)| Tracking { state, watched, cost, trouble })
}

fn guest_plan() -> impl Strategy<Value = GuestPlan> {
    let desired = (bytes(), reason()).prop_map(|(target, reason)| Desired { target, reason });
    (
        id(),
        option::of(bytes()),
        option::of((bytes(), bytes()).prop_map(|(floor, ceiling)| Bounds { floor, ceiling })),
        option::of(estimate().boxed()),
        option::of(desired.boxed()),
        prop::collection::vec(clamped(), 0..3),
        option::of(any::<u64>()),
        compliance(),
        option::of(bytes()),
        (change(), prop::collection::vec(moved(), 0..3), option::of(regret()), option::of(bytes())),
    )
        .prop_map(
            |(
                id,
                allocation,
                bounds,
                estimate,
                desired,
                clamps,
                credits,
                compliance,
                target,
                change,
            )| {
                GuestPlan {
                    id,
                    allocation,
                    bounds,
                    estimate,
                    desired,
                    clamps,
                    credits,
                    compliance,
                    target,
                    change: change.0,
                    moves: change.1,
                    balloon_rate: change.3,
                    regret: change.2,
                }
            },
        )
}

fn mechanism() -> impl Strategy<Value = Mechanism> {
    prop::sample::select(Mechanism::ALL.to_vec())
}

fn pressure_level() -> impl Strategy<Value = PressureLevel> {
    prop::sample::select(PressureLevel::ALL.to_vec())
}

fn hotplug() -> impl Strategy<Value = Hotplug> {
    let kind = prop_oneof![Just(HotplugKind::VirtioMem), Just(HotplugKind::Dimm)];
    (kind, bytes(), bytes(), bytes(), bytes()).prop_map(|(kind, plugged, requested, max, block)| {
        Hotplug { kind, plugged, requested, max, block }
    })
}

fn moved() -> impl Strategy<Value = Move> {
    let why = prop_oneof![
        Just(MechanismReason::BalloonHasIt),
        Just(MechanismReason::BalloonTakesIt),
        bytes().prop_map(|left| MechanismReason::BalloonRunsOut { left }),
        Just(MechanismReason::BallooningInhibited),
        Just(MechanismReason::NoBalloon),
        span().prop_map(|idle| MechanismReason::PluggedIdle { idle }),
        bytes().prop_map(|unused| MechanismReason::NotOnlined { unused }),
        bytes().prop_map(|more| MechanismReason::AskedByOthers { more }),
        span().prop_map(|idle| MechanismReason::UnplugStalled { idle }),
        (bytes(), span()).prop_map(|(left, asked)| MechanismReason::NotGiven { left, asked }),
        pressure_level().prop_map(|level| MechanismReason::HostShort { level }),
        bytes().prop_map(|entitlement| MechanismReason::BeyondEntitlement { entitlement }),
        Just(MechanismReason::Growing),
    ];
    (mechanism(), bytes(), bytes(), why).prop_map(|(mechanism, from, to, why)| Move {
        mechanism,
        from,
        to,
        why,
    })
}

fn regret() -> impl Strategy<Value = Regret> {
    (bytes(), bytes(), any::<u64>()).prop_map(|(taken, read_back, undone)| Regret {
        taken,
        read_back,
        undone,
    })
}

fn fault() -> impl Strategy<Value = AnswerFault> {
    prop_oneof![
        Just(AnswerFault::NotAsked),
        text().prop_map(|why| AnswerFault::NotStarted { why }),
        text().prop_map(|how| AnswerFault::Ended { how }),
        span().prop_map(|deadline| AnswerFault::Late { deadline }),
        bytes().prop_map(|line_max| AnswerFault::TooLong { line_max }),
        text().prop_map(|why| AnswerFault::Malformed { why }),
        any::<(u64, u64)>()
            .prop_map(|(asked, answered)| AnswerFault::OutOfStep { asked, answered }),
        id().prop_map(|guest| AnswerFault::UnknownGuest { guest }),
        id().prop_map(|guest| AnswerFault::MissingGuest { guest }),
        bytes().prop_map(|by| AnswerFault::OverBudget { by }),
    ]
}

fn answer() -> impl Strategy<Value = PolicyAnswer> {
    let target = (id(), bytes()).prop_map(|(guest, target)| GuestTarget { guest, target });
    prop_oneof![
        prop::collection::vec(target, 0..4).prop_map(PolicyAnswer::Targets),
        fault().prop_map(PolicyAnswer::Fault),
    ]
}

/// Any note.
pub(crate) fn note() -> impl Strategy<Value = Note> {
    prop_oneof![
        bytes().prop_map(|shortfall| Note::Infeasible { shortfall }),
        (bytes(), bytes())
            .prop_map(|(configured, present)| Note::BudgetReduced { configured, present }),
        Just(Note::HostUnknown),
        any::<usize>().prop_map(|guests| Note::Uncounted { guests }),
        (any::<usize>(), bytes(), any::<bool>()).prop_map(|(guests, debt, collected)| {
            Note::BeyondEntitlement { guests, debt, collected }
        }),
        any::<usize>().prop_map(|guests| Note::Newcomers { guests }),
        (id(), bytes()).prop_map(|(guest, claimed)| Note::Unmapped { guest, claimed }),
        (input(), any::<usize>(), text()).prop_map(|(what, guests, fallback)| {
            Note::MissingInput { what, guests, fallback: fallback.into() }
        }),
        (id(), any::<u64>(), any::<Option<u64>>()).prop_map(
            |(guest, misses_per_s_max, misses_per_s)| Note::ObjectiveViolated {
                guest,
                misses_per_s_max,
                misses_per_s,
            }
        ),
        fault().prop_map(|fault| Note::Unanswered { fault }),
        text().prop_map(|violation| Note::Refused { violation }),
    ]
}

/// Any plan.
pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let action = (id(), bytes(), option::of(bytes()), any::<u64>(), moment()).prop_map(
        |(guest, target, plug, n, deadline)| Action {
            guest,
            target,
            plug,
            generation: Generation(n),
            deadline,
        },
    );
    let paging = (id(), mechanism(), bytes(), any::<u64>(), moment()).prop_map(
        |(guest, mechanism, resident, n, deadline)| Paging {
            guest,
            mechanism,
            resident,
            generation: Generation(n),
            deadline,
        },
    );
    let reservation = (id(), bytes(), moment(), bytes())
        .prop_map(|(guest, size, until, free)| Reservation { guest, size, until, free });
    let budget = (bytes(), bytes(), bytes()).prop_map(|(distributable, committed, grantable)| {
        Budget { distributable, committed, grantable }
    });
    (
        any::<u64>(),
        moment(),
        prop::sample::select(PolicyName::ALL.to_vec()),
        budget,
        prop::collection::vec(guest_plan().boxed(), 0..4),
        prop::collection::vec(action, 0..4),
        prop::collection::vec(paging, 0..3),
        pressure_level(),
        (prop::collection::vec(reservation, 0..3), prop::collection::vec(note(), 0..3)),
    )
        .prop_map(
            |(generation, decided_at, policy, budget, guests, actions, paging, level, rest)| Plan {
                generation: Generation(generation),
                decided_at,
                policy,
                budget,
                guests,
                actions,
                paging,
                host_pressure: level,
                reservations: rest.0,
                notes: rest.1,
            },
        )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let kind = prop_oneof![
        Just(OutcomeKind::Accepted),
        text().prop_map(OutcomeKind::Failed),
        Just(OutcomeKind::Expired),
        Just(OutcomeKind::Superseded),
        Just(OutcomeKind::Waiting),
    ];
    (id(), any::<u64>(), bytes(), kind).prop_map(|(guest, n, target, kind)| Outcome {
        guest,
        generation: Generation(n),
        target,
        kind,
    })
}

fn limits() -> impl Strategy<Value = GuestLimits> {
    let objective = (any::<u8>(), any::<Option<u64>>(), any::<Option<bool>>());
    let yes_or_no = any::<(bool, bool, bool)>();
    (option::of(bytes()), option::of(bytes()), any::<u32>(), objective, yes_or_no).prop_map(
        |(floor, ceiling, shares, (priority, miss_rate_max, swap), (fence, managed, take_over))| {
            GuestLimits {
                floor,
                ceiling,
                shares,
                priority,
                miss_rate_max,
                swap,
                fence,
                managed,
                take_over,
            }
        },
    )
}

fn carried() -> impl Strategy<Value = CarriedGuest> {
    let thrashed = (bytes(), moment(), span()).prop_map(|(least, until, pause)| Thrashed {
        least,
        until,
        pause,
    });
    (id(), option::of(any::<u64>()), option::of(thrashed))
        .prop_map(|(guest, credits, thrashed)| CarriedGuest { guest, credits, thrashed })
}

fn handover() -> impl Strategy<Value = Handover> {
    let process =
        (any::<u32>(), any::<u64>()).prop_map(|(pid, start_ticks)| ProcessId { pid, start_ticks });
    let stuck = (bytes(), moment(), moment(), span())
        .prop_map(|(asked, since, retry_at, pause)| Stuck { asked, since, retry_at, pause });
    let thrashed = (bytes(), moment(), span()).prop_map(|(least, until, pause)| Thrashed {
        least,
        until,
        pause,
    });
    let checked = prop::array::uniform6(option::of(bytes())).prop_map(
        |[held, target, granted, granted_lately, entitled, resident_cap]| CheckedGuest {
            held,
            target,
            granted,
            granted_lately,
            entitled,
            resident_cap,
        },
    );
    let checked = option::of(checked);
    let parts = (option::of(process), option::of(stuck), option::of(thrashed), checked);
    let limits = (option::of(bytes()), option::of(bytes()), any::<(Option<u32>, Option<bool>)>());
    let limits = limits.prop_map(|(floor, ceiling, (shares, managed))| GuestChange {
        floor,
        ceiling,
        shares,
        managed,
        ..GuestChange::default()
    });
    let held = (option::of(bytes()), option::of(bytes()), option::of(limits));
    let granted = (bytes(), option::of(bytes()), option::of(bytes()), option::of(bytes()));
    (id(), held, granted, parts).prop_map(
        |(guest, (held, first_held, carried_limits), granted, parts)| {
            let (process, stuck, thrashed, checked) = parts;
            let (transient_grant, granted, granted_lately, resident_cap) = granted;
            Handover {
                guest,
                process,
                held,
                transient_grant,
                granted,
                granted_lately,
                resident_cap,
                stuck,
                thrashed,
                first_held,
                carried_limits,
                checked,
            }
        },
    )
}

fn mode_choice() -> impl Strategy<Value = ModeChoice> {
    let mode = || prop::sample::select(Mode::ALL.to_vec());
    (mode(), mode()).prop_map(|(configured, set)| {
        let mut choice = ModeChoice::new(configured);
        choice.set(set);
        choice
    })
}

/// Any tick.
pub(crate) fn tick() -> impl Strategy<Value = OwnedTick> {
    (
        // A thousand years either way.
        -30_000_000_000_000i64..30_000_000_000_000,
        snapshot().boxed(),
        (plan().boxed(), option::of(answer())),
        (
            prop::collection::vec(outcome(), 0..4),
            prop::collection::vec(handover(), 0..3),
            prop::collection::vec(carried(), 0..2),
        ),
        prop::collection::btree_map(id(), limits(), 0..4),
        any::<bool>(),
        mode_choice(),
        span(),
    )
        .prop_map(|(wall_ms, snapshot, plan, came, limits, paused, mode, decision_cost)| {
            OwnedTick {
                wall_ms,
                snapshot,
                answer: plan.1,
                plan: plan.0,
                outcomes: came.0,
                handovers: came.1,
                carried: came.2,
                limits,
                paused,
                mode,
                decision_cost,
            }
        })
}
