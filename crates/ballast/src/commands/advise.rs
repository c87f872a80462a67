//! `ballast advise`: what balancing would have been worth, from a journal, and what to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ballast_advise::{ProgressLine, Request, advice_view, advise, page, render};
use ballast_host::{PROC, work_in_background_of};
use ballast_model::PolicyName;
use ballast_report::Output;
use ballast_report::command_line::command_line;
use ballast_report::files::{Destination, ensure_apart};

use super::journal::File;

/// Longest time that can be replayed: it bounds the counts of histograms, in milliseconds, and the
/// number of hours in memory.
const SINCE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Estimate from the journal what balancing would gain, and recommend what to change.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast advise
  ballast advise --since 1d --policy self-scheduling
  ballast advise --journal ./copy.db --html advice.html
  ballast advise --json | jq '.guests[].findings[].remedy'

The journal, recorded while observing or balancing, is replayed under a policy. The result says how
much memory could have been given back, how many more guests would have fitted, how much less guests
would have read back from swap, and which guests are too big, too small or cannot be moved, with the
command that fixes each.

It changes nothing and needs no daemon. It prints what the advice is based on: a week of records is
better than an hour. The policies tws, fcfs and demand-proportional cannot be replayed, because they
depend on how guests respond; neither can external, because its program is not called.")]
pub struct Args {
    #[command(flatten)]
    file: File,
    /// How much of the journal to use, counted back from its last tick; at most 366d
    #[arg(long, value_name = "SPAN", default_value = "7d", value_parser = since)]
    since: Duration,
    /// The policy to replay, as in `ballast policy list` [default: the one in force at the last
    /// tick]
    #[arg(long, value_name = "NAME")]
    policy: Option<PolicyName>,
    /// Also write the advice as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Work for a daemon's page: at the lowest priority, and no longer than this process
    #[arg(long, value_name = "PID", hide = true)]
    for_daemon: Option<u32>,
    #[command(flatten)]
    output: Output,
}

/// Reads the journal and prints; progress goes to standard error, if that is a terminal.
///
/// # Errors
/// The journal cannot be read or holds too little; the policy cannot be replayed; a file or
/// standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(daemon) = args.for_daemon {
        work_in_background_of(Path::new(PROC), daemon).context("cannot work for the daemon")?;
    }
    let journal = &args.file.journal;
    let outputs: Vec<&Path> = args.html.as_deref().into_iter().collect();
    ensure_apart(&outputs, std::slice::from_ref(journal))?;
    // Checked now, rather than after minutes of reading.
    let html = args.html.as_deref().map(Destination::open).transpose()?;
    let request = Request { since: Some(args.since), policy: args.policy };
    let mut line = ProgressLine::new("replaying the journal:");
    let advice = advise(journal, request, &mut |done, whole| line.show(done, whole))?;
    drop(line);
    let name = journal.display().to_string();
    if let Some(html) = html {
        html.write(&page(&name, &advice, &command_line()))?;
    }
    args.output.print(&advice_view(&name, &advice), |_, width| render(&name, &advice, width))
}

fn since(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).ok();
    span.filter(|span| (Duration::from_secs(1)..=SINCE_MAX).contains(span))
        .ok_or_else(|| "expected a span of time from 1s to 366d, such as 7d or 12h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_bounded() {
        assert_eq!(since("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for text in ["", "7", "0s", "367d", "-1h"] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
