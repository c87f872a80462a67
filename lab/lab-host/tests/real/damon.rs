//! Tests of what DAMON sees of unmodified guests under KVM: private memory, no library, no restart.
//!
//! Idea: a guest without an operating system touches known pages, so the result must be exact. A
//! Linux guest goes through loops of known sizes; its kernel and the lab's own program also use
//! memory, which is measured while the guest is idle.
//! Limits: only in an outer machine of `ballast-lab nested`, a KVM host on which no other program
//! uses DAMON; asserts states and amounts, never times.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bare::{Bare, Spec, TOUCHED, is_kvm, wait_until};
use crate::host_side::{PATIENCE, folder, start};
use ballast_damon::{
    ChosenPages, DamonError, DamonPaths, DamonSession, DamonTarget, DamonWindow, HugeShare,
    WINDOW_MIN, choose_pages,
};
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_lab_host::{Guest, GuestSpec};
use ballast_model::Bytes;
use ballast_reclaim::{GuestMemory, GuestRam};

const SAMPLES: usize = 1024;
/// The number of windows in which a loop is sampled.
const WINDOWS: usize = 4;
/// The most that an idle guest touches in a window.
const IDLE_MAX: Bytes = Bytes::mib(3);
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const INSTANCE: &str = "/sys/kernel/tracing/instances/ballast-damon";
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The first page that a bare guest touches.
const FIRST: u64 = 256;
/// If this variable is set, the process is a client that will be killed; it has the process id of a
/// guest.
const CLIENT: &str = "BALLAST_TEST_DAMON_CLIENT";

/// Whether these tests can run on this machine, with DAMON; prints `SKIPPED` if not.
fn may_sample() -> bool {
    if !is_kvm() {
        println!("SKIPPED: needs an outer machine of `ballast-lab nested`");
        return false;
    }
    match DamonSession::begin(DamonPaths::default()) {
        Err(error) if error.is_lasting() => {
            println!("SKIPPED: {error}");
            false
        }
        _ => true,
    }
}

fn begin() -> DamonSession {
    DamonSession::begin(DamonPaths::default()).unwrap()
}

/// The error of trying to use DAMON.
fn refused() -> DamonError {
    DamonSession::begin(DamonPaths::default()).unwrap_err()
}

fn bare() -> Bare {
    let backend = "memory-backend-ram".to_owned();
    Bare::start(&Spec { backend, has_tracker: false, ..Spec::default() })
}

/// Where the guest's memory is in QEMU's address space.
fn regions(pid: u32) -> Vec<Range<u64>> {
    let ram = GuestRam::AtLeast(Bytes::mib(64));
    let memory = GuestMemory::open(Path::new("/proc"), pid, None, ram).unwrap();
    let regions = memory.regions().unwrap();
    // Smaller regions directly beside it are QEMU's own.
    let large = regions.iter().filter(|region| region.range.len() >= Bytes::mib(16));
    large.map(|region| region.range.start()..region.range.end()).collect()
}

fn choose(pid: u32) -> (ChosenPages, DamonTarget) {
    let chosen = choose_pages(&regions(pid), SAMPLES, 1);
    let pages = chosen.addresses.clone();
    (chosen, DamonTarget { pid, pages })
}

/// The next windows.
fn read(session: &mut DamonSession) -> Result<Vec<DamonWindow>, DamonError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let windows = session.read()?;
        if !windows.is_empty() {
            return Ok(windows);
        }
        assert!(Instant::now() < end, "no window ends");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a window shows the pages that a bare guest touches, and hardly any other. QEMU itself
/// touches pages of the first MiB while it starts.
fn is_exact(chosen: &ChosenPages, window: &DamonWindow) -> bool {
    let seen = window.touched.iter().map(|&at| chosen.numbers[at as usize]);
    let touched = FIRST..FIRST + TOUCHED;
    let (inside, outside): (Vec<u64>, Vec<u64>) = seen.partition(|page| touched.contains(page));
    let expected = chosen.numbers.iter().filter(|page| touched.contains(page)).count();
    outside.len() <= 4 && inside.len() == expected
}

fn is_left_behind() -> bool {
    fs::read_to_string(format!("{KDAMONDS}/nr_kdamonds")).unwrap().trim() != "0"
        || Path::new(INSTANCE).exists()
}

#[test]
fn pages_of_two_guests_are_seen_until_they_end() {
    if !may_sample() {
        return;
    }
    let guests = [bare(), bare()];
    let (chosen, targets): (Vec<_>, Vec<_>) = guests.iter().map(|guest| choose(guest.pid)).unzip();
    let mut session = begin();
    session.watch(&targets, WINDOW_MIN).unwrap();
    let mut is_exact_of = [false; 2];
    wait_until("exactly the touched pages of both", || {
        for window in read(&mut session).unwrap() {
            // On a busy machine the two guests may not both get through their pages within one
            // window.
            is_exact_of[window.target] |= is_exact(&chosen[window.target], &window);
        }
        is_exact_of == [true; 2]
    });
    assert!(session.cost().is_some_and(|cost| cost > Duration::ZERO));
    // One guest ends within a window, and the other is still sampled.
    let [first, second] = guests;
    drop(first);
    wait_until("only the other to be seen", || {
        let windows = read(&mut session).unwrap();
        windows.iter().all(|it| it.target == 1 || it.touched.is_empty())
    });
    wait_until("the other to be seen", || {
        let windows = read(&mut session).unwrap();
        windows.iter().any(|it| it.target == 1 && is_exact(&chosen[1], it))
    });
    // A guest that is gone cannot be sampled again; the other one can.
    assert!(session.watch(&targets, WINDOW_MIN).is_err());
    session.watch(&targets[1..], WINDOW_MIN).unwrap();
    read(&mut session).unwrap();
    drop(second);
    wait_until("the end to be told", || match session.read() {
        Ok(_) => false,
        Err(DamonError::Stopped) => true,
        Err(other) => panic!("{other}"),
    });
    drop(session);
    assert!(!is_left_behind());
}

#[test]
fn what_a_killed_client_left_is_stopped() {
    if let Ok(pid) = std::env::var(CLIENT) {
        let mut session = begin();
        session.watch(&[choose(pid.parse().unwrap()).1], WINDOW_MIN).unwrap();
        println!("sampling");
        loop {
            std::thread::park();
        }
    }
    if !may_sample() {
        return;
    }
    let guest = bare();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "damon::what_a_killed_client_left_is_stopped", "--nocapture"])
        .env(CLIENT, guest.pid.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("sampling")));
    assert!(matches!(refused(), DamonError::Ours));
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(is_left_behind(), "its kdamond goes on");
    let mut session = begin();
    let (chosen, target) = choose(guest.pid);
    session.watch(&[target], WINDOW_MIN).unwrap();
    wait_until("exactly the touched pages", || {
        read(&mut session).unwrap().iter().any(|it| is_exact(&chosen, it))
    });
    drop(session);
    assert!(!is_left_behind());
}

#[test]
fn another_user_of_damon_is_left_alone() {
    if !may_sample() {
        return;
    }
    let count = format!("{KDAMONDS}/nr_kdamonds");
    fs::write(&count, "2").unwrap();
    let told = refused().to_string();
    assert!(told.contains("somebody else (2 kdamonds"), "{told}");
    assert_eq!(fs::read_to_string(&count).unwrap().trim(), "2");
    fs::write(&count, "0").unwrap();
    let module = Path::new("/sys/module/damon_reclaim/parameters/enabled");
    if module.exists() {
        fs::write(module, "Y").unwrap();
        assert!(matches!(refused(), DamonError::Kernel));
        fs::write(module, "N").unwrap();
        // The module ends within its next interval.
        wait_until("the module's thread to end", || {
            !matches!(DamonSession::begin(DamonPaths::default()), Err(DamonError::Kernel))
        });
    }
    let run = |program: &str, arguments: &[&str]| {
        assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program}");
    };
    let tracing = "/sys/kernel/tracing";
    run("umount", &[tracing]);
    // If debugfs is mounted, the files of tracing are there, too.
    assert_eq!(
        DamonSession::begin(DamonPaths::default()).map(drop).map_err(|it| it.to_string()),
        Ok(())
    );
    run("mount", &["-t", "tracefs", "tracefs", tracing]);
    assert!(!is_left_behind());
}

/// Samples a Linux guest: the memory that it touches in each of [`WINDOWS`] windows, and the share
/// of its memory in huge pages.
fn sampled(session: &mut DamonSession, guest: &Guest) -> (Vec<Bytes>, f64) {
    let pid = u32::try_from(guest.pid()).unwrap();
    let (chosen, target) = choose(pid);
    session.watch(&[target], WINDOW_MIN).unwrap();
    let mut seen = Vec::new();
    while seen.len() < WINDOWS {
        let windows = read(session).unwrap();
        let pages = |window: &DamonWindow| window.touched.len() as f64 / chosen.share();
        seen.extend(windows.iter().map(|window| Bytes::pages(pages(window).round() as u64)));
    }
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let huge = HugeShare::of(&smaps, &regions(pid)).ratio();
    eprintln!("{seen:?}, {:.0} % in huge pages, {:?} of the kernel", 100.0 * huge, session.cost());
    (seen, huge)
}

/// Waits until a guest has booted and is idle; returns how much memory it touches then.
fn wait_until_idle(session: &mut DamonSession, guest: &Guest) -> Bytes {
    let mut idle = Bytes::MAX;
    wait_until("the guest to have booted and be idle", || {
        let (mut seen, _) = sampled(session, guest);
        seen.sort();
        idle = seen[WINDOWS / 2];
        idle <= IDLE_MAX
    });
    idle
}

/// Samples the guest while it goes through a loop of `mib` MiB.
fn looping(session: &mut DamonSession, guest: &Guest, mib: u64) -> (Vec<Bytes>, f64) {
    let pattern = Pattern::Constant { size: Bytes::mib(mib) };
    guest.start_workload("w", &pattern.into(), PATIENCE).unwrap();
    let seen = sampled(session, guest);
    guest.stop_workload("w").unwrap();
    seen
}

/// Enables transparent huge pages until dropped.
struct HugePages(String);

impl HugePages {
    fn set(to: &str) -> HugePages {
        let text = fs::read_to_string(HUGE).unwrap();
        let before = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
        fs::write(HUGE, to).unwrap();
        HugePages(before.to_owned())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(HUGE, &self.0);
    }
}

fn linux(folder: &Path) -> ballast_lab_host::Run {
    let guest = GuestSpec::new("a".parse().unwrap(), Bytes::mib(256));
    start(folder, GuestSpec { private_memory: true, ..guest })
}

#[test]
fn loops_of_a_stock_guest_are_seen_within_a_tenth() {
    if !may_sample() {
        return;
    }
    let _pages = HugePages::set("never");
    let folder = folder();
    let run = linux(folder.path());
    let guest = run.guest("a").unwrap();
    let mut session = begin();
    let idle = wait_until_idle(&mut session, guest);
    for mib in [24, 48, 72] {
        let (seen, huge) = looping(&mut session, guest, mib);
        let expected = Bytes::mib(mib) + idle;
        let is_near = |seen: &Bytes| seen.abs_diff(expected).get() * 10 <= expected.get();
        assert!(huge == 0.0 && seen.iter().all(is_near), "{mib} MiB: {seen:?}");
    }
    drop(session);
    assert!(!is_left_behind());
}

/// The expected number of distinct pages among `pages` that are hit by `touches` which go to the
/// page of rank r in proportion to r^-`exponent`.
fn distinct_of_zipf(pages: u64, exponent: f64, touches: f64) -> f64 {
    let weights = (1..=pages).map(|rank| (rank as f64).powf(-exponent));
    let sum: f64 = weights.clone().sum();
    weights.map(|weight| 1.0 - (1.0 - weight / sum).powf(touches)).sum()
}

/// The workload's number of touches so far, and when it reported that.
fn touches(guest: &Guest) -> (u64, Duration) {
    let report = guest.latest_report().unwrap().unwrap();
    let workload = report.workloads.iter().find(|workload| workload.id == "w");
    (workload.map_or(0, |workload| workload.touches), Duration::from_millis(report.uptime_ms))
}

#[test]
fn popular_pages_of_a_guest_are_seen_within_a_tenth() {
    const SIZE: Bytes = Bytes::mib(128);
    const EXPONENT: f64 = 0.7;
    if !may_sample() {
        return;
    }
    let _pages = HugePages::set("never");
    let folder = folder();
    let run = linux(folder.path());
    let guest = run.guest("a").unwrap();
    let mut session = begin();
    let idle = wait_until_idle(&mut session, guest);
    let pattern = Pattern::Zipf { size: SIZE, exponent: EXPONENT, file: false };
    let spec = WorkloadSpec { touches_per_s: Some(30_000), ..WorkloadSpec::from(pattern) };
    guest.start_workload("w", &spec, PATIENCE).unwrap();
    wait_until("the workload to have its memory", || touches(guest).0 > 0);
    let (before, from) = touches(guest);
    let (seen, _) = sampled(&mut session, guest);
    let (after, until) = touches(guest);
    // The windows are one second long.
    let rate = (after - before) as f64 / (until - from).as_secs_f64();
    let pages = distinct_of_zipf(SIZE.to_pages(), EXPONENT, rate).round() as u64;
    let expected = Bytes::pages(pages) + idle;
    let mean = seen.iter().copied().sum::<Bytes>().fraction(1, seen.len() as u64);
    eprintln!("{rate:.0} touches a second, so {expected} with {idle} of its own: {mean} seen");
    assert!(mean.abs_diff(expected).get() * 10 <= expected.get(), "{expected}: {seen:?}");
    drop(session);
    assert!(!is_left_behind());
}

#[test]
fn huge_pages_make_an_upper_bound() {
    if !may_sample() {
        return;
    }
    let _pages = HugePages::set("always");
    let folder = folder();
    let run = linux(folder.path());
    let guest = run.guest("a").unwrap();
    let mut session = begin();
    let (seen, huge) = looping(&mut session, guest, 24);
    assert!(huge > 0.5, "{huge}");
    assert!(seen.iter().all(|seen| *seen >= Bytes::mib(24)), "{seen:?}");
}
