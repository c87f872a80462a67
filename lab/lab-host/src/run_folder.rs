//! The folder of a run, which contains everything a run creates in the file system.
//!
//! Idea: the process that ends a run (its owner, its reaper, or the next run after both were
//! killed) needs only the folder: it names the owner, the guests' processes and the cgroups. It is
//! created by a rename, complete with its owner, so that it never looks abandoned by mistake.
//! Layout: `owner.json`, `guests/G.json`, `cgroups`, `swap` (the path of the host's swap for the
//! run), `qmp/G.sock` (for the daemon), `lab/` (the lab's own sockets), `console/G.log`,
//! `control.sock` (of a supervisor).
//! Limits: disks are not here: they have no name.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_lab_guest::protocol::READY_LINE_PREFIX;
use ballast_model::{Bytes, GuestId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::libvirt_place::socket_in;
use crate::process::ProcessId;
use crate::qemu::GuestPaths;
use crate::{LabError, cpu_limit, host_swap, xl};

/// Longest path of a Unix socket, in bytes, without the terminating zero (unix(7)).
const SOCKET_PATH_LEN_MAX: usize = 107;
/// Timeout for a killed QEMU to exit.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// Text in a console log that means that the guest's kernel has panicked.
const PANIC_TEXT: &str = "Kernel panic";
/// Messages on the console that show that the guest's kernel has died; a panic is one of several
/// ways.
const KERNEL_DEATHS: [&str; 3] = ["Oops: ", PANIC_TEXT, "general protection fault"];
/// Number of bytes that are searched at each end of a console log.
const CONSOLE_SEARCHED: u64 = 64 << 10;
/// Prefix of folders that are not complete yet.
const UNFINISHED_PREFIX: &str = ".unfinished-";
/// Prefix of folders of runs that are being ended.
const ENDED_PREFIX: &str = ".ended-";
/// Name of the file with the process that owns the run.
const OWNER_FILE: &str = "owner.json";
/// Name of the file with the process of the run's libvirtd, if any.
const LIBVIRTD_FILE: &str = "libvirtd.json";
/// Name of the file that marks the run's guests as Xen domains.
const XEN_FILE: &str = "xen";
/// Name of the file with the path of the run's host swap, if any.
const HOST_SWAP_FILE: &str = "swap";

/// A run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

/// The record of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestRecord {
    /// Its name.
    pub id: GuestId,
    /// Its QEMU process.
    pub process: ProcessId,
    /// Memory it booted with.
    pub memory: Bytes,
    /// QMP socket for the daemon.
    pub qmp_socket: PathBuf,
    /// Console log.
    pub console: PathBuf,
    /// Whether its QEMU was started empty, for the guest to move into; then its console log begins
    /// with the move.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_booted_elsewhere: bool,
}

/// The state of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestState {
    /// It is booting.
    Booting,
    /// Its init process accepts requests.
    Ready,
    /// Its kernel has panicked.
    Panicked,
    /// Its QEMU has exited.
    Exited,
}

impl std::fmt::Display for GuestState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            GuestState::Booting => "booting",
            GuestState::Ready => "ready",
            GuestState::Panicked => "panicked",
            GuestState::Exited => "exited",
        })
    }
}

impl GuestRecord {
    /// The guest's state, from its process and its console log.
    pub fn state(&self) -> GuestState {
        if !self.process.is_alive() {
            return GuestState::Exited;
        }
        let (beginning, end) = console_ends(&self.console);
        if end.contains(PANIC_TEXT) {
            GuestState::Panicked
        } else if self.has_booted_elsewhere || beginning.contains(READY_LINE_PREFIX) {
            GuestState::Ready
        } else {
            GuestState::Booting
        }
    }

    /// The line of its console that shows that its kernel has died; `None`: it has not. Under
    /// emulation a kernel may die through no fault of its own: QEMU 7.2 can lose a write that the
    /// guest makes while its memory is copied to another QEMU.
    pub fn kernel_death(&self) -> Option<String> {
        let (beginning, end) = console_ends(&self.console);
        let mut lines = beginning.lines().chain(end.lines());
        lines.find(|line| KERNEL_DEATHS.iter().any(|death| line.contains(death))).map(str::to_owned)
    }
}

/// The first and the last [`CONSOLE_SEARCHED`] bytes of a console log.
fn console_ends(path: &Path) -> (String, String) {
    let Ok(mut file) = fs::File::open(path) else { return Default::default() };
    let mut read = |from: u64| {
        let mut bytes = Vec::new();
        let _ = file.seek(SeekFrom::Start(from));
        let _ = file.by_ref().take(CONSOLE_SEARCHED).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let beginning = read(0);
    let len = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let end = read(len.saturating_sub(CONSOLE_SEARCHED));
    (beginning, end)
}

#[derive(Serialize, Deserialize)]
struct Owner {
    process: ProcessId,
}

/// The folder of this user's runs: `$XDG_RUNTIME_DIR/ballast-lab`, else `/tmp/ballast-lab-UID`;
/// created if needed.
///
/// # Errors
/// When it cannot be created, or others can write to it.
pub fn runs_folder() -> Result<PathBuf, LabError> {
    let uid = rustix::process::getuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("ballast-lab"),
        None => PathBuf::from(format!("/tmp/ballast-lab-{uid}")),
    };
    make_private(&folder)?;
    Ok(folder)
}

fn make_private(folder: &Path) -> Result<(), LabError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(LabError::io("create", folder))?;
    let metadata = fs::symlink_metadata(folder).map_err(LabError::io("examine", folder))?;
    let ours = metadata.is_dir() && metadata.uid() == rustix::process::getuid().as_raw();
    if ours && metadata.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(LabError::FolderNotOurs(folder.to_owned()))
    }
}

impl RunFolder {
    /// Creates the folder of the run `name` below `base`, owned by this process. First removes the
    /// remains of a run of that name whose owner is dead. Only [`RunFolder::end`] ends what is
    /// recorded in the folder.
    ///
    /// # Errors
    /// [`LabError::RunExists`] when a run of that name is alive.
    pub fn create(base: &Path, name: &GuestId) -> Result<RunFolder, LabError> {
        make_private(base)?;
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED_PREFIX)
            .tempdir_in(base)
            .map_err(LabError::io("write to", base))?;
        for part in ["qmp", "agent", "lab", "console", "guests"] {
            let path = unfinished.path().join(part);
            fs::create_dir(&path).map_err(LabError::io("create", path))?;
        }
        let process = ProcessId::current()
            .ok_or_else(|| LabError::Invalid("/proc is not mounted: mount it".to_owned()))?;
        write_json(&unfinished.path().join(OWNER_FILE), &Owner { process })?;
        let folder = RunFolder { path: base.join(name.as_str()) };
        let rename = || fs::rename(unfinished.path(), &folder.path);
        if rename().is_err() {
            if let Some(owner) = folder.live_owner() {
                return Err(LabError::RunExists { name: name.to_string(), owner: owner.pid });
            }
            folder.end();
            rename().map_err(LabError::io("create", &folder.path))?;
        }
        Ok(folder)
    }

    /// Opens the folder of an existing run.
    ///
    /// # Errors
    /// [`LabError::NoRun`] when no run of that name exists.
    pub fn open(base: &Path, name: &str) -> Result<RunFolder, LabError> {
        let known = name.parse::<GuestId>().is_ok() && base.join(name).join(OWNER_FILE).is_file();
        if known {
            Ok(RunFolder { path: base.join(name) })
        } else {
            Err(LabError::NoRun(name.to_owned()))
        }
    }

    /// Wraps `path` without a check: for the reaper, which may find the folder in any state.
    pub(crate) fn at(path: PathBuf) -> RunFolder {
        RunFolder { path }
    }

    /// Every run below `base`, by name.
    pub fn list(base: &Path) -> Vec<RunFolder> {
        let entries = fs::read_dir(base).into_iter().flatten().flatten();
        let mut runs: Vec<_> = entries
            .filter_map(|entry| RunFolder::open(base, entry.file_name().to_str()?).ok())
            .collect();
        runs.sort_by(|a, b| a.path.cmp(&b.path));
        runs
    }

    /// Removes the remains of runs below `base` whose owners are dead, including those whose
    /// removal was interrupted; returns their names.
    pub fn clean_stale(base: &Path) -> Vec<String> {
        let entries = fs::read_dir(base).into_iter().flatten().flatten();
        let folders = entries.map(|entry| RunFolder { path: entry.path() });
        let stale = folders.filter(|run| run.owner().is_some_and(|owner| !owner.is_alive()));
        stale
            .map(|run| {
                run.end();
                run.name()
            })
            .collect()
    }

    /// The name of the run.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the QMP sockets for the daemon; it contains nothing else.
    pub fn qmp_folder(&self) -> PathBuf {
        self.path.join("qmp")
    }

    /// The folder of libvirtd, if libvirt starts the guests.
    pub(crate) fn libvirt_folder(&self) -> PathBuf {
        self.path.join("v")
    }

    /// The socket of that libvirtd.
    pub fn libvirt_socket(&self) -> PathBuf {
        socket_in(&self.libvirt_folder())
    }

    /// The folder of the agents' sockets; it contains nothing else.
    pub fn agent_folder(&self) -> PathBuf {
        self.path.join("agent")
    }

    /// The socket on which a supervisor accepts requests.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// The process that owns the run, if it is alive.
    pub fn live_owner(&self) -> Option<ProcessId> {
        self.owner().filter(|owner| owner.is_alive())
    }

    /// The process that owns the run, dead or alive.
    pub(crate) fn owner(&self) -> Option<ProcessId> {
        read_json::<Owner>(&self.path.join(OWNER_FILE)).map(|owner| owner.process)
    }

    /// The paths of a guest's sockets and logs.
    ///
    /// # Errors
    /// When a socket's path is too long.
    pub(crate) fn guest_paths(&self, id: &GuestId) -> Result<GuestPaths, LabError> {
        let socket = |folder: &str, suffix: &str| {
            let path = self.path.join(folder).join(format!("{id}{suffix}"));
            match path.as_os_str().len() {
                len if len > SOCKET_PATH_LEN_MAX => {
                    Err(LabError::SocketPathTooLong { path, len, max: SOCKET_PATH_LEN_MAX })
                }
                _ => Ok(path),
            }
        };
        Ok(GuestPaths {
            qmp: socket("qmp", ".sock")?,
            lab_qmp: socket("lab", ".qmp")?,
            channel: socket("lab", ".channel")?,
            console: self.path.join("console").join(format!("{id}.log")),
            truth: self.path.join("console").join(format!("{id}.truth.csv")),
            tracker: socket("lab", ".track")?,
            agent: socket("agent", ".sock")?,
            outputs: [socket("lab", ".out")?, socket("lab", ".err")?],
            terminal: socket("lab", ".tty")?,
        })
    }

    pub(crate) fn record_guest(&self, record: &GuestRecord) -> Result<(), LabError> {
        write_json(&self.path.join("guests").join(format!("{}.json", record.id)), record)
    }

    /// The recorded guests, by name. Unreadable records are skipped.
    pub fn guests(&self) -> Vec<GuestRecord> {
        let entries = fs::read_dir(self.path.join("guests")).into_iter().flatten().flatten();
        let mut records: Vec<GuestRecord> = entries
            .filter_map(|entry| serde_json::from_str(&fs::read_to_string(entry.path()).ok()?).ok())
            .collect();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        records
    }

    /// Whether the lab itself started its guests' QEMUs.
    pub(crate) fn is_of_lab(&self) -> bool {
        ![LIBVIRTD_FILE, XEN_FILE].iter().any(|name| self.path.join(name).exists())
    }

    /// Records the libvirtd that has been started.
    pub(crate) fn record_libvirtd(&self, process: ProcessId) -> Result<(), LabError> {
        write_json(&self.path.join(LIBVIRTD_FILE), &process)
    }

    /// Records that the guests are Xen domains.
    pub(crate) fn record_xen(&self) -> Result<(), LabError> {
        let path = self.path.join(XEN_FILE);
        fs::write(&path, "").map_err(LabError::io("write", path))
    }

    /// Records cgroups that are about to be created.
    pub(crate) fn record_cgroups(&self, groups: &[PathBuf]) -> Result<(), LabError> {
        let path = self.path.join("cgroups");
        let text: String = groups.iter().map(|group| format!("{}\n", group.display())).collect();
        fs::write(&path, text).map_err(LabError::io("write", path))
    }

    /// Records the swap file that is about to be enabled.
    pub(crate) fn record_host_swap(&self, file: &Path) -> Result<(), LabError> {
        let path = self.path.join(HOST_SWAP_FILE);
        fs::write(&path, file.as_os_str().as_bytes()).map_err(LabError::io("write", path))
    }

    /// Ends everything the folder names and removes it: processes, then cgroups, swap and files.
    /// The folder is renamed first, so that only one of several processes ends the run, and none
    /// ends a later run of the same name.
    pub fn end(&self) {
        let ended = match self.path.file_name().and_then(|name| name.to_str()) {
            Some(name) if !name.starts_with(ENDED_PREFIX) => {
                let aside = format!("{ENDED_PREFIX}{}-{name}", std::process::id());
                let path = self.path.with_file_name(aside);
                if fs::rename(&self.path, &path).is_err() {
                    return;
                }
                RunFolder { path }
            }
            _ => self.clone(),
        };
        // Ended before the guests, so that it does not record their ends in files that are being
        // removed.
        if let Some(libvirtd) = read_json::<ProcessId>(&ended.path.join(LIBVIRTD_FILE)) {
            libvirtd.kill(KILL_PATIENCE);
        }
        let guests = ended.guests();
        if ended.path.join(XEN_FILE).exists() {
            guests.iter().for_each(|guest| xl::destroy(&guest.id));
        }
        for guest in &guests {
            // All are killed before the first is waited for.
            guest.process.kill(Duration::ZERO);
        }
        for guest in &guests {
            guest.process.kill(KILL_PATIENCE);
        }
        let groups = fs::read_to_string(ended.path.join("cgroups")).unwrap_or_default();
        for group in groups.lines() {
            cpu_limit::remove(Path::new(group));
        }
        // After the processes that have pages in it.
        if let Ok(file) = fs::read(ended.path.join(HOST_SWAP_FILE)) {
            host_swap::turn_off(Path::new(OsStr::from_bytes(&file)));
        }
        let _ = fs::remove_dir_all(&ended.path);
    }
}

/// The contents of a file; `None`: there is none, or it cannot be parsed.
fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// Writes a file completely or not at all.
fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), LabError> {
    let unfinished = path.with_extension("unfinished");
    let text = serde_json::to_string(value).map_err(|e| LabError::io("write", path)(e.into()))?;
    fs::write(&unfinished, text).map_err(LabError::io("write", &unfinished))?;
    fs::rename(&unfinished, path).map_err(LabError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn base() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("runs");
        (folder, base)
    }

    fn name() -> GuestId {
        "demo".parse().unwrap()
    }

    fn record(process: ProcessId, console: PathBuf) -> GuestRecord {
        let qmp_socket = PathBuf::from("/q");
        GuestRecord {
            id: "a".parse().unwrap(),
            process,
            memory: Bytes::gib(1),
            qmp_socket,
            console,
            has_booted_elsewhere: false,
        }
    }

    #[test]
    fn live_run_is_not_replaced() {
        let (_folder, base) = base();
        let run = RunFolder::create(&base, &name()).unwrap();
        assert_eq!(run.live_owner(), ProcessId::current());
        let error = RunFolder::create(&base, &name()).unwrap_err();
        assert!(matches!(error, LabError::RunExists { .. }), "{error}");
        assert!(RunFolder::clean_stale(&base).is_empty());
        assert!(run.path().is_dir());
    }

    #[test]
    fn run_of_a_dead_owner_is_removed() {
        let (_folder, base) = base();
        let run = RunFolder::create(&base, &name()).unwrap();
        let mut guest = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = ProcessId::of(guest.id()).unwrap();
        run.record_guest(&record(process, PathBuf::from("/none"))).unwrap();
        let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
        let owner_process = ProcessId::of(owner.id()).unwrap();
        write_json(&run.path().join(OWNER_FILE), &Owner { process: owner_process }).unwrap();
        assert!(RunFolder::clean_stale(&base).is_empty(), "its owner is alive");
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert_eq!(RunFolder::clean_stale(&base), ["demo"]);
        assert!(!run.path().exists());
        assert!(!process.is_alive());
        guest.wait().unwrap();
    }

    #[test]
    fn guest_state_follows_its_process_and_console() {
        let (folder, _) = base();
        let console = folder.path().join("console");
        let mut guest = record(ProcessId::current().unwrap(), console.clone());
        assert_eq!(guest.state(), GuestState::Booting);
        fs::write(&console, format!("x\n{READY_LINE_PREFIX} 1.2\n")).unwrap();
        assert_eq!(guest.state(), GuestState::Ready);
        let noise = "y".repeat(3 * CONSOLE_SEARCHED as usize);
        fs::write(&console, format!("{READY_LINE_PREFIX} 1.2\n{noise}")).unwrap();
        assert_eq!(guest.state(), GuestState::Ready);
        let panic = format!("{READY_LINE_PREFIX} 1.2\n{noise}\n[ 9.1] Kernel panic - not syncing");
        fs::write(&console, panic).unwrap();
        assert_eq!(guest.state(), GuestState::Panicked);
        guest.process.start_ticks += 1;
        assert_eq!(guest.state(), GuestState::Exited);
    }

    #[test]
    fn path_too_long_for_a_socket_is_refused() {
        let run = RunFolder::at(PathBuf::from("/").join("x".repeat(100)));
        let error = run.guest_paths(&"guest".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("XDG_RUNTIME_DIR"), "{error}");
    }

    #[test]
    fn folder_writable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, base) = base();
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
        let error = RunFolder::create(&base, &name()).unwrap_err();
        assert!(matches!(error, LabError::FolderNotOurs(_)), "{error}");
        drop(folder);
    }

    #[test]
    fn names_outside_the_folder_are_refused() {
        let (_folder, base) = base();
        for name in ["..", "a/b", "", "absent"] {
            assert!(matches!(RunFolder::open(&base, name), Err(LabError::NoRun(_))), "{name}");
        }
    }
}
