//! Which guests on this host have a tracker in them.
//!
//! Idea: the environment a process was started with says where its tracker listens, its command line
//! what the guest is called. Neither is believed further than that: the tracker itself says of which
//! process it is.
//!
//! Cost: two small files a process.
//! Limits: processes of other users are seen by root only; names as QEMU's `-name` has them.

use std::fs;
use std::path::{Path, PathBuf};

use ballast_track_wire::{Address, SOCKET_VARIABLE};

/// Most of a file that is read: an environment is rarely longer, and what is wanted is near its end.
const FILE_BYTES_MAX: usize = 1 << 20;

/// A guest with a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trackable {
    /// Its hypervisor's process.
    pub pid: u32,
    /// What it is called, where its command line says.
    pub name: Option<String>,
    /// Where its tracker listens.
    pub address: Address,
}

/// Every guest with a tracker, by the number of its process.
pub fn trackable(proc: &Path) -> Vec<Trackable> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut pids: Vec<u32> = entries.flatten().filter_map(pid).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(|pid| trackable_at(proc, pid)).collect()
}

/// The guest of process `pid`; `None` if it has no tracker, or its environment may not be read.
pub fn trackable_at(proc: &Path, pid: u32) -> Option<Trackable> {
    let folder = proc.join(pid.to_string());
    let socket = variable(&read(&folder.join("environ"))?, SOCKET_VARIABLE)?;
    let name = name(&read(&folder.join("cmdline")).unwrap_or_default());
    let address = match Address::parse(&socket) {
        // As that process would find it.
        Address::Path(path) if path.is_relative() => Address::Path(folder.join("cwd").join(path)),
        address => address,
    };
    Some(Trackable { pid, name, address })
}

fn read(path: &PathBuf) -> Option<Vec<u8>> {
    fs::read(path).ok().filter(|bytes| bytes.len() <= FILE_BYTES_MAX)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok())
}

fn variable(environment: &[u8], name: &str) -> Option<String> {
    let value = |word: &str| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    words(environment).find_map(value).filter(|value| !value.is_empty())
}

/// `-name a`, `-name a,process=b` or `-name guest=a,debug-threads=on`.
fn name(command_line: &[u8]) -> Option<String> {
    let value = words(command_line).skip_while(|word| *word != "-name").nth(1)?;
    let mut parts = value.split(',');
    let first = parts.next().filter(|part| !part.contains('='));
    let guest = value.split(',').find_map(|part| part.strip_prefix("guest="));
    guest.or(first).filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_they_are_written() {
        for (line, expected) in [
            ("qemu\0-name\0guest=a,debug-threads=on\0-m\0G\0", Some("a")),
            ("qemu\0-name\0a\0", Some("a")),
            ("qemu\0-name\0a,process=b\0", Some("a")),
            ("qemu\0-name\0process=b\0", None),
            ("qemu\0-name\0", None),
            ("qemu\0", None),
        ] {
            assert_eq!(name(line.as_bytes()).as_deref(), expected, "{line:?}");
        }
    }

    #[test]
    fn guests_are_found_by_their_environment() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, environ) in [
            ("7", "A=1\0BALLAST_TRACK_SOCKET=/run/a.sock\0LD_PRELOAD=x\0"),
            ("30", "BALLAST_TRACK_SOCKET=a.sock\0"),
            ("31", "BALLAST_TRACK_SOCKET=\0"),
            ("32", "BALLAST_TRACK_SOCKETS=/x\0"),
            ("self", "BALLAST_TRACK_SOCKET=/x\0"),
        ] {
            let folder = proc.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("environ"), environ).unwrap();
            fs::write(folder.join("cmdline"), "qemu\0-name\0guest=web\0").unwrap();
        }
        fs::create_dir(proc.path().join("8")).unwrap();
        let found = trackable(proc.path());
        let told: Vec<_> = found.iter().map(|it| (it.pid, it.address.to_string())).collect();
        let relative = proc.path().join("30/cwd/a.sock").display().to_string();
        assert_eq!(told, [(7, "/run/a.sock".to_owned()), (30, relative)]);
        assert_eq!(found[0].name.as_deref(), Some("web"));
    }
}
