//! Runs the jobs whose results are missing.
//!
//! Idea: jobs with a valid result are not run again. The others run one after the other,
//! simulations and replays first, and each result is kept before the next job begins. Of the jobs
//! with real guests, all first repetitions come before any second one, and the contestants of a
//! scenario run directly after each other. Progress goes to standard error, one line for each job,
//! with the time left as estimated from past runs. A call that runs out of time splits at most one
//! comparison: once a run on real guests did not fit any more, another comparison begins only if
//! all its runs fit.
//! Limits: one job at a time, so that none disturbs the timing of another.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_report::harmless_line;
use ballast_scenario_run::Call;
use serde_json::Value;

use super::job::{Job, Task};
use super::run::{self, load};
use super::time_left::{PastTimes, Rate, RemainingJob, span};
use crate::COMMIT;
use crate::state::{self, Fingerprint, Kept, State};

/// Limits on which jobs may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Whether scenarios with real guests run, too.
    pub(crate) real: bool,
    /// No job begins that would end later than this after the start.
    pub(crate) within: Option<Duration>,
    /// Whether existing results are ignored.
    pub(crate) fresh: bool,
}

/// The outcome of a job.
#[derive(Clone, Debug)]
pub(crate) enum JobOutcome {
    /// It has a result.
    Done(JobResult),
    /// It failed; the reason in words.
    Failed(String),
    /// It was not started; the reason in words.
    NotStarted(String),
}

/// The result of a job.
#[derive(Clone, Debug)]
pub(crate) struct JobResult {
    pub(crate) result: Value,
    /// When it ended, RFC 3339 in UTC.
    pub(crate) ended_at: String,
    /// Whether it ran in this call.
    pub(crate) ran: bool,
}

impl JobResult {
    fn new(kept: Kept, ran: bool) -> JobResult {
        JobResult { result: kept.result, ended_at: kept.ended_at, ran }
    }
}

/// The outcomes of all jobs, by their names.
pub(crate) type JobOutcomes = BTreeMap<String, JobOutcome>;

/// A job that has no result yet.
struct Pending {
    job: Job,
    fingerprint: Fingerprint,
    remaining: RemainingJob,
}

/// Runs those of `jobs` whose results are missing; each job is in the list once.
///
/// # Errors
/// This program's file or the state cannot be read or written. A job that fails is no error.
pub(crate) async fn work(
    jobs: Vec<Job>,
    scenarios: &Path,
    state: &State,
    limits: Limits,
) -> anyhow::Result<JobOutcomes> {
    let program = state::program()?;
    let mut outcomes = JobOutcomes::new();
    let mut pending = Vec::new();
    let took = took(&jobs, state);
    let mut rate = Rate::default();
    for job in jobs {
        if limits.fresh && (limits.real || !job.task.is_real()) {
            state.forget(&job.name())?;
        }
        let fingerprint = match job.fingerprint(program, scenarios) {
            Ok(fingerprint) => fingerprint,
            Err(error) => {
                outcomes.insert(job.name(), JobOutcome::Failed(format!("{error:#}")));
                continue;
            }
        };
        let kept = state.read(&job.name());
        let load = load(&job, scenarios);
        if let Some(kept) = &kept {
            rate.add(kept.took_s, load);
        }
        match kept {
            Some(kept) if kept.is_of(fingerprint) => {
                outcomes.insert(job.name(), JobOutcome::Done(JobResult::new(kept, false)));
            }
            _ => {
                let remaining =
                    RemainingJob { took_s: took.of(&job.name(), &job.task.description()), load };
                pending.push(Pending { job, fingerprint, remaining });
            }
        }
    }
    sort(&mut pending);
    run_all(pending, scenarios, state, limits, rate, &mut outcomes).await?;
    Ok(outcomes)
}

/// How long jobs took the last time they ran, whether or not that result is still valid.
pub(crate) fn took(jobs: &[Job], state: &State) -> PastTimes {
    let mut took = PastTimes::default();
    for job in jobs {
        if let Some(kept) = state.read(&job.name()) {
            let of_all = job.task.is_real().then(|| job.task.description());
            took.add(job.name(), of_all, kept.took_s);
        }
    }
    took
}

/// Sorts jobs with real guests to the end, by repetition; otherwise the shortest task comes first.
fn sort(pending: &mut [Pending]) {
    let mut of_task: BTreeMap<(String, u32), f64> = BTreeMap::new();
    for it in pending.iter() {
        *of_task.entry(group(&it.job)).or_default() += it.remaining.load.amount();
    }
    // The sort is stable: parts of a task stay in their order.
    pending.sort_by(|a, b| {
        let key = |it: &Pending| {
            let is_real = it.job.task.is_real();
            (is_real, if is_real { it.job.repetition } else { 0 })
        };
        let load = |it: &Pending| of_task.get(&group(&it.job)).copied().unwrap_or_default();
        let by_name = || group(&a.job).cmp(&group(&b.job));
        key(a).cmp(&key(b)).then(load(a).total_cmp(&load(b))).then_with(by_name)
    });
}

async fn run_all(
    pending: Vec<Pending>,
    scenarios: &Path,
    state: &State,
    limits: Limits,
    mut rate: Rate,
    outcomes: &mut JobOutcomes,
) -> anyhow::Result<()> {
    let (began, call) = (Instant::now(), Call::begin(COMMIT));
    let may_run = |task: &Task| limits.real || !task.is_real();
    let (allowed, left): (Vec<Pending>, Vec<Pending>) =
        pending.into_iter().partition(|it| may_run(&it.job.task));
    for it in left {
        let text = "it needs real guests; --real runs it".to_owned();
        outcomes.insert(it.job.name(), JobOutcome::NotStarted(text));
    }
    let of = allowed.len();
    if of > 0 {
        say(&format!(
            "{} of {} jobs are done already",
            done_count(outcomes),
            done_count(outcomes) + of
        ));
    }
    let mut is_split = false;
    for (place, it) in allowed.iter().enumerate() {
        let own = rate.of(it.remaining);
        if let Some(within) = limits.within {
            let elapsed = began.elapsed().as_secs_f64();
            let is_begun = place > 0 && group(&allowed[place - 1].job) == group(&it.job);
            let needed = match is_split && !is_begun {
                true => rate.of_all(group_of(&allowed[place..]).map(|it| it.remaining)),
                false => own,
            };
            // The time of the very first job is unknown; it is the shortest.
            if elapsed + needed.unwrap_or(0.0) > within.as_secs_f64() {
                is_split |= it.job.task.is_real();
                let text = format!(
                    "it takes longer than what was left of {}; call again, or without --within or \
                     --quick",
                    span(within.as_secs_f64())
                );
                outcomes.insert(it.job.name(), JobOutcome::NotStarted(text));
                continue;
            }
        }
        let rest = rate.of_all(allowed[place..].iter().map(|it| it.remaining));
        let of_call = limits.within.map(|within| within.saturating_sub(began.elapsed()));
        say(&line(place + 1, of, &it.job, own, rest, of_call));
        let started = Instant::now();
        let outcome = match run::run(&it.job, scenarios, &call).await {
            Ok(result) => {
                let took_s = started.elapsed().as_secs_f64();
                rate.add(took_s, it.remaining.load);
                let kept = state.keep(&it.job.name(), it.fingerprint, took_s, result)?;
                JobOutcome::Done(JobResult::new(kept, true))
            }
            Err(error) => {
                let text = harmless_line(&format!("{error:#}")).to_string();
                say(&format!("  it failed: {text}"));
                JobOutcome::Failed(text)
            }
        };
        outcomes.insert(it.job.name(), outcome);
    }
    Ok(())
}

/// The comparison that a job belongs to: a repetition of a task.
fn group(job: &Job) -> (String, u32) {
    (job.task.description(), job.repetition)
}

/// The first of `pending`, and the jobs after it of the same comparison.
fn group_of(pending: &[Pending]) -> impl Iterator<Item = &Pending> {
    let first = pending.first().map(|it| group(&it.job));
    pending.iter().take_while(move |it| Some(group(&it.job)) == first)
}

fn done_count(outcomes: &JobOutcomes) -> usize {
    outcomes.values().filter(|outcome| matches!(outcome, JobOutcome::Done(_))).count()
}

fn line(
    number: usize,
    of: usize,
    job: &Job,
    own: Option<f64>,
    rest: Option<f64>,
    of_call: Option<Duration>,
) -> String {
    let description = job.description();
    let own = own.map_or("as long as it takes".to_owned(), |own| format!("about {}", span(own)));
    let rest = match rest {
        Some(rest) => format!("about {} left in all", span(rest)),
        None => "time left in all not known yet".to_owned(),
    };
    let of_call = of_call.map(|left| format!(", of this call {}", span(left.as_secs_f64())));
    format!("[{number}/{of}] {description}: {own}; {rest}{}", of_call.unwrap_or_default())
}

fn say(text: &str) {
    use std::io::Write;
    // Errors are ignored: nobody reads a closed standard error.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::super::time_left::Load;
    use ballast_scenario_run::part::Part;

    use super::*;

    fn pending(scenario: &str, part: Option<&str>, repetition: u32, load: f64) -> Pending {
        let task = match part {
            Some(_) => Task::Lab { scenario: scenario.to_owned() },
            None => Task::Simulate { scenario: scenario.to_owned(), policies: None },
        };
        let load = if part.is_some() { Load::Seconds(load) } else { Load::Simulated(load) };
        let part = part.map(|name| Part::Run(name.to_owned()));
        let remaining = RemainingJob { took_s: None, load };
        let fingerprint = Fingerprint::new(&scenario, &[], 0);
        Pending { job: Job { task, repetition, part }, fingerprint, remaining }
    }

    #[test]
    fn real_guests_come_last_and_short_jobs_first() {
        let mut all = [
            pending("a", Some("static"), 1, 1.0),
            pending("b", None, 1, 900.0),
            pending("c", None, 2, 5.0),
        ];
        sort(&mut all);
        let order: Vec<&str> = all.iter().map(|it| it.job.task.subject()).collect();
        assert_eq!(order, ["c", "b", "a"]);
    }

    #[test]
    fn contestants_stay_together_and_repetitions_come_in_turn() {
        let mut all = [
            pending("long", Some("static"), 1, 90.0),
            pending("long", Some("best"), 1, 90.0),
            pending("long", Some("static"), 2, 90.0),
            pending("short", Some("static"), 1, 100.0),
            pending("short", Some("static"), 2, 100.0),
        ];
        sort(&mut all);
        let order: Vec<String> = all
            .iter()
            .map(|it| {
                format!(
                    "{} {}",
                    it.job.task.subject(),
                    it.job.name().rsplit_once("run-").unwrap().1
                )
            })
            .collect();
        assert_eq!(
            order,
            [
                "short short-static-1",
                "long long-static-1",
                "long long-best-1",
                "long long-static-2",
                "short short-static-2",
            ]
        );
    }

    #[test]
    fn a_group_is_the_rest_of_one_comparison() {
        let all = [
            pending("a", Some("static"), 1, 1.0),
            pending("a", Some("best"), 1, 1.0),
            pending("a", Some("static"), 2, 1.0),
        ];
        assert_eq!([0, 1, 2].map(|first| group_of(&all[first..]).count()), [2, 1, 1]);
        assert_eq!(group_of(&[]).count(), 0);
    }

    #[test]
    fn a_line_says_what_is_known_and_what_is_not() {
        let job = pending("a.toml", None, 1, 1.0).job;
        let text = line(2, 9, &job, Some(12.0), Some(200.0), Some(Duration::from_secs(90)));
        let expected =
            "[2/9] simulate a.toml: about 12 s; about 3 min left in all, of this call 90 s";
        assert_eq!(text, expected);
        let text = line(1, 9, &Job { repetition: 2, ..job }, None, None, None);
        assert!(text.contains("repetition 2") && text.contains("not known yet"), "{text}");
    }
}
