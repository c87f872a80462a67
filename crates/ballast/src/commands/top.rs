//! `ballast top`: the host and its guests in the terminal, live or from a journal.

use std::ffi::OsString;
use std::path::PathBuf;

use ballast_top::{Options, Origin};

use super::{Connection, explain};

/// Watch the host and every guest, or what a journal recorded of them.
///
/// Keys: `?` lists all, `q` quits, Enter explains the selected guest, `/` filters by name, `<`, `>`
/// and `r` sort, `f` folds guests at rest, `p` pauses or resumes and `s` sets a guest's bounds,
/// both after a question. In a journal, the arrows step through its ticks, page up and down a
/// minute, and space plays.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast top
  ballast top --no-color
  ballast top --journal /var/lib/ballast/journal.db

Keys: ? lists all keys, q quits, Enter explains the selected guest, / filters by name.

Colours are also off if NO_COLOR is set or TERM is dumb. In scripts, use `ballast status --json`.")]
pub struct Args {
    /// Show this journal instead of a daemon, starting at its last tick
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// Use no colours
    #[arg(long)]
    no_color: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Shows the view until it is quit.
///
/// # Errors
/// Standard output or input is not a terminal, no socket is known, or the journal cannot be read.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let origin = match args.journal {
        Some(journal) => Origin::Journal(journal),
        None => Origin::Daemon(args.connection.client()?, args.connection.socket),
    };
    let [no_color, term] = ["NO_COLOR", "TERM"].map(std::env::var_os);
    let colour = !args.no_color && is_coloured(no_color, term);
    ballast_top::run(Options { origin, colour, explain: explain::chain }).await
}

/// Whether to use colours, by the environment's `NO_COLOR` and `TERM`.
fn is_coloured(no_color: Option<OsString>, term: Option<OsString>) -> bool {
    let is_unwanted = no_color.is_some_and(|value| !value.is_empty());
    let is_known = term.is_some_and(|term| !term.is_empty() && term != "dumb");
    is_known && !is_unwanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_left_out_where_unwanted_or_unknown() {
        for (no_color, term, expected) in [
            (None, Some("xterm"), true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
            (None, Some(""), false),
            (None, None, false),
        ] {
            let found = is_coloured(no_color.map(OsString::from), term.map(OsString::from));
            assert_eq!(found, expected, "{no_color:?} {term:?}");
        }
    }
}
