//! The figures of engines, and our goals.

use ballast_report::Report;
use ballast_report::figures::or_none;
use serde::Serialize;

use super::workload::Workload;
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scaffold::{Findings, Text, VERSION};
use crate::shown::figure;

/// Goals of speed and memory apply to workloads with at least this many pages; below that, fixed
/// costs dominate.
const PAGES_MIN: u64 = 100_000;

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MrcFindings {
    pub(super) machine: Machine,
    /// The instruction set that `exact` chose on it.
    pub(super) exact_path: &'static str,
    pub(super) repetitions: usize,
    pub(super) is_quick: bool,
    pub(super) workloads: Vec<WorkloadReport>,
}

/// One workload's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WorkloadReport {
    pub(super) workload: String,
    pub(super) what: String,
    pub(super) references: u64,
    pub(super) pages: u64,
    pub(super) engines: Vec<EngineReport>,
}

/// One engine's figures on a workload.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EngineReport {
    pub(super) engine: String,
    /// Number of references that it got.
    pub(super) references: u64,
    /// Whether it got only the first of the references.
    pub(super) is_prefix: bool,
    pub(super) million_per_second: Rate,
    pub(super) share_of_floor: Option<f64>,
    pub(super) times_avl: Option<f64>,
    pub(super) times_exact: Option<f64>,
    /// Memory per page in bytes, without the histogram.
    pub(super) bytes_per_page: Option<f64>,
    /// Mean absolute error of the total miss ratio over all sizes; the mean over seeds.
    pub(super) error_mean: Option<f64>,
    /// The greatest of them over seeds.
    pub(super) error_worst: Option<f64>,
}

/// Rates of several runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Rate {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

impl Rate {
    pub(super) fn of(rates: &[f64]) -> Self {
        let mut sorted = rates.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&least), Some(&greatest)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Self { median, least, greatest }
    }
}

impl WorkloadReport {
    /// Computes the engines' relations to each other.
    pub(super) fn new(workload: &Workload, engines: Vec<EngineReport>) -> Self {
        let mut report = Self {
            workload: workload.name.clone(),
            what: workload.what.clone(),
            references: workload.pages.len() as u64,
            pages: workload.distinct,
            engines,
        };
        let [floor, avl, exact] = ["floor", "avl", "exact"].map(|engine| report.median(engine));
        for engine in &mut report.engines {
            let against =
                |other: Option<f64>| other.map(|it| engine.million_per_second.median / it);
            (engine.share_of_floor, engine.times_avl) = (against(floor), against(avl));
            engine.times_exact = against(exact);
        }
        report
    }

    fn engine(&self, name: &str) -> Option<&EngineReport> {
        self.engines.iter().find(|engine| engine.engine == name)
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.engine(name).map(|engine| engine.million_per_second.median)
    }

    /// The goals for this workload.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let (exact, shards) = (self.engine("exact"), self.engine("shards"));
        let what = |what: &str| format!("{}: {what}", self.workload);
        let mut goals = Vec::new();
        let is_large = self.pages >= PAGES_MIN;
        if self.workload == "zipf" {
            let share = exact.and_then(|exact| exact.share_of_floor);
            let goal = |it| Goal::at_least(what("exact, of the floor"), "%", it * 100.0, 25.0);
            goals.extend(share.map(goal));
        }
        let times_avl = exact.and_then(|exact| exact.times_avl);
        goals.extend(times_avl.map(|it| Goal::at_least(what("exact, times avl"), "", it, 10.0)));
        let bytes = exact.and_then(|exact| exact.bytes_per_page).filter(|_| is_large);
        goals.extend(bytes.map(|it| Goal::at_most(what("exact, bytes per page"), "", it, 6.0)));
        let error_max = match self.workload.as_str() {
            "zipf" | "mix" if is_large => 0.002,
            "scan" if is_large => 0.0005,
            _ => 0.005,
        };
        let error = shards.and_then(|shards| shards.error_mean);
        let name = what("shards, mean error of three seeds");
        goals.extend(error.map(|it| Goal::at_most(name, "", it, error_max)));
        let times = shards.and_then(|shards| shards.times_exact).filter(|_| is_large);
        goals.extend(times.map(|it| Goal::at_least(what("shards, times exact"), "", it, 10.0)));
        goals
    }

    fn title(&self) -> String {
        let (references, pages) = (grouped(self.references), grouped(self.pages));
        format!("{}: {}; {references} references to {pages} pages", self.workload, self.what)
    }
}

impl Findings for MrcFindings {
    const QUICK_REMARK: &'static str =
        "quick workloads are too small for figures to be held against goals";

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        self.workloads.iter().flat_map(WorkloadReport::goals).collect()
    }

    fn show(&self, text: &mut Text) {
        let machine = &self.machine;
        text.line(format_args!("{}; {}", machine.line(), list(&machine.caches)));
        text.line(format_args!(
            "has        {}; compiled for the baseline and {}; exact uses {}",
            list(&machine.features),
            list(&machine.compiled_for),
            self.exact_path
        ));
        text.line(format_args!(
            "figures    ballast {VERSION}, median of {} runs, interleaved; the core's time, page faults included",
            self.repetitions
        ));
        let columns = Report::<EngineReport>::new()
            .text("ENGINE", |it| it.engine.clone())
            .figure("M/S", |it| figure(it.million_per_second.median))
            .figure("LEAST–GREATEST", |it| {
                let Rate { least, greatest, .. } = it.million_per_second;
                format!("{}–{}", figure(least), figure(greatest))
            })
            .figure("OF FLOOR", |it| {
                or_none(it.share_of_floor.map(|share| format!("{} %", figure(share * 100.0))))
            })
            .figure("× AVL", |it| or_none(it.times_avl.map(figure)))
            .figure("× EXACT", |it| or_none(it.times_exact.map(figure)))
            .figure("BYTES/PAGE", |it| or_none(it.bytes_per_page.map(figure)))
            .figure("MEAN ERROR", |it| or_none(it.error_mean.map(|it| format!("{it:.5}"))))
            .figure("WORST", |it| or_none(it.error_worst.map(|it| format!("{it:.5}"))))
            .text("", |it| match it.is_prefix {
                true => format!("first {} references only", grouped(it.references)),
                false => String::new(),
            });
        for workload in &self.workloads {
            text.line(format_args!("\n{}", workload.title()));
            text.table(&columns, &workload.engines);
        }
    }
}

fn list(names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "nothing more".to_owned() } else { names.join(" ") }
}

/// A number with its digits grouped in threes.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (16_000_000, "16,000,000")] {
            assert_eq!(grouped(n), text);
        }
    }
}
