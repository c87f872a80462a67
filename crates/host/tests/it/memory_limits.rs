//! Limits of cgroups, read from fake trees.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ballast_host::*;
use ballast_model::Bytes;
use proptest::prelude::*;
use rustix::fs::{XattrFlags, setxattr};
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// A host whose process 7 is in `machine.slice/vm.scope/emulator`.
struct Host {
    root: TempDir,
}

impl Host {
    fn new() -> Host {
        let host = Host { root: tempfile::tempdir().unwrap() };
        host.write("proc/7/cgroup", "0::/machine.slice/vm.scope/emulator\n");
        host.write("cg/cgroup.controllers", "cpuset cpu io memory pids\n");
        host.limit("machine.slice", "max", "max");
        host.limit("machine.slice/vm.scope", "max", "max");
        host
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn limit(&self, group: &str, max: &str, high: &str) {
        self.write(&format!("cg/{group}/memory.max"), &format!("{max}\n"));
        self.write(&format!("cg/{group}/memory.high"), &format!("{high}\n"));
    }

    fn charge(&self, group: &str, current: u64, inactive_file: u64) {
        self.write(&format!("cg/{group}/memory.current"), &format!("{current}\n"));
        let stat = format!("anon 5\nfile 6\ninactive_file {inactive_file}\nactive_file 7\n");
        self.write(&format!("cg/{group}/memory.stat"), &stat);
    }

    fn read(&self) -> Result<Option<Vec<MemoryLimit>>, ReadError> {
        read_limits(&self.root.path().join("proc"), &self.root.path().join("cg"), 7)
    }

    /// File below the root cgroup, and limit in GiB.
    fn limits(&self) -> Option<Vec<(String, u64)>> {
        let root = self.root.path().join("cg");
        let limit = |it: MemoryLimit| {
            let file = it.file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            (file, it.limit.get() / GIB)
        };
        self.read().unwrap().map(|limits| limits.into_iter().map(limit).collect())
    }

    /// What each limit leaves, in MiB.
    fn left(&self, reader: &mut RoomReader) -> Vec<u64> {
        let limits = self.read().unwrap().unwrap();
        let rooms = reader.read(&limits.iter().collect());
        limits.iter().filter_map(|it| rooms.get(it)).map(|it| it.left.get() >> 20).collect()
    }
}

fn gib(gib: u64) -> String {
    (gib * GIB).to_string()
}

#[test]
fn limits_of_all_cgroups_above_a_process_are_found() {
    let host = Host::new();
    assert_eq!(host.limits(), Some(vec![]));
    host.limit("machine.slice", &gib(64), "max");
    host.limit("machine.slice/vm.scope", &gib(9), &gib(8));
    let slice = ("machine.slice/memory.max".to_owned(), 64);
    let high = ("machine.slice/vm.scope/memory.high".to_owned(), 8);
    assert_eq!(host.limits(), Some(vec![high, slice.clone()]));
    host.limit("machine.slice/vm.scope", &gib(8), &gib(9));
    let max = ("machine.slice/vm.scope/memory.max".to_owned(), 8);
    assert_eq!(host.limits(), Some(vec![max, slice]));
}

#[test]
fn where_version_2_has_no_memory_no_limit_is_known() {
    let host = Host::new();
    host.limit("machine.slice", &gib(64), "max");
    host.write("cg/cgroup.controllers", "cpu io pids\n");
    assert_eq!(host.limits(), None);
    fs::remove_file(host.root.path().join("cg/cgroup.controllers")).unwrap();
    assert_eq!(host.limits(), None);
    for text in ["4:memory:/vm\n", "", "0::/../../vm\n"] {
        let host = Host::new();
        host.write("proc/7/cgroup", text);
        assert_eq!(host.limits(), None, "{text}");
    }
    let host = Host::new();
    host.write("proc/7/cgroup", "0::/\n");
    assert_eq!(host.limits(), Some(vec![]), "the root cgroup has no limit");
    fs::remove_dir_all(host.root.path().join("proc/7")).unwrap();
    assert_eq!(host.limits(), None);
}

#[test]
fn a_limit_that_is_no_number_is_an_error() {
    let host = Host::new();
    host.limit("machine.slice", "8G", "max");
    let error = host.read().unwrap_err().to_string();
    assert!(error.ends_with("memory.max line 1: `8G `: expected a number of bytes, or `max`"));
}

#[test]
fn a_fence_is_no_limit() {
    let host = Host::new();
    host.limit("machine.slice/vm.scope", "max", &gib(8));
    let folder = host.root.path().join("cg/machine.slice/vm.scope");
    if let Err(error) = setxattr(&folder, FENCE_MARK, b"8589934592", XattrFlags::empty()) {
        println!("SKIPPED: no extended attributes in the temporary folder: {error}");
        return;
    }
    assert_eq!(host.limits(), Some(vec![]));
    host.limit("machine.slice/vm.scope", &gib(9), &gib(8));
    assert_eq!(host.limits(), Some(vec![("machine.slice/vm.scope/memory.max".to_owned(), 9)]));
}

#[test]
fn idle_page_cache_is_left_where_a_limit_is_near() {
    let host = Host::new();
    host.limit("machine.slice/vm.scope", &gib(8), "max");
    host.limit("machine.slice", &gib(64), "max");
    host.charge("machine.slice", 10 * GIB, GIB);
    let mut reader = RoomReader::default();
    assert_eq!(host.left(&mut reader), [54 * 1024], "the scope cannot be read");
    for (current, cache, left) in [
        (5 * GIB, GIB, 3 * 1024),
        (7 * GIB + (512 << 20), GIB, 1536),
        (8 * GIB, 0, 0),
        (9 * GIB, GIB / 2, 0),
        (8 * GIB, 16 * GIB, 8 * 1024),
        (8 * GIB - 1, 0, 0),
    ] {
        host.charge("machine.slice/vm.scope", current, cache);
        assert_eq!(host.left(&mut reader), [left, 54 * 1024], "{current} {cache}");
    }
}

#[test]
fn page_cache_of_many_limits_is_read_in_turns() {
    let root = tempfile::tempdir().unwrap();
    let limits: Vec<MemoryLimit> = (0..100)
        .map(|at| {
            let folder = root.path().join(format!("{at:03}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("memory.current"), gib(8)).unwrap();
            fs::write(folder.join("memory.stat"), format!("inactive_file {}\n", 2 * GIB)).unwrap();
            MemoryLimit { file: folder.join("memory.max"), limit: Bytes::gib(8) }
        })
        .collect();
    let all: BTreeSet<&MemoryLimit> = limits.iter().collect();
    let mut reader = RoomReader::default();
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let rooms = reader.read(&all);
        assert_eq!(rooms.len(), 100);
        let roomy = rooms.iter().filter(|(_, room)| room.left == Bytes::gib(2));
        let roomy: Vec<_> = roomy.map(|(limit, _)| *limit).collect();
        assert_eq!(roomy.len(), 32);
        seen.extend(roomy);
    }
    assert_eq!(seen.len(), 100);
}

proptest! {
    #[test]
    fn garbage_never_panics(text: Vec<u8>, line in "[a-z_0-9 \n]{0,60}", amount: u64) {
        let path = Path::new("/sys/fs/cgroup/a/memory.stat");
        let _ = (parse_limit(path, &text), parse_inactive_file(path, &text));
        let _ = (parse_limit(path, line.as_bytes()), parse_inactive_file(path, line.as_bytes()));
        let found = parse_limit(path, format!("{amount}\n").as_bytes()).unwrap();
        prop_assert_eq!(found, Some(Bytes::new(amount)));
        let stat = format!("anon 1\ninactive_file {amount}\nactive_file 3\n");
        prop_assert_eq!(parse_inactive_file(path, stat.as_bytes()).unwrap(), Bytes::new(amount));
    }
}
