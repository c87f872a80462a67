//! The errors of the lab.
//!
//! Idea: every error names what failed, where, and the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_model::{Bytes, GuestId, ParseGuestIdError};

use crate::artifact::ArtifactMissing;

/// Why an operation of the lab failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
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
    /// A program of the host failed.
    #[error("`{command}` failed ({status}): {output}\n{remedy}")]
    ToolFailed {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        output: String,
        /// What to do.
        remedy: String,
    },
    /// No folder is configured for the cache or the runs.
    #[error("no folder for {what}: set {variable} to one")]
    NoFolder {
        /// The purpose of the folder.
        what: &'static str,
        /// The environment variable that names it.
        variable: &'static str,
    },
    /// Others can access the folder of runs.
    #[error("{} is not a private folder of this user (mode 0700): remove it", .0.display())]
    FolderNotOurs(PathBuf),
    /// A path is too long for a Unix socket.
    #[error(
        "{} is too long for a socket ({len} bytes, at most {max}): set XDG_RUNTIME_DIR to a shorter path \
         or choose a shorter name", path.display()
    )]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
        /// The longest length in bytes.
        max: usize,
    },
    /// The kernel package lacks a file that guests need.
    #[error("{} has no {what}: remove the folder and try again", folder.display())]
    KernelIncomplete {
        /// The unpacked kernel.
        folder: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The host's package sources name no Debian mirror.
    #[error(
        "no Debian mirror for the kernel of `{0}`: this host's package sources name none, or their \
         lists are missing; run `apt-get update` as root, or choose the kernel `default`"
    )]
    MirrorUnknown(String),
    /// The program that becomes `/init` in the guests is not built.
    #[error(
        "lab-guest is not built (looked for {}): build it with\n  \
         RUSTFLAGS='-C target-feature=+crt-static' cargo build --release -p ballast-lab-guest \
         --bin lab-guest --target x86_64-unknown-linux-gnu\nor set BALLAST_LAB_GUEST to it",
        .0.looked_for
    )]
    LabGuestMissing(ArtifactMissing),
    /// The guests' agent is not built.
    #[error("ballast-agent is {0}")]
    AgentMissing(ArtifactMissing),
    /// The guests' agent is not a static program.
    #[error("{} is not a static program: build it with `scripts/build guest`", .0.display())]
    AgentDynamic(PathBuf),
    /// The program that becomes `/init` in the guests is not a static program.
    #[error(
        "{} is not a static program: build it with RUSTFLAGS='-C target-feature=+crt-static' and \
         --target x86_64-unknown-linux-gnu", .0.display()
    )]
    LabGuestDynamic(PathBuf),
    /// The plugin that records a guest's memory accesses is not built.
    #[error(
        "the truth plugin is not built (looked for {}): build it with\n  \
         cargo build --release -p ballast-lab-truth\nor set BALLAST_LAB_TRUTH to it",
        .0.looked_for
    )]
    TruthMissing(ArtifactMissing),
    /// The page tracker's library is not built.
    #[error(
        "the page tracker is not built (looked for {}): build it with\n  \
         cargo build --release -p ballast-tracker-preload\nor set BALLAST_TRACK_LIBRARY to it",
        .0.looked_for
    )]
    TrackerMissing(ArtifactMissing),
    /// A guest's memory accesses cannot be recorded because it is not emulated.
    #[error("guest {0}: memory accesses can only be recorded under emulation; use `tcg`")]
    TruthNeedsEmulation(GuestId),
    /// A program for the guests is neither on the host nor in a known package.
    #[error("program `{program}` cannot be packed: {why}")]
    ProgramUnavailable {
        /// The program.
        program: String,
        /// Why, and what to do.
        why: String,
    },
    /// There is not enough space for the guests' disks.
    #[error(
        "{} has {free} free, the guests' disks may grow to {wanted}: free some space, use smaller \
         disks, or set BALLAST_CACHE to a folder on a larger disk", folder.display()
    )]
    DiskSpace {
        /// The folder of the disks.
        folder: PathBuf,
        /// The free space.
        free: Bytes,
        /// The size of all disks together.
        wanted: Bytes,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] ParseGuestIdError),
    /// KVM was requested but does not work.
    #[error("KVM does not work here: {0}; use `auto` or `tcg`")]
    KvmUnusable(String),
    /// The outer machine of a nested lab has no usable KVM.
    #[error(
        "the outer machine is no KVM host: {why}; its emulator has to emulate AMD's hardware virtualization \
         with nested paging, as QEMU has since 7.0 ({complaints})"
    )]
    NoNestedKvm {
        /// What it lacks.
        why: String,
        /// What its boot complained about.
        complaints: String,
    },
    /// A run of that name exists already.
    #[error(
        "run `{name}` exists already, owned by process {owner}: end it (`ballast lab down {name}`) or choose another name"
    )]
    RunExists {
        /// Its name.
        name: String,
        /// The process that owns it.
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
        /// The guests it has.
        have: String,
    },
    /// A guest has exited.
    #[error("guest {guest} {how}; the end of its console:\n{console}")]
    GuestGone {
        /// The guest.
        guest: GuestId,
        /// How it ended.
        how: String,
        /// The end of its console log and of QEMU's messages.
        console: String,
    },
    /// A guest exceeded a timeout.
    #[error("guest {guest} did not {what} within {}s; the end of its console:\n{console}", waited.as_secs())]
    Timeout {
        /// The guest.
        guest: GuestId,
        /// What it was expected to do.
        what: &'static str,
        /// The timeout.
        waited: Duration,
        /// The end of its console log.
        console: String,
    },
    /// A guest refused a request.
    #[error("guest {guest} refused: {why}")]
    Refused {
        /// The guest.
        guest: GuestId,
        /// Its error text.
        why: String,
    },
    /// The process that owns a run reported an error.
    #[error("{0}")]
    Supervisor(String),
}

impl LabError {
    /// Makes an [`LabError::Io`] of `action` (a verb) on `path`.
    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> LabError {
        move |source| LabError::Io { action, path: path.as_ref().to_owned(), source }
    }
}
