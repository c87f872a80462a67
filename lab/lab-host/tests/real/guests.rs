//! Tests of real guests, from their start to the last trace of them.
//!
//! Limits: asserts states and counts, never times; needs QEMU and a built `lab-guest`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bare::wait_until;
use crate::host_side::{PATIENCE, folder, helper};
use ballast_lab_guest::protocol::{FromGuest, ProcessEnd};
use ballast_lab_guest::workload::{Pattern, Program, WorkloadSpec};
use ballast_lab_host::{
    AccelChoice, Answer, DiskSpec, GuestSpec, GuestState, LabError, Request, Run, RunFolder,
    RunOptions, Speed, Truth, ask, down, up,
};
use ballast_model::Bytes;

/// Options of a run whose folder is below `base`, with the cache that all tests share.
fn options(base: &Path, guests: Vec<GuestSpec>) -> RunOptions {
    RunOptions {
        helper: helper(),
        runs_folder: Some(base.to_owned()),
        ..RunOptions::new("t".parse().unwrap(), guests)
    }
}

/// A folder with a path short enough for sockets.
fn base() -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let base = folder.path().join("runs");
    (folder, base)
}

fn guest(name: &str) -> GuestSpec {
    GuestSpec::new(name.parse().unwrap(), Bytes::mib(256))
}

fn say(line: &str) {
    eprintln!("{line}");
}

fn shell(line: &str) -> Vec<String> {
    ["/bin/sh", "-c", line].map(str::to_owned).to_vec()
}

/// Checks for everything a run could leave: processes and cgroups that name its folder or its
/// guests' process ids.
fn assert_nothing_left(base: &Path, pids: &[i32]) {
    wait_until("the run's folder is gone", || {
        fs::read_dir(base).map_or(0, |entries| entries.count()) == 0
    });
    let mark = base.to_str().unwrap();
    wait_until("no process names the run's folder", || {
        fs::read_dir("/proc").unwrap().flatten().all(|process| {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            !String::from_utf8_lossy(&command).contains(mark)
        })
    });
    wait_until("no cgroup is left", || {
        let groups: Vec<_> = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"]
            .iter()
            .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        pids.iter().all(|pid| !groups.iter().any(|name| name.contains(&format!("-{pid}-"))))
    });
}

#[test]
fn two_guests_work_report_and_leave_nothing() {
    let (_folder, base) = base();
    let mut first = guest("a");
    first.swap = Some(DiskSpec { size: Bytes::mib(256), speed: Speed::Ssd });
    first.data = Some(DiskSpec { size: Bytes::mib(64), speed: Speed::Nvme });
    let mut second = guest("b");
    second.balloon = None;
    let run = Run::start(&options(&base, vec![first, second]), &say).unwrap();
    let pids: Vec<i32> = run.guests().map(ballast_lab_host::Guest::pid).collect();
    let (a, b) = (run.guest("a").unwrap(), run.guest("b").unwrap());

    let ready = a.ready().unwrap();
    assert_eq!(ready.complaints, Vec::<String>::new());
    assert!(ready.swap_total.is_some_and(|swap| swap > Bytes::mib(250)), "{ready:?}");
    assert!(ready.data_disk);
    assert_eq!(b.ready().unwrap().swap_total, None);
    assert_eq!((a.state(), b.state()), (GuestState::Ready, GuestState::Ready));

    // The balloon is a device of `a` and not of `b`.
    let balloon = shell("ls -d /sys/bus/virtio/drivers/virtio_balloon/virtio*");
    assert!(a.exec(&balloon, PATIENCE).unwrap().end.is_success());
    assert!(!b.exec(&balloon, PATIENCE).unwrap().end.is_success());

    let events = a.subscribe().unwrap();
    let spec = WorkloadSpec::from(Pattern::Constant { size: Bytes::mib(32) });
    a.start_workload("w", &spec, PATIENCE).unwrap();
    let mut touches = Vec::new();
    while touches.len() < 3 || touches.last() == Some(&0) {
        let event = events.next(PATIENCE).expect("reports keep coming");
        if let FromGuest::Report(report) = event.message {
            touches.extend(report.workloads.iter().map(|workload| workload.touches));
        }
    }
    assert!(touches.is_sorted(), "{touches:?}");
    let refused = a.start_workload("w", &spec, PATIENCE).unwrap_err();
    assert!(matches!(refused, LabError::Refused { .. }), "{refused}");
    let (end, totals) = a.stop_workload("w").unwrap();
    assert_eq!(end, ProcessEnd::Stopped {});
    assert!(totals.touches >= *touches.last().unwrap());
    assert!(a.latest_report().unwrap().is_some());

    // The symptoms that would explain a hang.
    let symptoms = a.symptoms();
    for needle in ["CPU 0", "\"running\":true", "\"device\":\"swap\"", "RIP=", "inflight", "sysrq"]
    {
        assert!(symptoms.contains(needle), "{needle}: {symptoms}");
    }

    // One guest dies; the other goes on, and waiting for the dead one ends.
    a.kill();
    wait_until("the killed guest has exited", || a.state() == GuestState::Exited);
    let gone = a.exec(&shell("true"), PATIENCE).unwrap_err();
    assert!(matches!(gone, LabError::GuestGone { .. }), "{gone}");
    let output = b.exec(&shell("echo out; echo err >&2; exit 3"), PATIENCE).unwrap();
    assert_eq!(output.end, ProcessEnd::Exited { code: 3 });
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));

    run.shutdown();
    assert_nothing_left(&base, &pids);
}

/// redis, memcached, sqlite3 and stress-ng get their data and use it. One ends after its duration,
/// the others when they are stopped, and none of their processes remains.
#[test]
fn programs_are_counted_and_leave_nothing() {
    let (_folder, base) = base();
    let programs = [Program::Redis, Program::Memcached, Program::Sqlite, Program::StressNg];
    let with = programs.iter().map(|program| program.packed().to_owned()).collect();
    let spec = GuestSpec { with, ..GuestSpec::new("a".parse().unwrap(), Bytes::mib(384)) };
    let run = Run::start(&options(&base, vec![spec]), &say).unwrap();
    let guest = run.guest("a").unwrap();
    let pids = [guest.pid()];
    let events = guest.subscribe().unwrap();
    for program in programs {
        let mut spec = WorkloadSpec::from(Pattern::Program { program, size: Bytes::mib(16) });
        spec.duration = (program == Program::StressNg).then_some(Duration::from_secs(5));
        guest.start_workload(program.packed(), &spec, PATIENCE).unwrap();
    }
    let mut done = BTreeMap::new();
    let mut ended = None;
    let end = Instant::now() + PATIENCE;
    while ended.is_none() || done.len() < programs.len() {
        assert!(Instant::now() < end, "done: {done:?}, ended: {ended:?}");
        match events.next(PATIENCE).expect("reports keep coming").message {
            FromGuest::Report(report) => {
                let busy = report.workloads.into_iter().filter(|workload| workload.touches > 0);
                done.extend(busy.map(|workload| (workload.id, workload.touches)));
            }
            FromGuest::Done { id, end, totals } => ended = Some((id, end, totals.touches > 0)),
            FromGuest::Error { id, text } => panic!("{id:?}: {text}"),
            _ => {}
        }
    }
    assert_eq!(ended, Some(("stress-ng".to_owned(), ProcessEnd::Exited { code: 0 }, true)));
    for id in ["redis-server", "memcached", "sqlite3"] {
        assert_eq!(guest.stop_workload(id).unwrap().0, ProcessEnd::Stopped {});
    }
    let left = shell("ps | grep -E '[r]edis|[m]emcached|[s]qlite3|[s]tress-ng' | wc -l");
    wait_until("all their processes have ended", || {
        guest.exec(&left, PATIENCE).unwrap().stdout.trim() == "0"
    });
    run.shutdown();
    assert_nothing_left(&base, &pids);
}

/// PostgreSQL comes with its table on the data disk. When it is killed, no process remains, and it
/// serves again afterwards.
#[test]
fn postgresql_serves_from_its_disk_and_leaves_nothing() {
    let (_folder, base) = base();
    let program = Program::Postgresql;
    let spec = GuestSpec { with: [program.packed().to_owned()].into(), ..guest("a") };
    let refused = Run::start(&options(&base, vec![spec.clone()]), &say).err().expect("no disk");
    assert!(refused.to_string().contains("give the guest a data disk"), "{refused}");
    let data = Some(DiskSpec { size: Bytes::mib(640), speed: Speed::Ssd });
    let run = Run::start(&options(&base, vec![GuestSpec { data, ..spec }]), &say).unwrap();
    let guest = run.guest("a").unwrap();
    let pids = [guest.pid()];
    // The user it runs as.
    let servers = shell("ps -o user,args | grep '[p]ostgres -D' | cut -d ' ' -f 1");
    let left = shell("ps | grep '[p]ostgres' | wc -l");
    for _ in 0..2 {
        let events = guest.subscribe().unwrap();
        let spec = WorkloadSpec::from(Pattern::Program { program, size: Bytes::mib(32) });
        guest.start_workload("w", &spec, PATIENCE).unwrap();
        let mut transactions = Vec::new();
        while transactions.iter().filter(|it| **it > 0).count() < 3 {
            match events.next(PATIENCE).expect("reports keep coming").message {
                FromGuest::Report(report) => {
                    transactions.extend(report.workloads.iter().map(|workload| workload.touches));
                }
                FromGuest::Error { id, text } => panic!("{id:?}: {text}"),
                _ => {}
            }
        }
        assert!(transactions.is_sorted(), "{transactions:?}");
        let user = guest.exec(&servers, PATIENCE).unwrap().stdout;
        assert!(!user.trim().is_empty() && user.trim() != "0" && user.trim() != "root", "{user}");
        assert_eq!(guest.stop_workload("w").unwrap().0, ProcessEnd::Stopped {});
        wait_until("all its processes have ended", || {
            guest.exec(&left, PATIENCE).unwrap().stdout.trim() == "0"
        });
    }
    run.shutdown();
    assert_nothing_left(&base, &pids);
}

#[test]
fn a_guest_that_panics_is_told_with_its_console() {
    let (_folder, base) = base();
    let run = Run::start(&options(&base, vec![guest("a")]), &say).unwrap();
    let a = run.guest("a").unwrap();
    let _ = a.exec(&shell("echo c > /proc/sysrq-trigger"), PATIENCE);
    wait_until("the guest is known to be gone", || {
        matches!(a.state(), GuestState::Panicked | GuestState::Exited)
    });
    let error = a.exec(&shell("true"), PATIENCE).unwrap_err().to_string();
    assert!(error.contains("Kernel panic"), "{error}");
}

#[test]
fn arguments_qemu_refuses_are_quoted_and_leave_nothing() {
    let (_folder, base) = base();
    let mut wrong = guest("a");
    wrong.extra_args = vec!["-no-such-option".to_owned()];
    let error = Run::start(&options(&base, vec![wrong]), &say).err().expect("it cannot start");
    assert!(error.to_string().contains("-no-such-option: invalid option"), "{error}");
    assert_nothing_left(&base, &[]);
}

/// A program that starts a run below `base`, as `ballast` would.
fn program(base: &Path, command: &str, guests: &str) -> Child {
    Command::new(helper().program)
        .args([command, "t", guests])
        .env("XDG_RUNTIME_DIR", base.parent().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A program that holds a run of two guests.
fn holder(base: &Path) -> Child {
    let mut child = program(base, "hold", "2");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn kill_9_of_the_parent_leaves_nothing() {
    let (folder, _) = base();
    // The holder's run is below its `XDG_RUNTIME_DIR`.
    let base = folder.path().join("ballast-lab");
    let mut parent = holder(&base);
    let guests = RunFolder::open(&base, "t").unwrap().guests();
    assert_eq!(guests.len(), 2);
    parent.kill().unwrap();
    parent.wait().unwrap();
    for guest in &guests {
        wait_until("the guests are gone", || !guest.process.is_alive());
    }
    let pids: Vec<i32> = guests.iter().map(|guest| guest.process.pid).collect();
    assert_nothing_left(&base, &pids);
}

#[test]
fn up_killed_before_guests_are_ready_leaves_nothing() {
    let (folder, _) = base();
    let base = folder.path().join("ballast-lab");
    let mut starter = program(&base, "up", "1");
    let guests = || RunFolder::open(&base, "t").map_or(Vec::new(), |run| run.guests());
    wait_until("a guest has been started", || !guests().is_empty());
    let pids: Vec<i32> = guests().iter().map(|guest| guest.process.pid).collect();
    starter.kill().unwrap();
    starter.wait().unwrap();
    assert_nothing_left(&base, &pids);
}

#[test]
fn killing_the_owner_of_a_run_leaves_nothing() {
    let (folder, _) = base();
    let base = folder.path().join("ballast-lab");
    let mut starter = program(&base, "up", "1");
    assert!(starter.wait().unwrap().success());
    let run = RunFolder::open(&base, "t").unwrap();
    let guests = run.guests();
    assert_eq!(guests[0].state(), GuestState::Ready);
    let owner = run.live_owner().unwrap();
    assert!(owner.kill(PATIENCE));
    wait_until("the guest is gone", || !guests[0].process.is_alive());
    assert_nothing_left(&base, &[guests[0].process.pid]);
}

#[test]
fn a_run_without_an_owner_lasts_until_ended() {
    let (_folder, base) = base();
    let mut lines = 0;
    let counter = std::cell::RefCell::new(&mut lines);
    let folder = up(&options(&base, vec![guest("a")]), &|line| {
        say(line);
        **counter.borrow_mut() += 1;
    })
    .unwrap();
    assert!(lines > 0, "progress is reported");
    let error = up(&options(&base, vec![guest("a")]), &say).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");

    let exec = |argv: Vec<String>| {
        ask(&folder, &Request::Exec { guest: "a".to_owned(), argv, timeout_ms: 60_000 })
    };
    let Answer::Executed { output } = exec(shell("echo here")).unwrap() else { panic!() };
    assert_eq!(output.stdout, "here\n");
    let start = |id: &str| Request::Start {
        guest: "a".to_owned(),
        id: id.to_owned(),
        spec: Pattern::Constant { size: Bytes::mib(16) }.into(),
    };
    assert_eq!(ask(&folder, &start("w")).unwrap(), Answer::Done {});
    let stop = Request::Stop { guest: "a".to_owned(), id: "w".to_owned() };
    assert!(matches!(ask(&folder, &stop).unwrap(), Answer::Stopped { .. }));
    let nobody = Request::Report { guest: "nobody".to_owned() };
    let error = ask(&folder, &nobody).unwrap_err().to_string();
    assert!(error.contains("nobody") && error.contains("it has a"), "{error}");

    let guests = folder.guests();
    down(&folder).unwrap();
    assert!(guests.iter().all(|guest| !guest.process.is_alive()));
    let pids: Vec<i32> = guests.iter().map(|guest| guest.process.pid).collect();
    assert_nothing_left(&base, &pids);
    assert!(matches!(RunFolder::open(&base, "t"), Err(LabError::NoRun(_))));
}

/// The guest touches what its workload touches in a second and a little of its kernel's memory; the
/// trace has as many pages as the rows say.
#[test]
fn the_truth_of_what_a_guest_touches() {
    let (folder, base) = base();
    let trace = folder.path().join("a.pg.zst");
    let truth = Truth { trace: Some(trace.clone()), ..Truth::default() };
    let spec = GuestSpec { truth: Some(truth), ..guest("a") };
    let options = RunOptions { accel: AccelChoice::Tcg, ..options(&base, vec![spec]) };
    let run = Run::start(&options, &say).unwrap();
    let guest = run.guest("a").unwrap();
    let set = Bytes::mib(48);
    // Four times the working set a second; at full speed it would take a core.
    let spec = WorkloadSpec {
        touches_per_s: Some(set.to_pages() * 4),
        ..Pattern::Constant { size: set }.into()
    };
    guest.start_workload("w", &spec, PATIENCE).unwrap();
    // Rows of whole seconds in which only the workload runs.
    let within = |wss: Bytes| wss >= set && wss.get() < set.get() * 5 / 4;
    wait_until("three seconds in a row that show the working set", || {
        let rows = guest.truth().unwrap();
        rows.len() >= 3 && rows[rows.len() - 3..].iter().all(|row| within(row.wss))
    });
    let rows = guest.truth().unwrap();
    assert!(rows.windows(2).all(|pair| pair[1].end_ns - pair[0].end_ns == 1_000_000_000));
    let row = rows[rows.len() - 1];
    assert!(row.references > 0 && row.accesses > 0, "{row:?}");
    drop(run);
    let mut bytes = Vec::new();
    // The guest was killed, so incomplete data is missing, and so is the end of the frame.
    let _ = zstd::Decoder::new(fs::File::open(&trace).unwrap()).unwrap().read_to_end(&mut bytes);
    let references = bytes.len() as u64 / 8;
    assert!(references >= row.references, "{references} of {}", row.references);
}
