//! PostgreSQL, asked by this process for one row at a time.
//!
//! Idea: the server and its table come with the data disk (see [`ballast_lab_guest::postgresql`]). That part of the
//! table that is asked for is read once in order; then a few connections ask for rows at random as
//! `pgbench -S -M prepared` does, each in a transaction of its own. Planned once: planning takes an emulated guest
//! longer than the rest, and memory would hardly show in what is done.
//!
//! A quarter of the data goes into the server's own buffers, the share that PostgreSQL's manual begins with (20.4):
//! memory that the guest can only swap. The rest lives in its page cache.
//! Source: PostgreSQL's manual, chapter 55: version 3 of its protocol. Limits: one server in a guest.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ballast_lab_guest::postgresql::{
    CLUSTER, INDEX, LIBRARIES, LOADER, ROWS, SERVER, TABLE, USER, rows,
};
use ballast_lab_guest::rng::Rng;
use ballast_model::Bytes;

use super::Running;
use super::beside::Beside;
use crate::data_disk;

/// Where the server makes its socket, and the socket by its usual port.
const SOCKET_FOLDER: &str = "/tmp";
const SOCKET: &str = "/tmp/.s.PGSQL.5432";
/// What of the data goes into the server's own buffers: one part in so many.
const BUFFERS_PART: u64 = 4;
/// Least buffers, in KiB.
const BUFFERS_KIB_MIN: u64 = 1024;
/// Clients that ask at once: as many as ask redis beside it.
const CLIENTS: usize = 4;
/// The name of the prepared question.
const QUESTION: &str = "one_row";
/// Between two looks at the clock.
const MOMENT: Duration = Duration::from_millis(200);
/// What the server may take to let clients in.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at whether it does.
const LOOK: Duration = Duration::from_millis(100);
/// Read at once of the table.
const CHUNK_BYTES: usize = 1 << 16;
/// Longest message of the server.
const MESSAGE_BYTES_MAX: u32 = 1 << 16;
/// Most messages that answer one question.
const MESSAGES_MAX: usize = 256;
/// Version 3.0 of the protocol.
const PROTOCOL: u32 = 3 << 16;

pub(super) struct Postgresql {
    // Dropped in this order: a server that is told to end waits for its clients.
    clients: Vec<Connection>,
    server: Beside,
    rows: u64,
    rng: Rng,
    transactions: u64,
}

impl Postgresql {
    /// Asked for `size` of the table on `data_disk`.
    pub(super) fn start(size: Bytes, data_disk: Option<&Path>) -> Result<Postgresql, String> {
        let root = data_disk::mounted(data_disk.ok_or("postgresql needs its data disk")?)?;
        let cluster = root.join(CLUSTER);
        let mut server = serve(root, &cluster, size)?;
        wait_ready(&cluster, &mut server)?;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = Connection::open(&mut server)?;
            client.send(&format!(
                "PREPARE {QUESTION}(int) AS SELECT abalance FROM {TABLE} WHERE aid = $1"
            ))?;
            client.rows()?;
            clients.push(client);
        }
        let rows = rows(size);
        for name in [TABLE, INDEX] {
            let question = format!("SELECT pg_relation_filepath('{name}')");
            let file = cluster.join(clients[0].ask(&question)?);
            // Rows and keys lie in the order in which they were made.
            read_part(&file, rows, ROWS).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(Postgresql { clients, server, rows, rng: Rng::new(2), transactions: 0 })
    }
}

impl Running for Postgresql {
    fn work(&mut self) -> Result<u64, String> {
        let start = Instant::now();
        self.server.check()?;
        while start.elapsed() < MOMENT {
            for client in &mut self.clients {
                let row = 1 + self.rng.below(self.rows);
                client.send(&format!("EXECUTE {QUESTION}({row})"))?;
            }
            for client in &mut self.clients {
                client.answer()?;
                self.transactions += 1;
            }
        }
        Ok(self.transactions)
    }
}

/// Starts the server, as whom the cluster belongs to: it refuses to be root.
fn serve(root: &Path, cluster: &Path, size: Bytes) -> Result<Beside, String> {
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
    Beside::start(&text(&root.join(LOADER)), &arguments, |command| {
        // It says nothing unless it fails, and then it is to be heard.
        command.uid(owner.uid()).gid(owner.gid()).stderr(Stdio::inherit());
    })
}

/// Waits until the server lets clients in: who comes earlier is turned away.
fn wait_ready(cluster: &Path, server: &mut Beside) -> Result<(), String> {
    let path = cluster.join("postmaster.pid");
    let end = Instant::now() + PATIENCE;
    loop {
        server.check()?;
        if is_ready(&fs::read_to_string(&path).unwrap_or_default(), server.pid()) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err("postgresql does not get ready".to_owned());
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether the server `pid` says in its file that it is ready; an earlier one may have left the file.
fn is_ready(text: &str, pid: u32) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(&pid.to_string()) && lines.any(|line| line == "ready")
}

/// Reads `part` of `whole` of a file, from its beginning; how many bytes, to a chunk.
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

/// A client.
struct Connection(BufReader<UnixStream>);

impl Connection {
    fn open(server: &mut Beside) -> Result<Connection, String> {
        let mut connection = Connection(BufReader::new(server.connect(Path::new(SOCKET))?));
        connection.begin()?;
        Ok(connection)
    }

    /// Says who it is; the cluster believes everybody.
    fn begin(&mut self) -> Result<(), String> {
        let body = format!("user\0{USER}\0database\0{USER}\0\0");
        let mut message = (8 + body.len() as u32).to_be_bytes().to_vec();
        message.extend(PROTOCOL.to_be_bytes());
        message.extend(body.into_bytes());
        self.0.get_mut().write_all(&message).map_err(lost)?;
        self.rows().map(drop)
    }

    fn send(&mut self, question: &str) -> Result<(), String> {
        let mut message = vec![b'Q'];
        message.extend((4 + question.len() as u32 + 1).to_be_bytes());
        message.extend_from_slice(question.as_bytes());
        message.push(0);
        self.0.get_mut().write_all(&message).map_err(lost)
    }

    /// The only value of the only row.
    fn answer(&mut self) -> Result<String, String> {
        let rows = self.rows()?;
        match rows.as_slice() {
            [row] => value(row).ok_or_else(|| "postgresql answers with no value".to_owned()),
            _ => Err(format!("postgresql answers with {} rows instead of one", rows.len())),
        }
    }

    fn ask(&mut self, question: &str) -> Result<String, String> {
        self.send(question)?;
        self.answer()
    }

    /// The rows that come before the server is ready for a question.
    fn rows(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let mut rows = Vec::new();
        for _ in 0..MESSAGES_MAX {
            let (kind, body) = self.message()?;
            match kind {
                b'D' => rows.push(body),
                b'E' => return Err(format!("postgresql: {}", complaint(&body))),
                b'Z' => return Ok(rows),
                _ => {}
            }
        }
        Err(format!("postgresql answers with over {MESSAGES_MAX} messages"))
    }

    fn message(&mut self) -> Result<(u8, Vec<u8>), String> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).map_err(lost)?;
        let [kind, length @ ..] = head;
        // It counts itself.
        let length = u32::from_be_bytes(length);
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(format!("postgresql sends a message of {length} bytes"));
        }
        let mut body = vec![0; length as usize - 4];
        self.0.read_exact(&mut body).map_err(lost)?;
        Ok((kind, body))
    }
}

/// The first value of a row: after the number of values, its length and itself.
fn value(row: &[u8]) -> Option<String> {
    let length: [u8; 4] = row.get(2..6)?.try_into().ok()?;
    let value = row.get(6..)?.get(..u32::from_be_bytes(length) as usize)?;
    String::from_utf8(value.to_vec()).ok()
}

/// What an error says: of its fields, each a letter and a text, the message.
fn complaint(body: &[u8]) -> String {
    let message = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(message.unwrap_or(b"an error without a message")).into_owned()
}

fn lost(error: io::Error) -> String {
    format!("postgresql: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (4 + body.len() as u32).to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    #[test]
    fn questions_are_written_and_answers_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = Connection(BufReader::new(ours));
        let mut say = |messages: &[Vec<u8>]| theirs.write_all(&messages.concat()).unwrap();
        let row = message(b'D', b"\0\x01\0\0\0\x02-7");
        let done = [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")];
        say(&[message(b'R', &[0; 4]), message(b'S', b"a\0b\0"), message(b'Z', b"I")]);
        client.begin().unwrap();
        say(&[message(b'T', b"whatever"), row.clone()]);
        say(&done);
        assert_eq!(client.ask("SELECT 7"), Ok("-7".to_owned()));
        // No row, two rows, a row cut short, an error, rubbish.
        say(&done);
        assert!(client.answer().unwrap_err().contains("0 rows"));
        say(&[row.clone(), row]);
        say(&done);
        assert!(client.answer().unwrap_err().contains("2 rows"));
        say(&[message(b'D', b"\0\x01\0\0\0\x09-7")]);
        say(&done);
        assert!(client.answer().unwrap_err().contains("no value"));
        say(&[message(b'E', b"SFATAL\0C57P03\0Mit is starting up\0\0")]);
        assert_eq!(client.answer(), Err("postgresql: it is starting up".to_owned()));
        say(&[vec![b'D', 255, 255, 255, 255]]);
        assert!(client.answer().unwrap_err().contains("4294967295 bytes"));
        drop(client);
        let mut said = Vec::new();
        theirs.read_to_end(&mut said).unwrap();
        let expected =
            b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0Q\0\0\0\x0dSELECT 7\0";
        assert_eq!(said, expected, "{:?}", String::from_utf8_lossy(&said));
    }

    #[test]
    fn the_file_of_another_server_does_not_count() {
        let text = "77\n/data/cluster\n1\n5432\n/tmp\n\n 5 6\nready   \n";
        assert!(is_ready(text, 77));
        assert!(!is_ready(text, 78));
        assert!(!is_ready(&text.replace("ready", "starting"), 77));
        assert!(!is_ready("", 77));
    }

    #[test]
    fn a_part_of_a_file_is_read() {
        let path = std::env::temp_dir().join(format!("lab-guest-table-{}", std::process::id()));
        fs::write(&path, vec![1; 4 * CHUNK_BYTES]).unwrap();
        for (part, chunks) in [(0, 0), (1, 1), (3, 2), (8, 4), (9, 4)] {
            assert_eq!(read_part(&path, part, 8).unwrap(), chunks * CHUNK_BYTES as u64, "{part}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read_part(&path, 1, 8).is_err());
    }
}
