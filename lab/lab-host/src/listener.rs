//! Starts a second QEMU for a guest in another run, empty and waiting for the guest to move into
//! it.
//!
//! Idea: two runs on one machine stand for two hosts. The second QEMU gets the command line and
//! environment of the guest's present QEMU, as `/proc` shows them. Paths in the first run's folder
//! are replaced by paths in the second run's folder, and files that were inherited open, such as
//! disks, are opened again. So the disks are shared storage, and QEMU's own locks on them move with
//! the guest. The process belongs to the run in which it waits, and ends with that run.
//! Source: QEMU 7.2's manual, `-incoming defer`; proc(5).
//! Limits: only guests that the lab itself started; both runs are this user's and on this machine.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ballast_model::GuestId;
use rustix::io::FdFlags;

use crate::process::ProcessId;
use crate::run_folder::{GuestRecord, RunFolder};
use crate::{GuestState, LabError, tool};

/// The arguments that are added to the command line of the guest's present QEMU.
const INCOMING_ARGUMENTS: [&str; 3] = ["-incoming", "defer", "-S"];
/// The prefix of an argument that names an inherited file.
const INHERITED: &str = "/proc/self/fd/";
/// Timeout for its monitor to greet: several times what it takes on a busy machine.
const GREETING_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two polls for that.
const POLL: Duration = Duration::from_millis(20);

/// Starts an empty QEMU in the run `run` for a guest that runs in another run below `base`. Returns
/// once its monitor answers; it does not accept the guest yet.
///
/// # Errors
/// No such guest runs in another run, it is already in `run`, or QEMU does not start.
pub fn listen(base: &Path, run: &str, guest: &GuestId) -> Result<GuestRecord, LabError> {
    let to = RunFolder::open(base, run)?;
    if let Some(here) = live(&to, guest) {
        let pid = here.process.pid;
        return Err(LabError::Invalid(format!("guest {guest} is in run {run} (process {pid})")));
    }
    let elsewhere = RunFolder::list(base).into_iter().filter(|folder| *folder != to);
    let found = elsewhere.filter_map(|folder| live(&folder, guest).map(|record| (folder, record)));
    let found: Vec<_> = found.collect();
    let [(from, record)] = found.as_slice() else {
        let places: Vec<String> = found.iter().map(|(folder, _)| folder.name()).collect();
        let why = if places.is_empty() { "no run".to_owned() } else { places.join(" and ") };
        let invalid = format!("guest {guest} is in {why} below {}: one expected", base.display());
        return Err(LabError::Invalid(invalid));
    };
    if !from.is_of_lab() {
        return Err(LabError::Invalid(format!("the lab did not start guest {guest} itself")));
    }
    start(from, record, &to)
}

/// The guest in the run of `folder`, if its QEMU is alive.
fn live(folder: &RunFolder, guest: &GuestId) -> Option<GuestRecord> {
    let mut guests = folder.guests().into_iter();
    guests.find(|record| record.id == *guest && record.state() != GuestState::Exited)
}

fn start(from: &RunFolder, record: &GuestRecord, to: &RunFolder) -> Result<GuestRecord, LabError> {
    let paths = to.guest_paths(&record.id)?;
    let process = PathBuf::from(format!("/proc/{}", record.process.pid));
    let read = |name: &str| {
        let path = process.join(name);
        fs::read(&path).map_err(LabError::io("read", path))
    };
    let moved = |word: &[u8]| replaced(word, from.path(), to.path());
    let mut files = Vec::new();
    let mut words = Vec::new();
    for word in
        words_of(&read("cmdline")?).take_while(|word| *word != INCOMING_ARGUMENTS[0].as_bytes())
    {
        words.push(reopened(&moved(word), &process, &mut files)?);
    }
    let Some((program, arguments)) = words.split_first() else {
        return Err(LabError::Invalid(format!("guest {} has just ended", record.id)));
    };
    let environment = read("environ")?;
    let variables = words_of(&environment).filter_map(|word| {
        let at = word.iter().position(|byte| *byte == b'=')?;
        let name = OsStr::from_bytes(&word[..at]).to_owned();
        Some((name, OsString::from_vec(moved(&word[at + 1..]))))
    });
    let mut command = Command::new(program);
    command.args(arguments).args(INCOMING_ARGUMENTS).env_clear().envs(variables);
    command.process_group(0);
    tool::write_output_to(&mut command, &paths.messages())?;
    for file in &files {
        rustix::io::fcntl_setfd(file, FdFlags::empty())
            .map_err(|error| LabError::io("pass on", INHERITED)(error.into()))?;
    }
    let mut child = command.spawn().map_err(LabError::io("start", Path::new(program)))?;
    let listener = record_child(&child, record, to, &paths.qmp, &paths.console)
        .and_then(|listener| wait_for_greeting(&mut child, &paths.lab_qmp).map(|()| listener));
    listener.map_err(|why| {
        // QEMU may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        LabError::GuestGone {
            guest: record.id.clone(),
            how: format!("cannot move into run {}: {why}", to.name()),
            console: fs::read_to_string(paths.messages()).unwrap_or_default(),
        }
    })
}

/// Records the QEMU, so that it ends with the run.
fn record_child(
    child: &Child,
    guest: &GuestRecord,
    to: &RunFolder,
    qmp_socket: &Path,
    console: &Path,
) -> Result<GuestRecord, LabError> {
    let process = ProcessId::of(child.id());
    let process = process.ok_or_else(|| LabError::Invalid("QEMU has exited at once".to_owned()))?;
    let listener = GuestRecord {
        process,
        qmp_socket: qmp_socket.to_owned(),
        console: console.to_owned(),
        has_booted_elsewhere: true,
        ..guest.clone()
    };
    to.record_guest(&listener)?;
    Ok(listener)
}

/// Waits until the monitor sends its greeting.
fn wait_for_greeting(child: &mut Child, monitor: &Path) -> Result<(), LabError> {
    let end = Instant::now() + GREETING_PATIENCE;
    loop {
        if let Ok(stream) = UnixStream::connect(monitor) {
            let _ = stream.set_read_timeout(Some(GREETING_PATIENCE));
            let mut line = String::new();
            if BufReader::new(stream).read_line(&mut line).is_ok_and(|read| read > 0) {
                return Ok(());
            }
        }
        if !matches!(child.try_wait(), Ok(None)) {
            return Err(LabError::Invalid("QEMU has exited".to_owned()));
        }
        if Instant::now() > end {
            let waited = GREETING_PATIENCE.as_secs();
            return Err(LabError::Invalid(format!("its monitor says nothing within {waited} s")));
        }
        std::thread::sleep(POLL);
    }
}

/// The words in `bytes`, which are terminated by zeros.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty())
}

/// `word` with paths in the folder `from` replaced by paths in the folder `to`.
fn replaced(word: &[u8], from: &Path, to: &Path) -> Vec<u8> {
    let folder = |path: &Path| {
        // On the command line, as QEMU requires, commas are doubled.
        let text = path.to_string_lossy().replace(',', ",,");
        format!("{text}/").into_bytes()
    };
    let (from, to) = (folder(from), folder(to));
    let mut rest = word;
    let mut out = Vec::with_capacity(word.len());
    while let Some(first) = rest.first() {
        match rest.strip_prefix(from.as_slice()) {
            Some(behind) => {
                out.extend_from_slice(&to);
                rest = behind;
            }
            None => {
                out.push(*first);
                rest = &rest[1..];
            }
        }
    }
    out
}

/// `word` with an inherited file of `process` replaced by one that is opened here and added to
/// `files`.
fn reopened(word: &[u8], process: &Path, files: &mut Vec<File>) -> Result<OsString, LabError> {
    let text = String::from_utf8_lossy(word);
    let Some((before, behind)) = text.split_once(INHERITED) else {
        return Ok(OsString::from_vec(word.to_vec()));
    };
    let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
    let (number, behind) = behind.split_at(digits);
    let path = process.join("fd").join(number);
    let file = fs::OpenOptions::new().read(true).write(true).open(&path);
    let file = file.map_err(LabError::io("open", &path))?;
    let word = format!("{before}{INHERITED}{}{behind}", file.as_raw_fd());
    files.push(file);
    Ok(word.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn only_paths_in_the_folder_are_replaced() {
        let replaced_text = |word: &str| {
            let word = replaced(word.as_bytes(), Path::new("/r/f,a"), Path::new("/r/f,b"));
            String::from_utf8(word).unwrap()
        };
        for (word, expected) in [
            ("unix:/r/f,,a/qmp/g.sock,server=on", "unix:/r/f,,b/qmp/g.sock,server=on"),
            ("file:/r/f,,a/c,path=/r/f,,a/d", "file:/r/f,,b/c,path=/r/f,,b/d"),
            ("/r/f,,ab/g.sock", "/r/f,,ab/g.sock"),
            ("-nodefaults", "-nodefaults"),
        ] {
            assert_eq!(replaced_text(word), expected);
        }
    }

    #[test]
    fn an_inherited_file_is_opened_again() {
        let mut inherited = tempfile::tempfile().unwrap();
        inherited.write_all(b"disk").unwrap();
        let word = format!("file=/proc/self/fd/{},if=none", inherited.as_raw_fd());
        let mut files = Vec::new();
        let own = Path::new("/proc/self");
        let again = reopened(word.as_bytes(), own, &mut files).unwrap();
        let [file] = files.as_mut_slice() else { panic!("{} files", files.len()) };
        let expected = format!("file=/proc/self/fd/{},if=none", file.as_raw_fd());
        assert_eq!(again.to_str().unwrap(), expected);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "disk");
        assert_eq!(reopened(b"-S", own, &mut files).unwrap(), "-S");
        assert!(reopened(b"/proc/self/fd/99999", own, &mut files).is_err());
    }

    #[test]
    fn a_guest_that_is_nowhere_cannot_be_listened_for() {
        let base = tempfile::tempdir().unwrap();
        let guest: GuestId = "g".parse().unwrap();
        let error = || listen(base.path(), "a", &guest).unwrap_err().to_string();
        assert!(error().contains("no run `a`"));
        let folder = base.path().join("runs");
        let run = RunFolder::create(&folder, &"a".parse().unwrap()).unwrap();
        let why = listen(&folder, "a", &guest).unwrap_err().to_string();
        assert!(why.contains("guest g is in no run below"), "{why}");
        run.end();
    }
}
