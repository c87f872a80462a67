//! Finds the guests on this host, and those that have a tracker.
//!
//! A process's environment has the address of its tracker; its command line has the guest's name
//! and the paths of file-backed memory. Both are only hints: the kernel tells which process listens
//! at the address, and the process's mappings show its files.
//!
//! Cost: two small files per process.
//! Limits: only root sees processes of other users; names come from QEMU's `-name`; file-backed
//! memory plugged in later is not found.

use std::fs;
use std::path::Path;

use ballast_tracker_proto::{SOCKET_VARIABLE, TrackerAddress};

use crate::proc_file;

/// Longest command line or environment accepted.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Most paths per guest.
pub const PATHS_MAX: usize = ballast_tracker_proto::REGIONS_MAX;

/// A guest with a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackableGuest {
    /// The hypervisor's process.
    pub pid: u32,
    /// The guest's name on the command line.
    pub name: Option<String>,
    /// The tracker's address.
    pub address: TrackerAddress,
    /// Files of guest memory on the command line, or folders of such files.
    pub paths: Vec<String>,
}

/// A process that runs a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hypervisor {
    /// The process.
    pub pid: u32,
    /// The guest's name on the command line.
    pub name: Option<String>,
    /// Its tracker, if it has one.
    pub tracker: Option<TrackableGuest>,
}

/// All guests, with a tracker or without, sorted by process number: every process with a tracker,
/// and every QEMU, by the name of its program.
pub fn hypervisors(proc: &Path) -> Vec<Hypervisor> {
    let hypervisor = |pid: u32| {
        let tracker = trackable_at(proc, pid);
        let line = read(&proc.join(format!("{pid}/cmdline"))).unwrap_or_default();
        let is_guest = tracker.is_some() || is_qemu(&line);
        is_guest.then(|| Hypervisor { pid, name: name(&line), tracker })
    };
    pids(proc).into_iter().filter_map(hypervisor).collect()
}

/// Whether the program is a QEMU for whole machines, by any of its usual names.
fn is_qemu(command_line: &[u8]) -> bool {
    let program = words(command_line).next().unwrap_or_default();
    let file = program.rsplit('/').next().unwrap_or_default();
    file.starts_with("qemu-system-") || file == "qemu-kvm" || file == "kvm"
}

/// The numbers of all processes, ascending.
fn pids(proc: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut pids: Vec<u32> = entries.flatten().filter_map(pid).collect();
    pids.sort_unstable();
    pids
}

/// The guest of process `pid`; `None` if it has no tracker, or its environment cannot be read.
pub fn trackable_at(proc: &Path, pid: u32) -> Option<TrackableGuest> {
    let folder = proc.join(pid.to_string());
    let address = parse_environ(&read(&folder.join("environ"))?)?;
    let line = read(&folder.join("cmdline")).unwrap_or_default();
    let address = match address.path() {
        // The path is relative to the working directory of that process.
        path if path.is_relative() => TrackerAddress::new(folder.join("cwd").join(path)),
        _ => address,
    };
    let CommandLine { name, memory_paths } = parse_cmdline(&line);
    Some(TrackableGuest { pid, name, address, paths: memory_paths })
}

/// The paths of file-backed memory of process `pid`, as in [`TrackableGuest::paths`]; needs no
/// tracker.
pub fn memory_paths_at(proc: &Path, pid: u32) -> Vec<String> {
    let line = read(&proc.join(pid.to_string()).join("cmdline")).unwrap_or_default();
    parse_cmdline(&line).memory_paths
}

/// What a hypervisor's command line says of its guest. It is chosen by whoever starts the
/// hypervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The guest's name.
    pub name: Option<String>,
    /// Files of guest memory, or folders of such files: absolute, [`PATHS_MAX`] at most.
    pub memory_paths: Vec<String>,
}

/// Parses the text of a `cmdline`.
pub fn parse_cmdline(text: &[u8]) -> CommandLine {
    CommandLine { name: name(text), memory_paths: memory_paths(text) }
}

/// The tracker's address in the text of an `environ`; `None` if there is none, or if it is that of
/// an abstract socket.
pub fn parse_environ(text: &[u8]) -> Option<TrackerAddress> {
    TrackerAddress::parse(&variable(text, SOCKET_VARIABLE)?).ok()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    proc_file::read(path, FILE_BYTES_MAX).ok()
}

fn words(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok())
}

fn variable(environment: &[u8], name: &str) -> Option<String> {
    let value = |word: &str| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    words(environment).find_map(value).filter(|value| !value.is_empty())
}

/// The name in `-name a`, `-name a,process=b` or `-name guest=a,debug-threads=on`.
fn name(command_line: &[u8]) -> Option<String> {
    let value = words(command_line).skip_while(|word| *word != "-name").nth(1)?;
    let mut parts = value.split(',');
    let first = parts.next().filter(|part| !part.contains('='));
    let guest = value.split(',').find_map(|part| part.strip_prefix("guest="));
    guest.or(first).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The paths in `-object memory-backend-file,…,mem-path=/a,…`, in its JSON form, and in `-mem-path
/// /a`. Only absolute paths: mappings have no others.
fn memory_paths(command_line: &[u8]) -> Vec<String> {
    let mut paths = Vec::new();
    let mut before = "";
    for word in words(command_line) {
        let path = match before {
            "-object" | "--object" => path_of_object(word),
            "-mem-path" | "--mem-path" => Some(word.to_owned()),
            _ => None,
        };
        paths.extend(path.filter(|path| path.starts_with('/') && paths.len() < PATHS_MAX));
        before = word;
    }
    // Paths in mappings have no trailing slash.
    paths.iter_mut().for_each(|path| path.truncate(path.trim_end_matches('/').len()));
    // Of the root folder nothing is left, and an empty path would match anonymous memory.
    paths.retain(|path| !path.is_empty());
    paths
}

fn path_of_object(word: &str) -> Option<String> {
    if let Some(fields) = word.strip_prefix("memory-backend-file,") {
        // A comma in a value would be doubled; paths with commas are not supported.
        return fields
            .split(',')
            .find_map(|field| field.strip_prefix("mem-path="))
            .map(str::to_owned);
    }
    let compact: &str = word.trim_start();
    let is_file = compact.starts_with('{') && compact.contains("\"memory-backend-file\"");
    let after = compact.split_once("\"mem-path\"").filter(|_| is_file)?.1;
    let value = after.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    // An escaped quote would end the path early, and then no mapping matches it.
    value.split_once('"').map(|(path, _)| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_command_lines() {
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
    fn memory_paths_are_read_from_command_lines() {
        let none: [&str; 0] = [];
        for (line, expected) in [
            (
                "qemu\0-object\0memory-backend-file,id=ram,size=1G,mem-path=/dev/shm/a,share=on\0",
                &["/dev/shm/a"][..],
            ),
            (
                "qemu\0-object\0{\"qom-type\":\"memory-backend-file\",\"mem-path\": \"/a b\",\"size\":1}\0",
                &["/a b"],
            ),
            ("qemu\0-mem-path\0/dev/hugepages/\0", &["/dev/hugepages"]),
            ("qemu\0-object\0memory-backend-memfd,id=ram,mem-path=/x\0", &none),
            ("qemu\0-object\0memory-backend-file,mem-path=x\0-name\0mem-path=/y\0", &none),
            ("qemu\0-object\0{\"qom-type\":\"memory-backend-file\",\"mem-path\"\0", &none),
            ("qemu\0-object\0", &none),
            ("qemu\0-mem-path\0//\0", &none),
        ] {
            assert_eq!(memory_paths(line.as_bytes()), expected, "{line:?}");
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
            ("33", "BALLAST_TRACK_SOCKET=@abstract\0"),
            ("self", "BALLAST_TRACK_SOCKET=/x\0"),
        ] {
            let folder = proc.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("environ"), environ).unwrap();
            fs::write(folder.join("cmdline"), "qemu\0-name\0guest=web\0").unwrap();
        }
        fs::create_dir(proc.path().join("8")).unwrap();
        for (pid, line) in [
            ("40", "/usr/bin/qemu-system-x86_64\0-name\0db\0"),
            ("41", "/usr/bin/kvm\0"),
            ("42", "/opt/qemu-img\0convert\0"),
        ] {
            fs::create_dir(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join("cmdline"), line).unwrap();
        }
        let found = hypervisors(proc.path());
        let address = |it: &Hypervisor| it.tracker.as_ref().map(|it| it.address.to_string());
        let addresses: Vec<_> = found.iter().map(|it| (it.pid, address(it))).collect();
        let relative = proc.path().join("30/cwd/a.sock").display().to_string();
        let with = [(7, Some("/run/a.sock".to_owned())), (30, Some(relative))];
        assert_eq!(addresses, [&with[..], &[(40, None), (41, None)]].concat());
        let names = [&found[0], &found[2], &found[3]].map(|it| it.name.as_deref());
        assert_eq!(names, [Some("web"), Some("db"), None]);
    }
}
