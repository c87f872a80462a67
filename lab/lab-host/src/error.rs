//! What can go wrong in the lab.
//!
//! Idea: every error names the thing, its place and the remedy, because most of them are read by
//! someone who only wanted two guests to start.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_model::{Bytes, GuestId};

/// Why the lab could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program of the host is not installed.
    #[error("`{program}` is not installed: install it with `apt-get install {package}`")]
    ToolMissing {
        /// The program.
        program: String,
        /// The Debian package that holds it.
        package: String,
    },
    /// A program of the host ended with an error.
    #[error("`{command}` failed ({status}): {output}\n{remedy}")]
    ToolFailed {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote.
        output: String,
        /// What to do.
        remedy: String,
    },
    /// No folder can be found for the cache or the runs.
    #[error("no place for {what}: set {variable} to a folder")]
    NoFolder {
        /// What would be kept there.
        what: &'static str,
        /// The environment variable that names it.
        variable: &'static str,
    },
    /// The folder of runs is not ours alone.
    #[error("{} is not a folder of this user alone (mode 0700): remove it", .0.display())]
    FolderNotOurs(PathBuf),
    /// A path is longer than a Unix socket's name may be.
    #[error(
        "{} is too long for a socket ({len} bytes, at most {max}): set XDG_RUNTIME_DIR to a shorter path \
         or choose a shorter name", path.display()
    )]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
        /// The greatest length in bytes.
        max: usize,
    },
    /// The kernel package lacks something the guests need.
    #[error("{} has no {what}: remove the folder and try again", folder.display())]
    KernelIncomplete {
        /// The unpacked kernel.
        folder: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The host's package sources name no mirror of Debian.
    #[error(
        "no mirror of Debian for the kernel of `{suite}`: this host's package sources name none, or their \
         lists are missing; run `apt-get update` as root, or choose the kernel `default`"
    )]
    MirrorUnknown {
        /// The suite wanted.
        suite: String,
    },
    /// The program that becomes `/init` in the guests is not built.
    #[error(
        "lab-guest is not built (looked for {looked_for}): build it with\n  \
         RUSTFLAGS='-C target-feature=+crt-static' cargo build --release -p ballast-lab-guest \
         --bin lab-guest --target x86_64-unknown-linux-gnu\nor set BALLAST_LAB_GUEST to it"
    )]
    LabGuestMissing {
        /// Where it was looked for.
        looked_for: String,
    },
    /// The guests' agent is not built.
    #[error("ballast-agent is not built (looked for {looked_for}): run `make build`")]
    AgentMissing {
        /// Where it was looked for.
        looked_for: String,
    },
    /// The guests' agent needs libraries that are not there.
    #[error("{} is not a static program: build it with `scripts/build guest`", .0.display())]
    AgentDynamic(PathBuf),
    /// The program that becomes `/init` in the guests needs libraries that are not there.
    #[error(
        "{} is not a static program: build it with RUSTFLAGS='-C target-feature=+crt-static' and \
         --target x86_64-unknown-linux-gnu", .0.display()
    )]
    LabGuestDynamic(PathBuf),
    /// The plugin that records what a guest touches is not built.
    #[error(
        "the truth plugin is not built (looked for {looked_for}): build it with\n  \
         cargo build --release -p ballast-lab-truth\nor set BALLAST_LAB_TRUTH to it"
    )]
    TruthMissing {
        /// Where it was looked for.
        looked_for: String,
    },
    /// The page tracker's library is not built.
    #[error(
        "the page tracker is not built (looked for {looked_for}): build it with\n  \
         cargo build --release -p ballast-track\nor set BALLAST_TRACK_LIBRARY to it"
    )]
    TrackerMissing {
        /// Where it was looked for.
        looked_for: String,
    },
    /// What a guest touches cannot be recorded, because it is not emulated.
    #[error("guest {0}: what it touches can be recorded under emulation only; use `tcg`")]
    TruthNeedsEmulation(GuestId),
    /// A program for the guests is neither on the host nor in a package of that name.
    #[error("program `{program}` cannot be packed: {why}")]
    ProgramUnavailable {
        /// The program.
        program: String,
        /// Why, and what to do.
        why: String,
    },
    /// Not enough room for the guests' disks.
    #[error(
        "{} has {free} free, the guests' disks may grow to {wanted}: free some space, use smaller \
         disks, or set BALLAST_CACHE to a folder on a larger disk", folder.display()
    )]
    DiskSpace {
        /// The folder of the disks.
        folder: PathBuf,
        /// What is free there.
        free: Bytes,
        /// The size of all disks together.
        wanted: Bytes,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(String),
    /// KVM was asked for and guests do not start under it.
    #[error("KVM does not work here: {0}; use `auto` or `tcg`")]
    KvmUnusable(String),
    /// A run of that name exists.
    #[error(
        "run `{name}` exists already, held by process {owner}: end it (`ballast lab down {name}`) or choose another name"
    )]
    RunExists {
        /// Its name.
        name: String,
        /// The process that holds it.
        owner: i32,
    },
    /// No run of that name exists.
    #[error("no run `{0}`: `ballast lab ps` lists them")]
    NoRun(String),
    /// No guest of that name is in the run.
    #[error("no guest `{guest}` in run `{run}`: it has {have}")]
    NoGuest {
        /// The run.
        run: String,
        /// The guest.
        guest: String,
        /// The guests there are.
        have: String,
    },
    /// A guest has ended.
    #[error("guest {guest} {how}; the end of its console:\n{console}")]
    GuestGone {
        /// The guest.
        guest: GuestId,
        /// How it ended.
        how: String,
        /// The end of its console log and of QEMU's own messages.
        console: String,
    },
    /// A guest did not do in time what it was waited for.
    #[error("guest {guest} did not {what} within {}s; the end of its console:\n{console}", waited.as_secs())]
    Timeout {
        /// The guest.
        guest: GuestId,
        /// What it was waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
        /// The end of its console log.
        console: String,
    },
    /// A guest refused a request.
    #[error("guest {guest} refused: {why}")]
    Refused {
        /// The guest.
        guest: GuestId,
        /// Its words.
        why: String,
    },
    /// The process that holds a run failed; in its own words.
    #[error("{0}")]
    Supervisor(String),
}

impl LabError {
    /// The error of `action` (a verb) on `path`.
    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> LabError {
        move |source| LabError::Io { action, path: path.as_ref().to_owned(), source }
    }
}
