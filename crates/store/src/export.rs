//! Exports a journal as lines of JSON: `ballast journal export`.
//!
//! One line per entry, in order. Every line has
//!
//! | field | meaning |
//! |---|---|
//! | `v` | version of this form, [`EXPORT_FORMAT`] |
//! | `id` | number of the entry; grows by one per entry |
//! | `session` | number of the daemon's start |
//! | `config` | number of the configuration in force, or `null` |
//! | `wall_ms` | wall clock, milliseconds since 1970 |
//! | `mono_ms` | monotonic clock of that boot, milliseconds |
//! | `kind` | `tick` or `event` |
//!
//! A tick adds `sample` ([`Snapshot`](ballast_model::Snapshot)), `plan`
//! ([`Plan`](ballast_model::Plan)), `outcomes` (a list of [`Outcome`](ballast_model::Outcome), left
//! out when empty), `limits` (by guest, except guests with default limits), `paused` (left out when
//! false), `mode` (`configured` and, where an operator set another one, `set`; left out when the
//! file says to balance and no operator set another one) and `decision_ns`. Every reason, clamp,
//! change, compliance and note is `{"code": word, "figures": {…}, "text": sentence}`.
//!
//! An event adds `event` ([`Event`]) with a `code`: `started` (with the `boot_id`, `version` and
//! `pid` of that start), `config-loaded` (with `sha256` and `toml`), `config-refused`, `command`,
//! `gap`, `stopped`.
//!
//! Units are in the names: `_bytes`, `_ns`, `_ms`. Unknown figures are left out.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::JournalError;
use crate::entry::{Entry, EntryContent, Event, TickEntry};
use crate::reader::{Range, Reader};

/// Version of the lines. Exported ticks and curves are always whole.
pub const EXPORT_FORMAT: i64 = 1;

impl Reader {
    /// Writes the entries of `range` to `out`, one line of JSON each, and returns their number.
    ///
    /// # Errors
    /// The journal cannot be read, or `out` cannot be written ([`JournalError::Io`], with
    /// `BrokenPipe` if its reader is gone).
    pub fn export(&self, range: Range, out: &mut dyn Write) -> Result<u64, JournalError> {
        let failed = |e: io::Error| JournalError::Io { path: self.path().to_owned(), source: e };
        let mut out = BufWriter::new(out);
        let mut lines = 0;
        for entry in self.entries(range) {
            let line = self.line(&entry?)?;
            serde_json::to_writer(&mut out, &line).map_err(|e| failed(e.into()))?;
            out.write_all(b"\n").map_err(failed)?;
            lines += 1;
        }
        out.flush().map_err(failed)?;
        Ok(lines)
    }

    fn line(&self, entry: &Entry) -> Result<Value, JournalError> {
        let mut line = json!({
            "v": EXPORT_FORMAT,
            "id": entry.id,
            "session": entry.session,
            "config": entry.config,
            "wall_ms": entry.wall_ms,
            "mono_ms": entry.mono.as_millis(),
        });
        match &entry.content {
            EntryContent::Tick(tick) => {
                line["kind"] = "tick".into();
                merge(&mut line, tick_value(entry, tick));
            }
            EntryContent::Event(event) => {
                line["kind"] = "event".into();
                line["event"] = value(event);
                match event {
                    Event::Started => {
                        if let Some(session) = self.session(entry.session)? {
                            let start = session.start;
                            line["event"]["boot_id"] = start.boot_id.into();
                            line["event"]["version"] = start.version.into();
                            line["event"]["pid"] = start.pid.into();
                        }
                    }
                    Event::ConfigLoaded { toml } => {
                        let config = entry.config.map(|id| self.config(id)).transpose()?.flatten();
                        line["event"]["sha256"] = config.map(|config| config.sha256).into();
                        line["event"]["toml"] = toml.as_str().into();
                    }
                    _ => {}
                }
            }
        }
        Ok(line)
    }
}

fn value(record: &impl Serialize) -> Value {
    // Rows are structs of strings, numbers and lists, which JSON never refuses.
    serde_json::to_value(record).unwrap_or_default()
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// The tick's row, with a sentence for every code.
fn tick_value(entry: &Entry, tick: &TickEntry) -> Value {
    let mut line = value(&tick.at(entry.wall()));
    for (at, guest) in tick.plan.guests.iter().enumerate() {
        let exported = &mut line["plan"]["guests"][at];
        if let Some(desired) = &guest.desired {
            exported["desired"]["reason"]["text"] = desired.reason.to_string().into();
        }
        for (nth, clamped) in guest.clamps.iter().enumerate() {
            exported["clamps"][nth]["text"] = clamped.to_string().into();
        }
        exported["compliance"]["text"] = guest.compliance.to_string().into();
        exported["change"]["text"] = guest.change.to_string().into();
    }
    for (nth, note) in tick.plan.notes.iter().enumerate() {
        line["plan"]["notes"][nth]["text"] = note.to_string().into();
    }
    line
}
