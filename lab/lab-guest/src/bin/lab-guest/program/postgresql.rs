//! PostgreSQL, queried by this process for one row at a time.
//!
//! Idea: the server and its table are on the data disk (see [`ballast_lab_guest::postgresql`]). The
//! part of the table that will be queried is read once in order; then a few connections query
//! random rows as `pgbench -S -M prepared` does, each in its own transaction. The query is planned
//! once: in an emulated guest planning takes longer than the rest and would hide the effect of
//! memory.
//!
//! A quarter of the data goes into the server's shared buffers, the share that PostgreSQL's manual
//! suggests to start with (20.4): memory that the guest can only swap. The rest is in the page
//! cache.
//! Source: PostgreSQL's manual, chapter 55: version 3 of its protocol. Limits: one server per
//! guest.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ballast_lab_guest::postgresql::{
    CLUSTER, INDEX, LIBRARIES, LOADER, ROWS, SERVER, TABLE, USER, rows,
};
use ballast_lab_guest::rng::Rng;
use ballast_model::Bytes;

use super::connection::Connection;
use super::running::{RunningProgram, WORK_TIME};
use super::subprocess::Subprocess;
use crate::data_disk;

/// Directory of the server's socket, and the socket at its usual port.
const SOCKET_FOLDER: &str = "/tmp";
const SOCKET: &str = "/tmp/.s.PGSQL.5432";
/// Divisor of the data's size that gives the shared buffers.
const BUFFERS_PART: u64 = 4;
/// Smallest shared buffers, in KiB.
const BUFFERS_KIB_MIN: u64 = 1024;
/// Concurrent clients: as many as for redis.
const CLIENTS: usize = 4;
/// Name of the prepared statement.
const STATEMENT: &str = "one_row";
/// Longest wait for the server to accept clients.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two checks whether it does.
const READY_POLL_PERIOD: Duration = Duration::from_millis(100);
/// Bytes read at once from the table.
const CHUNK_BYTES: usize = 1 << 16;
/// Longest message from the server.
const MESSAGE_BYTES_MAX: u32 = 1 << 16;
/// Most messages in reply to one query.
const MESSAGES_MAX: usize = 256;
/// Version 3.0 of the protocol.
const PROTOCOL: u32 = 3 << 16;

pub(super) struct Postgresql {
    // Dropped in this order: on SIGTERM the server waits for its clients.
    clients: Vec<PostgresqlClient>,
    server: Subprocess,
    rows: u64,
    rng: Rng,
    transactions: u64,
}

impl Postgresql {
    /// Starts it to query `size` of the table on `data_disk`.
    pub(super) fn start(size: Bytes, data_disk: Option<&Path>) -> Result<Postgresql, String> {
        let root = data_disk::mounted(data_disk.ok_or("postgresql needs its data disk")?)?;
        let cluster = root.join(CLUSTER);
        let mut server = serve(root, &cluster, size)?;
        wait_ready(&cluster, &mut server)?;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client =
                PostgresqlClient(Connection::new("postgresql", server.connect(Path::new(SOCKET))?));
            client.log_in()?;
            client.send(&format!(
                "PREPARE {STATEMENT}(int) AS SELECT abalance FROM {TABLE} WHERE aid = $1"
            ))?;
            client.rows()?;
            clients.push(client);
        }
        let rows = rows(size);
        for name in [TABLE, INDEX] {
            let query = format!("SELECT pg_relation_filepath('{name}')");
            let file = cluster.join(clients[0].query_value(&query)?);
            // Rows and keys are stored in the order of their creation.
            read_part(&file, rows, ROWS).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(Postgresql { clients, server, rows, rng: Rng::new(2), transactions: 0 })
    }
}

impl RunningProgram for Postgresql {
    fn work(&mut self) -> Result<u64, String> {
        let start = Instant::now();
        self.server.check()?;
        while start.elapsed() < WORK_TIME {
            for client in &mut self.clients {
                let row = 1 + self.rng.below(self.rows);
                client.send(&format!("EXECUTE {STATEMENT}({row})"))?;
            }
            for client in &mut self.clients {
                client.reply()?;
                self.transactions += 1;
            }
        }
        Ok(self.transactions)
    }
}

/// Starts the server as the cluster's owner: it refuses to run as root.
fn serve(root: &Path, cluster: &Path, size: Bytes) -> Result<Subprocess, String> {
    let text = |path: &Path| path.display().to_string();
    let owner = fs::metadata(cluster).map_err(|error| {
        format!("{}: {error}: is postgresql packed into this guest?", text(cluster))
    })?;
    let buffers_kib = (size.get() / 1024 / BUFFERS_PART).max(BUFFERS_KIB_MIN);
    let arguments = [
        "--library-path",
        &text(&root.join(LIBRARIES)),
        &text(&root.join(SERVER)),
        "-D",
        &text(cluster),
        "-k",
        SOCKET_FOLDER,
        "-c",
        &format!("shared_buffers={buffers_kib}kB"),
    ];
    Subprocess::start(&text(&root.join(LOADER)), &arguments, |command| {
        // It prints only errors, which belong on the console.
        command.uid(owner.uid()).gid(owner.gid()).stderr(Stdio::inherit());
    })
}

/// Waits until the server accepts clients; it rejects earlier ones.
fn wait_ready(cluster: &Path, server: &mut Subprocess) -> Result<(), String> {
    let path = cluster.join("postmaster.pid");
    let end = Instant::now() + READY_TIMEOUT;
    loop {
        server.check()?;
        if is_ready(&fs::read_to_string(&path).unwrap_or_default(), server.pid()) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err("postgresql did not become ready".to_owned());
        }
        std::thread::sleep(READY_POLL_PERIOD);
    }
}

/// Whether the pid file says that the server `pid` is ready; an earlier server may have left the
/// file.
fn is_ready(text: &str, pid: u32) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(&pid.to_string()) && lines.any(|line| line == "ready")
}

/// Reads the first `part / whole` of a file, rounded up to chunks; returns the bytes read.
fn read_part(path: &Path, part: u64, whole: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let bytes = u128::from(file.metadata()?.len()) * u128::from(part) / u128::from(whole);
    let (mut done, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    while u128::from(done) < bytes {
        match file.read(&mut chunk)? {
            0 => break,
            read => done += read as u64,
        }
    }
    Ok(done)
}

struct PostgresqlClient(Connection);

impl PostgresqlClient {
    /// Logs in; the cluster trusts every client.
    fn log_in(&mut self) -> Result<(), String> {
        let body = format!("user\0{USER}\0database\0{USER}\0\0");
        let mut message = (8 + body.len() as u32).to_be_bytes().to_vec();
        message.extend(PROTOCOL.to_be_bytes());
        message.extend(body.into_bytes());
        self.0.send(&message)?;
        self.rows().map(drop)
    }

    fn send(&mut self, query: &str) -> Result<(), String> {
        let mut message = vec![b'Q'];
        message.extend((4 + query.len() as u32 + 1).to_be_bytes());
        message.extend_from_slice(query.as_bytes());
        message.push(0);
        self.0.send(&message)
    }

    /// Reads a reply that has one row with one value.
    fn reply(&mut self) -> Result<String, String> {
        let rows = self.rows()?;
        match rows.as_slice() {
            [row] => value(row).ok_or_else(|| "postgresql replied with no value".to_owned()),
            _ => Err(format!("postgresql replied with {} rows instead of one", rows.len())),
        }
    }

    fn query_value(&mut self, query: &str) -> Result<String, String> {
        self.send(query)?;
        self.reply()
    }

    /// Reads the rows of a reply, until the server is ready for the next query.
    fn rows(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let mut rows = Vec::new();
        for _ in 0..MESSAGES_MAX {
            let (kind, body) = self.message()?;
            match kind {
                b'D' => rows.push(body),
                b'E' => return Err(format!("postgresql: {}", error_message(&body))),
                b'Z' => return Ok(rows),
                _ => {}
            }
        }
        Err(format!("postgresql replied with over {MESSAGES_MAX} messages"))
    }

    fn message(&mut self) -> Result<(u8, Vec<u8>), String> {
        let mut head = [0; 5];
        self.0.read(&mut head)?;
        let [kind, length @ ..] = head;
        // The length includes its own four bytes.
        let length = u32::from_be_bytes(length);
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(format!("postgresql sent a message of {length} bytes"));
        }
        let mut body = vec![0; length as usize - 4];
        self.0.read(&mut body)?;
        Ok((kind, body))
    }
}

/// The first value of a row, which is the number of values, then each value's length and bytes.
fn value(row: &[u8]) -> Option<String> {
    let length: [u8; 4] = row.get(2..6)?.try_into().ok()?;
    let value = row.get(6..)?.get(..u32::from_be_bytes(length) as usize)?;
    String::from_utf8(value.to_vec()).ok()
}

/// The message field of an error, whose fields are a letter and a text each.
fn error_message(body: &[u8]) -> String {
    let message = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(message.unwrap_or(b"an error without a message")).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (4 + body.len() as u32).to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    #[test]
    fn questions_are_written_and_answers_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = PostgresqlClient(Connection::new("postgresql", ours));
        let mut say = |messages: &[Vec<u8>]| theirs.write_all(&messages.concat()).unwrap();
        let row = message(b'D', b"\0\x01\0\0\0\x02-7");
        let done = [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")];
        say(&[message(b'R', &[0; 4]), message(b'S', b"a\0b\0"), message(b'Z', b"I")]);
        client.log_in().unwrap();
        say(&[message(b'T', b"whatever"), row.clone()]);
        say(&done);
        assert_eq!(client.query_value("SELECT 7"), Ok("-7".to_owned()));
        // No row, two rows, a row cut short, an error, rubbish.
        say(&done);
        assert!(client.reply().unwrap_err().contains("0 rows"));
        say(&[row.clone(), row]);
        say(&done);
        assert!(client.reply().unwrap_err().contains("2 rows"));
        say(&[message(b'D', b"\0\x01\0\0\0\x09-7")]);
        say(&done);
        assert!(client.reply().unwrap_err().contains("no value"));
        say(&[message(b'E', b"SFATAL\0C57P03\0Mit is starting up\0\0")]);
        assert_eq!(client.reply(), Err("postgresql: it is starting up".to_owned()));
        say(&[vec![b'D', 255, 255, 255, 255]]);
        assert!(client.reply().unwrap_err().contains("4294967295 bytes"));
        drop(client);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).unwrap();
        let expected =
            b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0Q\0\0\0\x0dSELECT 7\0";
        assert_eq!(sent, expected, "{:?}", String::from_utf8_lossy(&sent));
    }

    #[test]
    fn pid_file_of_another_server_is_ignored() {
        let text = "77\n/data/cluster\n1\n5432\n/tmp\n\n 5 6\nready   \n";
        assert!(is_ready(text, 77));
        assert!(!is_ready(text, 78));
        assert!(!is_ready(&text.replace("ready", "starting"), 77));
        assert!(!is_ready("", 77));
    }

    #[test]
    fn only_the_first_part_of_a_file_is_read() {
        let path = std::env::temp_dir().join(format!("lab-guest-table-{}", std::process::id()));
        fs::write(&path, vec![1; 4 * CHUNK_BYTES]).unwrap();
        for (part, chunks) in [(0, 0), (1, 1), (3, 2), (8, 4), (9, 4)] {
            assert_eq!(read_part(&path, part, 8).unwrap(), chunks * CHUNK_BYTES as u64, "{part}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read_part(&path, 1, 8).is_err());
    }
}
