//! A fake libvirt on a socket, whose answers a test determines. It knows only the calls that
//! Ballast makes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::AbortHandle;

/// A domain; sizes in MiB.
#[derive(Clone, Debug)]
pub(crate) struct FakeDomain {
    pub(crate) name: &'static str,
    pub(crate) id: u32,
    pub(crate) holds: u64,
    pub(crate) xml: &'static str,
    /// What it has read from each of its disks: bytes and requests.
    pub(crate) disks: &'static [(u64, u64)],
}

/// Stands for a call for disk reads wherever a test names procedures: the procedure of that call is
/// the one for state and balloon.
pub(crate) const DISK_READS: u32 = 344 << 16;

/// Its domains, and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) domains: Vec<FakeDomain>,
    /// Current memory reported for all domains, in MiB; `None` reports what they hold.
    pub(crate) reported: Option<u64>,
    /// Procedures that are not answered.
    pub(crate) silent: Vec<u32>,
    /// Procedures whose answers are held back.
    pub(crate) late: Vec<u32>,
    /// Answers that are held back.
    held_back: Vec<u8>,
    /// Procedures that fail.
    pub(crate) failing: Vec<u32>,
    /// Procedures that were called.
    pub(crate) called: Vec<u32>,
    /// Whether its domains are stored.
    pub(crate) is_persistent: bool,
    /// Elements of devices that were changed.
    pub(crate) updated: Vec<String>,
    /// Elements that were written into metadata, and whether into the stored ones, too.
    pub(crate) written: Vec<(String, bool)>,
}

/// The writing half of the client's connection; `None` if no client is connected.
type Writer = Arc<tokio::sync::Mutex<Option<OwnedWriteHalf>>>;

/// The fake libvirt. Dropping this ends it.
pub(crate) struct FakeLibvirt {
    folder: TempDir,
    state: Arc<Mutex<State>>,
    writer: Writer,
    task: AbortHandle,
}

impl FakeLibvirt {
    pub(crate) fn start(domains: Vec<FakeDomain>) -> FakeLibvirt {
        let folder = tempfile::tempdir().unwrap();
        let state = Arc::new(Mutex::new(State { domains, ..State::default() }));
        let writer = Writer::default();
        let task = listen(&folder.path().join("sock"), &state, &writer);
        FakeLibvirt { folder, state, writer, task }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Closes all connections, and stops listening.
    pub(crate) fn stop(&mut self) {
        self.task.abort();
        self.writer.try_lock().unwrap().take();
        std::fs::remove_file(self.socket()).unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.task = listen(&self.socket(), &self.state, &self.writer);
    }

    /// Sends the answers that were held back.
    pub(crate) async fn release(&self) {
        let held_back = std::mem::take(&mut self.state().held_back);
        assert!(!held_back.is_empty(), "nothing is held back");
        let mut writer = self.writer.lock().await;
        writer.as_mut().expect("a client").write_all(&held_back).await.unwrap();
    }

    /// Sends the client an event of a domain.
    pub(crate) async fn send_event(&self, procedure: u32, domain: &FakeDomain) {
        let body = [words(&[0]), domain_named(domain)].concat();
        let message = message([0x2000_8086, 1, procedure, 2, 0, 0], &body);
        let mut writer = self.writer.lock().await;
        writer.as_mut().expect("a client").write_all(&message).await.unwrap();
    }
}

impl Drop for FakeLibvirt {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn listen(socket: &Path, state: &Arc<Mutex<State>>, writer: &Writer) -> AbortHandle {
    let (listener, state) = (UnixListener::bind(socket).unwrap(), Arc::clone(state));
    let writer = Arc::clone(writer);
    let accept = async move {
        // One client at a time, whose connection ends with this task.
        while let Ok((stream, _)) = listener.accept().await {
            let (reader, write) = stream.into_split();
            *writer.lock().await = Some(write);
            let _ = serve(reader, &state, &writer).await;
        }
    };
    tokio::spawn(accept).abort_handle()
}

async fn serve(
    mut stream: OwnedReadHalf,
    state: &Mutex<State>,
    writer: &Writer,
) -> std::io::Result<()> {
    loop {
        let len = stream.read_u32().await?;
        let mut call = vec![0; len as usize - 4];
        stream.read_exact(&mut call).await?;
        let number = |place: usize| u32::from_be_bytes(call[place..place + 4].try_into().unwrap());
        let (procedure, serial) = (number(8), number(16));
        let named = if is_for_disk_reads(procedure, &call[24..]) { DISK_READS } else { procedure };
        let Some((is_ok, body)) = answer(&mut state.lock().unwrap(), named, &call[24..]) else {
            continue;
        };
        let head = [number(0), number(4), procedure, 1, serial, u32::from(!is_ok)];
        let message = message(head, &body);
        {
            let mut state = state.lock().unwrap();
            if state.late.contains(&named) {
                state.held_back.extend(message);
                continue;
            }
        }
        if let Some(writer) = writer.lock().await.as_mut() {
            writer.write_all(&message).await?;
        }
    }
}

/// Whether a call requests the group of disks, which is named behind the number of domains.
fn is_for_disk_reads(procedure: u32, arguments: &[u8]) -> bool {
    procedure == 344 && arguments[4..8] == 32_u32.to_be_bytes()
}

fn message(head: [u32; 6], body: &[u8]) -> Vec<u8> {
    let len = 28 + u32::try_from(body.len()).unwrap();
    [words(&[len]), words(&head), body.to_vec()].concat()
}

/// The answer: whether the call succeeded, and the body; `None` for no answer.
fn answer(state: &mut State, procedure: u32, arguments: &[u8]) -> Option<(bool, Vec<u8>)> {
    state.called.push(procedure);
    if state.silent.contains(&procedure) {
        return None;
    }
    if state.failing.contains(&procedure) {
        // A number, a source, and no text.
        return Some((false, words(&[38, 10, 0])));
    }
    let name_len = arguments.first_chunk().map_or(0, |len| u32::from_be_bytes(*len) as usize);
    // Behind the name are the UUID and the ID.
    let behind = 4 + name_len.next_multiple_of(4) + 20;
    let name = arguments.get(4..4 + name_len).unwrap_or_default();
    let domain = state.domains.iter_mut().find(|domain| domain.name.as_bytes() == name);
    let body = match procedure {
        66 => words(&[1, 0]),
        344 => {
            let mut body = words(&[u32::try_from(state.domains.len()).unwrap()]);
            let reported = state.reported;
            for domain in &state.domains {
                body.extend(record(domain, reported.unwrap_or(domain.holds)));
            }
            body
        }
        DISK_READS => {
            let mut body = words(&[u32::try_from(state.domains.len()).unwrap()]);
            for domain in &state.domains {
                body.extend(disk_record(domain));
            }
            body
        }
        14 => text(domain?.xml),
        // One figure, that of the balloon.
        159 => [words(&[1, 6]), (domain?.holds << 10).to_be_bytes().to_vec()].concat(),
        151 => words(&[state.is_persistent.into()]),
        // 9.10.11.
        157 => 9_010_011_u64.to_be_bytes().to_vec(),
        264 => {
            // Three optional texts follow the kind of metadata, each after a word that says it is
            // present.
            let len = &arguments[behind + 8..behind + 12];
            let len = u32::from_be_bytes(len.try_into().unwrap()) as usize;
            let element = arguments[behind + 12..behind + 12 + len].to_vec();
            let flags = u32::from_be_bytes(*arguments.last_chunk().unwrap());
            state.written.push((String::from_utf8(element).unwrap(), flags == 3));
            Vec::new()
        }
        174 => {
            let len = u32::from_be_bytes(arguments[behind..behind + 4].try_into().unwrap());
            let element = &arguments[behind + 4..behind + 4 + len as usize];
            state.updated.push(String::from_utf8(element.to_vec()).unwrap());
            Vec::new()
        }
        204 => {
            let kib = u64::from_be_bytes(arguments[behind..behind + 8].try_into().unwrap());
            domain?.holds = kib >> 10;
            Vec::new()
        }
        _ => Vec::new(),
    };
    Some((true, body))
}

/// State and balloon of a domain with 1 GiB of boot memory, whose current memory is reported as
/// `reported` MiB.
fn record(domain: &FakeDomain, reported: u64) -> Vec<u8> {
    let mut record = domain_named(domain);
    record.extend(words(&[3]));
    record.extend([text("state.state"), words(&[1, 1])].concat());
    for (name, mib) in [("balloon.current", reported), ("balloon.maximum", 1024)] {
        record.extend([text(name), words(&[4])].concat());
        record.extend((mib << 10).to_be_bytes());
    }
    record
}

/// What a domain has read from its disks.
fn disk_record(domain: &FakeDomain) -> Vec<u8> {
    let count = u32::try_from(domain.disks.len()).unwrap();
    let mut record = domain_named(domain);
    record.extend(words(&[1 + 2 * count]));
    record.extend([text("block.count"), words(&[2, count])].concat());
    for (n, (bytes, requests)) in domain.disks.iter().enumerate() {
        for (name, figure) in [("rd.reqs", requests), ("rd.bytes", bytes)] {
            record.extend([text(&format!("block.{n}.{name}")), words(&[4])].concat());
            record.extend(figure.to_be_bytes());
        }
    }
    record
}

fn domain_named(domain: &FakeDomain) -> Vec<u8> {
    let uuid = [u8::try_from(domain.id).unwrap(); 16];
    [text(domain.name), uuid.to_vec(), words(&[domain.id])].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = words(&[u32::try_from(text.len()).unwrap()]);
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
