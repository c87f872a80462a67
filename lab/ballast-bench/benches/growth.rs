//! How soon a starved guest gets what it needs, when claims are believed as far as they are proven,
//! and when they are believed without proof.
//!
//! Two guests of 1 GiB hold half of 1 GiB each; then one of them needs 832 MiB and more, and the
//! other hardly any. Counted are the decisions from that time to the first one that finds the guest
//! holding 832 MiB. Both rules run on the same host in turn, seed by seed, in the simulator:
//! estimates, policy, guard and checker are the daemon's own, memory and disks are modelled.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ballast_control::Settings;
use ballast_model::{Bytes, GuestId, PolicyName, Timestamp};
use ballast_policy::{Division, Pacing, Policy, PolicySettings, Problem, build};
use ballast_sim::{Disk, GuestSpec, HostSpec, Pattern, Scenario, Simulation, Step, Swap};

const HALF: Bytes = Bytes::mib(512);
const FULL: Bytes = Bytes::mib(832);
/// Size of the workload; with its kernel and what it keeps free, the guest needs more than
/// [`FULL`].
const SIZE: Bytes = Bytes::mib(760);
/// When the workload begins.
const BEGINS: Duration = Duration::from_secs(5);
const SEEDS: u64 = 5;

/// The rule, and without it: then a need of twice what is filled is believed without proof.
const RULES: [(&str, Option<u64>); 2] = [("as it is", None), ("off", Some(100))];

/// A policy that notes what one guest holds at each decision.
#[derive(Clone, Debug)]
struct RecordingPolicy {
    policy: Box<dyn Policy>,
    guest: GuestId,
    held: Arc<Mutex<Vec<(Timestamp, Bytes)>>>,
}

impl Policy for RecordingPolicy {
    fn name(&self) -> PolicyName {
        self.policy.name()
    }

    fn pacing(&self) -> Pacing {
        self.policy.pacing()
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let contender = problem.contenders().iter().find(|it| it.id == self.guest);
        if let (Some(held), Ok(mut seen)) = (contender.and_then(|it| it.held), self.held.lock()) {
            seen.push((problem.now(), held));
        }
        self.policy.divide(problem)
    }
}

/// Decisions and time until the guest is full; `None`: it never is.
fn growth(pattern: &Pattern, believed: Option<u64>, seed: u64) -> Option<(usize, Duration)> {
    let guest = |name: &str| GuestSpec {
        start: Some(HALF),
        swap: Some(Swap::new(Bytes::gib(1), Disk::SSD)),
        ..GuestSpec::new(name.parse().expect("a name"), Bytes::gib(1))
    };
    let mut control = Settings::new(PolicyName::Global);
    control.guard.budget = Some(Bytes::gib(1));
    control.guard.believed_percent = believed.unwrap_or(control.guard.believed_percent);
    let scenario = Scenario {
        name: "growth".to_owned(),
        duration: Duration::from_secs(120),
        seed,
        block: Scenario::BLOCK_DEFAULT,
        host: HostSpec::new(Bytes::gib(4)),
        control,
        guests: vec![guest("starved").with(BEGINS, pattern.clone()), guest("idle")],
    };
    let held = Arc::default();
    let policy = RecordingPolicy {
        policy: build(PolicyName::Global, PolicySettings::default()),
        guest: "starved".parse().expect("a name"),
        held: Arc::clone(&held),
    };
    let mut simulation = Simulation::new(&scenario, Box::new(policy)).expect("a valid scenario");
    while simulation.step() {}
    let begins = Timestamp::ZERO + BEGINS;
    let held = held.lock().expect("nobody panicked");
    let decisions: Vec<_> = held.iter().filter(|(at, _)| *at >= begins).collect();
    let full = decisions.iter().position(|(_, held)| *held >= FULL)?;
    Some((full, decisions[full].0.saturating_since(begins)))
}

fn main() {
    let ramp = Pattern::Mono {
        low: Bytes::mib(50),
        high: SIZE,
        ramp: Duration::from_secs(25).into(),
        hold: Duration::from_secs(90),
        cycles: Some(1),
    };
    let random = Pattern::RandomSteps { steps: vec![Step { at: Duration::ZERO, size: SIZE }] };
    let patterns = [
        ("grows in 25 s", ramp),
        ("jumps, in order", Pattern::Sequential { size: SIZE, passes: None }),
        ("jumps, scattered", Pattern::Constant { size: SIZE }),
        ("jumps, at random", random),
    ];
    println!("{HALF} to {FULL}, simulated: decisions and seconds until full, {SEEDS} seeds\n");
    for (name, pattern) in patterns {
        let mut found: [Vec<(usize, Duration)>; 2] = Default::default();
        for seed in 1..=SEEDS {
            for ((_, believed), found) in RULES.iter().zip(&mut found) {
                found.extend(growth(&pattern, *believed, seed));
            }
        }
        let medians = found.each_mut().map(|runs| {
            runs.sort_unstable();
            runs.get(runs.len() / 2).copied()
        });
        for ((rule, _), (runs, median)) in RULES.iter().zip(found.iter().zip(medians)) {
            match median {
                Some((decisions, took)) => println!(
                    "{name:18} rule {rule:9} median {decisions:3} decisions, {:4.1} s; {} to {} of {} \
                     runs that got there",
                    took.as_secs_f64(),
                    runs[0].0,
                    runs[runs.len() - 1].0,
                    runs.len()
                ),
                None => println!("{name:18} rule {rule:9} never full"),
            }
        }
        if let [Some((with, with_took)), Some((without, without_took))] = medians {
            let decisions = with as f64 / without.max(1) as f64;
            let time = with_took.as_secs_f64() / without_took.as_secs_f64();
            println!("{name:18} ratio of decisions {decisions:.2}, of time {time:.2}\n");
        }
    }
}
