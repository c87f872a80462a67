//! `ballast journal`: shows and exports the journal.

use std::io::{self, Write};
use std::path::PathBuf;

use ballast_model::GuestId;
use ballast_store::{Info, Range, Reader};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;

use ballast_report::{Moments, Output, format};

/// The daemon's default journal.
const JOURNAL_DEFAULT: &str = "/var/lib/ballast/journal.db";
/// Longest line that can be filtered for one guest, in bytes; a tick of 10,000 guests is about
/// 10 MiB.
const LINE_BYTES_MAX: usize = 256 << 20;

/// Read what the daemon recorded, even while it runs.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast journal info
  ballast journal export --from 2h --guest web-1")]
pub struct Args {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum JournalCommand {
    Export(ExportArgs),
    Info(InfoArgs),
}

/// Print every tick and event, one JSON object per line.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast journal export > journal.jsonl
  ballast journal export --from '2026-01-02 09:00' --to '2026-01-02 10:00'
  ballast journal export --from 2h --guest web-1 | jq 'select(.kind == \"tick\") | .plan.guests[0]'

A moment is a date with or without a time (in the local zone), an RFC 3339 time such as
2026-01-02T09:00:00Z, or a span before now such as 2h or 30m.")]
struct ExportArgs {
    #[command(flatten)]
    file: File,
    #[command(flatten)]
    span: Moments,
    /// Only this guest's part of each tick, and all events
    #[arg(long, value_name = "GUEST")]
    guest: Option<GuestId>,
}

/// Summarize a journal: entries, time span and size.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  ballast journal info --journal ./copy.db")]
struct InfoArgs {
    #[command(flatten)]
    file: File,
    #[command(flatten)]
    output: Output,
}

/// The journal that a command reads.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct File {
    /// The journal file
    #[arg(long, value_name = "PATH", env = "BALLAST_JOURNAL", default_value = JOURNAL_DEFAULT)]
    pub(super) journal: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// The journal cannot be read, or standard output cannot be written.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        JournalCommand::Export(args) => export(&args),
        JournalCommand::Info(args) => {
            let reader = Reader::open(&args.file.journal)?;
            let reply = InfoReply::new(&reader.info()?);
            args.output.print(&reply, |reply, _| render(reply))
        }
    }
}

fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let range = Range {
        from_wall_ms: args.span.from_ms(),
        to_wall_ms: args.span.to_ms(),
        ..Range::default()
    };
    let reader = Reader::open(&args.file.journal)?;
    let mut out = io::stdout().lock();
    match &args.guest {
        None => reader.export(range, &mut out)?,
        Some(guest) => {
            reader.export(range, &mut OneGuest { guest, line: Vec::new(), out: &mut out })?
        }
    };
    Ok(())
}

/// Filters the lines of an export for one guest. Ticks without the guest are left out; events are
/// kept, because they concern every guest.
struct OneGuest<'a> {
    guest: &'a GuestId,
    line: Vec<u8>,
    out: &'a mut dyn Write,
}

impl Write for OneGuest<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = bytes.iter().position(|b| *b == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        self.line.extend_from_slice(&bytes[..taken]);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(io::Error::other(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
        }
        if end.is_some() {
            let mut line: Value = serde_json::from_slice(&self.line)?;
            self.line.clear();
            if reduce(&mut line, self.guest.as_str()) {
                serde_json::to_writer(&mut *self.out, &line)?;
                self.out.write_all(b"\n")?;
            }
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Removes the other guests from an exported `line`; returns whether to print it.
fn reduce(line: &mut Value, guest: &str) -> bool {
    if line["kind"] != "tick" {
        return true;
    }
    for (list, name) in [
        ("/sample/guests", "id"),
        ("/plan/guests", "id"),
        ("/plan/actions", "guest"),
        ("/outcomes", "guest"),
    ] {
        if let Some(items) = line.pointer_mut(list).and_then(Value::as_array_mut) {
            items.retain(|item| item[name] == guest);
        }
    }
    if let Some(limits) = line.get_mut("limits").and_then(Value::as_object_mut) {
        limits.retain(|name, _| name == guest);
    }
    let seen = line.pointer("/sample/guests").and_then(Value::as_array);
    seen.is_some_and(|guests| !guests.is_empty())
}

/// Summary of a journal, as printed.
#[derive(Clone, Debug, Serialize)]
struct InfoReply {
    path: PathBuf,
    entries: u64,
    first_unix_ms: Option<i64>,
    last_unix_ms: Option<i64>,
    sessions: u64,
    file_bytes: u64,
    wal_bytes: u64,
}

impl InfoReply {
    fn new(info: &Info) -> Self {
        InfoReply {
            path: info.path.clone(),
            entries: info.entries,
            first_unix_ms: info.first.map(|(_, wall_ms)| wall_ms),
            last_unix_ms: info.last.map(|(_, wall_ms)| wall_ms),
            sessions: info.sessions,
            file_bytes: info.file_bytes.get(),
            wal_bytes: info.wal_bytes.get(),
        }
    }
}

fn render(info: &InfoReply) -> String {
    let when = |unix_ms: Option<i64>| match unix_ms.map(Timestamp::from_millisecond) {
        Some(Ok(at)) => at.to_zoned(TimeZone::system()).strftime("%F %T %:z").to_string(),
        _ => "none".to_owned(),
    };
    format!(
        "journal   {}\nentries   {}, of {} starts of the daemon\noldest    {}\nnewest    {}\nsize      {}, and {} of \
         write-ahead log\n",
        info.path.display(),
        info.entries,
        info.sessions,
        when(info.first_unix_ms),
        when(info.last_unix_ms),
        format::size(info.file_bytes),
        format::size(info.wal_bytes),
    )
}

#[cfg(test)]
mod tests;
