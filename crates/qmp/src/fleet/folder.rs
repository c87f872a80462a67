//! Finding guests: sockets `NAME.sock` in configured folders.
//!
//! Idea: a folder whose modification time has not changed since it was last read holds the same
//! names. Times are only as fine as the kernel's tick, so a folder that changed within
//! [`SETTLE_TIME`] before it was read is read again.
//!
//! Cost: one `stat` a tick where nothing changes; a listing where something does.
//! Limits: [`GUESTS_MAX`] guests, [`ENTRIES_MAX`] entries looked at per folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_model::GuestId;

/// Most guests on one host. A host with 10,000 guests would have less than 1 GiB for each on the
/// largest machines sold.
pub const GUESTS_MAX: usize = 10_000;

/// Most entries looked at in one folder: sockets may have company, such as pid files and logs.
const ENTRIES_MAX: usize = 8 * GUESTS_MAX;

/// Longest time in which two changes of a folder can bear the same stamp; the coarsest file system
/// in use for sockets keeps whole seconds.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// What the operator should know about guests coming, going, and not being usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A guest was found.
    Appeared {
        /// Its name.
        guest: GuestId,
        /// Its socket.
        path: PathBuf,
    },
    /// A guest's socket and its connection are gone.
    Gone {
        /// Its name.
        guest: GuestId,
    },
    /// A guest has ended without removing its socket, on which nobody listens any more.
    Deserted {
        /// Its name.
        guest: GuestId,
        /// Its socket.
        path: PathBuf,
    },
    /// A socket whose name cannot be a guest's.
    InvalidName {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file that is named like a guest's socket and is none.
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// A second socket for a name; the one in the folder configured first is used.
    Duplicate {
        /// The name.
        guest: GuestId,
        /// The socket not used.
        path: PathBuf,
        /// The socket used.
        used: PathBuf,
    },
    /// There are more guests than can be handled; the rest is left alone.
    TooMany {
        /// The first folder with guests left out.
        folder: PathBuf,
    },
    /// A folder cannot be read; guests with a connection stay.
    FolderUnreadable {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Appeared { guest, path } => {
                write!(f, "guest {guest} found at {}", path.display())
            }
            Notice::Gone { guest } => write!(f, "guest {guest} is gone"),
            Notice::Deserted { guest, path } => write!(
                f,
                "guest {guest} is gone: nobody listens on {}; the socket can be removed",
                path.display()
            ),
            Notice::InvalidName { path, why } => {
                write!(f, "{} is left alone: {why}: rename the socket", path.display())
            }
            Notice::NotASocket { path } => {
                write!(f, "{} is left alone: it is not a socket", path.display())
            }
            Notice::Duplicate { guest, path, used } => write!(
                f,
                "{} is left alone: guest {guest} is already {}: rename one of them",
                path.display(),
                used.display()
            ),
            Notice::TooMany { folder } => write!(
                f,
                "{} holds guests that are left alone: expected at most {GUESTS_MAX} on one host",
                folder.display()
            ),
            Notice::FolderUnreadable { folder, why } => {
                write!(f, "cannot read the folder {}: {why}", folder.display())
            }
        }
    }
}

/// A socket found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) guest: GuestId,
    pub(super) path: Arc<Path>,
    /// Tells a socket apart from another that later has the same name.
    pub(super) inode: u64,
}

/// One folder and what it was last seen to hold.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Its modification time, and when it was read.
    read_at: Option<(SystemTime, SystemTime)>,
    sockets: Vec<Socket>,
    problems: BTreeMap<PathBuf, Notice>,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Folder { path, read_at: None, sockets: Vec::new(), problems: BTreeMap::new() }
    }

    pub(super) fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// Looks again, at `wall`; says whether anything may have changed. Each problem goes to
    /// `notices` once, as long as it lasts.
    pub(super) fn refresh(&mut self, wall: SystemTime, notices: &mut Vec<Notice>) -> bool {
        let modified = match fs::metadata(&self.path).and_then(|metadata| metadata.modified()) {
            Ok(modified) => modified,
            Err(error) => return self.unreadable(&error, notices),
        };
        if let Some((modified_then, read_at)) = self.read_at
            && modified_then == modified
            && read_at.duration_since(modified).is_ok_and(|settled| settled >= SETTLE_TIME)
        {
            return false;
        }
        let (sockets, problems) = match self.list() {
            Ok(listed) => listed,
            Err(error) => return self.unreadable(&error, notices),
        };
        self.read_at = Some((modified, wall));
        self.replace_problems(problems, notices);
        let changed = self.sockets != sockets;
        self.sockets = sockets;
        changed
    }

    fn unreadable(&mut self, error: &std::io::Error, notices: &mut Vec<Notice>) -> bool {
        let why = error.to_string();
        let notice = Notice::FolderUnreadable { folder: self.path.clone(), why };
        self.replace_problems(BTreeMap::from([(self.path.clone(), notice)]), notices);
        self.read_at = None;
        !std::mem::take(&mut self.sockets).is_empty()
    }

    fn replace_problems(&mut self, problems: BTreeMap<PathBuf, Notice>, notices: &mut Vec<Notice>) {
        let new = problems.iter().filter(|(path, notice)| self.problems.get(*path) != Some(notice));
        notices.extend(new.map(|(_, notice)| notice.clone()));
        self.problems = problems;
    }

    fn list(&self) -> std::io::Result<(Vec<Socket>, BTreeMap<PathBuf, Notice>)> {
        let (mut sockets, mut problems) = (Vec::new(), BTreeMap::new());
        for entry in fs::read_dir(&self.path)?.take(ENTRIES_MAX) {
            let entry = entry?;
            let path = entry.path();
            if path.extension() != Some(OsStr::new("sock")) {
                continue;
            }
            if sockets.len() + problems.len() >= GUESTS_MAX {
                let folder = self.path.clone();
                problems.insert(folder.clone(), Notice::TooMany { folder });
                break;
            }
            // Without a metadata call; a symbolic link is believed, connecting tells.
            let is_regular = entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_dir());
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            match name.parse::<GuestId>() {
                _ if is_regular => {
                    problems.insert(path.clone(), Notice::NotASocket { path });
                }
                Err(error) => {
                    let why = error.to_string();
                    problems.insert(path.clone(), Notice::InvalidName { path, why });
                }
                Ok(guest) => {
                    sockets.push(Socket { guest, path: path.into(), inode: entry.ino() });
                }
            }
        }
        sockets.sort_by(|a, b| a.guest.cmp(&b.guest));
        Ok((sockets, problems))
    }
}
