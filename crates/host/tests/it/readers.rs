//! Every reader on files of our own: as the kernel writes them, missing, cut short, garbage, huge.

use std::fs;
use std::path::Path;

use ballast_host::*;
use ballast_model::{Bytes, Pressure};
use proptest::prelude::*;
use tempfile::TempDir;

const MEMINFO: &str = "MemTotal:       24684096 kB\nMemFree:        24452004 kB\n\
    MemAvailable:   24382456 kB\nHugePages_Total:       0\nSwapTotal:       1048576 kB\n\
    SwapFree:         524288 kB\n";
const PRESSURE: &str = "some avg10=12.34 avg60=0.10 avg300=0.00 total=98765\n\
    full avg10=100.00 avg60=0.00 avg300=0.00 total=4321\n";
const VMSTAT: &str = "nr_free_pages 6113001\npgmajfault 77\npswpin 2\npswpout 3\noom_kill 1\n";
const SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
    /dev/zram0                              partition\t1048572\t\t1024\t\t100\n\
    /swap\\040file                           file\t\t2097148\t\t0\t\t-2\n";
const STATUS: &str = "Name:\tqemu-system-x86\nState:\tS (sleeping)\nPid:\t42\nVmPeak:\t 900000 kB\n\
    VmLck:\t       4 kB\nVmRSS:\t  300000 kB\nRssAnon:\t  100000 kB\nRssFile:\t   50000 kB\n\
    RssShmem:\t  150000 kB\nVmSwap:\t    2048 kB\nThreads:\t5\n";
const STAT: &str =
    "42 (qemu) x (y) S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 5 0 123456 1000 2 3\n";

/// A folder that stands for `/proc`, with the files given.
fn proc_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn message<T: std::fmt::Debug>(result: Result<T, ReadError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn meminfo_as_the_kernel_writes_it() {
    let proc = proc_with(&[("meminfo", MEMINFO)]);
    let info = read_meminfo(proc.path()).unwrap();
    assert_eq!(info.total, Bytes::kib(24_684_096));
    assert_eq!(info.available, Some(Bytes::kib(24_382_456)));
    assert_eq!(info.swap_total, Some(Bytes::gib(1)));
    assert_eq!(info.swap_free, Some(Bytes::mib(512)));
}

#[test]
fn meminfo_that_cannot_be_used_says_where_and_what_was_expected() {
    for (text, expected) in [
        ("", "/meminfo: no line `MemTotal:`: expected a whole number of kB"),
        ("MemFree: 1 kB\n", "no line `MemTotal:`"),
        ("MemTotal: -5 kB\n", "/meminfo line 1: `MemTotal: -5 kB`: expected a whole number of kB"),
        ("MemTotal: 1 kB\nMemAvailable: lots\n", "line 2: `MemAvailable: lots`"),
        ("MemTotal: 99999999999999999999 kB\n", "line 1"),
        ("MemTotal: 18014398509481984 kB\n", "line 1"),
    ] {
        let proc = proc_with(&[("meminfo", text)]);
        let message = message(read_meminfo(proc.path()));
        assert!(message.contains(expected), "{message}");
        assert!(message.starts_with(proc.path().to_str().unwrap()), "{message}");
    }
    let empty = proc_with(&[]);
    assert!(message(read_meminfo(empty.path())).contains("/meminfo: "));
}

#[test]
fn meminfo_lines_an_older_kernel_lacks_are_none_and_not_zero() {
    let proc = proc_with(&[("meminfo", "MemTotal: 8 kB\n")]);
    let expected = MemInfo { total: Bytes::kib(8), ..MemInfo::default() };
    assert_eq!(read_meminfo(proc.path()).unwrap(), expected);
}

#[test]
fn a_huge_file_is_refused_by_every_reader() {
    let huge = "x".repeat(READ_BYTES_MAX + 1);
    let files =
        ["meminfo", "pressure/memory", "vmstat", "swaps", "7/status", "sys/kernel/random/boot_id"];
    let proc = proc_with(&files.map(|name| (name, huge.as_str())));
    let at = proc.path();
    for message in [
        message(read_meminfo(at)),
        message(read_pressure(at)),
        message(read_vmstat(at)),
        message(read_swaps(at)),
        message(ProcessReader::open(at, 7)),
        message(boot_id(at)),
    ] {
        assert!(message.contains("longer than 65536 bytes"), "{message}");
    }
    let just_fits = format!("{MEMINFO}{}", "\n".repeat(READ_BYTES_MAX - MEMINFO.len()));
    fs::write(at.join("meminfo"), &just_fits[1..]).unwrap();
    assert!(message(read_meminfo(at)).contains("MemTotal"), "a file within the bound is parsed");
}

#[test]
fn pressure_is_read_in_hundredths_of_a_percent() {
    let proc = proc_with(&[("pressure/memory", PRESSURE)]);
    let expected = Pressure { some_basis_points: 1234, full_basis_points: 10_000 };
    assert_eq!(read_pressure(proc.path()).unwrap(), Some(expected));
}

#[test]
fn a_kernel_without_pressure_information_is_not_an_error() {
    assert_eq!(read_pressure(proc_with(&[]).path()).unwrap(), None);
}

#[test]
fn pressure_that_cannot_be_used_is_named() {
    for (text, expected) in [
        ("", "no line `some`"),
        ("some avg10=1.00 total=0\n", "no line `full`"),
        ("some avg10=-1.00\n", "line 1: `some avg10=-1.00`"),
        ("some avg10=100.01\n", "line 1"),
        ("some avg10=1.5\n", "line 1"),
        ("some avg60=1.50\n", "line 1"),
        ("some avg10=18446744073709551615.00\n", "line 1"),
        ("some avg10=.50\n", "line 1"),
    ] {
        let proc = proc_with(&[("pressure/memory", text)]);
        let message = message(read_pressure(proc.path()));
        assert!(message.contains("/pressure/memory") && message.contains(expected), "{message}");
    }
}

#[test]
fn vmstat_counters() {
    let proc = proc_with(&[("vmstat", VMSTAT)]);
    let page = read_vmstat(proc.path()).unwrap().swap_in.unwrap().get() / 2;
    let expected = VmCounters {
        major_faults: Some(77),
        swap_in: Some(Bytes::new(2 * page)),
        swap_out: Some(Bytes::new(3 * page)),
        oom_kills: Some(1),
    };
    assert!(page.is_power_of_two() && page >= 4096);
    assert_eq!(read_vmstat(proc.path()).unwrap(), expected);
    let older = proc_with(&[("vmstat", "pgmajfault 1\n")]);
    assert_eq!(read_vmstat(older.path()).unwrap().oom_kills, None);
    for text in ["pgmajfault\n", "pgmajfault -1\n", "pswpin 1 2\n", "oom_kill x\n"] {
        let proc = proc_with(&[("vmstat", text)]);
        let message = message(read_vmstat(proc.path()));
        assert!(message.contains("/vmstat line 1: "), "{message}");
    }
    assert!(message(read_vmstat(proc_with(&[]).path())).contains("/vmstat"));
}

#[test]
fn swap_areas() {
    let proc = proc_with(&[("swaps", SWAPS)]);
    let areas = read_swaps(proc.path()).unwrap();
    let [zram, file] = &areas[..] else { panic!("{areas:?}") };
    assert_eq!((zram.path.to_str(), zram.kind.as_str()), (Some("/dev/zram0"), "partition"));
    assert_eq!((zram.size, zram.used, zram.priority), (Bytes::kib(1_048_572), Bytes::mib(1), 100));
    assert_eq!((file.path.to_str(), file.priority), (Some("/swap file"), -2));
    let heading = proc_with(&[("swaps", "Filename\tType\tSize\tUsed\tPriority\n")]);
    assert_eq!(read_swaps(heading.path()).unwrap(), []);
}

#[test]
fn swap_tables_that_cannot_be_used_are_named() {
    let many = format!("Filename\n{}", "/s file 1 0 0\n".repeat(SWAPS_MAX + 1));
    for (text, expected) in [
        ("", "no line `Filename`"),
        ("Filename\n/swap file\n", "line 2: `/swap file`: expected `path type size used priority`"),
        ("Filename\n/swap file -1 0 0\n", "line 2"),
        ("Filename\n/swap file 1 0 high\n", "line 2"),
        ("Filename\n/swap file 1 0 0 0\n", "line 2"),
        (many.as_str(), "line 34"),
    ] {
        let proc = proc_with(&[("swaps", text)]);
        let message = message(read_swaps(proc.path()));
        assert!(message.contains("/swaps") && message.contains(expected), "{message}");
    }
    assert!(message(read_swaps(proc_with(&[]).path())).contains("/swaps"));
}

#[test]
fn a_process_and_its_start() {
    let proc = proc_with(&[("42/status", STATUS), ("42/stat", STAT)]);
    let mut process = ProcessReader::open(proc.path(), 42).unwrap().unwrap();
    assert_eq!((process.pid(), process.start_time()), (42, 123_456));
    let expected = ProcessMemory {
        resident: Bytes::kib(300_000),
        resident_private: Some(Bytes::kib(100_000)),
        resident_shared: Some(Bytes::kib(150_000)),
        swapped: Some(Bytes::mib(2)),
        locked: Some(Bytes::kib(4)),
    };
    assert_eq!(process.read(&mut Vec::new()).unwrap(), Some(expected));
}

#[test]
fn a_process_that_lost_its_memory_has_ended_one_that_never_had_any_is_an_error() {
    let ending = "State:\tR (running)\nThreads:\t1\n";
    let proc = proc_with(&[("42/status", STATUS), ("42/stat", STAT)]);
    let mut process = ProcessReader::open(proc.path(), 42).unwrap().unwrap();
    assert!(process.read(&mut Vec::new()).unwrap().is_some());
    std::fs::write(proc.path().join("42/status"), ending).unwrap();
    assert_eq!(process.read(&mut Vec::new()).unwrap(), None);
    let mut kernel_thread = ProcessReader::open(proc.path(), 42).unwrap().unwrap();
    assert!(message(kernel_thread.read(&mut Vec::new())).contains("no line `VmRSS:`"));
}

#[test]
fn a_process_that_has_ended_is_none() {
    assert!(ProcessReader::open(proc_with(&[]).path(), 42).unwrap().is_none());
    let path = Path::new("status");
    assert_eq!(parse_status(path, b"Name:\tx\nState:\tZ (zombie)\nThreads:\t1\n").unwrap(), None);
}

#[test]
fn a_process_status_that_cannot_be_used_is_named() {
    for (text, expected) in [
        ("", "no line `VmRSS:`: expected a process with memory of its own"),
        ("State:\tS (sleeping)\n", "no line `VmRSS:`"),
        ("VmRSS:\t-1 kB\n", "line 1: `VmRSS: -1 kB`"),
        ("VmRSS:\t1 kB\nVmSwap:\t\n", "line 2"),
    ] {
        let message = message(parse_status(Path::new("/p/1/status"), text.as_bytes()));
        assert!(message.starts_with("/p/1/status") && message.contains(expected), "{message}");
    }
    for text in ["", "42", "42 (x) S 1", &STAT.replace("123456", "-1")] {
        let message = message(parse_start_time(Path::new("/p/1/stat"), text.as_bytes()));
        assert!(message.contains("/p/1/stat line 1: "), "{message}");
    }
}

#[test]
fn a_child_that_is_killed_is_followed_to_its_end() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut process = ProcessReader::open(Path::new(PROC), child.id()).unwrap().unwrap();
    let mut buffer = Vec::new();
    assert!(process.read(&mut buffer).unwrap().unwrap().resident > Bytes::ZERO);
    child.kill().unwrap();
    // Reaped or still a zombie: both are the end.
    while process.read(&mut buffer).unwrap().is_some() {}
    child.wait().unwrap();
    assert_eq!(process.read(&mut buffer).unwrap(), None);
    assert!(ProcessReader::open(Path::new(PROC), child.id()).unwrap().is_none());
}

#[test]
fn a_sample_gives_what_can_be_read_and_says_what_could_not() {
    let proc = proc_with(&[("meminfo", MEMINFO), ("pressure/memory", PRESSURE)]);
    let mut host = HostReader::new(proc.path());
    let (sample, errors) = host.sample();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(sample.memory_total, Some(Bytes::kib(24_684_096)));
    assert!(sample.pressure.is_some());

    fs::write(proc.path().join("meminfo"), "MemTotal: x kB\n").unwrap();
    let (sample, errors) = host.sample();
    assert_eq!((sample.memory_total, sample.memory_available), (None, None));
    assert!(sample.pressure.is_some());
    assert_eq!(errors.len(), 1, "{errors:?}");

    let (sample, errors) = HostReader::new(proc_with(&[]).path()).sample();
    assert_eq!(sample, ballast_model::HostSample::default());
    assert!(errors[0].to_string().contains("meminfo"), "{errors:?}");
}

#[test]
fn this_machine_can_be_read() {
    let at = Path::new(PROC);
    let (sample, errors) = HostReader::new(at).sample();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(sample.memory_total >= sample.memory_available && sample.memory_available.is_some());
    assert!(read_vmstat(at).unwrap().major_faults.is_some());
    read_swaps(at).unwrap();
    assert_eq!(boot_id(at).unwrap().len(), 36);
}

#[test]
fn a_boot_id_is_checked() {
    let proc = proc_with(&[("sys/kernel/random/boot_id", "not one\n")]);
    assert!(message(boot_id(proc.path())).contains("expected an identifier"));
}

#[test]
fn room_on_a_disk_is_asked_where_a_path_would_be_created() {
    let folder = tempfile::tempdir().unwrap();
    assert!(disk_free(folder.path()).unwrap() > Bytes::ZERO);
    assert!(disk_free(&folder.path().join("a/b/c")).unwrap() > Bytes::ZERO);
    assert!(disk_free(Path::new("not-there-yet")).unwrap() > Bytes::ZERO);
    let deep = folder.path().join("x/".repeat(100));
    assert!(message(disk_free(&deep)).contains("x/x"));
}

#[test]
fn a_refused_score_is_reported_with_the_remedy() {
    let wanted = Priority { nice: None, oom_score_adj: Some(-900) };
    let raised = raise_priority(proc_with(&[]).path(), wanted);
    assert_eq!(raised.nice, Setting::Untouched);
    assert!(raised.refusals().next().unwrap().contains("oom_score_adj"), "{raised:?}");

    let proc = proc_with(&[("self/oom_score_adj", "0\n")]);
    let raised = raise_priority(proc.path(), wanted);
    assert_eq!(raised.oom_score_adj, Setting::Set { from: 0, to: -900 });
    assert_eq!(fs::read_to_string(proc.path().join("self/oom_score_adj")).unwrap(), "-900");
    assert_eq!(raise_priority(proc.path(), wanted).oom_score_adj, Setting::Already(-900));
    assert_eq!(raised.refusals().count(), 0);
}

#[test]
fn the_scheduling_priority_is_raised_or_the_refusal_says_how_to_permit_it() {
    // From a thread of its own that ends with the test: a raised value cannot always be taken back.
    let raise = || {
        let wanted = Priority { nice: Some(-1), oom_score_adj: None };
        raise_priority(Path::new("/nonexistent"), wanted)
    };
    match std::thread::spawn(raise).join().unwrap().nice {
        Setting::Set { to: -1, .. } | Setting::Already(_) => {}
        Setting::Refused(why) => assert!(why.contains("CAP_SYS_NICE"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// Text near what the kernel writes: real files with bytes replaced, cut and repeated.
fn nearly(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    (edits, any::<prop::sample::Index>()).prop_map(move |(edits, cut)| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        bytes
    })
}

fn garbage() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        nearly(MEMINFO),
        nearly(PRESSURE),
        nearly(VMSTAT),
        nearly(SWAPS),
        nearly(STATUS),
        nearly(STAT),
    ]
}

proptest! {
    #[test]
    fn garbage_is_refused_or_read_without_panic(text in garbage()) {
        let path = Path::new("file");
        let errors = [
            parse_meminfo(path, &text).err(),
            parse_pressure(path, &text).err(),
            parse_vmstat(path, &text).err(),
            parse_swaps(path, &text).err(),
            parse_status(path, &text).err(),
            parse_start_time(path, &text).err(),
        ];
        for error in errors.into_iter().flatten() {
            let message = error.to_string();
            prop_assert!(message.contains("expected") && message.len() < 700, "{}", message);
        }
    }
}
