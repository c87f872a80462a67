//! The process of one workload.
//!
//! Idea: the specification is an argument. Started by process 1 (`--counters`), it counts on the
//! shared page passed as standard input; otherwise it prints a line of JSON each second.
//! Limits: if the workload fails, it exits with status 1 and one line on standard error.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::{
    FromGuest, ProcessEnd, REPORT_PERIOD_MS, WorkloadReport, WorkloadTotals,
};
use ballast_lab_guest::workload::{Kind, Pattern, WorkloadSpec};
use ballast_lab_guest::{line, procfs};

use crate::counters::{self, Counters};
use crate::{child, data_disk};

/// Directory of files on a machine that is not a lab guest.
const FILE_DIR: &str = "/tmp";

/// `lab-guest workload [--file-dir DIR | --data-disk DEVICE] [--counters] SPEC`.
pub(crate) fn main(arguments: &[&str]) -> Result<(), String> {
    let mut rest = arguments.iter().copied();
    let (mut file_dir, mut data_disk, mut shared, mut spec) = (None, None, false, None);
    while let Some(argument) = rest.next() {
        match argument {
            "--file-dir" => file_dir = rest.next().map(PathBuf::from),
            "--data-disk" => data_disk = rest.next().map(PathBuf::from),
            "--counters" => shared = true,
            _ if spec.is_none() => spec = Some(argument),
            _ => return Err(format!("unexpected argument `{argument}` after the specification")),
        }
    }
    let spec = spec.ok_or("expected a specification such as {\"kind\":\"constant\",…}")?;
    let spec: WorkloadSpec = line::decode(spec).map_err(|error| error.to_string())?;
    spec.validate_for_guest().map_err(|error| error.to_string())?;
    if shared {
        child::give_up_privileges();
        // The name in the kernel's messages and in `ps`; it is short enough to be accepted.
        let _ = rustix::thread::set_name(c"lab-workload");
        let counters = counters::from_stdin()?;
        return run(&spec, file_dir, data_disk.as_deref(), &counters);
    }
    let (counters, _) = Counters::create()?;
    let counters = Arc::new(counters);
    let (shown, kind, start) = (Arc::clone(&counters), spec.pattern.kind(), Instant::now());
    std::thread::spawn(move || show_progress(kind, &shown));
    run(&spec, file_dir, data_disk.as_deref(), &counters)?;
    show(&FromGuest::Done {
        id: String::new(),
        end: ProcessEnd::Exited { code: 0 },
        totals: WorkloadTotals {
            touches: counters.touches(),
            iterations: counters.iterations(),
            elapsed_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            major_faults: own_stat(),
        },
    });
    Ok(())
}

fn run(
    spec: &WorkloadSpec,
    file_dir: Option<PathBuf>,
    data_disk: Option<&Path>,
    counters: &Counters,
) -> Result<(), String> {
    if let Pattern::Program { program, size } = spec.pattern {
        return crate::program::run(program, size, data_disk, spec.duration, counters);
    }
    let file_dir = match (file_dir, data_disk, spec.pattern.kind()) {
        (Some(dir), _, _) => dir,
        (None, Some(device), Kind::FileRandom) => data_disk::mounted(device)?.to_owned(),
        _ => PathBuf::from(FILE_DIR),
    };
    crate::engine::run(spec, &file_dir, counters)
}

fn own_stat() -> Option<u64> {
    procfs::major_faults(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn show_progress(kind: Kind, counters: &Counters) {
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(REPORT_PERIOD_MS));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let report = report(String::new(), kind, counters, before, own_stat(), &status);
        before = report.touches;
        show(&report);
    }
}

/// Builds a report from the workload's counters and the kernel's. `before`: its touches at the last
/// report.
pub(crate) fn report(
    id: String,
    kind: Kind,
    counters: &Counters,
    before: u64,
    major_faults: Option<u64>,
    status: &str,
) -> WorkloadReport {
    let touches = counters.touches();
    let (resident, swapped) = procfs::resident_swapped(status);
    WorkloadReport {
        id,
        kind,
        phase: counters.phase(),
        touches,
        touches_delta: touches.saturating_sub(before),
        iterations: counters.iterations(),
        size: counters.size(),
        size_wanted: counters.size_wanted(),
        major_faults,
        resident,
        swapped,
    }
}

fn show<T: serde::Serialize>(message: &T) {
    if let Ok(line) = line::encode(message) {
        print!("{line}");
    }
}
