//! The cost of agents and the answers to emergencies, with their goals.

use std::time::Duration;

use ballast_model::Bytes;
use ballast_report::Report;
use serde::Serialize;

use crate::goal::Goal;
use crate::scaffold::{Findings, Text, VERSION};
use crate::shown::figure;

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AgentFindings {
    pub(super) processor: Option<String>,
    pub(super) is_quick: bool,
    pub(super) agent: Vec<ProgramCost>,
    pub(super) daemon: Daemon,
}

/// The cost of the agent's program in one place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProgramCost {
    pub(super) place: &'static str,
    pub(super) samples: u64,
    /// Processor time as a share of one core, in per cent.
    pub(super) processor_percent: f64,
    /// Processor time of one sample, in microseconds.
    pub(super) sample_us: f64,
    pub(super) resident_bytes: u64,
    pub(super) program_bytes: u64,
}

impl ProgramCost {
    /// Figures of an agent that took `used` of processor time in `length`.
    pub(super) fn new(
        place: &'static str,
        samples: u64,
        length: Duration,
        used: Duration,
        resident: Bytes,
        program_bytes: u64,
    ) -> ProgramCost {
        ProgramCost {
            place,
            samples,
            processor_percent: percent(used, length),
            sample_us: used.as_secs_f64() * 1e6 / samples.max(1) as f64,
            resident_bytes: resident.get(),
            program_bytes,
        }
    }
}

/// What a daemon used in all turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DaemonCost {
    used: Duration,
    resident: Bytes,
}

impl DaemonCost {
    /// Adds a turn: the processor time it used, and its greatest resident memory.
    pub(super) fn add(&mut self, used: Duration, resident: Bytes) {
        self.used += used;
        self.resident = self.resident.max(resident);
    }
}

/// The daemon with many agents.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Daemon {
    pub(super) guests: u16,
    /// Time of all turns of either kind, in seconds.
    pub(super) length_s: f64,
    /// Processor time as a share of one core, in per cent, with agents and without.
    pub(super) with_percent: f64,
    pub(super) without_percent: f64,
    /// The greatest resident memory, with agents and without.
    pub(super) with_bytes: u64,
    pub(super) without_bytes: u64,
    pub(super) emergencies: u32,
    pub(super) answered: usize,
    /// Time from an emergency to the changed target; `null`: none was answered.
    pub(super) answer_median_ms: Option<f64>,
    pub(super) answer_worst_ms: Option<f64>,
}

impl Daemon {
    pub(super) fn new(
        guests: u16,
        length: Duration,
        with: DaemonCost,
        without: DaemonCost,
        emergencies: u32,
        mut answers: Vec<Duration>,
    ) -> Daemon {
        answers.sort_unstable();
        let ms = |answer: &Duration| answer.as_secs_f64() * 1e3;
        Daemon {
            guests,
            length_s: length.as_secs_f64(),
            with_percent: percent(with.used, length),
            without_percent: percent(without.used, length),
            with_bytes: with.resident.get(),
            without_bytes: without.resident.get(),
            emergencies,
            answered: answers.len(),
            answer_median_ms: answers.get(answers.len() / 2).map(ms),
            answer_worst_ms: answers.last().map(ms),
        }
    }
}

impl Daemon {
    fn emergencies(&self) -> String {
        let counted = format!("{} of {} emergencies answered", self.answered, self.emergencies);
        match (self.answer_median_ms, self.answer_worst_ms) {
            (Some(median), Some(worst)) => {
                format!("{counted}: median {} ms, the worst {} ms", figure(median), figure(worst))
            }
            _ => counted,
        }
    }
}

impl Findings for AgentFindings {
    const QUICK_REMARK: &'static str = "quick figures are not held against goals";

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        let mib = |bytes: u64| Bytes::new(bytes).as_mib_f64();
        let daemon = &self.daemon;
        let mut goals = Vec::new();
        for own in &self.agent {
            if own.place == "this machine" {
                let what = "agent: processor time, of a core";
                goals.push(Goal::at_most(what, "%", own.processor_percent, 0.1));
            }
            let what = format!("agent: resident, {}", own.place);
            goals.push(Goal::at_most(what, "MiB", mib(own.resident_bytes), 4.0));
        }
        if let Some(own) = self.agent.first() {
            let size_mb = own.program_bytes as f64 / 1e6;
            goals.push(Goal::at_most("agent: its program", "MB", size_mb, 3.0));
        }
        let extra = (daemon.with_percent - daemon.without_percent).max(0.0);
        let is_answered = daemon.answered == daemon.emergencies as usize;
        let worst = daemon.answer_worst_ms.filter(|_| is_answered).unwrap_or(f64::INFINITY);
        goals.extend([
            Goal::at_most("daemon: what agents cost, of a core", "%", extra, 5.0),
            Goal::at_most("daemon: resident, with agents", "MiB", mib(daemon.with_bytes), 100.0),
            Goal::at_most("emergency to changed target, the worst", "ms", worst, 50.0),
        ]);
        goals
    }

    fn show(&self, text: &mut Text) {
        let daemon = &self.daemon;
        let processor = self.processor.as_deref().unwrap_or("unknown");
        text.line(format_args!("processor  {processor}\nfigures    ballast {VERSION}"));
        text.line("\nthe agent, a sample a second");
        let columns = Report::<ProgramCost>::new()
            .text("WHERE", |it| it.place)
            .figure("SAMPLES", |it| it.samples)
            .figure("OF A CORE", |it| format!("{} %", figure(it.processor_percent)))
            .figure("A SAMPLE", |it| format!("{} µs", figure(it.sample_us)))
            .figure("RESIDENT", |it| Bytes::new(it.resident_bytes))
            .figure("PROGRAM", |it| Bytes::new(it.program_bytes));
        text.table(&columns, &self.agent);
        text.line(format_args!(
            "\nthe daemon, {} guests that report once a second, {} s of turns each",
            daemon.guests, daemon.length_s
        ));
        let columns = Report::<(&str, f64, u64)>::new()
            .text("DAEMON", |it| it.0.to_owned())
            .figure("OF A CORE", |it| format!("{} %", figure(it.1)))
            .figure("RESIDENT", |it| Bytes::new(it.2));
        let sides = [
            ("listens to agents", daemon.with_percent, daemon.with_bytes),
            ("does not", daemon.without_percent, daemon.without_bytes),
        ];
        text.table(&columns, &sides);
        text.line(format_args!("\n{}", daemon.emergencies()));
    }
}

fn percent(used: Duration, length: Duration) -> f64 {
    100.0 * used.as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60 samples in a minute, 9 ms: 150 µs each, 0.015 %. 3 s of 60 are 5 %, 1.2 s are 2 %.
    #[test]
    fn figures_equal_those_by_hand() {
        let own = ProgramCost::new(
            "this machine",
            60,
            Duration::from_secs(60),
            Duration::from_millis(9),
            Bytes::mib(2),
            2_700_000,
        );
        assert!(
            (own.processor_percent - 0.015).abs() < 1e-9 && (own.sample_us - 150.0).abs() < 1e-9
        );
        let side = |ms, mib| {
            let mut side = DaemonCost::default();
            side.add(Duration::from_millis(ms), Bytes::mib(mib));
            side
        };
        let answers = [40, 2, 3].map(Duration::from_millis).to_vec();
        let minute = Duration::from_secs(60);
        let daemon = Daemon::new(1000, minute, side(3000, 80), side(1200, 60), 3, answers);
        assert_eq!((daemon.answer_median_ms, daemon.answer_worst_ms), (Some(3.0), Some(40.0)));
        let goals = |agent, daemon| {
            AgentFindings { processor: None, is_quick: false, agent, daemon }.goals()
        };
        let all = goals(vec![own], daemon.clone());
        assert!(all.iter().all(|goal| goal.is_met), "{all:?}");
        let unanswered = Daemon { answered: 2, ..daemon };
        assert!(
            goals(Vec::new(), unanswered).iter().any(|goal| !goal.is_met),
            "one guest was never answered"
        );
    }
}
