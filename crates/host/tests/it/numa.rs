//! NUMA nodes, read from fake trees.

use std::fs;
use std::path::Path;

use ballast_host::*;
use ballast_model::Bytes;
use proptest::prelude::*;

const PATH: &str = "/sys/devices/system/node/has_memory";

fn set(list: &str) -> Option<String> {
    parse_node_set(Path::new(PATH), list.as_bytes()).ok().map(|set| set.to_string())
}

#[test]
fn lists_of_nodes_are_parsed() {
    for (list, expected) in [
        ("0\n", "NUMA node 0"),
        ("\t0-2,5\n", "NUMA nodes 0,1,2,5"),
        ("5,1-2,2", "NUMA nodes 1,2,5"),
        ("1023", "NUMA node 1023"),
    ] {
        assert_eq!(set(list).as_deref(), Some(expected), "{list}");
    }
    for list in ["", "a", "1-", "-1", "2-1", "1024", "0-4294967295", "0,,1", "0 1"] {
        assert_eq!(set(list), None, "{list}");
    }
}

#[test]
fn a_node_leaves_free_memory_and_idle_page_cache() {
    let path = Path::new("/sys/devices/system/node/node0/meminfo");
    let text = "Node 0 MemTotal:       1024 kB\nNode 0 MemFree:         256 kB\n\
                Node 0 Inactive(anon):   64 kB\nNode 0 Inactive(file):  128 kB\n";
    let found = parse_node_memory(path, text.as_bytes()).unwrap();
    assert_eq!(found, NodeMemory { total: Bytes::mib(1), left: Bytes::kib(384) });
    let error = parse_node_memory(path, b"Node 0 MemTotal: 1024 kB\n").unwrap_err().to_string();
    assert!(error.contains("no line `MemFree:`"), "{error}");
    let error = parse_node_memory(path, b"Node 0 MemFree: many kB\n").unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
}

#[test]
fn a_process_that_may_use_all_memory_is_not_bound() {
    let root = tempfile::tempdir().unwrap();
    let (proc, nodes) = (root.path().join("proc"), root.path().join("nodes"));
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let bound = |has_memory: &str, allowed: &str| {
        write(&nodes.join("has_memory"), has_memory);
        write(&proc.join("7/status"), allowed);
        let set = read_bound_nodes(&proc, &nodes, 7).unwrap();
        set.map(|set| set.to_string())
    };
    let allowed = |list: &str| format!("VmRSS:\t1 kB\nMems_allowed_list:\t{list}\nx:\t1\n");
    assert_eq!(bound("0-1", &allowed("1")).as_deref(), Some("NUMA node 1"));
    assert_eq!(bound("0-1", &allowed("1,7")).as_deref(), Some("NUMA node 1"));
    assert_eq!(bound("0-1", &allowed("0-63")), None);
    assert_eq!(bound("0", &allowed("0")), None, "there is only one");
    assert_eq!(bound("0-1", "VmRSS:\t1 kB\n"), None, "the kernel does not say");
    assert_eq!(read_bound_nodes(&proc, &nodes, 8).unwrap(), None, "it has ended");
    fs::remove_file(nodes.join("has_memory")).unwrap();
    assert_eq!(read_bound_nodes(&proc, &nodes, 7).unwrap(), None, "the kernel knows no nodes");
}

proptest! {
    #[test]
    fn garbage_never_panics(text: Vec<u8>, line in "[A-Za-z_0-9(): ,\n-]{0,60}") {
        let path = Path::new(PATH);
        for text in [&text[..], line.as_bytes()] {
            let _ = (parse_node_set(path, text), parse_node_memory(path, text));
            let _ = parse_allowed_nodes(path, text);
        }
    }

    #[test]
    fn nodes_are_within_others_as_in_sets(
        a in prop::collection::btree_set(0..12u64, 1..6),
        b in prop::collection::btree_set(0..12u64, 1..6),
    ) {
        let of = |set: &std::collections::BTreeSet<u64>| {
            let list: Vec<String> = set.iter().map(ToString::to_string).collect();
            parse_node_set(Path::new(PATH), list.join(",").as_bytes()).unwrap()
        };
        prop_assert_eq!(of(&a).is_within(&of(&b)), a.is_subset(&b));
    }
}
