//! Opens a socket's file before connecting to it, and follows no stranger's symbolic link.
//!
//! Idea: whoever may write to the socket's folder, as a hypervisor may, could put a link to another
//! guest's socket there. So the file is opened without a connection, the links on its path are
//! checked, and what was opened is connected to, wherever the path leads by then. A link counts if
//! it is root's, or of the same owner as the socket.
//! Cost: some system calls, for a path without links three. Source: open(2), `O_PATH`; proc(5).
//! Limits: if a trusted link is on the path, somebody who replaces another part of the path twice,
//! between the checks, is not noticed.

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opens a file without its contents: Linux's number on every processor that Ballast is built for.
const O_PATH: i32 = 0o10_000_000;
const ROOT: u32 = 0;

/// A socket's file that was opened without a connection.
#[derive(Debug)]
pub struct PinnedSocket {
    /// Leads to this file as long as it is open.
    path: PathBuf,
    file: File,
}

impl PinnedSocket {
    /// Opens what is at `path`. `None`: a stranger's link leads there, or `path` changed meanwhile.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Option<PinnedSocket>> {
        let file = OpenOptions::new().read(true).custom_flags(O_PATH).open(path)?;
        let pinned =
            PinnedSocket { path: format!("/proc/self/fd/{}", file.as_raw_fd()).into(), file };
        let real = fs::read_link(&pinned.path)?;
        // Most paths have no links.
        if real == path {
            return Ok(Some(pinned));
        }
        let owner = pinned.file.metadata()?.uid();
        let is_same = has_trusted_links(path, owner) && fs::canonicalize(path)? == real;
        Ok(is_same.then_some(pinned))
    }

    /// The path to connect to while this exists.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether each link on `path` is root's or `owner`'s.
fn has_trusted_links(path: &Path, owner: u32) -> bool {
    let mut parts = path.ancestors().filter_map(|part| fs::symlink_metadata(part).ok());
    parts.all(|part| !part.is_symlink() || [ROOT, owner].contains(&part.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, lchown, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_link_counts_if_its_owner_is_the_sockets() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let listener = UnixListener::bind(at("b.sock")).unwrap();
        symlink(at("b.sock"), at("a.sock")).unwrap();
        symlink(root.path(), at("folder")).unwrap();
        fs::create_dir(at("inner")).unwrap();
        for name in ["b.sock", "a.sock", "folder/b.sock", "inner/../b.sock"] {
            let pinned = PinnedSocket::open(&at(name)).unwrap().expect("of one owner");
            let _stream = UnixStream::connect(pinned.path()).unwrap();
            listener.accept().unwrap();
        }
        assert!(PinnedSocket::open(&at("c.sock")).is_err());
        // Only root can make what a stranger would.
        if lchown(at("a.sock"), Some(5678), None).is_err() {
            println!("SKIPPED: needs root");
            return;
        }
        let is_opened = |name: &str| PinnedSocket::open(&at(name)).unwrap().is_some();
        assert!(!is_opened("a.sock"), "a stranger's link to root's socket");
        chown(at("b.sock"), Some(1234), None).unwrap();
        assert!(!is_opened("a.sock"), "a stranger's link to another's socket");
        assert!(is_opened("folder/b.sock"), "root's link");
        lchown(at("folder"), Some(5678), None).unwrap();
        assert!(!is_opened("folder/b.sock"), "a stranger's link on the way");
        lchown(at("a.sock"), Some(1234), None).unwrap();
        assert!(is_opened("a.sock") && is_opened("b.sock"));
    }
}
