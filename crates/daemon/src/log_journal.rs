//! Log lines as entries of systemd's journal, with their fields.
//!
//! Idea: if standard error goes to that journal anyway (`JOURNAL_STREAM` says so), each entry is
//! sent to the journal's socket in its own protocol, so that fields can be queried (`journalctl -u
//! ballast BALLAST_GUEST=web-1`). Sending never waits: an entry that the socket does not take
//! becomes a line of standard error.
//! Source: systemd's "Native Journal Protocol".
//! Cost: a system call for each line.
//! Limits: a value of more than [`VALUE_BYTES_MAX`] is cut. Fields with names that contain anything
//! but letters, digits and `_` are left out.

use std::fmt::{Debug, Write as _};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::log_queue::LogQueue;

pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";
/// Most bytes of one value: an entry stays far below what a datagram may hold (208 KiB).
const VALUE_BYTES_MAX: usize = 16 << 10;
/// The field with the text itself.
pub(crate) const MESSAGE: &str = "message";

/// Whether `file` is the stream to the journal that `JOURNAL_STREAM` names, as `device:inode`.
pub(crate) fn is_stream(named: &str, file: impl AsFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    named.split_once(':').is_some_and(|(device, inode)| {
        device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino)
    })
}

/// Sends entries to the journal.
#[derive(Debug)]
pub(crate) struct JournalLayer {
    socket: UnixDatagram,
    /// Takes lines that the journal does not take.
    otherwise: &'static LogQueue,
}

impl JournalLayer {
    /// A layer that sends to the socket at `path`.
    ///
    /// # Errors
    /// No process listens there.
    pub(crate) fn connect(path: &Path, otherwise: &'static LogQueue) -> io::Result<JournalLayer> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        Ok(JournalLayer { socket, otherwise })
    }
}

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut entry = LogEntry::of(event.metadata());
        event.record(&mut entry);
        entry.append("MESSAGE", &entry.message.clone());
        if self.socket.send(&entry.bytes).is_err() {
            let line = format!("{} {}\n", event.metadata().level(), entry.message);
            self.otherwise.push(line.as_bytes());
        }
    }
}

/// An entry under construction.
struct LogEntry {
    message: String,
    bytes: Vec<u8>,
}

impl LogEntry {
    fn of(metadata: &Metadata<'_>) -> LogEntry {
        let mut entry = LogEntry { message: String::new(), bytes: Vec::new() };
        // Syslog's numbers.
        let priority = match *metadata.level() {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            Level::DEBUG | Level::TRACE => "7",
        };
        entry.append("PRIORITY", priority);
        entry.append("SYSLOG_IDENTIFIER", "ballast");
        entry.append("BALLAST_MODULE", metadata.target());
        entry
    }

    fn append(&mut self, name: &str, value: &str) {
        let value = &value[..value.floor_char_boundary(VALUE_BYTES_MAX)];
        self.bytes.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            self.bytes.push(b'\n');
            self.bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            self.bytes.push(b'=');
        }
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(b'\n');
    }

    fn record(&mut self, field: &Field, value: &str) {
        let is_plain = |name: &str| name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        match field.name() {
            MESSAGE => value.clone_into(&mut self.message),
            name if is_plain(name) => {
                self.append(&format!("BALLAST_{}", name.to_ascii_uppercase()), value);
            }
            _ => {}
        }
    }
}

impl Visit for LogEntry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to memory does not fail; a value whose formatting fails is cut there.
        let _ = write!(text, "{value:?}");
        self.record(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    use tracing::{info, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// A receiver in place of the journal, with what a program logs to it.
    fn said(otherwise: &'static LogQueue, say: impl FnOnce()) -> (tempfile::TempDir, UnixDatagram) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let receiver = UnixDatagram::bind(&path).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let layer = JournalLayer::connect(&path, otherwise).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), say);
        (folder, receiver)
    }

    fn entry(receiver: &UnixDatagram) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let length = receiver.recv(&mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn an_entry_has_text_priority_and_fields() {
        static QUEUE: LogQueue = LogQueue::new();
        let (guest, none) = ("web-1", None::<&str>);
        let (_folder, receiver) = said(&QUEUE, || {
            warn!(event = "guest-stuck", guest, none, ticks = 7u64, "stuck for {}s", 20);
            info!("two\nlines");
        });
        let text = String::from_utf8(entry(&receiver)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let module = format!("BALLAST_MODULE={}", module_path!());
        assert_eq!(
            lines,
            [
                "PRIORITY=4",
                "SYSLOG_IDENTIFIER=ballast",
                &module,
                "BALLAST_EVENT=guest-stuck",
                "BALLAST_GUEST=web-1",
                "BALLAST_TICKS=7",
                "MESSAGE=stuck for 20s",
            ]
        );
        let bytes = entry(&receiver);
        let expected = [b"MESSAGE\n".as_slice(), &9u64.to_le_bytes(), b"two\nlines\n"].concat();
        assert!(bytes.ends_with(&expected), "{bytes:?}");
    }

    #[test]
    fn what_a_full_journal_does_not_take_becomes_a_line() {
        static QUEUE: LogQueue = LogQueue::new();
        let (mut reader, writer) = std::io::pipe().unwrap();
        std::thread::spawn(move || QUEUE.write_to(writer));
        // More than any socket holds without a reader.
        let (_folder, _receiver) = said(&QUEUE, || (0..10_000).for_each(|it| info!("line {it}")));
        let mut bytes = [0; 11];
        io::Read::read_exact(&mut reader, &mut bytes).unwrap();
        assert!(bytes.starts_with(b"INFO line "), "{bytes:?}");
    }

    #[test]
    fn a_long_value_is_cut() {
        static QUEUE: LogQueue = LogQueue::new();
        let long = "ä".repeat(VALUE_BYTES_MAX);
        let (_folder, receiver) = said(&QUEUE, || info!("{long}"));
        assert!(entry(&receiver).len() < VALUE_BYTES_MAX + 1024);
    }

    #[test]
    fn the_stream_is_told_by_device_and_inode() {
        let file = File::open("/dev/null").unwrap();
        let metadata = file.metadata().unwrap();
        let named = format!("{}:{}", metadata.dev(), metadata.ino());
        assert!(is_stream(&named, &file));
        for other in ["", ":", "1:2:3", "8", &format!("{}:{}", metadata.dev(), 1)] {
            assert!(!is_stream(other, &file), "{other}");
        }
    }
}
