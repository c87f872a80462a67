//! `ballast track`: the working set of a live guest.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use ballast_estimate::statistical::SamplingSettings;
use ballast_host::PROC;
use ballast_model::{Bytes, Timestamp};
use ballast_qmp::fleet::{Fleet, FleetConfig};
use ballast_tracker::{Hypervisor, check_referenced_bits, hypervisors};
use ballast_working_set::{WatchBudget, WatchPlannerSettings};
use serde::Serialize;

use ballast_config::{Intermittent, SourceChoice};
use ballast_daemon::track::{
    DamonFollower, DamonHub, FollowSettings, Follower, GuestCounts, IntervalJson, MglruFollower,
    Recording, Row, Sampler, SignalReader, WorkingSetSource,
};
use ballast_report::command_line::command_line;
use ballast_report::files::Destination;
use ballast_report::{CANNOT_PRINT, Output, harmless_line, json, note, print};

use super::track_table;
use crate::lab;

/// Seed for choosing the sampled granules: fixed, so that two runs on a guest can be compared.
const SEED: u64 = 1;

/// The working set of a live guest, interval by interval.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast track
  ballast track web-1
  ballast track web-1 --for 60s --record web-1 --page web-1.html
  ballast track web-1 --every --hot-set --interval 5s
  ballast track web-1 --statistical 200 --interval 30s
  ballast track web-1 --json | jq .working_set_bytes
  ballast track web-1 --rest
  ballast track web-1 --source damon
  ballast track web-1 --for 4m --interval 500ms --record web-1 --qmp /run/ballast/qmp --referenced

Without GUEST, it lists all guests and the sockets of their trackers. A guest has a tracker if its
hypervisor was started with libballast_track.so in LD_PRELOAD, a socket's address in
BALLAST_TRACK_SOCKET and shared memory (QEMU: -object memory-backend-memfd,share=on). Any other
guest is sampled by the kernel's DAMON: 1,024 of its pages, in windows of one interval, at least 1s.
That needs root, a kernel with DAMON, and no other user of DAMON. A guest has one tracking client at
a time, and a host one user of DAMON; the daemon counts as one.

  WORKING SET  the least memory in which at most 1 % of the touches seen miss
  TOUCHED      memory touched in the interval
  HALF MISS    memory in which half of the touches seen miss; empty if their order is not seen: with
               --statistical, page generations or huge pages
  WATCHED      the share of the guest's memory that is watched, and pages per piece; or rest. DAMON
               sees huge pages as pieces of 512 pages; the working set is then an upper bound
  HOT          with --hot-set: watched pieces that stay accessible, so their touches are not seen
  TOUCHES      touches seen
  LOST         touches seen but lost, because a buffer was full
  COST         processor time of the tracker and lost time of the guest, as a share of one core
  TRAP         how long one touch that is seen stops the guest
  UP           share of the intervals that were watched (up ratio)

If a guest given by name ends, tracking continues once it starts again, unless --record is given.

With --rest, tracking rests while the working set is stable. It resumes when misses of the data TLB
show a new phase, or, if the machine does not count them, touches of a few hundred pages; see
`ballast imt`.

A recording is a folder with series.csv, which `ballast imt` reads, and pages.pg, which
`ballast mrc` reads: the touched pages of the watched part, in order; of a piece of several pages,
the first one (`ballast mrc --granularity`). Every signal that might show a new phase is a column of
series.csv, for `ballast imt --events`; --qmp and --referenced add those that cost something.

JSON: one object per line and interval. Fields about touches, from source on, are absent if nothing
was watched. Without GUEST, one list of pid, name and socket; null: it has none.
  at_s, length_s              when the interval ended, from the start of tracking; its length
  tracked_bytes               memory of the guest that is tracked
  is_on, up_ratio             whether it was watched; the share of intervals so far that were
  events                      what shows a new phase, scaled to all memory; null if not seen
  known_bytes                 the last known working set, adjusted by the small sample that stays
                              watched; null before the first
  next                        what follows in the next interval; null without --rest
  cost_share                  as COST, of one core; may exceed 1
  source                      library, damon, mglru; damon-huge and mglru-huge are upper bounds
  working_set_bytes, touched_bytes
  half_miss_bytes             null where HALF MISS is empty
  granule_pages, share        pages per piece, and the share of pieces that were watched
  hot_granules                as HOT; null without --hot-set
  touches, lost
  trap_ns, revoked_ns         of one touch, and of revoking access at the interval's start
  miss_step_bytes, misses     misses at 0, 1, 2 … steps of memory; null as half_miss_bytes")]
pub struct Args {
    /// The guest's name, or the process id of its hypervisor; without it, list all guests
    #[arg(value_name = "GUEST")]
    guest: Option<String>,
    /// What to track with: the library in its hypervisor (library), the kernel's DAMON (damon), the
    /// page generations of its cgroup (mglru), or the library if present, else DAMON (auto)
    #[arg(long, value_name = "SOURCE", default_value = "auto", value_parser = source)]
    source: SourceChoice,
    /// How long to track; without it, until interrupted
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    for_: Option<Duration>,
    /// Length of an interval, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Most that tracking may cost, in percent of one core; sets how much memory is watched
    #[arg(long, value_name = "PERCENT", default_value = "0.5", value_parser = budget)]
    budget: WatchBudget,
    /// Watch all memory whatever it costs, in pieces of 32 pages, or 512 for a large working set
    #[arg(long, conflicts_with = "budget")]
    every: bool,
    /// See a piece again after enough others were touched (MEB's hot set), not only once an
    /// interval: more accurate curves at many times the cost
    #[arg(long)]
    hot_set: bool,
    /// Rest while the working set is stable: adaptive, or a fixed threshold from 0.05 to 0.30
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_value = "off",
        default_missing_value = "adaptive", require_equals = true)]
    rest: Intermittent,
    /// Watch this many pages, picked at random anew in every interval, as ESX does: the touched
    /// share of them estimates how much memory is in use; no curve
    #[arg(long, value_name = "PAGES", conflicts_with_all = ["budget", "every", "hot_set", "rest"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SamplingSettings::SAMPLES_MAX)))]
    statistical: Option<u32>,
    /// Write a recording to this folder
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// Also record the guest's own counters, read from its QMP socket in this folder; no daemon may
    /// be connected to that socket
    #[arg(long, value_name = "FOLDER", requires = "record")]
    qmp: Option<PathBuf>,
    /// Also record how much memory the kernel saw referenced; costs 10 to 35 ms of processor time
    /// per interval
    #[arg(long, requires = "record")]
    referenced: bool,
    /// At the end, write an HTML page: all figures over time, and the last miss curve
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Time between two readings of a guest's statistics, which are renewed once a second.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long statistics may be missing at first.
const ASK_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two searches for a guest's process.
const SEARCH_EVERY: Duration = Duration::from_millis(200);
/// Most searches until the process of a guest whose sockets are gone has ended.
const SEARCHES_MAX: usize = 10;
/// Most intervals on a page: those of a day at one a second.
const PAGE_ROWS_MAX: usize = 86_400;

fn interval(text: &str) -> Result<Duration, String> {
    let expected = "expected 100ms to 1h";
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}: {expected}"))?;
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    if range.contains(&time) { Ok(time) } else { Err(expected.to_owned()) }
}

fn source(text: &str) -> Result<SourceChoice, String> {
    match text {
        "auto" => Ok(SourceChoice::Auto),
        "library" => Ok(SourceChoice::Library),
        "damon" => Ok(SourceChoice::Damon),
        "mglru" => Ok(SourceChoice::Mglru),
        _ => Err("expected auto, library, damon or mglru".to_owned()),
    }
}

fn budget(text: &str) -> Result<WatchBudget, String> {
    let percent = text.trim_end_matches('%').trim().parse::<f64>();
    let percent = percent.map_err(|error| format!("{error}: expected such as 0.5"))?;
    WatchBudget::new(percent / 100.0).map_err(|error| error.to_string())
}

/// Tracks the guest until the time is over or a signal interrupts; without a guest, lists the
/// guests of this host.
///
/// # Errors
/// There is no such guest, or it cannot be tracked; the output or the recording cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let guests = hypervisors(Path::new(PROC));
    let Some(wanted) = &args.guest else { return list(&guests, args.output) };
    let guest = find(&guests, wanted)?.clone();
    let recording = args.record.as_deref().map(Recording::begin).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&stop);
    let counts = Arc::new(GuestCounts::default());
    let reading = read_statistics(args.qmp.clone(), guest.name.clone(), Arc::clone(&counts));
    let mut following =
        tokio::task::spawn_blocking(move || follow(&args, &guest, recording, &counts, &theirs));
    let done = tokio::select! {
        done = &mut following => done,
        failed = reading => {
            stop.store(true, Ordering::Relaxed);
            following.await.and(Ok(failed))
        }
        _ = tokio::signal::ctrl_c() => {
            stop.store(true, Ordering::Relaxed);
            following.await
        }
    };
    done.context("the thread that tracks")?
}

/// Reads the statistics of the guest called `name`, by its QMP socket in `folder`, again and again.
/// Never returns if `folder` is `None`.
///
/// # Errors
/// The guest has no such socket, or no statistics arrive.
async fn read_statistics(
    folder: Option<PathBuf>,
    name: Option<String>,
    counts: Arc<GuestCounts>,
) -> anyhow::Result<()> {
    let Some(folder) = folder else { return std::future::pending().await };
    let mut fleet = Fleet::new(FleetConfig::new(vec![folder.clone()]));
    let began = Instant::now();
    let mut before: Option<(Duration, [u64; 3])> = None;
    loop {
        let now = Timestamp::ZERO + began.elapsed();
        let readings = fleet.sample(now, SystemTime::now(), ASK_EVERY / 2).await;
        let reading = readings.iter().find(|it| Some(it.sample.id.as_str()) == name.as_deref());
        let stats = reading.and_then(|reading| reading.sample.stats);
        anyhow::ensure!(
            stats.is_some() || began.elapsed() < ASK_PATIENCE,
            "no statistics of guest `{}` from a socket in {}: is a daemon connected to it?",
            name.as_deref().unwrap_or("?"),
            folder.display(),
        );
        let dated = stats.and_then(|stats| {
            Some((began.elapsed().saturating_sub(stats.age), GuestCounts::of(&stats.value)?))
        });
        match (before, dated) {
            // The same statistics, read again.
            (Some((then, _)), Some((at, _))) if at < then + ASK_EVERY => {}
            (Some((_, old)), Some((_, new))) => {
                counts.set(old, new);
                before = dated;
            }
            _ => before = dated.or(before),
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The guest with the name or the process number `wanted`.
fn find<'a>(guests: &'a [Hypervisor], wanted: &str) -> anyhow::Result<&'a Hypervisor> {
    let is_it = |guest: &&Hypervisor| {
        guest.name.as_deref() == Some(wanted) || guest.pid.to_string() == wanted
    };
    let mut found = guests.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(guest), None) => Ok(guest),
        (Some(first), Some(second)) => anyhow::bail!(
            "more than one guest is called `{wanted}`: name the process, such as {} or {}",
            first.pid,
            second.pid
        ),
        (None, _) => anyhow::bail!(
            "no guest `{wanted}`: `ballast track` lists the guests, by the name that QEMU was \
             given with -name"
        ),
    }
}

/// A guest in the list, as JSON.
#[derive(Serialize)]
struct Listed<'a> {
    pid: u32,
    name: Option<&'a str>,
    /// The socket of its tracker; `None`: it has no tracker.
    socket: Option<String>,
}

fn list(guests: &[Hypervisor], output: Output) -> anyhow::Result<()> {
    let listed: Vec<Listed<'_>> = guests
        .iter()
        .map(|guest| Listed {
            pid: guest.pid,
            name: guest.name.as_deref(),
            socket: guest.tracker.as_ref().map(|tracker| tracker.address.to_string()),
        })
        .collect();
    output.print(&listed, |listed, _| {
        if listed.is_empty() {
            return "no guest runs on this host\n".to_owned();
        }
        let line = |guest: &Listed<'_>| {
            let name = harmless_line(guest.name.unwrap_or("?"));
            let socket = guest.socket.as_deref().map_or("none: by DAMON".into(), harmless_line);
            format!("{:>8}  {name}  {socket}\n", guest.pid)
        };
        format!("     PID  NAME  SOCKET\n{}", listed.iter().map(line).collect::<String>())
    })
}

fn follow(
    args: &Args,
    guest: &Hypervisor,
    mut recording: Option<Recording>,
    counts: &GuestCounts,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    if args.referenced {
        check_referenced_bits(Path::new(PROC), guest.pid)
            .context("--referenced can record nothing of this guest: leave it out")?;
    }
    let mut guest = guest.clone();
    let mut source = watch(args, &guest)?;
    let private = source.private_memory();
    if private > Bytes::ZERO {
        tracing::warn!("{private} of its memory is private and not tracked: give it share=on");
    }
    let began = Instant::now();
    let end = args.for_.map(|time| began + time);
    let is_over = || stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    let page = args.page.as_deref().map(Page::begin).transpose()?;
    let mut rows = Vec::new();
    // When tracking began again with the guest's next process.
    let mut begun_again_at = Duration::ZERO;
    let mut signals =
        recording.is_some().then(|| SignalReader::new(guest.pid, SEED, args.referenced));
    for number in 0.. {
        if is_over() {
            break;
        }
        if let Some(signals) = &mut signals {
            signals.begin();
        }
        let (mut row, touches) = match source.interval(None, &mut || !is_over()) {
            Ok(seen) => seen,
            // A recording is of one process: page numbers mean nothing in another one.
            Err(error) if recording.is_none() && has_ended(args, &guest) => {
                drop(source);
                note(&format!("{error}: waiting until the guest is started again"));
                let Some(next) = wait_for_guest(args, &is_over) else { break };
                (guest, source) = next;
                note(&format!("the guest is process {} now", guest.pid));
                begun_again_at = began.elapsed();
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        row.at += begun_again_at;
        // DAMON has no result for a window that has not ended.
        if row.seen.is_none() && row.events.is_none() && is_over() {
            break;
        }
        show(&row, number, args.output)?;
        if let Some((recording, signals)) = recording.as_mut().zip(signals.as_mut()) {
            let counts = args.qmp.as_ref().map(|_| counts);
            recording.add(&row, &signals.end(&row, &touches, counts), &touches)?;
        }
        if page.is_some() && rows.len() < PAGE_ROWS_MAX {
            rows.push(row);
        }
    }
    let Some(page) = page else { return Ok(()) };
    let name = guest.name.clone().unwrap_or_else(|| guest.pid.to_string());
    page.write(&name, &rows)
}

/// Whether the guest was given by name and has ended, so that another of that name may follow.
fn has_ended(args: &Args, guest: &Hypervisor) -> bool {
    if args.guest != guest.name {
        return false;
    }
    // Its sockets disappear before its process does.
    for _ in 0..SEARCHES_MAX {
        std::thread::sleep(SEARCH_EVERY);
        if !hypervisors(Path::new(PROC)).iter().any(|it| it.pid == guest.pid) {
            return true;
        }
    }
    false
}

/// Waits until a guest of that name can be watched, and returns it with its source; `None`: the
/// time is over before.
fn wait_for_guest(
    args: &Args,
    is_over: &impl Fn() -> bool,
) -> Option<(Hypervisor, Box<dyn WorkingSetSource>)> {
    let mut trouble = None;
    while !is_over() {
        let guests = hypervisors(Path::new(PROC));
        let wanted = args.guest.as_deref().unwrap_or_default();
        if guests.iter().any(|it| it.name.as_deref() == Some(wanted)) {
            let found = find(&guests, wanted).and_then(|it| Ok((it.clone(), watch(args, it)?)));
            match found {
                Ok(found) => return Some(found),
                Err(error) => {
                    let text = format!("{error:#}");
                    if trouble.as_ref() != Some(&text) {
                        note(&text);
                        trouble = Some(text);
                    }
                }
            }
        }
        std::thread::sleep(SEARCH_EVERY);
    }
    None
}

/// An HTML page that `ballast-lab` draws when tracking ends.
struct Page {
    program: Command,
    destination: Destination,
}

impl Page {
    /// Checks, before tracking starts, that the page can be drawn and written.
    fn begin(path: &Path) -> anyhow::Result<Page> {
        let program = lab::lab_program("track --page")?;
        Ok(Page { program, destination: Destination::open(path)? })
    }

    fn write(mut self, name: &str, rows: &[Row]) -> anyhow::Result<()> {
        let arguments = ["track-page", "-", "--name", name, "--command", &command_line()];
        let mut child = self
            .program
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start ballast-lab")?;
        let mut input = child.stdin.take().context("ballast-lab takes no input")?;
        for row in rows {
            json::write(&IntervalJson::from(row), false, &mut input)?;
        }
        drop(input);
        let output = child.wait_with_output().context("cannot wait for ballast-lab")?;
        anyhow::ensure!(output.status.success(), "ballast-lab drew no page ({})", output.status);
        self.destination.write(&String::from_utf8(output.stdout)?)
    }
}

/// Starts to watch the guest as the arguments say.
fn watch(args: &Args, guest: &Hypervisor) -> anyhow::Result<Box<dyn WorkingSetSource>> {
    let tracker = match (args.source, &guest.tracker) {
        (SourceChoice::Auto | SourceChoice::Library, Some(tracker)) => tracker,
        (SourceChoice::Library, None) => anyhow::bail!(
            "the guest has no tracker: start its hypervisor with libballast_track.so in LD_PRELOAD \
             and BALLAST_TRACK_SOCKET, or leave --source out"
        ),
        (SourceChoice::Mglru, _) => {
            ensure_no_traps_are_asked_for(args)?;
            let mut follower = MglruFollower::begin(guest.pid, args.interval)?;
            follower.set_budget(args.budget.limit());
            return Ok(Box::new(follower));
        }
        (SourceChoice::Auto, None) | (SourceChoice::Damon, _) => {
            ensure_no_traps_are_asked_for(args)?;
            let hub = Arc::new(DamonHub::new(args.interval));
            return Ok(Box::new(DamonFollower::begin(hub, guest.pid, None, SEED)?));
        }
    };
    if let Some(samples) = args.statistical {
        let settings = SamplingSettings { samples, period: args.interval };
        return Ok(Box::new(Sampler::begin(tracker, settings, SEED)?));
    }
    let planner = WatchPlannerSettings {
        sample: (!args.every).then(|| args.budget.clone()),
        rest: args.rest.0,
        hot_set: args.hot_set,
        ..WatchPlannerSettings::default()
    };
    let settings = FollowSettings { interval: args.interval, planner, seed: SEED };
    Ok(Box::new(Follower::begin(tracker, &settings, None, None)?))
}

fn ensure_no_traps_are_asked_for(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(
        !args.every && !args.hot_set && args.statistical.is_none() && args.rest.0.is_none(),
        "the kernel sees touches without traps: --every, --hot-set, --rest and --statistical need the \
         tracker in the guest's hypervisor"
    );
    Ok(())
}

fn show(row: &Row, number: u64, output: Output) -> anyhow::Result<()> {
    if output.json {
        let interval = IntervalJson::from(row);
        return json::write(&interval, false, &mut io::stdout().lock()).context(CANNOT_PRINT);
    }
    let heading = track_table::heading(number).map(|heading| heading + "\n").unwrap_or_default();
    print(&format!("{heading}{}\n", track_table::line(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_found_by_name_or_process() {
        let guest =
            |pid, name: &str| Hypervisor { pid, name: Some(name.to_owned()), tracker: None };
        let guests = [guest(7, "a"), guest(8, "b"), guest(9, "b")];
        assert_eq!(find(&guests, "a").unwrap().pid, 7);
        assert_eq!(find(&guests, "9").unwrap().pid, 9);
        let twice = find(&guests, "b").unwrap_err().to_string();
        assert!(twice.contains("8 or 9"), "{twice}");
        let none = find(&guests, "c").unwrap_err().to_string();
        assert!(none.contains("-name"), "{none}");
    }

    #[test]
    fn budgets_and_intervals_are_parsed_within_their_ranges() {
        assert_eq!(budget("0.5%").unwrap().limit(), 0.005);
        assert_eq!(budget("2").unwrap().limit(), 0.02);
        assert!(budget("0").is_err() && budget("x").is_err() && budget("101").is_err());
        assert!(interval("99ms").is_err() && interval("2h").is_err() && interval("1s").is_ok());
    }
}
