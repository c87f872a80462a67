//! The daemon's Unix socket for the agent of a guest with hybrid vsock.
//!
//! Idea: the hypervisor says which folder the socket goes to, and it may write there. So it could
//! name a folder of others, or rename files at any moment. The daemon therefore opens the folder
//! once, works only in the opened folder, and requires that the hypervisor's user has a socket in
//! it. It sets owner and mode not by the socket's name, but on the opened file, after a connection
//! through that file has arrived here. Then only that user can connect, and the kernel reports the
//! connecting process.
//!
//! Source: unix(7), and `O_PATH` in open(2).
//! Limits: the hypervisor can remove or replace the socket, and then its agent is not heard.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use ballast_agent_proto::wire::VSOCK_PORT;
use ballast_host::PROC;
use ballast_qmp::client::peer_pid;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with};
use tokio::net::{UnixListener, UnixStream};

use super::latest::Shared;
use crate::clock;

/// Connections that may wait to be accepted; the kernel refuses more.
const BACKLOG: i32 = 16;
/// Its owner alone may connect.
const SOCKET_MODE: u32 = 0o600;
const ROOT: u32 = 0;

/// The socket of the daemon to which the hypervisor of one guest connects.
#[derive(Debug)]
pub(super) struct HybridSocket {
    device: PathBuf,
    path: PathBuf,
    bound: Option<BoundSocket>,
}

impl HybridSocket {
    /// The socket for the guest whose vsock device has its socket at `device`. Nothing listens yet.
    pub(super) fn new(device: &Path) -> HybridSocket {
        let path = device.with_file_name(name_beside(device.file_name().unwrap_or_default()));
        HybridSocket { device: device.to_owned(), path, bound: None }
    }

    /// Waits for a connection. `None`: the hypervisor is not known yet, nothing can listen, or
    /// another process connected.
    pub(super) async fn accept(&mut self, shared: &Shared) -> Option<UnixStream> {
        if self.bound.is_none() {
            match BoundSocket::bind(&self.device, shared.hypervisor()?) {
                Ok(bound) => self.bound = Some(bound),
                Err(error) => {
                    let text =
                        format!("cannot listen for its agent at {}: {error}", self.path.display());
                    shared.warn(&text, clock::now());
                }
            }
        }
        let (stream, _) = self.bound.as_ref()?.listener.accept().await.ok()?;
        let pid = peer_pid(&stream);
        shared.admits(pid, &self.path, clock::now()).then_some(stream)
    }
}

/// The name of the daemon's socket beside the hypervisor's.
fn name_beside(device: &OsStr) -> OsString {
    let mut name = device.to_owned();
    name.push(format!("_{VSOCK_PORT}"));
    name
}

/// The socket while it listens; its file is removed on drop.
#[derive(Debug)]
struct BoundSocket {
    listener: UnixListener,
    folder: File,
    name: OsString,
    /// Device and inode, so that no other file is removed.
    identity: (u64, u64),
}

impl BoundSocket {
    /// Listens beside the socket at `device`, for the process `hypervisor`. Replaces a socket that
    /// an earlier daemon left there.
    fn bind(device: &Path, hypervisor: u32) -> io::Result<BoundSocket> {
        let (us, user) = (rustix::process::geteuid().as_raw(), user_of(hypervisor)?);
        let (folder, name) = folder_and_name(device)
            .ok_or_else(|| io::Error::other("the path that its hypervisor names is not plain"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = File::from(rustix::fs::open(folder, flags, Mode::empty())?);
        let owner = folder.metadata()?.uid();
        if ![ROOT, us, user].contains(&owner) {
            let text = format!(
                "the folder belongs to user {owner}: give it to root, or to user {user}, who \
                 runs the hypervisor"
            );
            return Err(io::Error::other(text));
        }
        // In a folder where the hypervisor's user has a socket, another one gives it no new right.
        let beside = open_in(&folder, name).map_err(|error| {
            io::Error::new(error.kind(), format!("its hypervisor has no socket there: {error}"))
        })?;
        if !is_socket_of(&beside, &[user])? {
            let text = format!("what its hypervisor names is not a socket of user {user}");
            return Err(io::Error::other(text));
        }
        let name = name_beside(name);
        remove_stale(&folder, &name, &[us, user])?;
        let listener = unix_socket()?;
        let address = SocketAddrUnix::new(by_descriptor(&folder).join(&name))?;
        rustix::net::bind(&listener, &address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let file = open_in(&folder, &name)?;
        if !is_socket_of(&file, &[us])? || !leads_to(&file, &listener)? {
            return Err(io::Error::other("another file was put in its place"));
        }
        let metadata = file.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(listener))?;
        let bound = BoundSocket { listener, folder, name, identity };
        // Mode before owner: a user who has given a file away may not set its mode.
        fs::set_permissions(by_descriptor(&file), Permissions::from_mode(SOCKET_MODE))?;
        chown(by_descriptor(&file), Some(user), None).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot give it to user {user}: {error}"))
        })?;
        Ok(bound)
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        let found = open_in(&self.folder, &self.name).and_then(|file| file.metadata());
        if found.is_ok_and(|it| (it.dev(), it.ino()) == self.identity) {
            let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// The folder of a hypervisor's socket, and its name there. `None`: the path is relative, leads up
/// again, or has no name.
fn folder_and_name(device: &Path) -> Option<(&Path, &OsStr)> {
    let is_plain =
        device.is_absolute() && device.components().all(|part| part != Component::ParentDir);
    is_plain.then_some((device.parent()?, device.file_name()?))
}

/// Removes the socket of a daemon that is gone.
fn remove_stale(folder: &File, name: &OsStr, owners: &[u32]) -> io::Result<()> {
    let file = match open_in(folder, name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_socket_of(&file, owners)? {
        return Err(io::Error::other("a file of another kind or owner is in its place"));
    }
    match connect_to(&file) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            unlinkat(folder, name, AtFlags::empty()).map_err(io::Error::from)
        }
        // A full queue of waiting connections shows that a process listens.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(_) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Opens a file without access to its content. A symbolic link itself is opened.
fn open_in(folder: &File, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(folder, name, flags, Mode::empty())?))
}

/// A path that leads to this open file, even if its name has changed.
fn by_descriptor(file: &File) -> PathBuf {
    format!("{PROC}/self/fd/{}", file.as_raw_fd()).into()
}

fn is_socket_of(file: &File, owners: &[u32]) -> io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(metadata.file_type().is_socket() && owners.contains(&metadata.uid()))
}

/// Whether a connection to `file` arrives at `listener`.
fn leads_to(file: &File, listener: &OwnedFd) -> io::Result<bool> {
    let _connection = connect_to(file)?;
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(arrived) => {
            let arrived = UnixStream::from_std(std::os::unix::net::UnixStream::from(arrived))?;
            Ok(peer_pid(&arrived) == Some(std::process::id()))
        }
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A connection to the socket whose file is open. Does not wait.
fn connect_to(file: &File) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(by_descriptor(file))?)?;
    Ok(socket)
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The user as which a process creates and opens files.
fn user_of(pid: u32) -> io::Result<u32> {
    let status = fs::read_to_string(Path::new(PROC).join(pid.to_string()).join("status"))?;
    file_user(&status)
        .ok_or_else(|| io::Error::other(format!("the kernel names no user of process {pid}")))
}

/// The user that files are opened as, in a `/proc/PID/status`: the last of four.
fn file_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::agents::latest::AgentNotice;

    /// A folder in which this process, as the hypervisor, has a socket.
    struct Bench {
        folder: tempfile::TempDir,
        device: PathBuf,
        path: PathBuf,
    }

    impl Bench {
        fn new() -> Bench {
            let folder = tempfile::tempdir().unwrap();
            let device = folder.path().join("v.sock");
            leave_socket(&device);
            Bench { device, path: folder.path().join("v.sock_9873"), folder }
        }
    }

    fn shared() -> Shared {
        let shared = Shared::default();
        shared.set_hypervisor(Some(std::process::id()));
        shared
    }

    /// Why nothing listens beside `device`.
    async fn refusal(device: &Path) -> String {
        let (mut socket, shared) = (HybridSocket::new(device), shared());
        let accepted = tokio::time::timeout(Duration::from_secs(10), socket.accept(&shared));
        assert!(accepted.await.expect("it listens").is_none());
        let notices = shared.take(clock::now()).notices;
        let [AgentNotice::Warning(text)] = &notices[..] else { panic!("{notices:?}") };
        text.clone()
    }

    /// A socket on which nobody listens any more.
    fn leave_socket(path: &Path) {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    }

    #[tokio::test]
    async fn the_hypervisor_alone_reaches_the_daemons_socket() {
        let bench = Bench::new();
        let (path, shared) = (&bench.path, shared());
        // The socket of a daemon that was killed.
        leave_socket(path);
        let mut socket = HybridSocket::new(&bench.device);
        for (hypervisor, is_let_in) in [(std::process::id(), true), (1, false)] {
            shared.set_hypervisor(Some(hypervisor));
            let connect = async {
                loop {
                    match UnixStream::connect(path).await {
                        Ok(stream) => return stream,
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            };
            let (inside, mut outside) = tokio::join!(socket.accept(&shared), connect);
            assert_eq!(inside.is_some(), is_let_in);
            if let Some(mut inside) = inside {
                outside.write_all(b"agent").await.unwrap();
                let mut read = [0; 5];
                inside.read_exact(&mut read).await.unwrap();
                assert_eq!(&read, b"agent");
            }
            let notices = shared.take(clock::now()).notices;
            let is_warned =
                matches!(&notices[..], [AgentNotice::Warning(it)] if it.contains("v.sock_9873"));
            assert_eq!(is_warned, !is_let_in, "{notices:?}");
        }
        let metadata = fs::symlink_metadata(path).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, own));
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_another_daemon_listens_on_is_left_to_it() {
        let bench = Bench::new();
        let _other = UnixListener::bind(&bench.path).unwrap();
        let told = refusal(&bench.device).await;
        assert!(told.contains("in use"), "{told}");
        assert!(bench.path.exists(), "it is the other's");
    }

    #[tokio::test]
    async fn a_hypervisor_chooses_no_folder_but_its_own() {
        let bench = Bench::new();
        let folder = bench.folder.path();
        fs::create_dir(folder.join("b")).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        symlink(&bench.device, folder.join("link")).unwrap();
        for (device, why) in [
            ("b/../v.sock", "not plain"),
            ("b/v.sock", "has no socket there"),
            ("file", "not a socket of user"),
            ("link", "not a socket of user"),
        ] {
            let told = refusal(&folder.join(device)).await;
            assert!(told.contains(why), "{device}: {told}");
        }
        let told = refusal(Path::new("v.sock")).await;
        assert!(told.contains("not plain"), "{told}");
        assert!(!bench.path.exists() && !folder.join("file_9873").exists());
    }

    #[tokio::test]
    async fn what_stands_in_the_sockets_place_is_left_alone() {
        let bench = Bench::new();
        let precious = bench.folder.path().join("precious");
        fs::write(&precious, "secret").unwrap();
        fs::set_permissions(&precious, Permissions::from_mode(0o640)).unwrap();
        symlink(&precious, &bench.path).unwrap();
        let told = refusal(&bench.device).await;
        assert!(told.contains("another kind or owner"), "{told}");
        assert_eq!(fs::metadata(&precious).unwrap().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&bench.path).unwrap().is_symlink());
    }

    #[tokio::test]
    async fn a_file_put_in_the_sockets_place_is_found() {
        let bench = Bench::new();
        let folder = File::open(bench.folder.path()).unwrap();
        let listen = |name: &str| {
            let listener = unix_socket().unwrap();
            let address = SocketAddrUnix::new(bench.folder.path().join(name)).unwrap();
            rustix::net::bind(&listener, &address).unwrap();
            rustix::net::listen(&listener, BACKLOG).unwrap();
            (open_in(&folder, OsStr::new(name)).unwrap(), listener)
        };
        let ((ours, listener), (another, _other)) = (listen("ours"), listen("another"));
        assert!(leads_to(&ours, &listener).unwrap());
        assert!(!leads_to(&another, &listener).unwrap());
        fs::write(bench.folder.path().join("file"), "").unwrap();
        let file = open_in(&folder, OsStr::new("file")).unwrap();
        assert!(leads_to(&file, &listener).is_err());
        fs::rename(bench.folder.path().join("ours"), bench.folder.path().join("moved")).unwrap();
        assert!(leads_to(&ours, &listener).unwrap(), "its name does not matter");
    }

    #[tokio::test]
    async fn what_belongs_to_a_third_user_is_refused() {
        const THIRD: u32 = 54_321;
        let bench = Bench::new();
        let (folder, device) = (bench.folder.path(), bench.device.as_path());
        if chown(device, Some(THIRD), None).is_err() {
            return println!("SKIPPED: this user may not give files away");
        }
        let told = refusal(device).await;
        assert!(told.contains("not a socket of user"), "{told}");
        chown(device, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        chown(folder, Some(THIRD), None).unwrap();
        let told = refusal(device).await;
        assert!(told.contains("belongs to user 54321"), "{told}");
        assert!(!bench.path.exists());
    }

    #[test]
    fn files_are_opened_as_the_last_of_four_users() {
        let status = "Name:\tfirecracker\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t5\t5\t5\n";
        assert_eq!(file_user(status), Some(1003));
        assert_eq!((file_user("Uid:\t7\n"), file_user("")), (None, None));
    }

    proptest! {
        #[test]
        fn no_claimed_path_leads_up_or_is_relative(claim in "(/|\\.\\.?|[a-z]){0,12}") {
            if let Some((folder, name)) = folder_and_name(Path::new(&claim)) {
                prop_assert!(folder.is_absolute());
                let mut parts = folder.components().chain(Path::new(name).components());
                prop_assert!(parts.all(|part| part != Component::ParentDir));
                prop_assert!(!name.as_encoded_bytes().contains(&b'/'));
            }
        }
    }
}
