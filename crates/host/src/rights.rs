//! The rights of a process: its user and its capabilities.
//!
//! Source: proc_pid_status(5), capabilities(7).

use std::path::Path;

use crate::error::ReadError;
use crate::file::read_once;
use crate::line::numbered;

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
