//! Xen's own xenstored, on a machine without Xen.
//!
//! Idea: `lab/xenstore-shim` is preloaded into it. Programs and libraries are those of the system,
//! or those that `scripts/setup` installed in `target/tools/xen`.
//! Limits: xenstored 4.17 of Debian 12.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The library, below a target folder.
const SHIM: &str = "release/libballast_xenstore_shim.so";
/// xenstored, below the root of a file system.
const XENSTORED: &str = "usr/lib/xen-4.17/bin/xenstored";
/// Its libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The kernel's list of Unix sockets.
const SOCKETS: &str = "/proc/net/unix";
/// Flags in it of a socket that listens.
const LISTENING: &str = "00010000";
/// How long it may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two checks whether it listens.
const POLL: Duration = Duration::from_millis(10);

/// A running xenstored, empty at first. Dropping this ends it.
#[derive(Debug)]
pub struct RealStore {
    child: Child,
    socket: PathBuf,
}

impl RealStore {
    /// Starts one whose files are in `folder`.
    ///
    /// # Errors
    /// It cannot be started; the text says what is missing and how to install it.
    pub fn start(folder: &Path) -> Result<RealStore, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let near = |below: &str| {
            program.ancestors().map(|above| above.join(below)).find(|path| path.is_file())
        };
        let shim = near(SHIM).ok_or_else(|| format!("{SHIM} is not built: run scripts/build"))?;
        let xenstored =
            [near(&format!("tools/xen/{XENSTORED}")), Some(Path::new("/").join(XENSTORED))];
        let xenstored = xenstored.into_iter().flatten().find(|path| path.is_file());
        let xenstored = xenstored.ok_or("xenstored is not here: run scripts/setup")?;
        let root = xenstored.ancestors().nth(XENSTORED.split('/').count());
        let libraries = root.unwrap_or(Path::new("/")).join(LIBRARIES);
        let socket = folder.join("socket");
        let log = folder.join("xenstored.log");
        let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let child = Command::new(&xenstored)
            // In the foreground, and its tree in memory only.
            .args(["--no-fork", "--internal-db"])
            .env("LD_PRELOAD", shim)
            .env("LD_LIBRARY_PATH", libraries)
            .env("XENSTORED_ROOTDIR", folder)
            .env("XENSTORED_RUNDIR", folder)
            .env("XENSTORED_PATH", &socket)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("{}: {error}", xenstored.display()))?;
        let mut store = RealStore { child, socket };
        let begun = Instant::now();
        while !is_listening(&store.socket) {
            let ended = store.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || begun.elapsed() > STARTS_WITHIN {
                let log_text = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("xenstored does not start ({ended:?}): {}", log_text.trim()));
            }
            sleep(POLL);
        }
        Ok(store)
    }

    /// The path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for RealStore {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program listens at `socket`, which is there a moment earlier. To connect would tell,
/// too, but xenstored has room for few connections that it has not accepted.
fn is_listening(socket: &Path) -> bool {
    let sockets = fs::read_to_string(SOCKETS).unwrap_or_default();
    let name = socket.to_string_lossy();
    sockets.lines().any(|line| {
        line.split_whitespace().nth(3) == Some(LISTENING) && line.ends_with(name.as_ref())
    })
}
