//! Which calls of the command played the runs of a record.
//!
//! Idea: a comparison is weaker when its runs were played hours apart or from different commits, so
//! the result lists the calls where there were several.

use super::record::Record;

/// One call of the command, and the runs that it played.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallRuns {
    /// When it began, RFC 3339 in UTC.
    began_at: String,
    /// The commit that its program was built from, where that is known.
    commit: Option<String>,
    /// Its runs, in the order in which they began.
    runs: Vec<CallRun>,
}

/// A run of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallRun {
    policy: String,
    /// From 1.
    repetition: u32,
    /// When it began, RFC 3339 in UTC.
    began_at: String,
}

/// The calls that played the runs of `record`, the earliest first.
fn calls(record: &Record) -> Vec<CallRuns> {
    let mut runs: Vec<_> =
        record.runs.iter().filter_map(|run| Some((run, run.origin.as_ref()?))).collect();
    runs.sort_by_key(|(_, origin)| (&origin.call_at, &origin.commit, &origin.began_at));
    let mut calls: Vec<CallRuns> = Vec::new();
    for (run, origin) in runs {
        let own = CallRun {
            policy: run.policy.clone(),
            repetition: run.repetition,
            began_at: origin.began_at.clone(),
        };
        match calls.last_mut() {
            Some(call) if call.began_at == origin.call_at && call.commit == origin.commit => {
                call.runs.push(own);
            }
            _ => calls.push(CallRuns {
                began_at: origin.call_at.clone(),
                commit: origin.commit.clone(),
                runs: vec![own],
            }),
        }
    }
    calls
}

impl CallRuns {
    /// In words: the call, and when each of its runs began.
    fn description(&self) -> String {
        let run = |it: &CallRun| format!("{} {} at {}", it.policy, it.repetition, it.began_at);
        let runs: Vec<String> = self.runs.iter().map(run).collect();
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}"));
        let commit = commit.unwrap_or_default();
        format!("call of {}{commit}: {}", self.began_at, runs.join(", "))
    }
}

/// A remark for the comparison when several calls played its runs; `None`: at most one did.
pub(super) fn remark(record: &Record) -> Option<String> {
    let calls = calls(record);
    let described: Vec<String> = calls.iter().map(CallRuns::description).collect();
    (calls.len() > 1)
        .then(|| format!("the runs were played by {} calls: {}", calls.len(), described.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::record::RunOrigin;

    #[test]
    fn runs_are_listed_by_the_calls_that_played_them() {
        let mut record = fixture::record(&[("static", &[100, 100]), ("global", &[150, 150])]);
        assert_eq!(calls(&record), []);
        let origin = |began: &str, call: &str| RunOrigin {
            began_at: began.to_owned(),
            call_at: call.to_owned(),
            commit: Some("c0ffee".to_owned()),
        };
        for (run, began) in record.runs.iter_mut().zip(["T11", "T12", "T21", "T22"]) {
            run.origin = Some(origin(began, "T10"));
        }
        assert_eq!((calls(&record).len(), remark(&record)), (1, None));
        for run in &mut record.runs[2..] {
            run.origin.as_mut().unwrap().call_at = "T20".to_owned();
        }
        let text = remark(&record).unwrap();
        assert_eq!(
            text,
            "the runs were played by 2 calls: call of T10, commit c0ffee: static 1 at T11, \
             global 1 at T12; call of T20, commit c0ffee: static 2 at T21, global 2 at T22"
        );
    }
}
