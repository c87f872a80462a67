//! Tests that run once more on a real host: in an outer machine of `ballast-lab nested`, with KVM
//! or under Xen.
//!
//! Idea: one machine boots with the test programs and the programs that they start, at the same
//! paths as here. In it a shell script runs the chosen tests one after the other, a failed one once
//! more, and prints a mark before and after each; the output is divided at the marks. Cost:
//! [`IN_EVERY_RUN`] takes about three minutes, [`IN_A_LONG_RUN`] some twenty. A test of the host
//! alone runs here only if its subject differs with the kernel or the cgroups. Limits: tests that
//! need files of the workspace do not find them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use super::log::{log_file, print_end};
use super::output;
use super::programs::{self, Program};
use super::tally::{Outcome, Tally};

/// Tests of one program: all whose name begins with one of `tests`.
pub(super) struct Chosen {
    program: &'static str,
    tests: &'static [&'static str],
}

/// The tests of every run of the suite: cgroups of version 2; guests under KVM that are tracked,
/// sampled by DAMON and ballooned, and that have an agent; and rights that root may lack elsewhere.
pub(super) const IN_EVERY_RUN: [Chosen; 3] = [
    Chosen {
        program: "ballast-reclaim::it",
        tests: &["cgroups::a_real", "cgroups::page_cache", "cgroups::squeezing", "fence::a_real"],
    },
    Chosen {
        program: "ballast-lab-host::real",
        tests: &["agent::it_reports", "damon::pages", "damon::what_a_killed", "tracked_bare::"],
    },
    Chosen {
        program: "ballast::real",
        tests: &["containers::containers_share", "unit::the_shipped_unit_raises_its_limits"],
    },
];

/// The tests of a long run. Where every page of a Linux guest traps, this machine is too slow.
pub(super) const IN_A_LONG_RUN: [Chosen; 3] = [
    Chosen { program: "ballast-reclaim::it", tests: &["cgroups::", "fence::", "paging::"] },
    Chosen {
        program: "ballast-lab-host::real",
        tests: &[
            "agent::it_reports",
            "damon::",
            "hotplug::virtio_mem",
            "tracked_bare::",
            "tracked_killed::",
        ],
    },
    Chosen {
        program: "ballast::real",
        tests: &[
            "balancing::a_guest_moved_in_mid_action_is_held_then_followed",
            "balancing::guests_are_balanced_and_outlive_the_daemon",
            "containers::",
            "libvirt::",
            "merging::",
            "paging::a_fence_takes_what_a_stuck_guest_owes",
            "paging::a_guest_ignoring_its_balloon_is_paged_for_its_neighbour",
            "paging::a_guest_moved_in_mid_page_out_keeps_its_memory",
            "rest::",
            "sampled::",
            "unit::the_shipped_unit_raises_its_limits",
            "unit::the_shipped_unit_names_what_a_policys_user_takes",
            "unit::the_unit_open_",
            "vsock::",
        ],
    },
];

/// The test of a short run under Xen: two guests boot and follow xenstore, in a machine of two
/// minutes. It is not in every run: under the emulator Xen once corrupted memory of dom0's
/// programs.
pub(super) const XEN_IN_A_SHORT_RUN: [Chosen; 1] =
    [Chosen { program: "ballast::real", tests: &["xen::domains_follow"] }];

/// The tests of a long run under Xen.
pub(super) const XEN_IN_A_LONG_RUN: [Chosen; 1] =
    [Chosen { program: "ballast::real", tests: &["xen::"] }];

/// The hypervisor of an outer machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OuterHost {
    Kvm,
    Xen,
}

impl OuterHost {
    /// The beginning of the names of its tests and its log.
    fn name(self) -> &'static str {
        match self {
            OuterHost::Kvm => "nested",
            OuterHost::Xen => "nested-xen",
        }
    }
}

/// Longest run, in seconds.
const TIMEOUT_S: u32 = 2 * 3600;
/// The beginning of the line before and after each test.
const MARK: &str = "ballast-nested-mark";
/// Programs that tests start, all in the target folder.
const STARTED: [&str; 3] = ["ballast", "ballast-lab", "lab-helper"];
/// The programs that start systemd in a test, and those that systemd starts. If one is missing, the
/// test is skipped there.
const SYSTEMD: [&str; 8] = [
    "/lib/systemd/systemd",
    "/lib/systemd/systemd-shutdown",
    "/usr/bin/systemctl",
    "/usr/bin/unshare",
    "/usr/bin/setpriv",
    "/usr/bin/install",
    "/usr/bin/mount",
    "/usr/bin/umount",
];
/// libvirt for a test, and the module by which a QEMU split into modules reports its abilities. If
/// one is missing, the test is skipped there.
const LIBVIRT: [&str; 3] =
    ["/usr/sbin/libvirtd", "/usr/bin/virsh", "/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so"];
/// Folders of files that libvirt loads.
const LIBVIRT_LOADS: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libvirt/connection-driver", "/usr/share/libvirt/cpu_map"];
/// The beginning of the lab's message that this machine has too little memory for an outer one.
const TOO_SMALL: &str = "error: an outer machine of ";

/// One test of the run.
struct Case<'a> {
    host: OuterHost,
    program: &'a Program,
    test: String,
}

impl Case<'_> {
    fn name(&self) -> String {
        format!("{}: {}::{}", self.host.name(), self.program.name(), self.test)
    }
}

/// Runs the chosen tests of `programs` on `host`, and counts each under a name that begins with the
/// host's.
pub(super) fn run(
    host: OuterHost,
    chosen: &[Chosen],
    programs: &[Program],
    logs: &Path,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    if chosen.is_empty() {
        return Ok(tally);
    }
    let began = Instant::now();
    let cases = cases(host, chosen, programs)?;
    let path = log_file(logs, host.name(), ".log");
    let end = execute(host, &cases, &path)?;
    let log = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    let runs = runs(&log);
    for (number, case) in cases.iter().enumerate() {
        let of_case: Vec<&Run> = runs.iter().filter(|run| run.number == number).collect();
        let outcome = match of_case[..] {
            [first] => output::read_one(first.log, first.is_success),
            [_, again] if output::read_one(again.log, again.is_success) != Outcome::Failed => {
                Outcome::Flaky { log: path.clone() }
            }
            _ if of_case.is_empty() && log.contains(TOO_SMALL) => {
                Outcome::Skipped { reason: "too little memory for an outer machine".to_owned() }
            }
            _ => Outcome::Failed,
        };
        println!("{}: {outcome}", case.name());
        if let (Outcome::Failed, Some(last)) = (&outcome, of_case.last()) {
            print_end(last.log, &path);
        }
        tally.add(case.name(), outcome);
    }
    if runs.len() < cases.len() {
        println!("{}: the outer machine {end}", host.name());
        print_end(&log, &path);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{}: {} tests, {seconds:.1} s", host.name(), cases.len());
    tally.time(host.name().to_owned(), seconds);
    Ok(tally)
}

/// The chosen tests; each choice must find one.
fn cases<'a>(
    host: OuterHost,
    chosen: &[Chosen],
    programs: &'a [Program],
) -> anyhow::Result<Vec<Case<'a>>> {
    let mut cases = Vec::new();
    for Chosen { program, tests } in chosen {
        let program = programs
            .iter()
            .find(|it| it.name() == *program)
            .with_context(|| format!("no test program {program} to run in an outer machine"))?;
        let listed = programs::tests(program)?;
        for prefix in *tests {
            let before = cases.len();
            let found = listed.iter().filter(|test| test.starts_with(prefix));
            cases.extend(found.map(|test| Case { host, program, test: test.clone() }));
            if cases.len() == before {
                bail!("{} has no test {prefix}… to run in an outer machine", program.name());
            }
        }
    }
    Ok(cases)
}

/// Runs the cases in one machine, with its output in the file `path`; returns how the machine
/// ended.
fn execute(host: OuterHost, cases: &[Case<'_>], path: &Path) -> anyhow::Result<String> {
    let built = programs::target_folder()?.join("debug");
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut command = Command::new(built.join("ballast-lab"));
    command.args(["nested", "exec", "--timeout", &TIMEOUT_S.to_string()]);
    if host == OuterHost::Xen {
        command.arg("--xen");
    }
    let has_domains = cases.iter().any(|case| case.test.starts_with("libvirt::"));
    if has_domains && Path::new(LIBVIRT[0]).exists() {
        command.arg("--apparmor");
    }
    let mut files: Vec<_> = STARTED.iter().map(|name| built.join(name)).collect();
    files.extend(cases.iter().map(|case| case.program.path.clone()));
    let installed = SYSTEMD.into_iter().chain(LIBVIRT).map(PathBuf::from);
    files.extend(installed.filter(|file| file.exists()));
    for folder in LIBVIRT_LOADS {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        files.extend(entries.map(|entry| entry.path()));
    }
    files.sort();
    files.dedup();
    for file in files {
        command.arg("--file").arg(file);
    }
    let end = command
        .args(["--", "sh", "-c", &script(cases)])
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("run {}", command.get_program().display()))?;
    Ok(end.to_string())
}

fn script(cases: &[Case<'_>]) -> String {
    let mut script = format!(
        "run() {{ number=$1 program=$2 folder=$3 test=$4; mkdir -p $folder; cd $folder\n\
         for turn in first again; do echo; echo {MARK} $number\n\
         CARGO_MANIFEST_DIR=$folder $program --exact $test --nocapture 2>&1; status=$?\n\
         echo; echo {MARK} $number $status; [ $status != 0 ] || break; done; }}\n\
         mkdir -p {}\n",
        programs_temporary()
    );
    for (number, Case { program, test, .. }) in cases.iter().enumerate() {
        let (file, folder) = (program.path.display(), program.folder.display());
        script.push_str(&format!("run {number} {file} {folder} {test}\n"));
    }
    script
}

/// The folder for temporary files of integration tests, a path compiled into them.
fn programs_temporary() -> String {
    programs::target_folder().map_or(String::new(), |it| it.join("tmp").display().to_string())
}

/// One run of one test.
#[derive(Debug, PartialEq)]
struct Run<'a> {
    /// Number of its case.
    number: usize,
    is_success: bool,
    log: &'a str,
}

/// Divides the output of a machine into runs. A run without an end does not count.
fn runs(log: &str) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    let mut open = None;
    let mut at = 0;
    for line in log.split_inclusive('\n') {
        let from = at;
        at += line.len();
        let Some(rest) = line.strip_prefix(MARK) else { continue };
        let numbers: Vec<usize> = rest.split_whitespace().flat_map(str::parse).collect();
        match (numbers[..].first(), numbers.get(1), open) {
            (Some(number), None, _) => open = Some((*number, at)),
            (Some(number), Some(status), Some((of, begin))) if *number == of => {
                runs.push(Run { number: of, is_success: *status == 0, log: &log[begin..from] });
                open = None;
            }
            _ => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_taken_apart_at_its_marks() {
        let log = format!(
            "booting\n{MARK} 0\ntest a ... ok\n\n{MARK} 0 0\n{MARK} 1\nno\n{MARK} 1 101\n\
             {MARK} 1\nyes\n{MARK} 1 0\n{MARK} 2\ncut"
        );
        let run = |number, is_success, log| Run { number, is_success, log };
        assert_eq!(
            runs(&log),
            [run(0, true, "test a ... ok\n\n"), run(1, false, "no\n"), run(1, true, "yes\n")]
        );
    }
}
