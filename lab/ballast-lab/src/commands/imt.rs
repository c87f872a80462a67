//! `ballast imt`: how often a working set needs tracking, and what resting costs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use ballast_estimate::phase::{FilterLength, IntermittentSettings, RecordedInterval};
use ballast_model::Bytes;

use crate::imt::json::Figures;
use crate::imt::runs::runs;
use crate::imt::summary::Trace;
use crate::imt::{BYTES_MAX, EVENTS, page, parse_with, plot, summary};
use ballast_report::Output;
use ballast_report::command_line::command_line;
use ballast_report::files::{self, Destination, Picture};

/// The name for standard input.
const STDIN: &str = "-";

/// Replays a series of working sets and events under intermittent tracking, with fixed thresholds
/// and an adaptive one.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast imt day.csv
  ballast imt day.csv --interval 3s --plot day.svg --plot day.html
  ballast imt day.csv --json | jq 'min_by(.mre)'
  ballast imt web-1/series.csv --events guest_minor_faults

Within a phase of a program its working set hardly changes. Tracking, which costs time, can then
rest until events that cost nothing to count show that a new phase has begun. The series must be
recorded with tracking always on. It is CSV with a header and one row per interval:

  wss_bytes,events
  104857600,51034
  104861696,50877

  wss_bytes  the working set
  events     how often the event happened, such as misses of the data TLB; --events names another
             column

Other columns are ignored. For every threshold of the events, the table shows

  UP RATIO   the share of intervals in which tracking is on
  MRE        mean relative error: how far the estimate is off, as a share of the working set, on
             average

A tight threshold tracks more and errs less, a loose one tracks less and errs more; the adaptive
threshold comes close to the best of both. The paper (MEB Table II, means of 32 programs) has an up
ratio of 37.3 % and an error of 4.0 % for a fixed threshold of 0.05, 14.8 % and 11.7 % for 0.30, and
14.3 % and 4.2 % for the adaptive one. Programs differ: if phases change quickly, all thresholds err
(429.mcf: 40.3 %).

JSON: an array of mode, threshold, up_ratio, mre, in the order of the table.
  mode        fixed or adaptive
  threshold   the fixed threshold; null if adaptive
  up_ratio    from 0 to 1
  mre         from 0; null if every working set is 0")]
pub struct Args {
    /// The series; - is standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Column with the events; recordings of `ballast track --record` have several
    #[arg(long, value_name = "COLUMN", default_value = EVENTS)]
    events: String,
    /// Number of samples that are averaged before they are judged (k of MEB §3.5)
    #[arg(long, value_name = "SAMPLES", default_value = "3", value_parser = samples)]
    filter: FilterLength,
    /// Unit in which memory is balanced: working sets that differ by less count as equal
    #[arg(long, value_name = "SIZE", default_value_t = IntermittentSettings::UNIT_DEFAULT)]
    unit: Bytes,
    /// Begin a new phase at once at a single count of events far beyond those before it; the daemon
    /// does this, the papers do not
    #[arg(long)]
    jumps: bool,
    /// Time between two rows; used only for the time axis of plots
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    interval: Duration,
    /// Write a plot for every threshold: FILE.svg, or FILE.html with the figures; repeatable
    #[arg(long = "plot", value_name = "FILE", value_parser = Picture::from_str)]
    plots: Vec<Picture>,
    #[command(flatten)]
    output: Output,
}

/// Replays the series, writes the requested plots, and prints the table.
///
/// # Errors
/// The series cannot be read, or a plot cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let outputs: Vec<&Path> = args.plots.iter().map(|picture| picture.path.as_path()).collect();
    files::ensure_apart(&outputs, std::slice::from_ref(&args.trace))?;
    let (name, series) = read(&args.trace, &args.events)?;
    let trace = Trace { name: &name, series: &series, interval: args.interval };
    let settings = IntermittentSettings {
        samples: args.filter,
        unit: args.unit,
        jumps: args.jumps,
        ..IntermittentSettings::default()
    };
    let runs = runs(&series, settings);
    for picture in &args.plots {
        Destination::open(&picture.path)?.write(&match picture.is_page {
            true => page::render(trace, &runs, &command_line())?,
            false => plot::sheet(trace, &runs)?,
        })?;
    }
    let figures: Vec<Figures> = runs.iter().map(Figures::from).collect();
    args.output.print(&figures, |_, width| summary::render(trace, &runs, width))
}

/// Reads the series at `path`, with the events from the column `events`; also returns its name.
fn read(path: &Path, events: &str) -> anyhow::Result<(String, Vec<RecordedInterval>)> {
    let (name, read) = if path == Path::new(STDIN) {
        ("standard input".to_owned(), read_all(io::stdin().lock()))
    } else {
        (path.display().to_string(), File::open(path).and_then(read_all))
    };
    let bytes = read.with_context(|| format!("cannot read {name}"))?;
    let limit = Bytes::new(BYTES_MAX);
    anyhow::ensure!(bytes.len() as u64 <= BYTES_MAX, "{name}: more than {limit}");
    let series = parse_with(&bytes, events).map_err(|fault| anyhow::anyhow!("{name}:{fault}"))?;
    Ok((name, series))
}

/// Everything from `from`, but never much more than the limit: just enough to see that it is
/// exceeded.
fn read_all(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn samples(text: &str) -> Result<FilterLength, String> {
    let count = text.parse().map_err(|_| {
        format!("expected a number from {} to {}", FilterLength::MIN, FilterLength::MAX)
    })?;
    FilterLength::new(count).map_err(|error| error.to_string())
}

fn interval(text: &str) -> Result<Duration, String> {
    /// One day.
    const MAX: Duration = Duration::from_secs(86_400);
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_in_range = (Duration::from_millis(1)..=MAX).contains(&interval);
    if is_in_range { Ok(interval) } else { Err("expected 1ms to 1day".to_owned()) }
}
