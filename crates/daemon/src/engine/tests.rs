//! Tests of the engine over a world in memory, without a runtime.

use std::time::{Duration, SystemTime};

use ballast_actuation::fence::{FenceOrder, Fences};
use ballast_agent_proto::wire::RequestOutcome;
use ballast_api::{CarriedView, ThrashedView};
use ballast_model::{
    AgentReport, AnswerFault, Bytes, Capabilities, Change, GuestChange, GuestSample, GuestStats,
    GuestTarget, HostSample, LinkState, Measured, MemoryRequest, PolicyName, ProcessId,
    RequestKind, RunState,
};
use ballast_policy::Question;
use ballast_store::{Event as Recorded, JournalTail, Session, Start, TickEntry};
use futures_util::FutureExt;

use super::*;
use crate::view::Command;

/// Memory of a guest at boot, and of the budget.
const BOOT: Bytes = Bytes::gib(1);
/// What each of two guests gets by shares.
const HALF: Bytes = Bytes::mib(512);

fn obey(engine: &mut Engine, command: Command, world: &mut MemoryWorld) {
    engine
        .obey(command, "uid 0".to_owned(), world)
        .now_or_never()
        .expect("nothing here waits")
        .unwrap();
}

/// A guest that follows its target at once.
struct MemoryGuest {
    id: GuestId,
    holds: Bytes,
    start_ticks: u64,
}

/// Guests, clocks and a journal in memory. Nothing here waits.
#[derive(Default)]
struct MemoryWorld {
    since_start: Duration,
    guests: Vec<MemoryGuest>,
    /// Whether orders are lost on their way, without an outcome.
    loses_orders: bool,
    acted: Vec<Action>,
    scopes: Vec<SampleScope>,
    fences: Vec<FenceOrder>,
    ticks_recorded: u64,
    /// The last tick, and the events since.
    recorded: Option<TickEntry>,
    since_recorded: Vec<Recorded>,
    events: Vec<Recorded>,
    /// The request of the poor guest's agent, and the answers to it.
    request: Option<MemoryRequest>,
    answers: Vec<Answer>,
    /// Settings that live with guests, if any were written.
    settings: BTreeMap<GuestId, GuestChange>,
    are_settings_new: bool,
    refuses_settings: bool,
    /// The answer of the policy's program to a question; `None`: there is no program.
    program: Option<fn(&Question) -> PolicyAnswer>,
    questions: u64,
    /// Whether merging was left alone at each tick.
    merging_held: Vec<bool>,
    /// Incidents that the engine reported.
    incidents: Vec<Incident>,
}

impl World for MemoryWorld {
    fn monotonic(&self) -> Duration {
        self.since_start
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.since_start
    }

    async fn sample(&mut self, scope: SampleScope, _: &[GuestId]) -> Snapshot {
        self.scopes.push(scope);
        let host = HostSample {
            memory_total: Some(Bytes::gib(16)),
            memory_available: Some(Bytes::gib(8)),
            ..HostSample::default()
        };
        let mut guests: Vec<GuestSample> = self.guests.iter().map(sample).collect();
        guests[0].agent = self.request.map(|request| {
            let report = AgentReport { request: Some(request), ..AgentReport::default() };
            Box::new(Measured::fresh(report))
        });
        Snapshot::new(self.now(), host, guests)
    }

    async fn act(&mut self, actions: &[Action]) -> Vec<Outcome> {
        if self.loses_orders {
            return Vec::new();
        }
        let mut outcomes = Vec::new();
        for action in actions {
            let is_in_the_way =
                |fence: &FenceOrder| fence.guest == action.guest && fence.height < action.target;
            assert!(!self.fences.iter().any(is_in_the_way), "{action:?}: {:?}", self.fences);
            let guest = self.guests.iter_mut().find(|guest| guest.id == action.guest);
            guest.expect("a guest that is there").holds = action.target;
            self.acted.push(action.clone());
            outcomes.push(Outcome {
                guest: action.guest.clone(),
                generation: action.generation,
                target: action.target,
                kind: OutcomeKind::Accepted,
            });
        }
        outcomes
    }

    fn fence(&mut self, fences: Fences) {
        if let Fences::Set(orders) = fences {
            self.fences = orders;
        }
    }

    fn changed_settings(&mut self) -> Option<BTreeMap<GuestId, GuestChange>> {
        std::mem::take(&mut self.are_settings_new).then(|| self.settings.clone())
    }

    async fn persist(&mut self, guest: &GuestId, settings: &GuestChange) -> Result<(), String> {
        if self.refuses_settings {
            return Err("the disk is full".to_owned());
        }
        self.settings.insert(guest.clone(), settings.clone());
        Ok(())
    }

    fn has_program(&self) -> bool {
        self.program.is_some()
    }

    async fn ask(&mut self, question: &Question) -> PolicyAnswer {
        self.questions += 1;
        self.program.expect("nobody asks where there is no program")(question)
    }

    fn merge(&mut self, _: &Snapshot, is_held: bool) {
        self.merging_held.push(is_held);
    }

    fn answer(&mut self, _: &GuestId, _: u64, answer: Answer) {
        self.answers.push(answer);
    }

    fn report_incidents(&mut self, incidents: &[Incident]) {
        self.incidents.extend_from_slice(incidents);
    }

    fn record_tick(&mut self, tick: Tick<'_>) {
        self.ticks_recorded += 1;
        self.recorded = Some(TickEntry {
            snapshot: tick.snapshot.clone(),
            answer: tick.answer.cloned(),
            plan: tick.plan.clone(),
            outcomes: Vec::new(),
            carried: tick.carried.to_vec(),
            handovers: tick.handovers.to_vec(),
            limits: tick.limits.clone(),
            paused: tick.paused,
            mode: tick.mode,
            decision_cost: tick.decision_cost,
        });
        self.since_recorded.clear();
    }

    fn record_event(&mut self, event: Recorded) {
        self.events.push(event.clone());
        self.since_recorded.push(event);
    }
}

fn sample(guest: &MemoryGuest) -> GuestSample {
    let stats = GuestStats { available: Some(Bytes::mib(100)), ..GuestStats::default() };
    GuestSample {
        run_state: Some(RunState::Running),
        allocation: Some(Measured::fresh(guest.holds)),
        boot_memory: Some(BOOT),
        process: Some(ProcessId { pid: 7, start_ticks: guest.start_ticks }),
        stats: Some(Measured::fresh(stats)),
        capabilities: Capabilities { balloon: Some(true), ..Capabilities::default() },
        ..GuestSample::unknown(guest.id.clone(), LinkState::Up)
    }
}

fn guest(name: &str, mib: u64) -> MemoryGuest {
    MemoryGuest { id: name.parse().unwrap(), holds: Bytes::mib(mib), start_ticks: 1 }
}

/// A host that divides [`BOOT`] by shares among a poor and a rich guest.
fn poor_and_rich() -> (Engine, MemoryWorld) {
    let guests = vec![guest("poor", 256), guest("rich", 768)];
    let world = MemoryWorld { guests, ..MemoryWorld::default() };
    (Engine::new(settings_with(Mode::Balance), Inherited::default(), &world), world)
}

/// The settings of [`poor_and_rich`], with the mode of the configuration file.
fn settings_with(mode: Mode) -> Settings {
    let mut settings = Settings::new(PolicyName::Static);
    settings.mode = mode;
    settings.guard.budget = Some(BOOT);
    settings.guard.host_reserve = Bytes::ZERO;
    settings.undo = true;
    settings
}

/// The next daemon, started in the same boot of the host or in another one.
fn restarted(world: &MemoryWorld, mode: Mode, boot: &str) -> Engine {
    let start = Start {
        wall: SystemTime::UNIX_EPOCH,
        mono: Timestamp::ZERO,
        boot_id: "first".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 1,
    };
    let last = world.recorded.clone().map(|tick| (Session { id: 1, start }, tick));
    let events = world.since_recorded.iter().map(|event| ("first".to_owned(), event.clone()));
    let tail = JournalTail { last, events: events.collect() };
    let inherited = Inherited::of(tail, boot, world.now(), Settings::TICK_DEFAULT);
    Engine::new(settings_with(mode), inherited, world)
}

/// Ticks whenever one is due, for this many seconds.
fn run(engine: &mut Engine, world: &mut MemoryWorld, seconds: u64) {
    let end = world.since_start + Duration::from_secs(seconds);
    while world.since_start < end {
        let scope = engine.scope_at(world.now());
        engine.tick(world, scope).now_or_never().expect("this world never waits");
        world.since_start += engine.due().saturating_since(world.now());
    }
}

fn held(world: &MemoryWorld) -> Vec<Bytes> {
    world.guests.iter().map(|guest| guest.holds).collect()
}

#[test]
fn the_engine_divides_memory_without_a_runtime() {
    let (mut engine, mut world) = poor_and_rich();
    assert!(engine.view(&world).is_none());
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [HALF, HALF]);
    let view = engine.view(&world).unwrap();
    assert_eq!((view.ticks, view.plans_refused), (world.ticks_recorded, 0));
    assert_eq!(view.outcomes.len(), 2);
}

#[test]
fn fences_rise_before_grants_and_fall_with_a_pause() {
    let (mut engine, mut world) = poor_and_rich();
    let mut settings = Settings::new(PolicyName::Static);
    settings.guard.budget = Some(BOOT);
    settings.guard.host_reserve = Bytes::ZERO;
    settings.limits.default.fence = true;
    engine.reload(Ok((settings, String::new())), &mut world);
    // The world asserts that grants come after.
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [HALF, HALF]);
    let beyond = |fence: &FenceOrder| fence.height.saturating_sub(HALF);
    let beyond: Vec<Bytes> = world.fences.iter().map(beyond).collect();
    assert_eq!(beyond, [Bytes::mib(200); 2]);
    obey(&mut engine, Command::Pause, &mut world);
    run(&mut engine, &mut world, 1);
    assert_eq!(world.fences, []);
}

#[test]
fn an_order_whose_outcome_is_lost_is_given_again() {
    let (mut engine, mut world) = poor_and_rich();
    world.loses_orders = true;
    run(&mut engine, &mut world, 3);
    assert_eq!(held(&world), [Bytes::mib(256), Bytes::mib(768)]);
    let outcomes = engine.view(&world).unwrap().outcomes;
    let (_, rich) = &outcomes[&world.guests[1].id];
    assert_eq!(rich.kind, OutcomeKind::Failed("its outcome is unknown".to_owned()));
    world.loses_orders = false;
    run(&mut engine, &mut world, 10);
    assert_eq!(held(&world), [HALF, HALF]);
}

#[test]
fn a_violated_floor_is_told_of_until_it_is_kept() {
    let (mut engine, mut world) = poor_and_rich();
    obey(&mut engine, Command::Pause, &mut world);
    run(&mut engine, &mut world, 1);
    let change = GuestChange { floor: Some(Bytes::mib(400)), ..GuestChange::default() };
    obey(&mut engine, Command::SetGuest("poor".parse().unwrap(), change), &mut world);
    run(&mut engine, &mut world, 60);
    let [begun] = &world.incidents[..] else { panic!("{:?}", world.incidents) };
    assert_eq!(begun.text, "holds 256MiB, less than its floor of 400MiB");
    obey(&mut engine, Command::Resume, &mut world);
    run(&mut engine, &mut world, 60);
    assert!(held(&world)[0] >= Bytes::mib(400));
    assert!(world.incidents.iter().map(|it| it.is_over).eq([false, true]), "{:?}", world.incidents);
}

#[test]
fn a_paused_engine_observes_and_records_but_does_not_act() {
    let (mut engine, mut world) = poor_and_rich();
    obey(&mut engine, Command::Pause, &mut world);
    run(&mut engine, &mut world, 10);
    assert!(world.acted.is_empty() && engine.view(&world).unwrap().paused);
    assert!(world.ticks_recorded >= 10);
    obey(&mut engine, Command::Resume, &mut world);
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [HALF, HALF]);
    let words = world.events.iter().map(|event| match event {
        Recorded::Command { command, .. } => command.as_str(),
        other => panic!("{other:?}"),
    });
    assert!(words.eq(["pause", "resume"]));
}

#[test]
fn while_observing_nothing_is_touched_reserved_or_promised() {
    let (_, mut world) = poor_and_rich();
    let mut settings = settings_with(Mode::Observe);
    settings.limits.default.fence = true;
    let mut engine = Engine::new(settings, Inherited::default(), &world);
    let kind = RequestKind::More;
    world.request = Some(MemoryRequest { number: 1, kind, amount: Bytes::mib(100) });
    run(&mut engine, &mut world, 10);
    assert!(world.acted.is_empty() && world.fences.is_empty() && world.ticks_recorded >= 10);
    let poor = &engine.view(&world).unwrap().plan.guests[0];
    assert_eq!(poor.change, Change::Hold(HoldReason::Observing));
    assert!(poor.desired.as_ref().unwrap().target > Bytes::mib(256), "{poor:?}");
    assert_eq!(world.answers, [], "an agent that is refused memory may shrink programs");
    let command =
        Command::Reserve("new".parse().unwrap(), Bytes::mib(100), Duration::from_secs(60));
    let refused =
        engine.obey(command, "uid 0".to_owned(), &mut world).now_or_never().unwrap().unwrap_err();
    assert!(refused.contains("for `new`: observing: nothing is moved"), "{refused}");
    let resumed = engine.obey(Command::Resume, "uid 0".to_owned(), &mut world).now_or_never();
    assert!(resumed.unwrap().unwrap().starts_with("resumed, but observing: nothing is moved"));
    assert!(!engine.dry_run().unwrap().actions.is_empty());

    obey(&mut engine, Command::SetMode(Mode::Balance), &mut world);
    run(&mut engine, &mut world, 20);
    assert_eq!((held(&world), world.fences.len()), (vec![HALF, HALF], 2));
    assert_eq!(world.answers[0].outcome, RequestOutcome::Partly);
    obey(&mut engine, Command::SetMode(Mode::Observe), &mut world);
    run(&mut engine, &mut world, 1);
    assert_eq!((held(&world), world.fences.len()), (vec![HALF, HALF], 0), "targets stay");
}

#[test]
fn a_set_mode_outlives_daemons_boots_and_equal_reloads() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 3);
    obey(&mut engine, Command::SetMode(Mode::Observe), &mut world);
    // Both before a tick recorded the mode, and after.
    for _ in 0..2 {
        for boot in ["first", "second"] {
            assert_eq!(restarted(&world, Mode::Balance, boot).mode(), Mode::Observe, "{boot}");
        }
        run(&mut engine, &mut world, 2);
    }
    let reload = |engine: &mut Engine, world: &mut MemoryWorld, mode| {
        engine.reload(Ok((settings_with(mode), String::new())), world);
        engine.mode()
    };
    assert_eq!(reload(&mut engine, &mut world, Mode::Balance), Mode::Observe);
    assert_eq!(reload(&mut engine, &mut world, Mode::Observe), Mode::Observe);
    assert_eq!(reload(&mut engine, &mut world, Mode::Balance), Mode::Balance);
}

#[test]
fn a_changed_file_counts_before_what_was_set() {
    let (_, mut world) = poor_and_rich();
    let mut engine = Engine::new(settings_with(Mode::Observe), Inherited::default(), &world);
    run(&mut engine, &mut world, 2);
    obey(&mut engine, Command::SetMode(Mode::Balance), &mut world);
    run(&mut engine, &mut world, 2);
    assert!(!world.acted.is_empty());
    assert_eq!(restarted(&world, Mode::Observe, "second").mode(), Mode::Balance, "the same file");
    let mut engine = restarted(&world, Mode::Balance, "second");
    run(&mut engine, &mut world, 1);
    assert_eq!(restarted(&world, Mode::Observe, "third").mode(), Mode::Observe, "another file");
}

#[test]
fn what_cannot_be_reserved_is_refused_with_what_can() {
    let (mut engine, mut world) = poor_and_rich();
    let minute = Duration::from_secs(60);
    let mut reserve = |engine: &mut Engine, name: &str, mib, lasts| {
        let command = Command::Reserve(name.parse().unwrap(), Bytes::mib(mib), lasts);
        engine.obey(command, "uid 0".to_owned(), &mut world).now_or_never().unwrap()
    };
    assert!(reserve(&mut engine, "new", 100, minute).unwrap_err().contains("first tick"));
    let (mut engine, mut other) = poor_and_rich();
    run(&mut engine, &mut other, 3);
    for (name, mib, lasts, part) in [
        ("poor", 100, minute, "is here already"),
        ("new", 0, minute, "expected some memory"),
        ("new", 100, Duration::ZERO, "for 1s to 86400s"),
        ("new", 100, Duration::from_secs(86_401), "for 1s to 86400s"),
        ("new", 769, minute, "768MiB at most can be reserved, as 1GiB are for guests"),
    ] {
        let why = reserve(&mut engine, name, mib, lasts).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    // This also counts within one tick.
    reserve(&mut engine, "new", 300, minute).unwrap();
    let why = reserve(&mut engine, "newer", 469, minute).unwrap_err();
    assert!(why.contains("468MiB at most") && why.contains("other reservations 300MiB"), "{why}");
    // One name has one reservation.
    reserve(&mut engine, "new", 512, minute).unwrap();
    let release = |engine: &mut Engine, world: &mut MemoryWorld| {
        let command = Command::Unreserve("new".parse().unwrap());
        engine.obey(command, "uid 0".to_owned(), world).now_or_never().unwrap()
    };
    assert!(release(&mut engine, &mut other).is_ok());
    assert!(release(&mut engine, &mut other).unwrap_err().contains("nothing is reserved"));
}

#[test]
fn what_is_reserved_becomes_free_and_is_published() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 20);
    let lasts = Duration::from_secs(3600);
    obey(&mut engine, Command::Reserve("new".parse().unwrap(), Bytes::mib(256), lasts), &mut world);
    run(&mut engine, &mut world, 20);
    let reservations = engine.view(&world).unwrap().plan.reservations;
    assert!(reservations.len() == 1 && reservations[0].is_ready(), "{reservations:?}");
    assert!(held(&world).into_iter().sum::<Bytes>() <= Bytes::mib(768));
    assert!(matches!(
        &world.events[..],
        [Recorded::Command { command, .. }] if command == "reserve 256MiB --for new --lasts 3600s"
    ));
}

#[test]
fn a_dry_run_is_computed_once_and_changes_nothing() {
    let (mut engine, mut world) = poor_and_rich();
    assert!(engine.dry_run().is_err());
    obey(&mut engine, Command::Pause, &mut world);
    run(&mut engine, &mut world, 1);
    let first = engine.dry_run().unwrap();
    assert!(!first.actions.is_empty(), "a pause is disregarded");
    assert!(Arc::ptr_eq(&first, &engine.dry_run().unwrap()));
    obey(&mut engine, Command::SetPolicy(PolicyName::Global), &mut world);
    let other = engine.dry_run().unwrap();
    assert_eq!(other.policy, PolicyName::Global);
    run(&mut engine, &mut world, 1);
    assert!(!Arc::ptr_eq(&other, &engine.dry_run().unwrap()));
    assert!(world.acted.is_empty());
}

#[test]
fn restoring_returns_each_guest_to_its_first_allocation() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [HALF, HALF]);
    engine.begin_restore().unwrap();
    assert!(!engine.is_restored());
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [Bytes::mib(256), Bytes::mib(768)]);
    assert!(engine.is_restored());
}

#[test]
fn a_restarted_guest_is_not_restored_to_its_predecessors_size() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 20);
    world.guests[1].start_ticks = 2;
    run(&mut engine, &mut world, 1);
    engine.begin_restore().unwrap();
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [Bytes::mib(256), HALF]);
}

#[test]
fn what_guests_held_first_is_restored_in_spite_of_crashes() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 20);
    // The third daemon knows it from the second one.
    for _ in 0..2 {
        engine = restarted(&world, Mode::Balance, "first");
        run(&mut engine, &mut world, 70);
    }
    assert_eq!(held(&world), [HALF, HALF]);
    engine.begin_restore().unwrap();
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [Bytes::mib(256), Bytes::mib(768)]);
    assert!(engine.is_restored());
}

#[test]
fn a_daemon_that_moves_nothing_restores_nothing() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 20);
    obey(&mut engine, Command::Pause, &mut world);
    assert_eq!(engine.begin_restore(), Err(HoldReason::Paused));
    obey(&mut engine, Command::SetMode(Mode::Observe), &mut world);
    assert_eq!(engine.begin_restore(), Err(HoldReason::Observing));
    obey(&mut engine, Command::SetMode(Mode::Balance), &mut world);
    obey(&mut engine, Command::Resume, &mut world);
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [HALF, HALF], "it balances as before");
    assert_eq!(engine.begin_restore(), Ok(()));
}

#[test]
fn urgent_ticks_do_not_delay_the_sample_of_all_guests() {
    let (mut engine, mut world) = poor_and_rich();
    for at_ms in (0..2_500).step_by(25) {
        world.since_start = Duration::from_millis(at_ms);
        let scope = engine.scope_at(world.now());
        engine.tick(&mut world, scope).now_or_never().unwrap();
    }
    let all = world.scopes.iter().enumerate().filter(|(_, scope)| **scope == SampleScope::All);
    assert!(all.map(|(at, _)| at).eq([0, 40, 80]), "{:?}", world.scopes);
}

#[test]
fn a_refused_reload_changes_nothing_and_is_shown() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 20);
    engine.reload(Err("line 3".to_owned()), &mut world);
    let view = engine.view(&world).unwrap();
    assert_eq!(view.reload_error.as_deref(), Some("line 3"));
    assert_eq!(view.policy, PolicyName::Static);
    let mut settings = Settings::new(PolicyName::Global);
    settings.guard.budget = Some(BOOT);
    engine.reload(Ok((settings, String::new())), &mut world);
    let view = engine.view(&world).unwrap();
    assert_eq!((view.reload_error, view.policy), (None, PolicyName::Global));
}

#[test]
fn settings_that_live_with_a_guest_count_until_they_go() {
    let (mut engine, mut world) = poor_and_rich();
    let rich = world.guests[1].id.clone();
    let ceiling = |mib| GuestChange { ceiling: Some(Bytes::mib(mib)), ..GuestChange::default() };
    world.settings.insert(rich.clone(), ceiling(480));
    world.are_settings_new = true;
    run(&mut engine, &mut world, 10);
    assert_eq!(held(&world)[1], Bytes::mib(480));
    world.settings.clear();
    world.are_settings_new = true;
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world)[1], HALF);

    // What could not be written is not in force either.
    let command = Command::PersistGuest(rich.clone(), ceiling(460));
    world.refuses_settings = true;
    let refused =
        engine.obey(command.clone(), "uid 0".to_owned(), &mut world).now_or_never().unwrap();
    assert_eq!(refused, Err("the disk is full".to_owned()));
    assert_eq!(engine.view(&world).unwrap().limits[&rich].ceiling, None);
    world.refuses_settings = false;
    obey(&mut engine, command, &mut world);
    assert_eq!(world.settings[&rich], ceiling(460));
    run(&mut engine, &mut world, 10);
    assert_eq!(held(&world)[1], Bytes::mib(460));
    let sources = engine.view(&world).unwrap().limit_sources;
    assert_eq!(sources[&rich].ceiling.as_str(), "metadata");
}

/// The rich guest gets `mib`, or its floor if that is more; the poor one gets the rest.
fn rich_has(question: &Question, mib: u64) -> PolicyAnswer {
    let [poor, rich] = question.problem.contenders() else { panic!("{question:?}") };
    let of_rich = rich.floor.max(Bytes::mib(mib));
    let of_poor = question.problem.budget().saturating_sub(of_rich);
    let target = |guest: &GuestId, target| GuestTarget { guest: guest.clone(), target };
    PolicyAnswer::Targets(vec![target(&poor.id, of_poor), target(&rich.id, of_rich)])
}

#[test]
fn a_program_decides_and_its_answers_are_recorded() {
    let (mut engine, mut world) = poor_and_rich();
    let refused =
        engine.obey(Command::SetPolicy(PolicyName::External), "uid 0".to_owned(), &mut world);
    assert!(refused.now_or_never().unwrap().unwrap_err().contains("[policy.external]"));
    world.program = Some(|question| rich_has(question, 600));
    obey(&mut engine, Command::SetPolicy(PolicyName::External), &mut world);
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [Bytes::mib(424), Bytes::mib(600)]);
    assert!(world.questions >= 5, "{}", world.questions);
    // An answer is recorded with the tick that asked for it, and with no other.
    let mut recorded = Vec::new();
    for _ in 0..4 {
        run(&mut engine, &mut world, 1);
        recorded.push(world.recorded.clone().unwrap().answer);
    }
    let is_answer = |it: &Option<PolicyAnswer>| matches!(it, Some(PolicyAnswer::Targets(_)));
    assert!(recorded.contains(&None) && recorded.iter().any(is_answer), "{recorded:?}");

    world.program = Some(|_| PolicyAnswer::Fault(AnswerFault::NotAsked));
    run(&mut engine, &mut world, 4);
    let (_, plan) = engine.latest().unwrap();
    let note = Note::Unanswered { fault: AnswerFault::NotAsked };
    assert!(plan.notes.contains(&note), "{:?}", plan.notes);
    assert!(engine.faults.contains("not-asked"));
    world.program = Some(|question| rich_has(question, 500));
    run(&mut engine, &mut world, 20);
    assert_eq!(held(&world), [Bytes::mib(524), Bytes::mib(500)]);
    assert!(engine.faults.is_empty());
}

#[test]
fn merging_is_left_alone_while_nothing_is_moved() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 2);
    assert!(!world.merging_held.contains(&true));
    obey(&mut engine, Command::Pause, &mut world);
    world.merging_held.clear();
    run(&mut engine, &mut world, 2);
    assert!(!world.merging_held.contains(&false));
}

/// The state that the rich guest brings: it thrashed with less than it holds.
fn carried(credits: u64) -> CarriedView {
    let limits = GuestChange { shares: Some(1100), ..GuestChange::default() };
    let thrashed = ThrashedView { least_bytes: 700 << 20, left_ms: 30_000, pause_ms: 60_000 };
    CarriedView { limits, credits: Some(credits), thrashed: Some(thrashed) }
}

fn take(engine: &mut Engine, world: &mut MemoryWorld, it: CarriedView) -> Result<String, String> {
    let command = Command::TakeCarried("rich".parse().unwrap(), Box::new(it));
    engine.obey(command, "uid 0".to_owned(), world).now_or_never().unwrap()
}

#[test]
fn a_guest_is_not_shrunk_below_where_it_thrashed_elsewhere() {
    let (mut engine, mut world) = poor_and_rich();
    obey(&mut engine, Command::Pause, &mut world);
    run(&mut engine, &mut world, 1);
    let answer = take(&mut engine, &mut world, carried(5)).unwrap();
    assert!(answer.contains("shares 1100") && answer.contains("where it thrashed"), "{answer}");
    let Some(Recorded::Command { who, command, .. }) = world.events.last() else { panic!() };
    let words = "carried rich --shares 1100 --credits 5 --thrashed-at 700MiB --for 30000ms \
                 --pause 60000ms";
    assert_eq!((who.as_str(), command.as_str()), ("uid 0", words));
    obey(&mut engine, Command::Resume, &mut world);
    run(&mut engine, &mut world, 25);
    assert_eq!(held(&world)[1], Bytes::mib(700), "for as long as it was to be");
    let given = engine.view(&world).unwrap().carried(&"rich".parse().unwrap());
    assert_eq!(given.limits, carried(5).limits);
    let left = given.thrashed.unwrap().left_ms;
    assert!(left > 0 && left < 10_000, "the span has gone on: {left}");
    // This also holds after a restart, which finds it in the journal.
    let mut engine = restarted(&world, Mode::Balance, "first");
    run(&mut engine, &mut world, 2);
    assert_eq!(held(&world)[1], Bytes::mib(700));
    run(&mut engine, &mut world, 60);
    assert!(held(&world)[1] < Bytes::mib(600), "{:?}", held(&world));
}

#[test]
fn what_was_carried_counts_once() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 1);
    take(&mut engine, &mut world, carried(5)).unwrap();
    run(&mut engine, &mut world, 1);
    assert_eq!(world.recorded.as_ref().unwrap().carried.len(), 1);
    let change = GuestChange { shares: Some(7), ..GuestChange::default() };
    obey(&mut engine, Command::SetGuest("rich".parse().unwrap(), change), &mut world);
    assert!(take(&mut engine, &mut world, carried(5)).unwrap().contains("nothing changes"));
    let view = engine.view(&world).unwrap();
    assert_eq!(view.limits[&"rich".parse().unwrap()].shares, 7, "what an operator said since");
    assert_eq!(view.carried_in[&"rich".parse().unwrap()], carried(5));
    run(&mut engine, &mut world, 1);
    assert_eq!(world.recorded.as_ref().unwrap().carried, []);
    // Another process of the same name brought nothing.
    world.guests[1].start_ticks += 1;
    run(&mut engine, &mut world, 1);
    assert!(engine.view(&world).unwrap().carried_in.is_empty());
}

/// As the fleet's program does once a guest that it had shrunk has left.
#[test]
fn a_ceiling_can_be_unset_after_its_guest_left() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 1);
    let rich: GuestId = "rich".parse().unwrap();
    let lowered = GuestChange { ceiling: Some(Bytes::mib(300)), ..GuestChange::default() };
    obey(&mut engine, Command::SetGuest(rich.clone(), lowered), &mut world);
    let left = world.guests.remove(1);
    run(&mut engine, &mut world, 1);
    assert!(engine.view(&world).unwrap().gone_with_limits.contains(&rich));
    let unset = GuestChange { ceiling_unset: true, ..GuestChange::default() };
    obey(&mut engine, Command::SetGuest(rich.clone(), unset), &mut world);
    run(&mut engine, &mut world, 1);
    assert!(engine.view(&world).unwrap().gone_with_limits.is_empty());
    world.guests.push(left);
    run(&mut engine, &mut world, 1);
    assert_eq!(engine.view(&world).unwrap().limits[&rich].ceiling, None, "it comes back");
}

#[test]
fn limits_that_a_guest_brought_stay_while_it_runs() {
    let (mut engine, mut world) = poor_and_rich();
    let rich: GuestId = "rich".parse().unwrap();
    run(&mut engine, &mut world, 1);
    let floor = Some(Bytes::mib(600));
    let limits = GuestChange { floor, shares: Some(1100), ..GuestChange::default() };
    let brought = CarriedView { limits: limits.clone(), ..CarriedView::default() };
    take(&mut engine, &mut world, brought).unwrap();
    let shares = |shares| GuestChange { shares: Some(shares), ..GuestChange::default() };
    obey(&mut engine, Command::SetGuest(rich.clone(), shares(7)), &mut world);
    let of_rich = |engine: &Engine, world: &MemoryWorld| {
        let limits = engine.view(world).unwrap().limits[&rich].clone();
        (limits.floor, limits.shares)
    };
    assert_eq!(of_rich(&engine, &world), (floor, 7));
    engine.reload(Ok((settings_with(Mode::Balance), String::new())), &mut world);
    assert_eq!(of_rich(&engine, &world), (floor, 1100), "an operator's are forgotten");
    let view = engine.view(&world).unwrap();
    assert_eq!(view.limit_sources[&rich].shares.as_str(), "carried");
    assert_eq!(view.carried(&rich).limits, limits, "it takes them along to the next host");
    let mut settings = settings_with(Mode::Balance);
    settings.limits.given.insert(rich.clone(), shares(8));
    settings.limits.named.insert(rich.clone(), shares(8).apply(&GuestLimits::default()));
    engine.reload(Ok((settings, String::new())), &mut world);
    assert_eq!(of_rich(&engine, &world), (floor, 8), "the configuration counts before them");
    run(&mut engine, &mut world, 20);
    // The third daemon knows them from the second one.
    for _ in 0..2 {
        engine = restarted(&world, Mode::Balance, "first");
        run(&mut engine, &mut world, 2);
        assert_eq!(of_rich(&engine, &world), (floor, 1100));
    }
    world.guests[1].start_ticks += 1;
    run(&mut engine, &mut world, 1);
    assert_eq!(of_rich(&engine, &world), (None, 1000), "another process brought nothing");
}

#[test]
fn a_floor_without_room_is_left_out_and_said() {
    let (mut engine, mut world) = poor_and_rich();
    run(&mut engine, &mut world, 1);
    let mut it = carried(5);
    it.limits.floor = Some(BOOT + Bytes::mib(1));
    let answer = take(&mut engine, &mut world, it.clone()).unwrap();
    assert!(answer.contains("its floor is left out") && answer.contains("budget"), "{answer}");
    let limits = &engine.view(&world).unwrap().limits[&"rich".parse().unwrap()];
    assert_eq!((limits.floor, limits.shares), (None, 1100));
    it.limits = GuestChange { shares: Some(0), ..GuestChange::default() };
    assert!(take(&mut engine, &mut world, it).unwrap_err().contains("shares 0"));
    let command = Command::TakeCarried("gone".parse().unwrap(), Box::new(carried(5)));
    let refused = engine.obey(command, "uid 0".to_owned(), &mut world).now_or_never().unwrap();
    assert!(refused.unwrap_err().contains("no guest `gone`"));
}

/// Under a policy of rent. A controller that is fed from the records decides the same.
#[test]
fn credits_go_on_and_a_record_of_it_decides_alike() {
    let (_, mut world) = poor_and_rich();
    let mut settings = settings_with(Mode::Balance);
    settings.policy = PolicyName::Auction;
    let mut again = Controller::new(settings.clone(), world.now());
    let mut engine = Engine::new(settings, Inherited::default(), &world);
    let rich: GuestId = "rich".parse().unwrap();
    for second in 0..20 {
        if second == 10 {
            let before = engine.view(&world).unwrap().carried(&rich).credits.unwrap();
            let it = CarriedView { credits: Some(before / 3), ..CarriedView::default() };
            take(&mut engine, &mut world, it).unwrap();
        }
        run(&mut engine, &mut world, 1);
        let recorded = world.recorded.clone().unwrap();
        assert_eq!(recorded.carried.len(), usize::from(second == 10));
        for it in recorded.carried {
            again.handle_event(Event::Carried(it));
        }
        let plan = again.handle_sample(&recorded.snapshot);
        let credits = |plan: &Plan| plan.guest(&rich).unwrap().credits;
        assert_eq!(credits(&plan), credits(&recorded.plan), "second {second}");
        while let Some(action) = again.poll_action() {
            let (guest, generation, target) = (action.guest, action.generation, action.target);
            let kind = OutcomeKind::Accepted;
            again.handle_event(Event::Outcome(Outcome { guest, generation, target, kind }));
        }
        assert_eq!(plan.guests, recorded.plan.guests, "second {second}");
    }
}
