//! Finds guests: sockets `NAME.sock` in configured folders.
//!
//! Idea: a folder is listed again only if its modification time has changed. Modification times are
//! coarse, so a folder that changed within [`SETTLE_TIME`] before it was listed is listed again.
//!
//! Cost: one `stat` per tick for an unchanged folder; a listing for a changed one.
//! Limits: [`GUESTS_MAX`] guests, [`ENTRIES_MAX`] entries per folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_model::GuestId;

use crate::codec::printable;

/// Most guests on one host: with 10,000, the largest machines sold have less than 1 GiB for each.
pub const GUESTS_MAX: usize = 10_000;

/// Most entries read of one folder, which may also contain PID files and logs.
const ENTRIES_MAX: usize = 8 * GUESTS_MAX;

/// Within this time two changes of a folder may have the same modification time; the coarsest file
/// system in use for sockets keeps whole seconds.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// News for the operator about guests and their sockets.
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
    /// A guest has ended and left its socket behind: no process listens on it.
    Deserted {
        /// Its name.
        guest: GuestId,
        /// Its socket.
        path: PathBuf,
    },
    /// A socket's name is not a valid guest name.
    InvalidName {
        /// The socket.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file is named like a guest's socket but is not a socket.
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Two sockets have the same name; the one in the folder configured first is used.
    Duplicate {
        /// The name.
        guest: GuestId,
        /// The socket not used.
        path: PathBuf,
        /// The socket used.
        used: PathBuf,
    },
    /// A guest is ignored because the fleet has its maximum number of guests.
    Refused {
        /// Its name.
        guest: GuestId,
        /// Its socket.
        path: PathBuf,
        /// Most guests that the fleet may have.
        guests_max: usize,
    },
    /// A folder has too many sockets; the rest of them is ignored.
    TooMany {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder cannot be read; guests with a connection stay.
    FolderUnreadable {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        why: String,
    },
}

/// Longest path shown, in characters.
const PATH_CHARS_MAX: usize = 300;

/// A path for the log, made printable: names in the folder are untrusted text.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy(), PATH_CHARS_MAX)
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Appeared { guest, path } => {
                write!(f, "guest {guest} found at {}", shown(path))
            }
            Notice::Gone { guest } => write!(f, "guest {guest} is gone"),
            Notice::Deserted { guest, path } => write!(
                f,
                "guest {guest} is gone: nobody listens on {}; the socket can be removed",
                shown(path)
            ),
            Notice::InvalidName { path, why } => {
                write!(f, "ignoring {}: {why}: rename the socket", shown(path))
            }
            Notice::NotASocket { path } => {
                write!(f, "ignoring {}: it is not a socket", shown(path))
            }
            Notice::Duplicate { guest, path, used } => write!(
                f,
                "ignoring {}: the socket of guest {guest} is {}: rename one of them",
                shown(path),
                shown(used)
            ),
            Notice::Refused { guest, path, guests_max } => write!(
                f,
                "guest {guest} at {} is refused: there are files for {guests_max} guests at most; \
                 raise the daemon's limit of open files (systemd: LimitNOFILE=)",
                shown(path)
            ),
            Notice::TooMany { folder } => write!(
                f,
                "ignoring guests in {}: expected at most {GUESTS_MAX} on one host",
                shown(folder)
            ),
            Notice::FolderUnreadable { folder, why } => {
                write!(f, "cannot read the folder {}: {why}", shown(folder))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GuestSocket {
    pub(super) guest: GuestId,
    pub(super) path: Arc<Path>,
    /// Distinguishes the socket from a later one of the same name.
    pub(super) inode: u64,
}

/// Lists the guests' sockets in `folder` once, sorted by guest, and the problems of the other
/// entries.
pub fn list_sockets(folder: &Path) -> (Vec<(GuestId, PathBuf)>, Vec<Notice>) {
    let mut notices = Vec::new();
    let mut listed = SocketFolder::new(folder.to_owned());
    listed.refresh(SystemTime::UNIX_EPOCH, &mut notices);
    let sockets = listed.sockets.into_iter().map(|it| (it.guest, it.path.to_path_buf())).collect();
    (sockets, notices)
}

/// One folder and its contents when last listed.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
    /// The folder's modification time at the last listing, and the time of that listing.
    listed_at: Option<(SystemTime, SystemTime)>,
    sockets: Vec<GuestSocket>,
    problems: BTreeMap<PathBuf, Notice>,
}

impl SocketFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        SocketFolder { path, listed_at: None, sockets: Vec::new(), problems: BTreeMap::new() }
    }

    pub(super) fn sockets(&self) -> &[GuestSocket] {
        &self.sockets
    }

    /// Lists the folder again at `wall` if necessary; returns whether the sockets have changed.
    /// Each problem goes to `notices` once while it lasts.
    pub(super) fn refresh(&mut self, wall: SystemTime, notices: &mut Vec<Notice>) -> bool {
        let modified = match fs::metadata(&self.path).and_then(|metadata| metadata.modified()) {
            Ok(modified) => modified,
            Err(error) => return self.unreadable(&error, notices),
        };
        if let Some((modified_then, listed_at)) = self.listed_at
            && modified_then == modified
            && listed_at.duration_since(modified).is_ok_and(|settled| settled >= SETTLE_TIME)
        {
            return false;
        }
        let (sockets, problems) = match self.list() {
            Ok(listed) => listed,
            Err(error) => return self.unreadable(&error, notices),
        };
        self.listed_at = Some((modified, wall));
        self.replace_problems(problems, notices);
        let changed = self.sockets != sockets;
        self.sockets = sockets;
        changed
    }

    fn unreadable(&mut self, error: &std::io::Error, notices: &mut Vec<Notice>) -> bool {
        let why = error.to_string();
        let notice = Notice::FolderUnreadable { folder: self.path.clone(), why };
        self.replace_problems(BTreeMap::from([(self.path.clone(), notice)]), notices);
        self.listed_at = None;
        !std::mem::take(&mut self.sockets).is_empty()
    }

    fn replace_problems(&mut self, problems: BTreeMap<PathBuf, Notice>, notices: &mut Vec<Notice>) {
        for (path, notice) in &problems {
            if self.problems.get(path) != Some(notice) {
                notices.push(notice.clone());
            }
        }
        self.problems = problems;
    }

    fn list(&self) -> std::io::Result<(Vec<GuestSocket>, BTreeMap<PathBuf, Notice>)> {
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
            // Reading the type needs no metadata call. A symbolic link passes this check:
            // connecting resolves it (see `ballast_pinned_socket`).
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
                    sockets.push(GuestSocket { guest, path: path.into(), inode: entry.ino() });
                }
            }
        }
        sockets.sort_by(|a, b| a.guest.cmp(&b.guest));
        Ok((sockets, problems))
    }
}
