//! Running what is missing.
//!
//! Idea: jobs whose results are there and still count are not run again; the others run one after
//! the other, simulated and replayed ones first, and each result is kept before the next begins.
//! Progress goes to standard error, a line for each job, with the time left by what jobs took here.
//! Limits: one job at a time, so that none disturbs another's times.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_report::harmless_line;
use serde_json::Value;

use super::job::{self, Job, Task};
use super::run::{self, load};
use super::state::State;
use super::time_left::{Ahead, Load, Rate, span};

/// What may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Scenarios with real guests, too.
    pub(crate) real: bool,
    /// No job begins that would end later than this from the start.
    pub(crate) within: Option<Duration>,
    /// Results that are there do not count.
    pub(crate) fresh: bool,
}

/// What became of a job.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It has a result.
    Done(Found),
    /// It failed, in words.
    Failed(String),
    /// It was not begun, in words.
    Left(String),
}

/// What a job found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) result: Value,
    /// Whether it ran in this call.
    pub(crate) ran: bool,
}

/// What became of every job.
pub(crate) type Ends = BTreeMap<String, End>;

/// A job that has no result yet.
struct Pending {
    job: Job,
    fingerprint: String,
    ahead: Ahead,
}

/// Runs what is missing of `jobs`; each job is there once.
///
/// # Errors
/// This program or the state cannot be read or written; a job that fails is none.
pub(crate) async fn work(
    jobs: Vec<Job>,
    scenarios: &Path,
    state: &State,
    limits: Limits,
) -> anyhow::Result<Ends> {
    let program = job::program()?;
    let mut ends = Ends::new();
    let mut pending = Vec::new();
    let mut rate = Rate::default();
    for job in jobs {
        if limits.fresh && (limits.real || !job.task.is_real()) {
            state.forget(&job)?;
        }
        let fingerprint = match job.fingerprint(program, scenarios) {
            Ok(fingerprint) => fingerprint,
            Err(error) => {
                ends.insert(job.name(), End::Failed(format!("{error:#}")));
                continue;
            }
        };
        let kept = state.read(&job);
        let load = load(&job, scenarios);
        if let Some(kept) = &kept {
            rate.add(kept.took_s, load);
        }
        match kept {
            Some(kept) if kept.is_of(&fingerprint) => {
                let found = Found { result: kept.result, ran: false };
                ends.insert(job.name(), End::Done(found));
            }
            kept => {
                let ahead = Ahead { took_s: kept.map(|kept| kept.took_s), load };
                pending.push(Pending { job, fingerprint, ahead });
            }
        }
    }
    sort(&mut pending);
    run_all(pending, scenarios, state, limits, rate, &mut ends).await?;
    Ok(ends)
}

/// Real guests last, and before them the shortest first.
fn sort(pending: &mut [Pending]) {
    let key = |it: &Pending| match it.ahead.load {
        Load::Simulated(load) => (it.job.task.is_real(), load),
        Load::Seconds(seconds) => (it.job.task.is_real(), seconds),
    };
    pending.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
}

async fn run_all(
    pending: Vec<Pending>,
    scenarios: &Path,
    state: &State,
    limits: Limits,
    mut rate: Rate,
    ends: &mut Ends,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let may_run = |task: &Task| limits.real || !task.is_real();
    let (allowed, left): (Vec<Pending>, Vec<Pending>) =
        pending.into_iter().partition(|it| may_run(&it.job.task));
    for it in left {
        let text = "it needs real guests; --real runs it".to_owned();
        ends.insert(it.job.name(), End::Left(text));
    }
    let of = allowed.len();
    if of > 0 {
        say(&format!("{} of {} jobs are done already", ends_done(ends), ends_done(ends) + of));
    }
    for (place, it) in allowed.iter().enumerate() {
        let own = rate.of(it.ahead);
        if let Some(within) = limits.within {
            let elapsed = began.elapsed().as_secs_f64();
            // Of the first one nothing is known; it is the shortest.
            if elapsed + own.unwrap_or(0.0) > within.as_secs_f64() {
                let text = format!(
                    "it takes longer than what is left of {}; call again, or without --quick",
                    span(within.as_secs_f64())
                );
                ends.insert(it.job.name(), End::Left(text));
                continue;
            }
        }
        let rest = rate.of_all(allowed[place..].iter().map(|it| it.ahead));
        say(&line(place + 1, of, &it.job, own, rest));
        let started = Instant::now();
        let end = match run::run(&it.job, scenarios).await {
            Ok(result) => {
                let took_s = started.elapsed().as_secs_f64();
                rate.add(took_s, it.ahead.load);
                let kept = state.keep(&it.job, it.fingerprint.clone(), took_s, result)?;
                End::Done(Found { result: kept.result, ran: true })
            }
            Err(error) => {
                let text = harmless_line(&format!("{error:#}")).to_string();
                say(&format!("  it failed: {text}"));
                End::Failed(text)
            }
        };
        ends.insert(it.job.name(), end);
    }
    Ok(())
}

fn ends_done(ends: &Ends) -> usize {
    ends.values().filter(|end| matches!(end, End::Done(_))).count()
}

fn line(number: usize, of: usize, job: &Job, own: Option<f64>, rest: Option<f64>) -> String {
    let told = job.task.told();
    let repetition = match job.repetition {
        1 => String::new(),
        repetition => format!(", repetition {repetition}"),
    };
    let own = own.map_or("as long as it takes".to_owned(), |own| format!("about {}", span(own)));
    let rest = match rest {
        Some(rest) => format!("about {} left in all", span(rest)),
        None => "time left in all not known yet".to_owned(),
    };
    format!("[{number}/{of}] {told}{repetition}: {own}; {rest}")
}

fn say(text: &str) {
    use std::io::Write;
    // Nobody listens where standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(scenario: &str, real: bool, load: f64) -> Pending {
        let scenario = scenario.to_owned();
        let task = match real {
            true => Task::Lab { scenario },
            false => Task::Simulate { scenario, policies: None },
        };
        let load = if real { Load::Seconds(load) } else { Load::Simulated(load) };
        let ahead = Ahead { took_s: None, load };
        Pending { job: Job { task, repetition: 1 }, fingerprint: String::new(), ahead }
    }

    #[test]
    fn real_guests_come_last_and_short_jobs_first() {
        let mut all = [
            pending("real", true, 1.0),
            pending("long", false, 900.0),
            pending("short", false, 5.0),
        ];
        sort(&mut all);
        let order: Vec<&str> = all.iter().map(|it| it.job.task.subject()).collect();
        assert_eq!(order, ["short", "long", "real"]);
    }

    #[test]
    fn a_line_says_what_is_known_and_what_is_not() {
        let job = pending("a.toml", false, 1.0).job;
        let text = line(2, 9, &job, Some(12.0), Some(200.0));
        assert_eq!(text, "[2/9] simulate a.toml: about 12 s; about 3 min left in all");
        let text = line(1, 9, &Job { repetition: 2, ..job }, None, None);
        assert!(text.contains("repetition 2") && text.contains("not known yet"), "{text}");
    }
}
