//! A toy host for tests of the controller: guests whose balloons follow at a given speed.
//!
//! It knows just enough to be driven by real plans. It is not the simulator.

use std::sync::Arc;
use std::time::Duration;

use ballast_actuation::paging::SwapRules;
use ballast_control::{Controller, Event, Settings};
use ballast_model::{
    Action, AgentReport, Bytes, Capabilities, DiskReads, GuestId, GuestSample, GuestStats,
    HostSample, Hotplug, HotplugKind, LinkDown, LinkState, Measured, MemoryRequest, MemoryRoom,
    Outcome, OutcomeKind, Pinned, Plan, PolicyAnswer, PolicyName, Pressure, ProcessId, RequestKind,
    Restart, RunState, Snapshot, Timestamp, TrackerReport, TrackingSource,
};
use ballast_policy::Question;

/// How a toy guest behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Follows its target and reports.
    Willing,
    /// Reports, but gives nothing.
    Stubborn,
    /// Follows, but its statistics are frozen.
    Silent,
    /// Cannot be reached.
    Gone,
    /// Claims impossible figures.
    Lying,
    /// Claims to hold what it was asked to hold, and gives nothing.
    Hiding,
    /// Follows its target but reports nothing; the host sees what it touches.
    Unheard,
    /// Its kernel has panicked, and nothing moves any more.
    Panicked,
    /// Is moving in from another host: its hypervisor is there, its memory is still arriving.
    Incoming,
}

/// One guest of the toy host, in MiB.
#[derive(Clone, Debug)]
pub(crate) struct ToyGuest {
    pub(crate) id: GuestId,
    /// Its hypervisor's process.
    pub(crate) pid: u32,
    pub(crate) boot: u64,
    pub(crate) holds: u64,
    /// What its hypervisor claims until the balloon moves, if that differs from what the guest
    /// holds.
    pub(crate) said: Option<u64>,
    pub(crate) target: u64,
    pub(crate) used: u64,
    /// The most it gives in a second.
    pub(crate) rate: u64,
    pub(crate) mood: Mood,
    pub(crate) silent_for: u64,
    pub(crate) last_available: u64,
    /// Its agent's last request.
    pub(crate) request: Option<MemoryRequest>,
    /// What virtio-mem can plug into it.
    pub(crate) plug_max: u64,
    /// Memory plugged in, and memory requested.
    pub(crate) plugged: u64,
    pub(crate) requested: u64,
    /// Whether its kernel uses the plugged memory.
    pub(crate) onlines: bool,
    /// Whether the host keeps the memory that its balloon holds.
    pub(crate) inhibited: bool,
    pub(crate) pinned: Option<Pinned>,
    /// Whether others can order its balloon too.
    pub(crate) is_shared: bool,
    /// What the host has paged out of it.
    pub(crate) paged_out: u64,
    /// How much of that it reads back each second, in MiB.
    pub(crate) reads_back: u64,
    /// Whether it has swap and was seen to write to it.
    pub(crate) has_swap: bool,
    /// Total read back from its swap.
    pub(crate) swap_in: u64,
    /// What it was seen to write to its swap beyond the first MiB.
    pub(crate) swap_out: u64,
    /// How much of what it holds it has touched; `None`: all.
    pub(crate) touched: Option<u64>,
    /// The size of the file that it reads at random, and what it has read from its disk.
    pub(crate) file: u64,
    pub(crate) read: u64,
}

/// The host: guests, a clock, and the controller in charge.
pub(crate) struct World {
    pub(crate) controller: Controller,
    pub(crate) guests: Vec<ToyGuest>,
    pub(crate) second: u64,
    pub(crate) host_available: u64,
    pub(crate) host_pressure: Option<Pressure>,
    pub(crate) host_swap_free: Bytes,
    /// Whether the host carries out orders to page.
    pub(crate) host_swaps: bool,
    /// Cgroups: the guests in each, and the limit on their processes together, in MiB.
    pub(crate) slices: Vec<(Vec<GuestId>, u64)>,
    pub(crate) actions: Vec<(u64, Action)>,
}

pub(crate) fn mib(bytes: Bytes) -> u64 {
    bytes.get() >> 20
}

pub(crate) fn id(name: &str) -> GuestId {
    name.parse().unwrap()
}

/// Settings for a budget in MiB, with the host's own memory out of the way.
pub(crate) fn settings(policy: PolicyName, budget: u64) -> Settings {
    let mut settings = Settings::new(policy);
    settings.guard.budget = Some(Bytes::mib(budget));
    settings.guard.host_reserve = Bytes::ZERO;
    settings.paging = Some(SwapRules { use_max_percent: 80, reserve: Bytes::mib(64) });
    settings
}

impl ToyGuest {
    pub(crate) fn new(name: &str, boot: u64, holds: u64, used: u64) -> Self {
        ToyGuest {
            id: id(name),
            pid: 1,
            boot,
            holds,
            said: None,
            target: holds,
            used,
            rate: 100,
            mood: Mood::Willing,
            silent_for: 0,
            last_available: 0,
            request: None,
            plug_max: 0,
            plugged: 0,
            requested: 0,
            onlines: true,
            inhibited: false,
            pinned: None,
            is_shared: false,
            paged_out: 0,
            reads_back: 0,
            has_swap: true,
            swap_in: 0,
            swap_out: 0,
            touched: None,
            file: 0,
            read: 0,
        }
    }

    /// Its page cache: as much of its file as there is room for.
    fn cache(&self) -> u64 {
        self.file.min(self.last_available.saturating_sub(60))
    }

    /// Its agent asks once more.
    pub(crate) fn ask(&mut self, kind: RequestKind, amount: Bytes) {
        let number = self.request.map_or(1, |last| last.number + 1);
        self.request = Some(MemoryRequest { number, kind, amount });
    }

    pub(crate) fn step(&mut self) {
        if matches!(self.mood, Mood::Gone | Mood::Incoming) {
            return;
        }
        // The balloon keeps its size when memory is plugged in or out.
        let (plugged, before) = (self.requested, self.plugged);
        let gives = !matches!(self.mood, Mood::Stubborn | Mood::Hiding | Mood::Panicked);
        if gives {
            self.plugged = plugged;
            self.holds = (self.holds + plugged).saturating_sub(before);
        }
        if self.holds < self.target && self.mood != Mood::Panicked {
            self.holds = self.target.min(self.boot + self.plugged); // deflation is quick
        } else if gives {
            let before = self.holds;
            self.holds = self.holds.saturating_sub(self.rate).max(self.target);
            // The balloon's pages were paged out in the same proportion as all of the guest's.
            self.paged_out = self.paged_out * self.holds / before.max(1);
        }
        if matches!(self.mood, Mood::Silent | Mood::Panicked) {
            self.silent_for += 1;
        } else {
            self.silent_for = 0;
            let unused = if self.onlines { 0 } else { self.plugged };
            self.last_available = self.holds.saturating_sub(self.used + unused);
            let is_reading = self.cache() < self.file;
            self.read += if is_reading { 40 } else { 0 };
        }
    }

    /// What its process occupies.
    pub(crate) fn resident(&self) -> u64 {
        let touched = self.touched.unwrap_or(self.holds).min(self.holds);
        touched.saturating_sub(self.paged_out)
    }

    /// Its process, unless the number is 0.
    fn process(&self) -> Option<ProcessId> {
        (self.pid != 0).then_some(ProcessId { pid: self.pid, start_ticks: 1 })
    }

    /// What its hypervisor claims that it holds.
    fn claims(&self) -> u64 {
        match self.mood {
            Mood::Hiding => self.target,
            _ => self.said.unwrap_or(self.holds),
        }
    }

    fn sample(&self) -> GuestSample {
        if self.mood == Mood::Gone {
            let resident = self.process().map(|_| Measured::fresh(Bytes::mib(self.resident())));
            let unknown = GuestSample::unknown(self.id.clone(), LinkState::Down(LinkDown::Refused));
            return GuestSample { process: self.process(), resident, ..unknown };
        }
        let available = match self.mood {
            Mood::Lying => self.boot * 2,
            Mood::Hiding => self.claims().saturating_sub(self.used),
            _ => self.last_available,
        };
        GuestSample {
            run_state: Some(match self.mood {
                Mood::Panicked => RunState::Panicked,
                Mood::Incoming => RunState::Incoming,
                _ => RunState::Running,
            }),
            allocation: (self.mood != Mood::Incoming)
                .then(|| Measured::fresh(Bytes::mib(self.claims()))),
            boot_memory: Some(Bytes::mib(self.boot)),
            hotplug: (self.plug_max > 0).then_some(Hotplug {
                kind: HotplugKind::VirtioMem,
                plugged: Bytes::mib(self.plugged),
                requested: Bytes::mib(self.requested),
                max: Bytes::mib(self.plug_max),
                block: Bytes::mib(2),
            }),
            process: self.process(),
            resident: Some(Measured::fresh(Bytes::mib(self.resident()))),
            stats: (!matches!(self.mood, Mood::Unheard | Mood::Incoming)).then(|| Measured {
                value: GuestStats {
                    available: Some(Bytes::mib(available)),
                    free: (self.file > 0)
                        .then(|| Bytes::mib(available.saturating_sub(self.cache()))),
                    disk_caches: (self.file > 0).then(|| Bytes::mib(self.cache())),
                    swap_in: Some(Bytes::mib(self.swap_in)),
                    swap_out: Some(Bytes::mib(u64::from(self.has_swap) + self.swap_out)),
                    total: (self.plug_max > 0).then(|| {
                        let unused = if self.onlines { 0 } else { self.plugged };
                        Bytes::mib(self.holds.saturating_sub(40 + unused))
                    }),
                    ..GuestStats::default()
                },
                age: Duration::from_secs(self.silent_for),
            }),
            disk_reads: (self.file > 0).then(|| {
                let read = Bytes::mib(self.read);
                let requests = read.to_pages();
                Measured::fresh(DiskReads { read, requests, ..DiskReads::default() })
            }),
            tracker: (self.mood == Mood::Unheard).then(|| {
                let working_set = Bytes::mib(self.used.min(self.holds));
                let source = TrackingSource::Damon;
                Box::new(Measured::fresh(TrackerReport { working_set, curve: None, source }))
            }),
            agent: self.request.map(|request| {
                let report = AgentReport { request: Some(request), ..AgentReport::default() };
                Box::new(Measured::fresh(report))
            }),
            pinned: self.pinned,
            capabilities: Capabilities {
                balloon: Some(true),
                discard_inhibited: Some(self.inhibited),
                shared_control: self.is_shared.then_some(true),
                ..Capabilities::default()
            },
            ..GuestSample::unknown(self.id.clone(), LinkState::Up)
        }
    }
}

impl World {
    pub(crate) fn new(settings: Settings, guests: Vec<ToyGuest>) -> Self {
        World {
            controller: Controller::new(settings, Timestamp::ZERO),
            guests,
            second: 0,
            host_available: 1 << 20,
            host_pressure: None,
            host_swap_free: Bytes::gib(4),
            host_swaps: false,
            slices: Vec::new(),
            actions: Vec::new(),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let host = HostSample {
            merging: None,
            balloon_owner: None,
            memory_total: Some(Bytes::mib(1 << 21)),
            memory_available: Some(Bytes::mib(self.host_available)),
            swap_total: Some(Bytes::gib(4)),
            swap_free: Some(self.host_swap_free),
            pressure: self.host_pressure,
        };
        let now = Timestamp::from_millis(self.second * 1000);
        let mut samples: Vec<GuestSample> = self.guests.iter().map(ToyGuest::sample).collect();
        for (at, (members, limit)) in self.slices.iter().enumerate() {
            let inside = self.guests.iter().filter(|guest| members.contains(&guest.id));
            let charged: u64 = inside.map(ToyGuest::resident).sum();
            let room = MemoryRoom {
                by: format!("slice-{at}/memory.max"),
                limit: Bytes::mib(*limit),
                left: Bytes::mib(limit.saturating_sub(charged)),
            };
            for sample in samples.iter_mut().filter(|sample| members.contains(&sample.id)) {
                sample.rooms.push(room.clone());
            }
        }
        Snapshot::new(now, host, samples)
    }

    /// One second: guests move, a sample is taken, the plan is carried out.
    pub(crate) fn tick(&mut self) -> Arc<Plan> {
        self.pass();
        self.decide(&self.snapshot())
    }

    /// The same with a policy program that answers when asked. Returns the snapshot, the answer and
    /// the plan.
    pub(crate) fn tick_asking(
        &mut self,
        program: impl FnOnce(&Question) -> PolicyAnswer,
    ) -> (Snapshot, Option<PolicyAnswer>, Arc<Plan>) {
        self.pass();
        let snapshot = self.snapshot();
        let answer = self.controller.question(&snapshot).map(|question| program(&question));
        if let Some(answer) = answer.clone() {
            self.controller.handle_event(Event::Answer(answer));
        }
        let plan = self.decide(&snapshot);
        (snapshot, answer, plan)
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Arc<Plan> {
        let plan = self.controller.handle_sample(snapshot);
        while let Some(action) = self.controller.poll_action() {
            self.carry_out(action);
        }
        for paging in &plan.paging {
            let host_swaps = self.host_swaps;
            let guest = self.guests.iter_mut().find(|g| g.id == paging.guest).unwrap();
            if host_swaps {
                guest.paged_out = guest.holds.saturating_sub(mib(paging.resident));
            }
        }
        plan
    }

    /// One second without balancing.
    pub(crate) fn pass(&mut self) {
        self.second += 1;
        self.guests.iter_mut().for_each(ToyGuest::step);
        for guest in &mut self.guests {
            guest.paged_out = guest.paged_out.saturating_sub(guest.reads_back);
        }
    }

    fn carry_out(&mut self, action: Action) {
        let guest = self.guests.iter_mut().find(|g| g.id == action.guest).unwrap();
        let kind = match guest.mood {
            Mood::Gone => OutcomeKind::Failed("gone".to_owned()),
            _ => {
                if action.target != Bytes::mib(guest.target) {
                    guest.said = None;
                }
                guest.target = mib(action.target);
                guest.requested = action.plug.map_or(guest.requested, mib);
                OutcomeKind::Accepted
            }
        };
        let outcome = Outcome {
            guest: action.guest.clone(),
            generation: action.generation,
            target: action.target,
            kind,
        };
        self.controller.handle_event(Event::Outcome(outcome));
        self.actions.push((self.second, action));
    }

    /// One second in which the daemon is killed once it has sent `sent` of its actions. The next
    /// daemon knows what this one recorded before it sent any. Returns the killed daemon's
    /// controller.
    pub(crate) fn tick_and_restart(&mut self, sent: usize) -> Controller {
        self.pass();
        let snapshot = self.snapshot();
        let plan = self.controller.handle_sample(&snapshot);
        let handovers = self.controller.handovers();
        let restart = Restart::of(&snapshot, &plan, &handovers, self.controller.paused());
        for _ in 0..sent {
            let Some(action) = self.controller.poll_action() else { break };
            self.carry_out(action);
        }
        let settings = self.controller.settings().clone();
        let mut next = Controller::new(settings, snapshot.taken_at);
        next.handle_event(Event::Restart(Box::new(restart)));
        std::mem::replace(&mut self.controller, next)
    }

    pub(crate) fn ticks(&mut self, n: u64) -> Arc<Plan> {
        (0..n).map(|_| self.tick()).last().expect("at least one tick")
    }

    pub(crate) fn guest(&mut self, name: &str) -> &mut ToyGuest {
        self.guests.iter_mut().find(|g| g.id.as_str() == name).unwrap()
    }

    pub(crate) fn holds(&self) -> Vec<u64> {
        self.guests.iter().map(|g| g.holds).collect()
    }

    /// What guests hold or could take at once, which must stay within the budget.
    pub(crate) fn committed(&self) -> u64 {
        self.guests.iter().map(|g| g.holds.max(g.target)).sum()
    }

    /// The same, where the host takes what exceeds guests' caps.
    pub(crate) fn occupied(&self) -> u64 {
        let of = |g: &ToyGuest| if g.paged_out > 0 { g.resident() } else { g.holds.max(g.target) };
        self.guests.iter().map(of).sum()
    }

    /// What the guests of each slice hold or could take at once.
    pub(crate) fn in_slices(&self) -> Vec<u64> {
        let of = |(members, _): &(Vec<GuestId>, u64)| {
            let inside = self.guests.iter().filter(|guest| members.contains(&guest.id));
            inside.map(|guest| guest.holds.max(guest.target)).sum::<u64>()
        };
        self.slices.iter().map(of).collect()
    }

    pub(crate) fn actions_since(&self, second: u64) -> usize {
        self.actions.iter().filter(|(at, _)| *at > second).count()
    }
}
