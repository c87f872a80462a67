//! The socket's file: created without a moment of wrong permissions, removed at the end.
//!
//! Idea: between `bind` and `listen` a socket refuses every connection, so its owner and mode are
//! set there. A file left by a dead daemon is replaced only if no process answers on it. All this
//! happens under a lock on the folder, so that of two daemons started at once one fails.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::Gid;
use rustix::fs::FlockOperation;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Most connections waiting to be accepted; the kernel refuses more.
const BACKLOG: i32 = 64;
/// Mode with a group: the daemon's user and the group may connect; each request is authorised.
const MODE_WITH_GROUP: u32 = 0o660;
/// Mode without a group: only the daemon's user and root may connect.
const MODE_ALONE: u32 = 0o600;

/// Why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process answers on it.
    #[error(
        "another daemon listens on {}: stop it first, or give this one another socket",
        .0.display()
    )]
    Taken(PathBuf),
    /// The file exists and is not a socket.
    #[error(
        "{} exists and is not a socket: remove it, or choose another path for the API", .0.display()
    )]
    NotASocket(PathBuf),
    /// The kernel limits the length of a socket's path.
    #[error("{} is too long for a socket: at most 107 bytes, choose a shorter path", .0.display())]
    PathTooLong(PathBuf),
    /// Any other error.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A listening socket and its file; the file is removed on drop.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that another daemon's new file is never removed.
    identity: (u64, u64),
}

impl Socket {
    /// A nonblocking socket listening on `path`, open to the caller's user and `group`.
    pub(super) fn bind(path: &Path, group: Option<Gid>) -> Result<Socket, SocketError> {
        let address =
            SocketAddrUnix::new(path).map_err(|_| SocketError::PathTooLong(path.to_owned()))?;
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if !folder.exists() {
            fs::create_dir(folder).map_err(io_error("create folder", folder))?;
        }
        // Held until this function returns: of two daemons started at once, the second waits here
        // and then finds the first one listening.
        let lock = File::open(folder).map_err(io_error("open folder", folder))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| io_error("lock folder", folder)(error.into()))?;
        remove_stale(path)?;

        let unbound = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|error| io_error("create a socket for", path)(error.into()))?;
        rustix::net::bind(&unbound, &address)
            .map_err(|error| io_error("bind socket", path)(error.into()))?;
        let bound = Socket::adopt(unbound, path)?;
        bound.open_to(group)?;
        rustix::net::listen(&bound.listener, BACKLOG)
            .map_err(|error| io_error("listen on", path)(error.into()))?;
        Ok(bound)
    }

    /// Takes ownership of the bound file: dropping the value removes it, whatever fails next.
    fn adopt(fd: OwnedFd, path: &Path) -> Result<Socket, SocketError> {
        let file = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
        let identity = (file.dev(), file.ino());
        Ok(Socket { listener: fd.into(), path: path.to_owned(), identity })
    }

    fn open_to(&self, group: Option<Gid>) -> Result<(), SocketError> {
        let path = &self.path;
        if let Some(group) = group {
            std::os::unix::fs::chown(path, None, Some(group.as_raw()))
                .map_err(io_error("change the group of socket", path))?;
        }
        let mode = if group.is_some() { MODE_WITH_GROUP } else { MODE_ALONE };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(io_error("set the mode of", path))
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket as a listener of the current tokio runtime.
    pub(super) fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        tokio::net::UnixListener::from_std(self.listener.try_clone()?)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove socket {}: {error}", self.path.display());
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("look at", path)(error)),
    };
    if !file.file_type().is_socket() {
        return Err(SocketError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(io_error("remove stale socket", path))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(SocketError::Taken(path.to_owned())),
        // A full queue of waiting connections, for example, shows that a process listens.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(SocketError::Taken(path.to_owned()))
        }
        Err(error) => Err(io_error("check for a listener on", path)(error)),
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn the_file_has_a_strict_mode_and_drop_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/ballast.sock");
        let socket = Socket::bind(&path, None).unwrap();
        assert_eq!(mode(&path), 0o600);
        drop(socket);
        assert!(!path.exists());
        let socket = Socket::bind(&path, Some(Gid::current())).unwrap();
        assert_eq!(mode(&path), 0o660);
        drop(socket);
    }

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a standard listener leaves its file behind");
        let first = Socket::bind(&path, None).unwrap();
        let error = Socket::bind(&path, None).unwrap_err();
        assert!(matches!(error, SocketError::Taken(_)), "{error}");
        assert!(error.to_string().starts_with("another daemon listens on "), "{error}");
        assert!(path.exists(), "the refused one must not remove the other's file");
        drop(first);
    }

    #[test]
    fn drop_leaves_another_daemons_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast.sock");
        let first = Socket::bind(&path, None).unwrap();
        fs::remove_file(&path).unwrap();
        // Takes the freed inode, so that the second socket gets another.
        let _other = File::create(folder.path().join("other")).unwrap();
        let second = Socket::bind(&path, None).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast.sock");
        fs::write(&path, "precious").unwrap();
        let error = Socket::bind(&path, None).unwrap_err();
        assert!(matches!(error, SocketError::NotASocket(_)), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn errors_name_the_impossible_path() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(120));
        let error = Socket::bind(&long, None).unwrap_err().to_string();
        assert!(error.contains("too long for a socket"), "{error}");
        let deep = folder.path().join("a/b/ballast.sock");
        let error = Socket::bind(&deep, None).unwrap_err().to_string();
        assert!(error.starts_with("cannot create folder "), "{error}");
    }

    #[test]
    fn exactly_one_of_many_concurrent_starts_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast.sock");
        drop(UnixListener::bind(&path).unwrap());
        let sockets: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Socket::bind(&path, None))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(sockets.iter().filter(|socket| socket.is_ok()).count(), 1);
    }
}
