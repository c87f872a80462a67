//! The rights of a process: its user and its capabilities.
//!
//! Source: proc_pid_status(5), capabilities(7).

use std::fs;
use std::path::Path;

use crate::error::ReadError;
use crate::file::{read_once, read_start};
use crate::line::{number, numbered};

/// Users of the host's own services: root, and oVirt's `vdsm`, which has this number on every host
/// (`uidgid` of Fedora's package `setup`). Elsewhere nobody has it.
const SERVICE_USERS: [u64; 2] = [0, 36];
/// Most processes that are examined.
const PROCESSES_MAX: usize = 100_000;

/// A capability that Ballast uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessCapability {
    /// To lock memory (`CAP_IPC_LOCK`).
    IpcLock,
    /// To inspect the memory of other users' processes (`CAP_SYS_PTRACE`).
    SysPtrace,
    /// To page them out, and to raise priorities (`CAP_SYS_NICE`).
    SysNice,
    /// To be woken within a second when the host stalls, by a trigger with a window of 1 s
    /// (`CAP_SYS_RESOURCE`).
    SysResource,
}

impl ProcessCapability {
    /// All of them.
    pub const ALL: [ProcessCapability; 4] = [
        ProcessCapability::IpcLock,
        ProcessCapability::SysPtrace,
        ProcessCapability::SysNice,
        ProcessCapability::SysResource,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProcessCapability::IpcLock => "CAP_IPC_LOCK",
            ProcessCapability::SysPtrace => "CAP_SYS_PTRACE",
            ProcessCapability::SysNice => "CAP_SYS_NICE",
            ProcessCapability::SysResource => "CAP_SYS_RESOURCE",
        }
    }

    const fn bit(self) -> u32 {
        match self {
            ProcessCapability::IpcLock => 14,
            ProcessCapability::SysPtrace => 19,
            ProcessCapability::SysNice => 23,
            ProcessCapability::SysResource => 24,
        }
    }
}

/// The user and the capabilities of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRights {
    /// Its effective user.
    pub user: u32,
    /// Its effective capabilities, as a bit mask.
    capabilities: u64,
}

impl ProcessRights {
    /// Reads the rights of a process in `proc`; `who` is its PID, or `self`.
    ///
    /// # Errors
    /// Its `status` cannot be read, or lacks a line.
    pub fn read(proc: &Path, who: &str) -> Result<ProcessRights, ReadError> {
        let (path, text) = read_once(proc.join(who).join("status"))?;
        parse_rights(&path, &text)
    }

    /// Whether it has a capability.
    pub fn has(self, capability: ProcessCapability) -> bool {
        self.capabilities >> capability.bit() & 1 == 1
    }
}

/// Parses the text of `/proc/PID/status`; `path` is for error messages.
///
/// # Errors
/// The lines of users and capabilities are missing or malformed.
pub fn parse_rights(path: &Path, text: &[u8]) -> Result<ProcessRights, ReadError> {
    const USERS: &str = "`Uid: 0 0 0 0`";
    const CAPABILITIES: &str = "`CapEff: 000001ffffffffff`";
    let (mut user, mut capabilities) = (None, None);
    for (at, line) in numbered(text) {
        let words = || std::str::from_utf8(line).unwrap_or_default().split_ascii_whitespace();
        if line.starts_with(b"Uid:") {
            let found = words().nth(2).and_then(|word| word.parse().ok());
            user = Some(found.ok_or_else(|| ReadError::malformed(path, at, line, USERS))?);
        } else if line.starts_with(b"CapEff:") {
            let found = words().nth(1).and_then(|word| u64::from_str_radix(word, 16).ok());
            capabilities =
                Some(found.ok_or_else(|| ReadError::malformed(path, at, line, CAPABILITIES))?);
        }
    }
    Ok(ProcessRights {
        user: user.ok_or_else(|| ReadError::missing_line(path, "Uid:", USERS))?,
        capabilities: capabilities
            .ok_or_else(|| ReadError::missing_line(path, "CapEff:", CAPABILITIES))?,
    })
}

/// The host's services that `known` recognizes, each with its PID and the result of `known`. That
/// gets the name of a process and a reader of its command line. The reader returns nothing for a
/// process that is no service, because such a process can delay a reader of its command line.
pub(crate) fn services<T>(
    proc: &Path,
    known: impl Fn(&str, &dyn Fn() -> Vec<u8>) -> Option<T>,
) -> impl Iterator<Item = (u32, T)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten().take(PROCESSES_MAX);
    entries.filter_map(move |entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let folder = entry.path();
        let name = fs::read_to_string(folder.join("comm")).ok()?;
        let arguments = || match is_service(&folder) {
            true => read_start(&folder.join("cmdline")).unwrap_or_default(),
            false => Vec::new(),
        };
        let found = known(name.trim_end(), &arguments)?;
        is_service(&folder).then_some((pid, found))
    })
}

/// Whether the process with the folder `folder` in `/proc` runs as one of [`SERVICE_USERS`] or as
/// this process's own user. Others can take a service's name, but not its user.
///
/// Limits: a set-user-ID program that a user started through a link with such a name passes while
/// root is its real user too.
fn is_service(folder: &Path) -> bool {
    let own = u64::from(rustix::process::getuid().as_raw());
    let is_trusted = |user: u64| user == own || SERVICE_USERS.contains(&user);
    read_once(folder.join("status")).is_ok_and(|(_, text)| has_only_users(&text, is_trusted))
}

/// Whether `is_such` holds for all users in the `status` of a process: the real one, who started
/// it, and those with the rights that it has.
fn has_only_users(text: &[u8], is_such: impl Fn(u64) -> bool) -> bool {
    let users = numbered(text).find_map(|(_, line)| line.strip_prefix(b"Uid:"));
    let words = users.unwrap_or_default().split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    words.peek().is_some() && words.all(|word| number(word).is_some_and(&is_such))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_of_a_process_has_to_be_such() {
        for (text, expected) in [
            ("Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t5\t5\t5\t5\n", true),
            ("Uid:\t36\t36\t36\t36\n", true),
            // A program with the set-user-ID bit, started by user 1000.
            ("Uid:\t1000\t0\t0\t0\n", false),
            ("Uid:\t0\t1000\t0\t0\n", false),
            ("Uid:\t-1\t0\t0\t0\n", false),
            ("Name:\tUid:\t0\n", false),
            ("Uid:\n", false),
            ("", false),
        ] {
            let is_such = |user| SERVICE_USERS.contains(&user);
            assert_eq!(has_only_users(text.as_bytes(), is_such), expected, "{text:?}");
        }
    }
}
