//! `ballast-lab nested`: a scenario, a command or a shell on a real KVM or Xen host, on any
//! machine.
//!
//! Idea: the host is an outer machine of the lab ([`ballast_lab_host::Nested`]); this program and
//! `ballast` are in it and work there as they do here. Progress and errors of the outer machine go
//! to standard error; what runs in it has standard output and standard error to itself.
//! Limits: files that a command writes are lost with the machine; of a scenario, the report is
//! copied out.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_lab_guest::protocol::ProcessEnd;
use ballast_lab_host::{KernelChoice, LabError, Nested, NestedOptions, Scenario, with_one_retry};
use ballast_model::Bytes;
use ballast_scenario_run::raw;
use clap::Subcommand;

use super::lab::{exit_as, say};
use super::lab_run;

/// Memory of an outer machine beyond that of the guests in it: its kernel, its page cache, and 80
/// MiB of QEMU for each of a few guests.
const HOST_OVERHEAD: Bytes = Bytes::mib(1024);
/// The folder of this program and `ballast` in an outer machine.
const PROGRAMS_FOLDER: &str = "/usr/local/bin";
/// The path of the scenario in an outer machine.
const SCENARIO: &str = "/root/scenario.toml";
/// The longest that a shell or a scenario may run.
const RUN_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Run scenarios and commands on a real KVM or Xen host inside an emulated machine.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast-lab nested exec -- uname -r
  ballast-lab nested exec -- ballast-lab bench mechanisms
  ballast-lab nested run scenarios/lab/noncompliant.toml --policy global
  ballast-lab nested shell
  ballast-lab nested --xen exec -- xl list
  ballast-lab nested --xen run scenarios/lab/xen-2.toml

The outer machine runs a Debian kernel under QEMU's emulator, with KVM on emulated AMD hardware,
cgroup v2 and, with kernel 6.12, DAMON. It contains ballast, ballast-lab, QEMU and busybox, and has
no network. Counts in it are as on a KVM host; figures of time mean nothing. It ends with the
command and leaves nothing behind.

With --xen, it is dom0 of Xen 4.17, with xl and the tools of xenstore instead of KVM.")]
pub struct Args {
    /// Run Xen below the outer machine instead of KVM in it
    #[arg(long, global = true)]
    xen: bool,
    #[command(subcommand)]
    command: NestedCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum NestedCommand {
    /// Play a scenario in the outer machine, as `ballast-lab lab run` does here.
    Run(Box<RunArgs>),
    /// Execute a program in the outer machine and exit with its status.
    Exec(ExecArgs),
    /// Open a shell in the outer machine.
    Shell(ShellArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct NestedMachine {
    /// Memory of the outer machine [default: 3GiB, or what the scenario's guests need]
    #[arg(long)]
    memory: Option<Bytes>,
    /// Kernel of the outer machine: a suite of Debian, such as bookworm (6.1), or `default`, the
    /// suite of this host's package sources [default: bookworm-backports, 6.12]
    #[arg(long, value_name = "SUITE")]
    kernel: Option<KernelChoice>,
    /// Confine libvirt and its domains with Debian's AppArmor profiles
    #[arg(long)]
    apparmor: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast-lab nested run scenarios/lab/demo.toml --report demo.html
  ballast-lab nested run scenarios/lab/hotplug.toml --policy global --kernel default")]
struct RunArgs {
    #[command(flatten)]
    run: lab_run::Args,
    #[command(flatten)]
    machine: NestedMachine,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast-lab nested exec -- sh -c 'cat /sys/fs/cgroup/cgroup.controllers'
  ballast-lab nested exec --with redis-server -- redis-server --version
  ballast-lab nested exec --file ./program -- $PWD/program")]
struct ExecArgs {
    #[command(flatten)]
    machine: NestedMachine,
    /// Add a program of this host or of a Debian package; repeatable
    #[arg(long, value_name = "PROGRAM")]
    with: Vec<String>,
    /// Add a program of this host, at the same path and with its libraries; repeatable
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Seconds after which the program is killed
    #[arg(long, default_value_t = 3600)]
    timeout: u64,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  ballast-lab nested shell --kernel default")]
struct ShellArgs {
    #[command(flatten)]
    machine: NestedMachine,
    /// Add a program of this host or of a Debian package; repeatable
    #[arg(long, value_name = "PROGRAM")]
    with: Vec<String>,
}

/// Executes the command. If a program in the machine failed, this process ends with that program's
/// exit status.
///
/// # Errors
/// Something is missing, or the outer machine failed twice.
pub fn run(args: Args) -> anyhow::Result<()> {
    let is_xen = args.xen;
    match args.command {
        NestedCommand::Run(args) => play(&args, is_xen),
        NestedCommand::Exec(args) => {
            let mut options = args.machine.options(is_xen, args.with, Vec::new(), None)?;
            for file in args.files {
                let path = std::path::absolute(&file)
                    .with_context(|| format!("cannot find {}", file.display()))?;
                options.programs.push((path.clone(), path));
            }
            let timeout = Duration::from_secs(args.timeout);
            let end = with_one_retry(&say, || {
                exec(&Nested::start(&options, &say)?, &args.command, timeout)
            })?;
            exit_as(end, args.timeout)
        }
        NestedCommand::Shell(args) => {
            let options = args.machine.options(is_xen, args.with, Vec::new(), None)?;
            let machine = with_one_retry(&say, || Nested::start(&options, &say))?;
            say("the outer machine ends with this shell");
            let end = machine.shell(RUN_TIMEOUT);
            // The machine is ended before this process exits with the shell's status.
            drop(machine);
            exit_as(end?, RUN_TIMEOUT.as_secs())
        }
    }
}

impl NestedMachine {
    /// The options of a machine that has the programs `with`, kernels for its guests, and, unless
    /// the user says otherwise, as much memory as `guests` need.
    fn options(
        &self,
        is_xen: bool,
        with: impl IntoIterator<Item = String>,
        guest_kernels: Vec<KernelChoice>,
        guests: Option<Bytes>,
    ) -> anyhow::Result<NestedOptions> {
        if is_xen && self.kernel.is_some() {
            bail!(
                "--kernel and --xen: Xen's first domain boots the one kernel that is made for it"
            );
        }
        if is_xen && self.apparmor {
            bail!("--apparmor and --xen: there is no libvirt under Xen here to be confined");
        }
        let default = NestedOptions::default();
        let wanted = guests.map(|guests| guests.saturating_add(HOST_OVERHEAD));
        Ok(NestedOptions {
            memory: self.memory.unwrap_or(default.memory.max(wanted.unwrap_or_default())),
            kernel: self.kernel.clone().unwrap_or(default.kernel.clone()),
            with: with.into_iter().collect(),
            guest_kernels,
            programs: own_programs()?,
            apparmor: self.apparmor,
            xen: is_xen,
            ..default
        })
    }
}

/// This program, and `ballast` if it is in the same folder.
fn own_programs() -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let own = std::env::current_exe().context("cannot find this program's file")?;
    let files = [("ballast-lab", own.clone()), ("ballast", own.with_file_name("ballast"))];
    let files = files.into_iter().filter(|(_, file)| file.is_file());
    Ok(files.map(|(name, file)| (Path::new(PROGRAMS_FOLDER).join(name), file)).collect())
}

fn exec(machine: &Nested, argv: &[String], timeout: Duration) -> Result<ProcessEnd, LabError> {
    machine.exec(argv, timeout, &mut io::stdout(), &mut io::stderr())
}

fn play(args: &RunArgs, is_xen: bool) -> anyhow::Result<()> {
    args.run.ensure_no_state_folder()?;
    // Read now, so that a wrong scenario fails before a machine boots.
    let (scenario, text) = args.run.read()?;
    let report = args.run.report();
    if let Some(report) = &report {
        raw::write_file(report, "")?;
    }
    let guests = Some(guests(&scenario));
    let options = args.machine.options(is_xen, programs(&scenario), kernels(&scenario), guests)?;
    let argv = args.run.remote_command(Path::new(SCENARIO), report.as_deref());
    let end = with_one_retry(&say, || {
        let machine = Nested::start(&options, &say)?;
        machine.write(Path::new(SCENARIO), &text)?;
        let folder = report.as_deref().and_then(Path::parent).map(|it| it.display().to_string());
        if let Some(folder) = folder {
            exec(&machine, &["mkdir".to_owned(), "-p".to_owned(), folder], RUN_TIMEOUT)?;
        }
        let end = exec(&machine, &argv, RUN_TIMEOUT)?;
        if let Some(report) = report.as_deref().filter(|_| end.is_success()) {
            for file in raw::paths(report).iter().map(PathBuf::as_path).chain([report]) {
                let contents = machine.read(file)?;
                std::fs::write(file, contents).map_err(|source| LabError::Io {
                    action: "write",
                    path: file.to_owned(),
                    source,
                })?;
            }
        }
        Ok(end)
    })?;
    exit_as(end, RUN_TIMEOUT.as_secs())
}

fn guests(scenario: &Scenario) -> Bytes {
    scenario.guests.iter().map(|guest| guest.memory_max()).sum()
}

fn programs(scenario: &Scenario) -> Vec<String> {
    scenario.run_options().guests.into_iter().flat_map(|guest| guest.with).collect()
}

fn kernels(scenario: &Scenario) -> Vec<KernelChoice> {
    vec![scenario.settings.kernel.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(line.split(' ')).unwrap().args
    }

    fn parsed(line: &str) -> NestedCommand {
        args(line).command
    }

    #[test]
    fn xen_may_be_said_before_the_command_and_behind_it() {
        for line in ["nested --xen run a.toml", "nested run --xen a.toml", "nested shell --xen"] {
            assert!(args(line).xen, "{line}");
        }
        assert!(!args("nested exec -- xl list --xen").xen);
    }

    #[test]
    fn options_that_mean_nothing_under_xen_are_refused() {
        for option in ["--kernel default", "--apparmor"] {
            let args = args(&format!("nested shell --xen {option}"));
            let NestedCommand::Shell(shell) = args.command else { panic!() };
            let error = shell.machine.options(args.xen, [], vec![], None).unwrap_err().to_string();
            assert!(error.contains("--xen") && error.contains(&option[..8]), "{error}");
        }
    }

    #[test]
    fn options_of_a_scenario_run_go_with_it() {
        let line =
            "nested run a.toml --policy global --duration 90s --repetitions 2 --json --memory 2GiB";
        let NestedCommand::Run(args) = parsed(line) else { panic!() };
        let page = Path::new("/tmp/r.html");
        let argv = args.run.remote_command(Path::new("/root/s.toml"), Some(page));
        assert_eq!(
            argv.join(" "),
            "ballast-lab lab run /root/s.toml --report /tmp/r.html --policy global \
             --duration 1m 30s --repetitions 2 --json"
        );
        let options = args.machine.options(false, [], vec![], None).unwrap();
        assert_eq!(options.memory, Bytes::gib(2));
    }

    #[test]
    fn the_machine_has_room_for_the_guests() {
        let NestedCommand::Exec(args) = parsed("nested exec -- true --help") else { panic!() };
        assert_eq!(args.command, ["true", "--help"]);
        let memory = |guests| args.machine.options(false, [], vec![], guests).unwrap().memory;
        assert_eq!(memory(None), memory(Some(Bytes::mib(512))));
        assert_eq!(memory(Some(Bytes::gib(6))), Bytes::gib(7));
    }
}
