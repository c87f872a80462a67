//! Every reader on test files: valid, missing, truncated, garbage, huge.

use std::fs;
use std::path::Path;

use ballast_host::*;
use ballast_model::{Bytes, Pressure};
use proptest::prelude::*;
use rustix::process::getpriority_process;
use tempfile::TempDir;

const MEMINFO: &str = "MemTotal:       24684096 kB\nMemFree:        24452004 kB\n\
    MemAvailable:   24382456 kB\nHugePages_Total:       0\nSwapTotal:       1048576 kB\n\
    SwapFree:         524288 kB\n";
const PRESSURE: &str = "some avg10=12.34 avg60=0.10 avg300=0.00 total=98765\n\
    full avg10=100.00 avg60=0.00 avg300=0.00 total=4321\n";
const STATUS: &str = "Name:\tqemu-system-x86\nState:\tS (sleeping)\nPid:\t42\nVmPeak:\t 900000 kB\n\
    VmSize:\t  800000 kB\n\
    VmLck:\t       4 kB\nVmRSS:\t  300000 kB\nRssAnon:\t  100000 kB\nRssFile:\t   50000 kB\n\
    RssShmem:\t  150000 kB\nVmSwap:\t    2048 kB\nHugetlbPages:\t    8192 kB\nThreads:\t5\n";
const STAT: &str =
    "42 (qemu) x (y) S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 5 0 123456 1000 2 3\n";

/// A folder in place of `/proc`, with these files.
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

fn meminfo(text: &str) -> Result<MemInfo, ReadError> {
    parse_meminfo(Path::new("/proc/meminfo"), text.as_bytes())
}

fn pressure(text: &str) -> Result<Pressure, ReadError> {
    parse_pressure(Path::new("/proc/pressure/memory"), text.as_bytes())
}

#[test]
fn meminfo_figures_are_parsed() {
    let info = meminfo(MEMINFO).unwrap();
    assert_eq!(info.total, Bytes::kib(24_684_096));
    assert_eq!(info.available, Some(Bytes::kib(24_382_456)));
    assert_eq!(info.swap_total, Some(Bytes::gib(1)));
    assert_eq!(info.swap_free, Some(Bytes::mib(512)));
}

#[test]
fn bad_meminfo_error_names_line_and_expectation() {
    for (text, expected) in [
        ("", "/meminfo: no line `MemTotal:`: expected a whole number of kB"),
        ("MemFree: 1 kB\n", "no line `MemTotal:`"),
        ("MemTotal: -5 kB\n", "/meminfo line 1: `MemTotal: -5 kB`: expected a whole number of kB"),
        ("MemTotal: 1 kB\nMemAvailable: lots\n", "line 2: `MemAvailable: lots`"),
        ("MemTotal: 99999999999999999999 kB\n", "line 1"),
        ("MemTotal: 18014398509481984 kB\n", "line 1"),
    ] {
        let message = message(meminfo(text));
        assert!(message.contains(expected), "{message}");
        assert!(message.starts_with("/proc/meminfo"), "{message}");
    }
}

#[test]
fn missing_meminfo_lines_are_none_not_zero() {
    let expected = MemInfo { total: Bytes::kib(8), ..MemInfo::default() };
    assert_eq!(meminfo("MemTotal: 8 kB\n").unwrap(), expected);
}

#[test]
fn every_reader_rejects_a_huge_file() {
    let huge = "x".repeat(READ_BYTES_MAX + 1);
    let files = ["meminfo", "pressure/memory", "7/status", "sys/kernel/random/boot_id"];
    let proc = proc_with(&files.map(|name| (name, huge.as_str())));
    let at = proc.path();
    let (_, host) = HostReader::new(at).sample();
    assert_eq!(host.len(), 2, "{host:?}");
    let host = host.iter().map(ToString::to_string);
    let others = [message(ProcessReader::open(at, 7)), message(boot_id(at))];
    for message in host.chain(others) {
        assert!(message.contains("longer than 65536 bytes"), "{message}");
    }
    let just_fits = format!("{MEMINFO}{}", "\n".repeat(READ_BYTES_MAX - MEMINFO.len()));
    fs::write(at.join("meminfo"), &just_fits[1..]).unwrap();
    let (_, errors) = HostReader::new(at).sample();
    assert!(errors[0].to_string().contains("MemTotal"), "a file within the bound is parsed");
}

#[test]
fn pressure_is_parsed_in_basis_points() {
    let expected = Pressure { some_basis_points: 1234, full_basis_points: 10_000 };
    assert_eq!(pressure(PRESSURE).unwrap(), expected);
}

#[test]
fn missing_psi_is_none_not_an_error() {
    let proc = proc_with(&[("meminfo", MEMINFO)]);
    let (sample, errors) = HostReader::new(proc.path()).sample();
    assert!(errors.is_empty() && sample.pressure.is_none(), "{sample:?}, {errors:?}");
}

#[test]
fn bad_pressure_error_names_the_line() {
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
        let message = message(pressure(text));
        assert!(message.contains("/pressure/memory") && message.contains(expected), "{message}");
    }
}

#[test]
fn process_memory_and_start_time_are_parsed() {
    let proc = proc_with(&[("42/status", STATUS), ("42/stat", STAT)]);
    let mut process = ProcessReader::open(proc.path(), 42).unwrap().unwrap();
    assert_eq!((process.pid(), process.start_time()), (42, 123_456));
    let expected = ProcessMemory {
        resident: Bytes::kib(300_000),
        mapped: Some(Bytes::kib(800_000)),
        resident_private: Some(Bytes::kib(100_000)),
        resident_shared: Some(Bytes::kib(150_000)),
        resident_file: Some(Bytes::kib(50_000)),
        huge: Some(Bytes::mib(8)),
        swapped: Some(Bytes::mib(2)),
        locked: Some(Bytes::kib(4)),
    };
    assert_eq!(process.read(&mut Vec::new()).unwrap(), Some(expected));
}

#[test]
fn losing_vmrss_means_ended_never_having_it_is_an_error() {
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
fn an_ended_process_is_none() {
    assert!(ProcessReader::open(proc_with(&[]).path(), 42).unwrap().is_none());
    let path = Path::new("status");
    assert_eq!(parse_status(path, b"Name:\tx\nState:\tZ (zombie)\nThreads:\t1\n").unwrap(), None);
}

#[test]
fn bad_process_status_error_names_the_line() {
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
fn a_killed_child_reads_as_none() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut process = ProcessReader::open(Path::new(PROC), child.id()).unwrap().unwrap();
    let mut buffer = Vec::new();
    assert!(process.read(&mut buffer).unwrap().unwrap().resident > Bytes::ZERO);
    child.kill().unwrap();
    // `None` comes for a zombie as well as for a reaped process.
    while process.read(&mut buffer).unwrap().is_some() {}
    child.wait().unwrap();
    assert_eq!(process.read(&mut buffer).unwrap(), None);
    assert!(ProcessReader::open(Path::new(PROC), child.id()).unwrap().is_none());
}

#[test]
fn a_sample_has_readable_figures_and_one_error_per_file() {
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
fn the_files_of_this_machine_are_readable() {
    let at = Path::new(PROC);
    let (sample, errors) = HostReader::new(at).sample();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(sample.memory_total >= sample.memory_available && sample.memory_available.is_some());
    assert_eq!(boot_id(at).unwrap().len(), 36);
}

#[test]
fn a_malformed_boot_id_is_an_error() {
    let proc = proc_with(&[("sys/kernel/random/boot_id", "not one\n")]);
    assert!(message(boot_id(proc.path())).contains("expected an identifier"));
}

/// What is refused to a thread of its own, and its nice value then: a raised priority cannot always
/// be lowered.
fn raised(proc: &Path) -> (Vec<String>, i32) {
    let raise = || (raise_priority(proc), getpriority_process(None).unwrap());
    std::thread::scope(|scope| scope.spawn(raise).join().unwrap())
}

#[test]
fn a_refused_oom_score_is_reported_with_a_remedy() {
    let refused = |proc: &Path| raised(proc).0.into_iter().find(|it| it.contains("oom_score_adj"));
    let why = refused(proc_with(&[]).path()).unwrap();
    assert!(why.ends_with("oom_score_adj: expected a number from -1000 to 1000"), "{why}");
    for (before, after) in [("0\n", "-900"), ("-950\n", "-950\n")] {
        let proc = proc_with(&[("self/oom_score_adj", before)]);
        assert_eq!(refused(proc.path()), None);
        assert_eq!(fs::read_to_string(proc.path().join("self/oom_score_adj")).unwrap(), after);
    }
}

#[test]
fn nice_is_raised_or_the_refusal_names_the_capability() {
    let (refused, nice) = raised(Path::new("/nonexistent"));
    let refused = refused.into_iter().find(|it| it.starts_with("nice -10: "));
    assert_eq!(refused.is_none(), nice <= -10, "{refused:?}");
    assert!(refused.is_none_or(|why| why.contains("CAP_SYS_NICE")));
}

/// Almost valid text: a real file with some bytes replaced, then truncated.
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
        nearly(STATUS),
        nearly(STAT),
    ]
}

proptest! {
    #[test]
    fn garbage_is_parsed_or_rejected_without_panic(text in garbage()) {
        let path = Path::new("file");
        let errors = [
            parse_meminfo(path, &text).err(),
            parse_pressure(path, &text).err(),
            parse_status(path, &text).err(),
            parse_start_time(path, &text).err(),
            parse_swaps(path, &text).err(),
            parse_release(path, &text).err(),
            parse_nodes(path, &text).err(),
            parse_rights(path, &text).err(),
            parse_number(path, &text).err(),
        ];
        for error in errors.into_iter().flatten() {
            let message = error.to_string();
            prop_assert!(message.contains("expected") && message.len() < 700, "{}", message);
        }
    }
}
