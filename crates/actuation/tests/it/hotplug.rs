//! Plugging: named cases, and a simulated guest that moves either part at its own pace.

use std::time::Duration;

use ballast_actuation::hotplug::{
    Actuation, ActuationInput, Actuator, Band, HotplugSettings, balloon_only,
};
use ballast_model::{
    Bounds, Bytes, Capabilities, GuestSample, GuestStats, Hotplug, HotplugKind, LinkState,
    Measured, Mechanism, MechanismReason, RunState, Timestamp,
};
use proptest::prelude::*;

/// What the guest's kernel keeps for itself.
const KEPT: i64 = 40;
const FLOOR: i64 = 128;

/// A guest and its actuator. Sizes are MiB.
#[derive(Clone, Debug)]
struct Guest {
    kind: HotplugKind,
    boot: i64,
    block: i64,
    max: i64,
    plugged: i64,
    requested: i64,
    ballooned: i64,
    /// The size that the balloon should have.
    balloon_target: i64,
    /// The plugged memory that its kernel does not use.
    unused: i64,
    /// Ticks until its drivers run.
    booting: u32,
    onlines: bool,
    unplugs: bool,
    plugs: bool,
    inflates: bool,
    reports: bool,
    capabilities: Capabilities,
    actuator: Actuator,
    settings: HotplugSettings,
    now: u64,
    in_force: Option<i64>,
    ceiling: i64,
    /// The last requested plugged size.
    asked: Option<i64>,
    /// The order on its way: target, plug.
    on_its_way: Option<(i64, Option<i64>)>,
}

fn mib(n: i64) -> Bytes {
    Bytes::mib(u64::try_from(n).expect("no negative size"))
}

fn of(bytes: Bytes) -> i64 {
    assert_eq!(bytes.get() % (1 << 20), 0, "{bytes:#} is not whole MiB");
    (bytes.get() >> 20) as i64
}

impl Guest {
    fn new(boot: i64, max: i64) -> Guest {
        Guest {
            kind: HotplugKind::VirtioMem,
            boot,
            block: 2,
            max,
            plugged: 0,
            requested: 0,
            ballooned: 0,
            balloon_target: 0,
            unused: 0,
            booting: 0,
            onlines: true,
            unplugs: true,
            plugs: true,
            inflates: true,
            reports: true,
            capabilities: Capabilities { balloon: Some(true), ..Capabilities::default() },
            actuator: Actuator::default(),
            settings: HotplugSettings::default(),
            now: 1_000_000,
            in_force: None,
            ceiling: boot + max,
            asked: None,
            on_its_way: None,
        }
    }

    fn total(&self) -> i64 {
        self.boot + self.plugged - self.ballooned
    }

    /// Memory that its kernel can use.
    fn usable(&self) -> i64 {
        self.total() - self.unused
    }

    fn sample(&self) -> GuestSample {
        let stats =
            GuestStats { total: Some(mib((self.usable() - KEPT).max(0))), ..GuestStats::default() };
        GuestSample {
            run_state: Some(RunState::Running),
            allocation: Some(Measured::fresh(mib(self.total()))),
            boot_memory: Some(mib(self.boot)),
            hotplug: Some(Hotplug {
                kind: self.kind,
                plugged: mib(self.plugged),
                requested: mib(self.requested),
                max: mib(self.max),
                block: mib(self.block),
            }),
            stats: (self.reports && self.booting == 0).then(|| Measured::fresh(stats)),
            capabilities: self.capabilities,
            ..GuestSample::unknown("g".parse().unwrap(), LinkState::Up)
        }
    }

    /// One tick of the actuator. Checks what must hold for every order.
    fn actuate(&mut self, send: Option<i64>, spare: i64) -> Actuation {
        self.now += 1000;
        let sample = self.sample();
        let before = self.in_force.map_or(0, |target| target + of(self.actuator.transient_grant()));
        let input = ActuationInput {
            now: Timestamp::from_millis(self.now),
            sample: &sample,
            in_force: self.in_force.map(mib),
            send: send.map(mib),
            bounds: Some(Bounds { floor: mib(FLOOR), ceiling: mib(self.ceiling) }),
            spare: mib(spare),
            settings: &self.settings,
            band: Band::OPEN,
            owned: Bytes::MAX,
        };
        let actuation = self.actuator.actuate(&input);
        self.in_force = send.or(self.in_force);
        if let Some(target) = actuation.target {
            let (target, plug) = (of(target), actuation.plug.map(of));
            let wanted = self.in_force.unwrap();
            let to_plug = plug.unwrap_or(self.plugged);
            let balloon = (target - to_plug) - (self.total() - self.plugged);
            let plugs = to_plug - self.plugged;
            // Memory unplugged by another client goes down, whatever is ordered.
            let others = plugs < 0 && plug == Some(self.requested);
            assert!(
                others || balloon.signum() * plugs.signum() >= 0,
                "opposite: {balloon} {plugs} {self:?} {actuation:?}"
            );
            assert!(plugs <= 512.max(self.block) || plug == self.asked, "{plugs} at once");
            assert!(to_plug <= self.max.max(self.plugged) && to_plug % self.block == 0);
            assert!(target <= self.ceiling.max(wanted).max(self.total()), "{target} {self:?}");
            assert!(target <= self.boot + to_plug);
            if plugs > 0 && plug != self.asked && self.capabilities.balloon == Some(true) {
                assert!(wanted + 256 > self.boot + self.plugged, "plugs for {wanted}: {self:?}");
            }
            let from_spare = of(actuation.from_spare);
            assert!(from_spare <= spare, "{from_spare} of {spare}: {actuation:?} {self:?}");
            assert_eq!(from_spare, (target - wanted.max(before).max(self.total())).max(0));
            self.asked = plug;
            self.on_its_way = Some((target, plug));
        } else {
            assert_eq!(actuation, Actuation::default());
        }
        actuation
    }

    /// The hypervisor takes the order.
    fn arrive(&mut self) {
        let Some((target, plug)) = self.on_its_way.take() else { return };
        let plugs_only = self.capabilities.balloon == Some(false)
            || self.capabilities.discard_inhibited == Some(true);
        if !plugs_only {
            // The hypervisor counts the requested size, whether or not it is plugged in already.
            let with = plug.unwrap_or(self.requested);
            if self.kind == HotplugKind::VirtioMem && target <= with && with > 0 {
                return;
            }
            self.balloon_target = (self.boot + with - target).max(0);
            if self.kind == HotplugKind::VirtioMem {
                self.balloon_target = self.balloon_target.min(self.boot - 1);
            }
        }
        if let Some(plug) = plug {
            self.requested = plug;
        }
    }

    /// The guest moves its balloon by up to `balloon` and plugs or unplugs up to `blocks`.
    fn step(&mut self, balloon: i64, blocks: i64) {
        if self.booting > 0 {
            return;
        }
        let by = (self.balloon_target - self.ballooned).clamp(-balloon, balloon);
        if by < 0 || self.inflates {
            // A driver cannot take pages that do not exist.
            self.ballooned += by.min((self.total() - KEPT).max(0));
        }
        let most = blocks * self.block;
        let by = (self.requested - self.plugged).clamp(-most, most);
        if by > 0 && self.plugs {
            self.plugged += by;
            if !self.onlines {
                self.unused += by;
            }
        } else if by < 0 && (self.unplugs || self.unused > 0) {
            let by = if self.unplugs { by } else { by.max(-self.unused) };
            let by = by.max(-(self.total() - KEPT).max(0) / self.block * self.block);
            self.plugged += by;
            self.unused = (self.unused + by).max(0);
        }
    }

    fn reboot(&mut self, booting: u32) {
        (self.plugged, self.ballooned, self.unused, self.booting) = (0, 0, 0, booting);
    }

    /// A tick in which everything is done at once.
    fn tick(&mut self, send: Option<i64>, spare: i64) -> Actuation {
        let actuation = self.actuate(send, spare);
        self.arrive();
        self.step(i64::MAX, 1 << 20);
        self.booting = self.booting.saturating_sub(1);
        actuation
    }

    /// Ticks in which the guard sends nothing. Returns the orders: target, plug, and why it was
    /// plugged.
    fn orders(
        &mut self,
        ticks: usize,
        spare: i64,
    ) -> Vec<(i64, Option<i64>, Option<MechanismReason>)> {
        let mut orders = Vec::new();
        for _ in 0..ticks {
            orders.extend(order_and_reason(&self.tick(None, spare)));
        }
        orders
    }
}

fn order_and_reason(actuation: &Actuation) -> Option<(i64, Option<i64>, Option<MechanismReason>)> {
    let why = actuation
        .moves
        .iter()
        .find(|it| it.mechanism != Mechanism::Balloon)
        .map(|it| it.why.clone());
    Some((of(actuation.target?), actuation.plug.map(of), why))
}

#[test]
fn what_the_balloon_can_give_is_left_to_it() {
    // Boot memory, target, spare; whether anything is plugged.
    for (boot, target, spare, plugs) in [
        (1024, 512, 4096, false),
        (1024, 768, 4096, false),
        (1024, 770, 4096, true),
        (1024, 770, 0, false),
        (1024, 1024, 0, false),
        (1024, 1024, 16, false),
        (1024, 1024, 32, true),
        (1024, 1200, 0, true),
        (1024, 1025, 0, false),
    ] {
        let mut guest = Guest::new(boot, 4096);
        guest.ballooned = (boot - target).max(0);
        guest.balloon_target = guest.ballooned;
        guest.tick(Some(target), spare);
        guest.orders(20, spare);
        assert_eq!(guest.plugged > 0, plugs, "boot {boot}, target {target}, spare {spare}");
    }
}

#[test]
fn plugging_ahead_takes_two_orders_and_keeps_still() {
    let mut guest = Guest::new(1024, 4096);
    guest.tick(Some(1024), 4096);
    let mut orders = guest.orders(1, 4096);
    assert_eq!(of(guest.actuator.transient_grant()), 512);
    orders.extend(guest.orders(3, 4096));
    let runs_out = MechanismReason::BalloonRunsOut { left: Bytes::ZERO };
    assert_eq!(orders, [(1536, Some(512), Some(runs_out)), (1024, None, None)]);
    assert_eq!((guest.plugged, guest.total()), (512, 1024));
    assert_eq!(guest.actuator.transient_grant(), Bytes::ZERO);
    assert_eq!(guest.orders(500, 4096), []);
}

#[test]
fn growing_far_takes_chunks() {
    let mut guest = Guest::new(512, 4096);
    guest.tick(Some(3000), 4096);
    let orders = guest.orders(40, 4096);
    assert!(orders.iter().all(|(target, ..)| *target <= 3000 + 512));
    assert_eq!((guest.total(), guest.plugged), (3000, 2998));
    assert_eq!(guest.orders(500, 4096), []);
}

#[test]
fn idle_memory_is_unplugged_after_its_grace_in_small_steps() {
    let mut guest = Guest::new(512, 4096);
    guest.tick(Some(2512), 4096);
    guest.orders(40, 4096);
    assert_eq!(guest.plugged, 2510);
    guest.tick(Some(1512), 4096);
    assert_eq!(guest.total(), 1999, "what the balloon cannot take is unplugged");
    let early = guest.orders(10, 0);
    assert_eq!((guest.plugged, guest.total()), (1512, 1513), "{early:?}");
    guest.tick(Some(1000), 0);
    guest.orders(60, 0);
    assert_eq!((guest.plugged, guest.total()), (1000, 1001));
    guest.tick(Some(700), 0);
    guest.orders(60, 0);
    assert_eq!((guest.plugged, guest.total()), (700, 701), "QEMU's target cannot be zero");
    guest.orders(60, 1);
    assert_eq!((guest.plugged, guest.total()), (698, 700));
    assert_eq!(guest.orders(500, 4096), []);
}

#[test]
fn unplugging_lends_first() {
    let mut guest = Guest::new(1024, 1024);
    (guest.plugged, guest.requested, guest.ballooned, guest.balloon_target) =
        (1024, 1024, 848, 848);
    guest.tick(Some(1200), 4096);
    assert_eq!(guest.orders(29, 4096), []);
    let orders = guest.orders(3, 4096);
    let idle = |secs| Some(MechanismReason::PluggedIdle { idle: Duration::from_secs(secs) });
    assert_eq!(orders[..2], [(1328, None, None), (1200, Some(896), idle(31))]);
    guest.orders(20, 4096);
    assert_eq!((guest.plugged, guest.total()), (688, 1200));
}

#[test]
fn a_stalled_unplug_is_retried_ever_more_rarely() {
    let mut guest = Guest::new(1024, 1024);
    (guest.plugged, guest.requested, guest.ballooned, guest.balloon_target) =
        (1024, 1024, 848, 848);
    guest.unplugs = false;
    guest.tick(Some(1200), 4096);
    let orders = guest.orders(45, 4096);
    let stalled = Some(MechanismReason::UnplugStalled { idle: Duration::from_secs(10) });
    assert_eq!(orders[2..], [(1328, Some(1024), stalled), (1200, None, None)]);
    assert_eq!((guest.requested, guest.total()), (1024, 1200));
    let begun = |orders: &[(i64, Option<i64>, Option<MechanismReason>)]| {
        orders
            .iter()
            .filter(|(.., why)| matches!(why, Some(MechanismReason::PluggedIdle { .. })))
            .count()
    };
    let orders = guest.orders(10_000, 4096);
    assert!((9..=14).contains(&begun(&orders)), "{}", begun(&orders));
    guest.unplugs = true;
    guest.orders(1_100, 4096);
    assert_eq!(guest.plugged, 688);
}

#[test]
fn plugged_memory_is_proven_used_before_the_balloon_inflates() {
    let mut guest = Guest::new(1024, 4096);
    guest.onlines = false;
    guest.tick(Some(1024), 4096);
    guest.tick(None, 4096);
    let mut found = None;
    for _ in 0..20 {
        let actuation = guest.tick(None, 4096);
        assert!(guest.usable() >= 1024, "{guest:?}");
        found = found.or(order_and_reason(&actuation));
    }
    let not_onlined = Some(MechanismReason::NotOnlined { unused: Bytes::mib(512) });
    assert_eq!(found, Some((1024, Some(0), not_onlined)));
    assert_eq!((guest.plugged, guest.total()), (0, 1024));
    let range = |guest: &Guest| {
        let now = Timestamp::from_millis(guest.now);
        guest.actuator.range(now, &guest.sample(), &guest.settings).map(|range| of(range.most))
    };
    assert_eq!(range(&guest), Some(1024), "nothing more can be had of it");
    assert_eq!(guest.orders(280, 4096), []);
    assert!(guest.orders(10_000, 4096).len() < 20);
    guest.onlines = true;
    guest.orders(3_700, 4096);
    assert_eq!((guest.plugged, guest.total(), range(&guest)), (512, 1024, Some(5120)));
}

#[test]
fn a_guest_without_statistics_is_not_judged() {
    let mut guest = Guest::new(1024, 4096);
    (guest.onlines, guest.reports) = (false, false);
    guest.tick(Some(1024), 4096);
    guest.orders(30, 4096);
    assert_eq!((guest.plugged, guest.total()), (512, 1024));
}

#[test]
fn a_guest_that_plugs_nothing_is_given_up() {
    for (reports, ticks) in [(true, 12), (false, 62)] {
        let mut guest = Guest::new(1024, 4096);
        (guest.plugs, guest.reports) = (false, reports);
        guest.tick(Some(1024), 4096);
        guest.orders(ticks, 4096);
        assert_eq!(
            (guest.requested, guest.actuator.transient_grant()),
            (0, Bytes::ZERO),
            "{guest:?}"
        );
        assert_eq!(guest.orders(200, 4096), []);
    }
}

#[test]
fn without_a_usable_balloon_there_is_only_plugging() {
    let none = Capabilities { balloon: Some(false), ..Capabilities::default() };
    let inhibited = Capabilities {
        balloon: Some(true),
        discard_inhibited: Some(true),
        ..Capabilities::default()
    };
    for (capabilities, why) in
        [(none, MechanismReason::NoBalloon), (inhibited, MechanismReason::BallooningInhibited)]
    {
        let mut guest = Guest::new(1024, 4096);
        guest.capabilities = capabilities;
        // Target, and the plugged size then; no spare memory is needed.
        for (target, plugged) in [(1024, 0), (2001, 976), (1500, 476), (1499, 476), (300, 0)] {
            let mut orders = Vec::from_iter(order_and_reason(&guest.tick(Some(target), 0)));
            orders.extend(guest.orders(20, 0));
            assert_eq!(guest.plugged, plugged, "{target}: {orders:?}");
            assert!(orders.iter().all(|order| order.2 == Some(why.clone())), "{orders:?}");
            assert_eq!(guest.ballooned, 0);
        }
    }
}

#[test]
fn modules_are_plugged_and_unplugged_whole() {
    let mut guest = Guest::new(1024, 4096);
    (guest.kind, guest.block) = (HotplugKind::Dimm, 1024);
    guest.tick(Some(1100), 4096);
    guest.orders(20, 4096);
    assert_eq!((guest.plugged, guest.total()), (1024, 1100));
    guest.tick(Some(600), 4096);
    guest.orders(60, 4096);
    assert_eq!(guest.plugged, 1024, "the half of it that has to be in store is no module");
    guest.tick(Some(400), 1023);
    guest.orders(60, 1023);
    assert_eq!(guest.plugged, 1024, "a module is a transient grant as a whole");
    guest.orders(60, 1024);
    assert_eq!((guest.plugged, guest.total()), (0, 400));
}

#[test]
fn foreign_requests_stand_while_the_guest_follows_them() {
    let mut guest = Guest::new(1024, 4096);
    (guest.ballooned, guest.balloon_target) = (512, 512);
    guest.tick(Some(512), 4096);
    guest.requested = 1024;
    guest.plugs = false;
    assert_eq!(guest.orders(9, 4096), []);
    assert_eq!(of(guest.actuator.transient_grant()), 1024, "it may take them at any time");
    let orders = guest.orders(5, 4096);
    let unused = Some(MechanismReason::NotOnlined { unused: Bytes::mib(1024) });
    assert_eq!(orders[0], (512, Some(0), unused));
    assert_eq!(guest.requested, 0);
    assert_eq!(guest.total(), 512);
    guest.plugs = true;
    guest.requested = 256;
    guest.orders(3, 0);
    assert_eq!((guest.plugged, guest.total()), (256, 512), "the balloon takes it");
}

/// As after a move to another host, or a restart of the daemon, in the middle of plugging.
#[test]
fn an_order_withdraws_a_foreign_request() {
    for (requested, slow) in [(200, 0), (396, 0), (200, 20), (396, 20), (1024, 20)] {
        let mut guest = Guest::new(384, 1024);
        guest.requested = requested;
        for tick in 0..20 {
            let actuation = guest.actuate((tick == 0).then_some(780), 4096);
            if tick == 0 {
                let more = Bytes::mib(u64::try_from(requested).unwrap());
                assert_eq!(
                    order_and_reason(&actuation),
                    Some((384, Some(0), Some(MechanismReason::AskedByOthers { more })))
                );
            }
            guest.arrive();
            for _ in 0..10 {
                guest.step(8, slow);
                assert!(guest.total() >= 384, "{guest:?}");
            }
            guest.step(i64::MAX, if slow > 0 { slow } else { 1 << 20 });
        }
        guest.orders(60, 4096);
        assert_eq!(guest.total(), 780, "{guest:?}");
    }
}

#[test]
fn what_an_order_needs_is_not_left_to_be_unplugged() {
    for (send, expected) in
        [(780, (780, Some(512), Some(MechanismReason::Growing))), (300, (300, Some(0), None))]
    {
        let mut guest = Guest::new(384, 1024);
        (guest.kind, guest.block) = (HotplugKind::Dimm, 128);
        (guest.plugged, guest.requested, guest.unplugs) = (512, 0, false);
        assert_eq!(order_and_reason(&guest.tick(Some(send), 0)), Some(expected));
    }
}

#[test]
fn nothing_is_ordered_of_a_balloon_that_cannot_be_used() {
    let mut guest = Guest::new(384, 1024);
    guest.capabilities.discard_inhibited = Some(true);
    assert_eq!(balloon_only(&guest.sample(), Some(mib(300))), Actuation::default());
}

#[test]
fn with_nothing_plugged_an_order_withdraws_a_foreign_request() {
    let mut guest = Guest::new(384, 1024);
    (guest.plugged, guest.requested) = (128, 396);
    let why = MechanismReason::AskedByOthers { more: Bytes::mib(268) };
    let order = |send: Option<i64>| balloon_only(&guest.sample(), send.map(mib));
    assert_eq!(order_and_reason(&order(Some(500))), Some((500, Some(128), Some(why))));
    assert_eq!(order(None), Actuation::default());
    guest.requested = 128;
    assert_eq!(
        order_and_reason(&balloon_only(&guest.sample(), Some(mib(500)))),
        Some((500, None, None))
    );
}

#[test]
fn what_cannot_be_acted_on_is_left_alone() {
    let mut guest = Guest::new(1024, 4096);
    guest.in_force = Some(1024);
    let settings = HotplugSettings::default();
    let mut stale = guest.sample();
    stale.allocation = Some(Measured { value: Bytes::gib(1), age: Duration::from_secs(11) });
    let mut paused = guest.sample();
    paused.run_state = Some(RunState::Paused);
    let mut unknown = guest.sample();
    unknown.boot_memory = None;
    let mut without = guest.sample();
    without.hotplug = None;
    for sample in [stale, paused, unknown, without] {
        for send in [None, Some(Bytes::mib(700))] {
            let actuation = guest.actuator.actuate(&ActuationInput {
                now: Timestamp::from_millis(5_000),
                sample: &sample,
                in_force: Some(Bytes::gib(1)),
                send,
                bounds: Some(Bounds { floor: Bytes::mib(128), ceiling: Bytes::gib(5) }),
                spare: Bytes::gib(4),
                settings: &settings,
                band: Band::OPEN,
                owned: Bytes::MAX,
            });
            assert_eq!((actuation.target, actuation.plug), (send, None));
        }
    }
}

#[test]
fn a_rebooted_guest_gets_boot_memory_before_its_balloon_inflates() {
    let mut guest = Guest::new(512, 4096);
    guest.tick(Some(2000), 4096);
    guest.orders(40, 4096);
    guest.reboot(8);
    let first = guest.tick(None, 4096);
    assert_eq!(
        order_and_reason(&first).map(|(target, plug, _)| (target, plug)),
        Some((512, Some(0)))
    );
    guest.orders(60, 4096);
    assert_eq!(guest.total(), 2000);
}

/// What happens in one tick of a random run.
#[derive(Clone, Debug)]
struct Event {
    send: Option<i64>,
    spare: i64,
    /// Steps of the guest, each: balloon, blocks.
    steps: Vec<(i64, i64)>,
    /// Step before which the order arrives.
    arrives: usize,
    what: u8,
}

fn event(top: i64) -> impl Strategy<Value = Event> {
    (
        prop::option::weighted(0.3, FLOOR..=top),
        prop_oneof![Just(0), 0..200i64, 0..2000i64],
        prop::collection::vec((0..300i64, 0..100i64), 0..6),
        0..6usize,
        any::<u8>(),
    )
        .prop_map(|(send, spare, steps, arrives, what)| Event {
            send,
            spare,
            steps,
            arrives,
            what,
        })
}

fn guest() -> impl Strategy<Value = (Guest, Vec<Event>)> {
    let sizes = prop_oneof![
        Just((HotplugKind::VirtioMem, 2)),
        Just((HotplugKind::VirtioMem, 128)),
        Just((HotplugKind::Dimm, 256)),
        Just((HotplugKind::Dimm, 1024)),
    ];
    (sizes, 1..5i64, 0..5i64, any::<[bool; 2]>(), any::<u8>()).prop_flat_map(
        |((kind, block), boot, max, [onlines, reports], odd)| {
            let mut guest = Guest::new(boot * 512, max * 1024);
            (guest.kind, guest.block, guest.onlines, guest.reports) =
                (kind, block, onlines || odd % 2 == 0, reports || odd % 3 > 0);
            guest.ceiling -= i64::from(odd / 64) * max * 200;
            let top = guest.ceiling;
            (Just(guest), prop::collection::vec(event(top), 1..80))
        },
    )
}

proptest! {
    /// Whatever the guest does at whatever pace, it never holds more than it was promised, and an
    /// obedient guest never less than its floor.
    #[test]
    fn promises_cover_every_instant((mut guest, events) in guest(), wild in any::<bool>()) {
        for event in events {
            if wild {
                match event.what % 32 {
                    0 => guest.unplugs = !guest.unplugs,
                    1 => guest.plugs = !guest.plugs,
                    2 => guest.inflates = !guest.inflates,
                    3 => guest.reboot(u32::from(event.what / 64)),
                    4 => guest.requested = (guest.plugged - guest.block).max(0),
                    5 => {
                        // Nothing is granted while guests were just found; they finish what they
                        // were asked for.
                        guest.step(1 << 40, 1 << 20);
                        (guest.actuator, guest.in_force) = (Actuator::default(), None);
                    }
                    _ => {}
                }
            }
            // Another client plugs memory in. The actuator does not judge whether it is used.
            if event.what % 32 == 6 && guest.onlines && guest.kind == HotplugKind::VirtioMem {
                guest.requested = (guest.plugged + 3 * guest.block).min(guest.max);
            }
            // When the guard lowers a target, the guest may still follow the old one until the
            // order arrives; that is the guard's concern.
            let before = guest.in_force.unwrap_or_default();
            guest.actuate(event.send, event.spare);
            let transient = of(guest.actuator.transient_grant());
            let promised = guest.in_force.map_or(0, |target| target + transient);
            let promised = promised.max(guest.total()).max(before);
            for (at, (balloon, blocks)) in event.steps.into_iter().enumerate() {
                if at == event.arrives {
                    guest.arrive();
                }
                guest.step(balloon, blocks);
                let total = guest.total();
                if guest.in_force.is_some() {
                    prop_assert!(total <= promised, "{total} of {promised}: {guest:?}");
                }
                // A kernel that uses no plugged memory and cannot report that is not judged.
                if guest.reports && event.what % 32 != 4 || guest.onlines && !wild {
                    prop_assert!(wild || guest.usable() >= FLOOR, "{guest:?}");
                }
            }
            guest.arrive();
            guest.booting = guest.booting.saturating_sub(1);
        }
    }

    /// Under a constant target orders end after a while, and the guest holds as much of it as it
    /// can.
    #[test]
    fn a_constant_target_comes_to_rest((mut guest, events) in guest(), target in 0..100i64, spare in 0..2000i64) {
        for event in events {
            guest.tick(event.send, event.spare);
        }
        let target = FLOOR + (guest.ceiling - FLOOR) * target / 100;
        guest.tick(Some(target), spare);
        let mut orders = guest.orders(200, spare);
        if guest.onlines {
            prop_assert!(orders.len() <= 100, "{}", orders.len());
            orders = guest.orders(300, spare);
            prop_assert_eq!(orders, [], "{:?}", guest);
            let reach = (target - guest.boot - guest.plugged).max(0);
            // Less than a block may be left, for lack of memory to grant.
            let over = guest.total() - (target - reach);
            prop_assert!((0..guest.block).contains(&over), "{over} {guest:?}");
            prop_assert!(reach < guest.block || guest.plugged + guest.block > guest.max, "{:?}", guest);
        } else {
            // Tried again after pauses of five minutes and more.
            let orders = guest.orders(3_000, spare);
            prop_assert!(orders.len() <= 40, "{} {:?}", orders.len(), guest);
        }
        if guest.onlines {
            prop_assert_eq!(of(guest.actuator.transient_grant()), (guest.total() - target).max(0));
        }
    }

    /// Orders that are lost are sent again.
    #[test]
    fn lost_orders_are_made_up_for((mut guest, events) in guest(), target in 0..100i64) {
        guest.onlines = true;
        for event in events {
            let send = event.send.or((event.what % 4 == 0).then_some(guest.in_force).flatten());
            guest.actuate(send, event.spare);
            if event.what % 3 == 0 {
                guest.on_its_way = None;
            }
            guest.arrive();
            guest.step(10_000, 10_000);
        }
        let target = FLOOR + (guest.ceiling - FLOOR) * target / 100;
        guest.tick(Some(target), 4096);
        guest.orders(1500, 4096);
        guest.tick(Some(target), 4096);
        guest.orders(300, 4096);
        let reach = (target - guest.boot - guest.plugged).max(0);
        prop_assert_eq!(guest.total(), target - reach, "{:?}", guest);
        prop_assert!(reach < guest.block || guest.plugged + guest.block > guest.max, "{:?}", guest);
    }
}
