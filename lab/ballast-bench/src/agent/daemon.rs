//! What listening to many agents costs the daemon, and how soon it answers an emergency.
//!
//! Idea: the same guests run in turns under a daemon that listens to their agents and under one
//! that does not (`[agents] enabled = false`). The difference is the cost of agents, whatever the
//! machine's speed is at the time. Each emergency is another guest's and is timed from its message
//! to its changed target; without agents it would wait for the next tick, half a second on average.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_model::Bytes;

use super::super::process::{Guarded, processor_time, resident_most};
use super::peers::{EMERGENCY, READY};
use super::report::{Daemon, DaemonCost};

/// Emergencies that are timed in a round, each from another guest.
const EMERGENCIES: u32 = 20;
/// Time between two of them, so that they do not overlap; a guest may ask for 20 ticks a second.
const APART: Duration = Duration::from_millis(230);
/// Budget for each guest, and its floor. By their statistics guests can do with less, so there is
/// something to give in an emergency.
const BUDGET_EACH: Bytes = Bytes::kib(4800);
const FLOOR: Bytes = Bytes::mib(1);
/// Smaller than the default, in the same proportion as these guests are smaller.
const FREE_MIN: Bytes = Bytes::kib(800);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    guests: u16,
    warm_up: Duration,
    turn: Duration,
    rounds: u32,
}

impl Plan {
    /// Enough to see that it works.
    pub(super) const QUICK: Plan = Plan {
        guests: 50,
        warm_up: Duration::from_secs(3),
        turn: Duration::from_secs(3),
        rounds: 1,
    };

    /// Enough to compare with the goals.
    pub(super) const fn whole(guests: u16) -> Plan {
        Plan { guests, warm_up: Duration::from_secs(10), turn: Duration::from_secs(20), rounds: 3 }
    }
}

/// Measures with this plan.
///
/// # Errors
/// The guests or the daemon cannot be started, or end early.
pub(super) fn measure(plan: &Plan, say: &dyn Fn(&str)) -> anyhow::Result<Daemon> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    for name in ["qmp", "agent"] {
        std::fs::create_dir(folder.path().join(name))?;
    }
    let mut guests = Guests::start(folder.path(), plan.guests)?;
    let (mut with, mut without) = (DaemonCost::default(), DaemonCost::default());
    let mut answers = Vec::new();
    for round in 1..=plan.rounds {
        say(&format!("{} guests, round {round} of {}: with agents", plan.guests, plan.rounds));
        let daemon = start(folder.path(), plan.guests, true)?;
        watch(&daemon, plan, &mut with)?;
        // From now on by requests: an emergency is granted from what other guests do not rent.
        set_policy(folder.path(), "fcfs")?;
        for _ in 0..EMERGENCIES {
            answers.extend(guests.emergency()?);
            std::thread::sleep(APART);
        }
        daemon.stop()?;
        say(&format!("{} guests, round {round} of {}: without", plan.guests, plan.rounds));
        let daemon = start(folder.path(), plan.guests, false)?;
        watch(&daemon, plan, &mut without)?;
        daemon.stop()?;
    }
    let length = plan.turn * plan.rounds;
    Ok(Daemon::new(plan.guests, length, with, without, EMERGENCIES * plan.rounds, answers))
}

/// Starts a daemon for the guests.
fn start(folder: &Path, guests: u16, is_listening: bool) -> anyhow::Result<Guarded> {
    let path = |name: &str| format!("{:?}", folder.join(name));
    let agents = match is_listening {
        true => format!("folders = [{}]", path("agent")),
        false => "enabled = false".to_owned(),
    };
    let text = format!(
        "[daemon]\nsocket = {}\nraise_priority = false\n\
         [qmp]\nfolders = [{}]\n\
         [host]\nbudget = \"{}\"\nreserve = \"0\"\n\
         [journal]\npath = {}\n\
         [defaults]\nfloor = \"{FLOOR:#}\"\n\
         [policy]\nname = \"direct-assign\"\n\
         [policy.flexmemd]\nfree_min = \"{FREE_MIN:#}\"\n\
         [tracking]\nenabled = false\n\
         [agents]\n{agents}\n",
        path("api.sock"),
        path("qmp"),
        BUDGET_EACH.fraction(guests.into(), 1),
        path("journal.db"),
    );
    let config = folder.join("ballast.toml");
    std::fs::write(&config, text)?;
    let mut command = this_program()?;
    command.args(["daemon", "--config"]).arg(&config).stderr(Stdio::null());
    Guarded::start(&mut command).context("cannot start a daemon")
}

/// Adds a turn of `daemon` to `side`.
fn watch(daemon: &Guarded, plan: &Plan, side: &mut DaemonCost) -> anyhow::Result<()> {
    std::thread::sleep(plan.warm_up);
    let before = processor_time(daemon.id()).context("the daemon is gone")?;
    std::thread::sleep(plan.turn);
    let used = processor_time(daemon.id()).context("the daemon is gone")?.saturating_sub(before);
    side.add(used, resident_most(daemon.id())?);
    Ok(())
}

fn set_policy(folder: &Path, name: &str) -> anyhow::Result<()> {
    let mut command = this_program()?;
    command.args(["set", "--policy", name, "--socket"]).arg(folder.join("api.sock"));
    if !command.stdout(Stdio::null()).status()?.success() {
        bail!("the daemon does not take the policy {name}");
    }
    Ok(())
}

fn this_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot tell where this program is")?))
}

/// The process with the guests.
struct Guests {
    process: Guarded,
    says: BufReader<ChildStdout>,
}

impl Guests {
    /// Starts them and waits until all are there.
    fn start(folder: &Path, count: u16) -> anyhow::Result<Guests> {
        let mut command = this_program()?;
        command.args(["bench", "agent", "--peers"]).arg(folder);
        command.args(["--guests", &count.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Guarded::start(&mut command).context("cannot start the guests")?;
        let says = process.child().stdout.take().context("the guests' output")?;
        let mut guests = Guests { process, says: BufReader::new(says) };
        match guests.line()?.as_str() {
            READY => Ok(guests),
            other => bail!("the guests say `{other}`"),
        }
    }

    /// Time from a guest's emergency to its changed target; `None`: the target did not change.
    fn emergency(&mut self) -> anyhow::Result<Option<Duration>> {
        let input = self.process.child().stdin.as_mut().context("the guests' input")?;
        writeln!(input, "{EMERGENCY}").context("the guests are gone")?;
        Ok(self.line()?.parse().ok().map(Duration::from_micros))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line).context("the guests are gone")?;
        Ok(line.trim_end().to_owned())
    }
}
