//! `ballast lab`: real guests to try things on.
//!
//! Idea: `up` starts a run that a separate process keeps alive; the other commands find the run by
//! its folder. Progress goes to standard error, so that standard output has only the result.
//! Limits: at most [`ballast_lab_host::GUESTS_MAX`] guests in a run.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_lab_guest::protocol::ProcessEnd;
use ballast_lab_guest::workload::WorkloadSpec;
use ballast_lab_host::{
    AccelChoice, Answer, Balloon, DiskSpec, ExecOutput, GuestRecord, GuestSpec, GuestStatus,
    KernelChoice, LabError, REAPER_COMMAND, Request, RunFolder, RunOptions, RunStatus,
    SUPERVISOR_COMMAND, Scenario, Speed,
};
use ballast_model::{Bytes, GuestId};
use clap::Subcommand;
use serde_json::{Map, Value};

use ballast_report::{Output, Report, format, print};

use super::{lab_listen, lab_run};

/// Exit status of a command that a signal killed, less the signal's number, as in a shell.
const STATUS_OF_SIGNALS: i32 = 128;
/// Exit status of a command that ran out of time, as with timeout(1).
const STATUS_TIMED_OUT: i32 = 124;

/// Start, use and end real guests.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast lab up --guests 2
  ballast lab ps
  ballast lab down
  ballast lab run scenarios/lab/demo.toml")]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum LabCommand {
    /// Start guests and return when they are ready.
    Up(UpArgs),
    /// List runs and their guests.
    Ps(PsArgs),
    /// End a run.
    Down(DownArgs),
    /// Print a guest's console.
    Console(ConsoleArgs),
    /// Execute a program in a guest and exit with its status.
    Exec(ExecArgs),
    /// Start a workload in a guest.
    Start(StartArgs),
    /// Stop a workload and print what it did.
    Stop(StopArgs),
    /// Print a guest's latest report as JSON.
    #[command(after_help = "Example:\n  ballast lab report g1 | jq .memory")]
    Report(GuestArgs),
    /// Kill a guest, as if its power had failed.
    #[command(after_help = "Example:\n  ballast lab kill g1")]
    Kill(GuestArgs),
    /// Start an empty QEMU into which a guest of another run can move.
    Listen(lab_listen::Args),
    /// Play a scenario under several policies and compare them.
    Run(lab_run::Args),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast lab up --guests 2
  ballast lab up --guests 1 --memory 512MiB --swap 1GiB --swap-speed hdd --with redis-server
  ballast lab up --scenario scenarios/lab/demo.toml
  ballast lab up --guests 1 --track --kernel bookworm-backports

Speeds: host (unbounded), nvme (50000 iops, 2 GB/s), ssd (10000, 500 MB/s), hdd (120, 150 MB/s).")]
struct UpArgs {
    /// Name of the run [default: lab, or the scenario's]
    #[arg(long)]
    run: Option<GuestId>,
    /// Take the guests from a scenario file; its workloads do not start
    #[arg(long, value_name = "SCENARIO.toml", conflicts_with_all = ["guests", "memory", "swap",
        "data", "with", "no_balloon", "free_page_reporting", "deflate_on_oom", "track", "agent"])]
    scenario: Option<PathBuf>,
    /// Number of guests; they are named g1, g2, …
    #[arg(long, default_value_t = 2)]
    guests: usize,
    /// Boot memory of each guest
    #[arg(long, default_value = "1GiB")]
    memory: Bytes,
    /// Size of each guest's swap disk; 0 for none
    #[arg(long, default_value = "1GiB")]
    swap: Bytes,
    /// Speed of the swap disks
    #[arg(long, default_value = "ssd", value_name = "SPEED")]
    swap_speed: Speed,
    /// Size of each guest's data disk; 0 for none
    #[arg(long, default_value = "0")]
    data: Bytes,
    /// Speed of the data disks
    #[arg(long, default_value = "ssd", value_name = "SPEED")]
    data_speed: Speed,
    /// Add a program of the host or of a Debian package to the guests; repeatable
    #[arg(long, value_name = "PROGRAM")]
    with: Vec<String>,
    /// Accelerator: auto, kvm or tcg
    #[arg(long, default_value = "auto")]
    accel: AccelChoice,
    /// Kernel of the guests: default, or a suite of Debian such as bookworm-backports
    #[arg(long, default_value = "default", value_name = "SUITE")]
    kernel: KernelChoice,
    /// Do not limit the guests' processor time
    #[arg(long)]
    no_cpu_limit: bool,
    /// Start the guests without a balloon
    #[arg(long, conflicts_with_all = ["free_page_reporting", "deflate_on_oom"])]
    no_balloon: bool,
    /// Let guests report free pages to the host
    #[arg(long)]
    free_page_reporting: bool,
    /// Let balloons deflate by themselves when a guest runs out of memory
    #[arg(long)]
    deflate_on_oom: bool,
    /// Load the page tracker into the guests' QEMU, for `ballast track` and the daemon
    #[arg(long)]
    track: bool,
    /// Run `ballast-agent` in the guests
    #[arg(long)]
    agent: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  ballast lab ps")]
struct PsArgs {
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  ballast lab down --run lab")]
struct DownArgs {
    #[command(flatten)]
    run: WhichRun,
    /// End every run
    #[arg(long, conflicts_with = "run")]
    all: bool,
}

/// Selects the run of a command.
#[derive(Clone, Debug, clap::Args)]
struct WhichRun {
    /// Name of the run [default: the only run]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct GuestArgs {
    #[command(flatten)]
    run: WhichRun,
    /// The guest's name
    guest: String,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  ballast lab console g1 --follow")]
struct ConsoleArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// Keep printing until the guest ends
    #[arg(long, short)]
    follow: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  ballast lab exec g1 -- sh -c 'free -m'")]
struct ExecArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// Seconds after which the program is killed
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast lab start g1 constant size=300MiB
  ballast lab start g1 mono low=50MiB high=650MiB ramp_s=20 hold_s=20 cycles=1 --id hungry
  ballast lab start g1 program program=redis size=200MiB

Kinds: mono, constant, flux, random-array, sequential, file-random, cold, zipf and program.
With program, the parameter program=NAME is redis, memcached, sqlite, stress-ng or postgresql.
`ballast lab up --with` adds the program to the guest: redis-server, memcached, sqlite3, stress-ng
or postgresql, the last with a `--data` disk of at least 640MiB.")]
struct StartArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// Kind of workload
    kind: String,
    /// Parameters of the workload
    #[arg(value_name = "KEY=VALUE")]
    parameters: Vec<String>,
    /// Name of the workload [default: its kind]
    #[arg(long)]
    id: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  ballast lab stop g1 hungry --json")]
struct StopArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// The workload's name
    id: String,
    #[command(flatten)]
    output: Output,
}

/// If this program was started as one of the lab's helpers, does the helper's work and returns its
/// exit status. Must be called before the command line is read.
pub fn helper() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        REAPER_COMMAND => Some(ballast_lab_host::reaper_main(arguments)),
        SUPERVISOR_COMMAND => Some(ballast_lab_host::supervisor_main()),
        _ => None,
    }
}

/// Executes the command. If a program in a guest fails, this process takes its exit status.
///
/// # Errors
/// The errors of the lab, with what to do about them.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        LabCommand::Up(args) => up(args),
        LabCommand::Ps(args) => args
            .output
            .print(&ballast_lab_host::list_runs()?, |runs, width| render_runs(runs, width)),
        LabCommand::Down(args) => down(&args),
        LabCommand::Console(args) => {
            let guest = args.guest.record()?;
            Ok(ballast_lab_host::write_console(&guest, args.follow, &mut io::stdout().lock())?)
        }
        LabCommand::Exec(args) => exec(args),
        LabCommand::Start(args) => {
            let spec = workload(&args.kind, &args.parameters)?;
            let id = args.id.unwrap_or(args.kind);
            args.guest.ask(|guest| Request::Start { guest, id, spec }).map(drop)
        }
        LabCommand::Stop(args) => stop(args),
        LabCommand::Report(args) => match args.ask(|guest| Request::Report { guest })? {
            Answer::Report { report: Some(report) } => {
                print(&format!("{}\n", serde_json::to_string_pretty(&report)?))
            }
            _ => bail!("guest {} has not reported yet: try again in a second", args.guest),
        },
        LabCommand::Listen(args) => lab_listen::run(args),
        LabCommand::Run(args) => lab_run::run(args).await,
        LabCommand::Kill(args) => args.ask(|guest| Request::Kill { guest }).map(drop),
    }
}

/// Prints a line of progress.
pub(super) fn say(line: &str) {
    // Errors are ignored: a command does not fail because standard error is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

fn up(args: UpArgs) -> anyhow::Result<()> {
    let options = match &args.scenario {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the scenario {}", file.display()))?;
            let options = Scenario::parse(&text, file)?.run_options();
            let accel = if args.accel == AccelChoice::Auto { options.accel } else { args.accel };
            RunOptions {
                kernel: args.kernel.or(options.kernel),
                name: args.run.unwrap_or(options.name),
                limit_cpu: options.limit_cpu && !args.no_cpu_limit,
                accel,
                ..options
            }
        }
        None => args.options()?,
    };
    let folder = ballast_lab_host::up(&options, &say)?;
    let config = folder.path().join("ballast.toml");
    let socket = folder.path().join("api.sock");
    let memory: Bytes = options.guests.iter().map(|guest| guest.memory).sum();
    let sockets = (folder.qmp_folder(), folder.agent_folder());
    let text = starter_config(sockets, &socket, folder.path(), memory.fraction(1, 2));
    std::fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
    print(&format!(
        "run {} is up; its QMP sockets are in {}\n\
         balance it on half of its memory:  ballast daemon --config {}\n\
         and look on from another terminal: ballast status --socket {}\n",
        folder.name(),
        folder.qmp_folder().display(),
        config.display(),
        socket.display(),
    ))
}

/// Writes a configuration for the guests of a run, so that a daemon can be tried on them at once.
/// It is removed with the run.
fn starter_config(
    (qmp, agents): (PathBuf, PathBuf),
    socket: &Path,
    folder: &Path,
    budget: Bytes,
) -> String {
    format!(
        "# For trying Ballast on this run of the lab; removed with it. All keys: docs/ballast.example.toml\n\
         [daemon]\nsocket = {socket:?}\n\n\
         [host]\nbudget = \"{budget:#}\"\n\n\
         [qmp]\nfolders = [{qmp:?}]\n\n\
         [agents]\nfolders = [{agents:?}]\n\n\
         [journal]\npath = {:?}\n",
        folder.join("journal.db"),
    )
}

impl UpArgs {
    fn options(self) -> anyhow::Result<RunOptions> {
        let disk = |size: Bytes, speed| (size > Bytes::ZERO).then_some(DiskSpec { size, speed });
        let balloon = Balloon {
            free_page_reporting: self.free_page_reporting,
            deflate_on_oom: self.deflate_on_oom,
        };
        let with: BTreeSet<String> = self.with.iter().cloned().collect();
        let guests = (1..=self.guests).map(|number| {
            Ok(GuestSpec {
                swap: disk(self.swap, self.swap_speed),
                data: disk(self.data, self.data_speed),
                balloon: (!self.no_balloon).then_some(balloon),
                with: with.clone(),
                tracked: self.track,
                agent: self.agent,
                ..GuestSpec::new(format!("g{number}").parse()?, self.memory)
            })
        });
        let guests = guests.collect::<anyhow::Result<Vec<_>>>()?;
        let name = self.run.map_or_else(|| "lab".parse(), Ok)?;
        Ok(RunOptions {
            accel: self.accel,
            kernel: self.kernel,
            limit_cpu: !self.no_cpu_limit,
            ..RunOptions::new(name, guests)
        })
    }
}

fn down(args: &DownArgs) -> anyhow::Result<()> {
    let folders = if args.all {
        RunFolder::list(&ballast_lab_host::runs_folder()?)
    } else {
        vec![args.run.folder()?]
    };
    for folder in folders {
        ballast_lab_host::down(&folder)?;
        say(&format!("run {} has ended", folder.name()));
    }
    Ok(())
}

impl WhichRun {
    fn folder(&self) -> anyhow::Result<RunFolder> {
        let base = ballast_lab_host::runs_folder()?;
        if let Some(name) = &self.run {
            return Ok(RunFolder::open(&base, name)?);
        }
        let mut runs = RunFolder::list(&base);
        match (runs.pop(), runs.is_empty()) {
            (Some(run), true) => Ok(run),
            (None, _) => bail!("no run is up: start one with `ballast lab up`"),
            (Some(last), false) => {
                let names: Vec<_> = runs.iter().chain([&last]).map(RunFolder::name).collect();
                bail!("several runs are up: choose one with --run: {}", names.join(", "))
            }
        }
    }
}

impl GuestArgs {
    fn record(&self) -> anyhow::Result<GuestRecord> {
        let folder = self.run.folder()?;
        let guests = folder.guests();
        let have: Vec<_> = guests.iter().map(|guest| guest.id.as_str()).collect();
        let have = have.join(", ");
        guests.into_iter().find(|guest| guest.id.as_str() == self.guest).ok_or_else(|| {
            LabError::NoGuest { run: folder.name(), guest: self.guest.clone(), have }.into()
        })
    }

    fn ask(&self, request: impl FnOnce(String) -> Request) -> anyhow::Result<Answer> {
        Ok(ballast_lab_host::ask(&self.run.folder()?, &request(self.guest.clone()))?)
    }
}

fn exec(args: ExecArgs) -> anyhow::Result<()> {
    let timeout_ms = u64::try_from(Duration::from_secs(args.timeout).as_millis())?;
    let argv = args.command;
    let answer = args.guest.ask(|guest| Request::Exec { guest, argv, timeout_ms })?;
    let Answer::Executed { output } = answer else { bail!("the run answered something else") };
    let ExecOutput { end, stdout, stderr, truncated } = output;
    print(&stdout)?;
    let _ = io::stderr().write_all(stderr.as_bytes());
    if truncated {
        say("(the beginning of the output is missing: it was too long)");
    }
    exit_as(end, args.timeout)
}

/// Takes over the exit status of a program that ran in a guest for at most `timeout_s` seconds.
pub(super) fn exit_as(end: ProcessEnd, timeout_s: u64) -> anyhow::Result<()> {
    match end {
        ProcessEnd::Exited { code: 0 } => Ok(()),
        ProcessEnd::Exited { code } => std::process::exit(code),
        ProcessEnd::Killed { signal } => std::process::exit(STATUS_OF_SIGNALS + signal),
        ProcessEnd::TimedOut {} | ProcessEnd::Stopped {} => {
            say(&format!("it was killed after {timeout_s} s"));
            std::process::exit(STATUS_TIMED_OUT)
        }
    }
}

/// The workload of `kind` with `parameters` in the form key=value.
fn workload(kind: &str, parameters: &[String]) -> anyhow::Result<WorkloadSpec> {
    let mut table = Map::from_iter([("kind".to_owned(), Value::from(kind))]);
    for parameter in parameters {
        let (key, value) = parameter
            .split_once('=')
            .with_context(|| format!("`{parameter}`: expected KEY=VALUE, such as size=300MiB"))?;
        // JSON if it parses as such (a number, an array for `steps`), otherwise text.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        table.insert(key.to_owned(), value);
    }
    let spec: WorkloadSpec =
        serde_json::from_value(Value::Object(table)).with_context(|| format!("workload {kind}"))?;
    spec.validate_for_guest().with_context(|| format!("workload {kind}"))?;
    Ok(spec)
}

fn stop(args: StopArgs) -> anyhow::Result<()> {
    let id = args.id.clone();
    let Answer::Stopped { totals, .. } = args.guest.ask(|guest| Request::Stop { guest, id })?
    else {
        bail!("the run answered something else")
    };
    args.output.print(&totals, |totals, _| {
        let faults =
            totals.major_faults.map_or_else(|| format::UNKNOWN.to_owned(), |n| n.to_string());
        format!(
            "workload {} touched {} pages in {}: {} iterations, {faults} major faults\n",
            args.id,
            totals.touches,
            format::span(totals.elapsed_ms),
            totals.iterations
        )
    })
}

fn render_runs(runs: &[RunStatus], width: Option<u16>) -> String {
    if runs.is_empty() {
        return "no run is up: start one with `ballast lab up`\n".to_owned();
    }
    let columns = Report::<(&RunStatus, &GuestStatus)>::new()
        .text("RUN", |it| it.0.name.clone())
        .text("GUEST", |it| it.1.record.id.to_string())
        .text("STATE", |it| it.1.state.to_string())
        .figure("MEMORY", |it| it.1.record.memory)
        .figure("PID", |it| it.1.record.process.pid)
        .text("QMP SOCKET", |it| it.1.record.qmp_socket.display().to_string());
    let guests = runs.iter().flat_map(|run| run.guests.iter().map(move |guest| (run, guest)));
    let mut out = columns.table(guests, width);
    for run in runs.iter().filter(|run| run.owner_pid.is_none()) {
        out.push_str(&format!(
            "run {} has lost the process that held it: end it with `ballast lab down --run {}`\n",
            run.name, run.name
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_lab_host::{GuestState, ProcessId};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn read(line: &str) -> LabCommand {
        Line::try_parse_from(line.split(' ')).unwrap().args.command
    }

    #[test]
    fn up_makes_guests_of_what_is_said() {
        let LabCommand::Up(args) =
            read("lab up --guests 3 --swap 0 --data 64MiB --data-speed hdd --track")
        else {
            panic!()
        };
        let options = args.options().unwrap();
        assert!(options.validate().is_ok());
        let names: Vec<_> = options.guests.iter().map(|guest| guest.id.as_str()).collect();
        assert_eq!((options.name.as_str(), names), ("lab", vec!["g1", "g2", "g3"]));
        let data = DiskSpec { size: Bytes::mib(64), speed: Speed::Hdd };
        assert_eq!((options.guests[0].swap, options.guests[0].data), (None, Some(data)));
        assert!(options.guests.iter().all(|guest| guest.tracked));
    }

    #[test]
    fn the_starter_configuration_is_one() {
        let folder = Path::new("/tmp/ballast-lab-0/lab");
        let sockets = (folder.join("qmp"), folder.join("agent"));
        let text = starter_config(sockets.clone(), &folder.join("api.sock"), folder, Bytes::gib(1));
        let config = ballast_config::parse(&text, &folder.join("ballast.toml")).unwrap();
        assert_eq!(config.settings.guard.budget, Some(Bytes::gib(1)));
        assert_eq!(
            (config.qmp_folders, config.agents.unwrap().folders),
            (vec![sockets.0], vec![sockets.1])
        );
    }

    #[test]
    fn scenarios_and_figures_exclude_each_other() {
        assert!(Line::try_parse_from("lab up --scenario s.toml --guests 2".split(' ')).is_err());
        assert!(Line::try_parse_from("lab up --scenario s.toml --accel tcg".split(' ')).is_ok());
    }

    #[test]
    fn commands_for_guests_keep_their_own_options() {
        let LabCommand::Exec(args) = read("lab exec g1 -- ls --all -l") else { panic!() };
        assert_eq!(args.command, ["ls", "--all", "-l"]);
    }

    #[test]
    fn workloads_are_made_of_pairs() {
        let pairs = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let spec = workload("mono", &pairs("low=1MiB high=2MiB ramp_s=3 seed=7")).unwrap();
        assert_eq!(spec.seed, 7);
        for (parameters, expected) in
            [("low", "expected KEY=VALUE"), ("low=9MiB high=2MiB ramp_s=3", "more than high")]
        {
            let error = format!("{:#}", workload("mono", &pairs(parameters)).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        assert!(workload("monu", &[]).is_err());
    }

    #[test]
    fn runs_are_a_table_and_lost_ones_are_named() {
        let record = GuestRecord {
            id: "g1".parse().unwrap(),
            process: ProcessId { pid: 42, start_ticks: 1 },
            memory: Bytes::gib(1),
            qmp_socket: "/run/q/g1.sock".into(),
            console: "/run/c/g1.log".into(),
            has_booted_elsewhere: false,
        };
        let run = RunStatus {
            name: "lab".to_owned(),
            owner_pid: None,
            takes_requests: false,
            qmp_folder: "/run/q".into(),
            guests: vec![GuestStatus { state: GuestState::Ready, record }],
        };
        let text = render_runs(&[run], None);
        for word in ["lab", "g1", "ready", "1GiB", "42", "/run/q/g1.sock", "ballast lab down --run"]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(render_runs(&[], None).contains("ballast lab up"));
    }
}
