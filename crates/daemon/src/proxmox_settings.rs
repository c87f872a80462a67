//! The settings that live with guests of Proxmox VE.
//!
//! Idea: a guest found by a QMP socket is the machine whose `args` name that socket
//! (`crates/proxmox`). A thread reads the folder every [`PERIOD`], because Proxmox's file system
//! may block on a cluster. The main loop uses the last reading.
//! Cost: one thread; one file per machine every [`PERIOD`]. The first tick waits for the first
//! reading, [`FIRST_WAIT`] at most, so that no tick moves a machine that its tags exclude.
//! Limits: while the folder cannot be read or is not there, the last reading counts: Proxmox's file
//! system goes away for a moment when its package is upgraded.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ballast_model::{GuestChange, GuestId, GuestSample};
use ballast_proxmox::VmFolder;

use crate::warn_once::WarnOnce;
use crate::worker::{Letter, Worker, WorkerDeadline, lock};

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(10);
/// Longest wait for the first reading.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long a reading may take before a warning.
const DEADLINE: WorkerDeadline<'static> = WorkerDeadline {
    after: Duration::from_secs(30),
    subject: "proxmox folder",
    what: "reading the folder of Proxmox VE takes long: does pmxcfs run?",
};

type Settings = BTreeMap<GuestId, Arc<GuestChange>>;

/// The result of a reading.
#[derive(Debug, Default)]
struct Found {
    /// Whether anything was read.
    is_read: bool,
    settings: Settings,
    /// Warnings by subject.
    warnings: BTreeMap<String, String>,
}

/// The machines of a host with Proxmox VE.
#[derive(Debug)]
pub(crate) struct ProxmoxSettings {
    folder: PathBuf,
    socket_folders: Vec<PathBuf>,
    latest: Arc<Mutex<Arc<Found>>>,
    worker: Option<Worker<()>>,
    warnings: WarnOnce,
}

impl ProxmoxSettings {
    /// Settings of machines with configurations in `folder` and a QMP socket in one of
    /// `socket_folders`.
    pub(crate) fn new(folder: PathBuf, socket_folders: Vec<PathBuf>) -> ProxmoxSettings {
        ProxmoxSettings {
            folder,
            socket_folders,
            latest: Arc::default(),
            worker: None,
            warnings: WarnOnce::default(),
        }
    }

    /// The settings of a guest by the last reading.
    pub(crate) fn of(&self, guest: &GuestId) -> Option<Arc<GuestChange>> {
        lock(&self.latest).settings.get(guest).cloned()
    }

    /// Adds to a machine's sample that Proxmox VE orders its balloon too, by a monitor of its own.
    pub(crate) fn add_to(&self, sample: &mut GuestSample) {
        if self.of(&sample.id).is_some() {
            sample.capabilities.shared_control = Some(true);
        }
    }

    /// Keeps the thread running, and logs its warnings. Call once a tick.
    pub(crate) fn check_thread(&mut self) {
        let state = self.worker.as_mut().map(Worker::state);
        let lives = state.is_some_and(|it| it.lives_on("proxmox", DEADLINE, &mut self.warnings));
        if !lives {
            match self.start() {
                Ok(worker) => {
                    self.worker = Some(worker);
                    self.wait_for_first();
                }
                Err(error) => {
                    self.warnings.warn("proxmox thread", &format!("cannot be started: {error}"));
                }
            }
        }
        let latest = Arc::clone(&lock(&self.latest));
        for (subject, warning) in &latest.warnings {
            self.warnings.warn(subject, warning);
        }
    }

    fn wait_for_first(&self) {
        const STEP: Duration = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while !lock(&self.latest).is_read && waited < FIRST_WAIT {
            std::thread::sleep(STEP);
            waited += STEP;
        }
    }

    fn start(&self) -> io::Result<Worker<()>> {
        let (folder, sockets) = (self.folder.clone(), self.socket_folders.clone());
        let latest = Arc::clone(&self.latest);
        Worker::start("proxmox", move |inbox| {
            loop {
                let before = Arc::clone(&lock(&latest));
                let found = Arc::new(read(&folder, &sockets, &before));
                *lock(&latest) = found;
                if inbox.wait(Some(PERIOD)) == Letter::End {
                    break;
                }
            }
        })
    }
}

/// Reads the folder. If that fails, the earlier result stays.
fn read(folder: &Path, socket_folders: &[PathBuf], before: &Found) -> Found {
    let mut found = Found { is_read: true, ..Found::default() };
    let why = match VmFolder::read(folder) {
        Ok(Some(read)) => return found_in(&read, socket_folders),
        // A host without Proxmox VE.
        Ok(None) if before.settings.is_empty() => return found,
        Ok(None) => "is not there".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    found.settings = before.settings.clone();
    let warning = format!("{why}; what was read last counts");
    found.warnings.insert(folder.display().to_string(), warning);
    found
}

fn found_in(read: &VmFolder, socket_folders: &[PathBuf]) -> Found {
    let mut found = Found { is_read: true, ..Found::default() };
    for problem in &read.problems {
        found.warnings.insert(problem.path.display().to_string(), problem.to_string());
    }
    for (guest, vm) in read.guests(socket_folders) {
        // Whoever excludes a machine leaves it to Proxmox VE.
        if vm.is_moved_by_proxmox && vm.settings.managed != Some(false) {
            let warning = format!(
                "Proxmox VE moves the balloon of machine {} too, as `balloon` is set and `shares` is \
                 not 0: `qm set {0} --shares 0`, or exclude it by the tag `ballast-unmanaged`",
                vm.vmid
            );
            found.warnings.insert(guest.to_string(), warning);
        }
        found.settings.insert(guest, Arc::new(vm.settings.clone()));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ballast_model::{Bytes, LinkState};

    use super::*;

    fn config(socket: &str, more: &str) -> String {
        format!(
            "name: web\nmemory: 2048\nballoon: 512\n{more}\nargs: -chardev \
             socket,id=b,path={socket},server=on,wait=off -mon chardev=b,mode=control\n"
        )
    }

    #[test]
    fn machines_are_found_by_their_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let put = |vmid: u32, text: String| {
            fs::write(folder.path().join(format!("{vmid}.conf")), text).unwrap();
        };
        put(100, config("/run/ballast/qmp/web-1.sock", "shares: 0"));
        put(101, config("/run/ballast/qmp/web-2.sock", "shares: 500"));
        put(102, config("/elsewhere/web-3.sock", ""));
        put(103, "memory: much\n".to_owned());
        put(105, config("/run/ballast/qmp/web-5.sock", "tags: ballast-unmanaged"));
        // A clone.
        put(104, config("/run/ballast/qmp/web-1.sock", "memory: 4096"));
        let found = read(folder.path(), &["/run/ballast/qmp".into()], &Found::default());
        let names: Vec<&str> = found.settings.keys().map(GuestId::as_str).collect();
        assert_eq!(names, ["web-1", "web-2", "web-5"]);
        let first = &found.settings[&"web-1".parse().unwrap()];
        assert_eq!((first.floor, first.ceiling), (Some(Bytes::mib(512)), Some(Bytes::mib(2048))));
        assert!(found.warnings["web-2"].contains("qm set 101 --shares 0"), "{found:?}");
        assert!(!found.warnings.contains_key("web-5"), "it is left to Proxmox VE: {found:?}");
        let wrong = folder.path().join("103.conf").display().to_string();
        assert!(found.warnings[&wrong].contains("memory"), "{found:?}");
    }

    #[test]
    fn settings_are_known_from_the_first_tick_on() {
        let folder = tempfile::tempdir().unwrap();
        let text = config("/q/web-1.sock", "tags: ballast-unmanaged");
        fs::write(folder.path().join("100.conf"), text).unwrap();
        let mut settings = ProxmoxSettings::new(folder.path().to_owned(), vec!["/q".into()]);
        settings.check_thread();
        let own = settings.of(&"web-1".parse().unwrap()).unwrap();
        assert_eq!(own.managed, Some(false));
    }

    #[test]
    fn proxmox_shares_control_of_its_own_machines_only() {
        let settings = ProxmoxSettings::new("/nowhere".into(), Vec::new());
        let own = Settings::from([("web-1".parse().unwrap(), Arc::new(GuestChange::default()))]);
        *lock(&settings.latest) = Arc::new(Found { settings: own, ..Found::default() });
        for (name, expected) in [("web-1", Some(true)), ("web-2", None)] {
            let mut sample = GuestSample::unknown(name.parse().unwrap(), LinkState::Up);
            settings.add_to(&mut sample);
            assert_eq!(sample.capabilities.shared_control, expected, "{name}");
        }
    }

    #[test]
    fn what_was_read_last_counts_while_the_folder_fails() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let guest: GuestId = "web-1".parse().unwrap();
        let settings = Settings::from([(guest, Arc::new(GuestChange::default()))]);
        let before = Found { settings, ..Found::default() };
        // A file is not a folder.
        let found = read(file.path(), &[], &before);
        assert_eq!((found.settings.len(), found.warnings.len()), (1, 1));
        let found = read(Path::new("/nowhere"), &[], &before);
        assert_eq!((found.settings.len(), found.warnings.len()), (1, 1), "it was there");
        let found = read(Path::new("/nowhere"), &[], &Found::default());
        assert_eq!((found.settings.len(), found.warnings.len()), (0, 0), "there is no such host");
    }
}
