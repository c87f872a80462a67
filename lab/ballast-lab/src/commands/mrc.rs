//! `ballast mrc`: stack distances, miss-ratio curves and working sets of traces.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ballast_model::Bytes;
use ballast_mrc::{Aging, EngineName, Form, Granularity, SampleRate};
use ballast_trace::{Column, Format, Options};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;

use crate::mrc::measure::{self, STDIN};
use crate::mrc::outcome::Outcome;
use crate::mrc::plot::View;
use crate::mrc::progress::Bar;
use crate::mrc::settings::{Intervals, Settings, Tuning};
use crate::mrc::settings::{Reading, Units};
use crate::mrc::{curve_csv, json, page, plot, summary};
use ballast_chart::Scale;
use ballast_report::Output;
use ballast_report::command_line::command_line;
use ballast_report::files::{self, Destination, Picture};

/// The name that leaves the choice of the engine to the program.
const AUTO: &str = "auto";
/// The default seed of sampling, fixed so that every call samples the same.
const SEED: u64 = 1;
/// The default period of `statistical`, in references.
const PERIOD_REFERENCES: u64 = 1_000_000;
/// The miss ratio whose working set plots mark if it is among those printed; else the first of
/// those is marked.
const EPSILON_MARKED: f64 = 0.01;

/// Miss ratio of every memory size, and working sets, from traces of references.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast mrc web.pg.zst --unit 4KiB
  ballast mrc web.lackey.gz --page-size 4KiB --plot web.html
  ballast mrc morning.u64 evening.u64 --plot day.svg --plot day.html --csv day.csv
  ballast mrc requests.csv --column block --engine shards --rate 0.001
  ballast mrc web.pg.zst --granularity 32 --reading touched --verify
  valgrind --tool=lackey --trace-mem=yes ls 2>&1 >/dev/null |
    ballast mrc - --format lackey --page-size 4KiB
  ballast mrc web.pg.zst --json | jq '.working_sets'

The format follows from the file's name (.txt, .csv, .u64 or .pg, .oracleGeneral, .lackey; then .gz
or .zst) or from --format. Values are page numbers, unless --page-size divides them.

Without --engine, the exact engine and a sampling one both count. The result is that of the sampling
engine if the exact one would need more than --memory.

JSON: an object for one trace, an array of objects for several.
  accesses, cold, distinct  references, first references, different tags
  histogram                 references by stack distance, in tags and from 1
  curve                     a list of pages, miss_ratio_warm, miss_ratio_total; each point holds
                            up to the next
  working_sets              a list of epsilon, pages, bytes
  engine_why, skipped, …    the other figures of the table
  interval, aging           how counts are aged; null: they are not
With --reading touched, distances are in pages; distance_unit says which. Counts of sampling engines
and aged counts may have decimals.")]
pub struct Args {
    /// Traces, plain or compressed by gzip or zstd; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    counting: CountingArgs,
    #[command(flatten)]
    showing: ShowingArgs,
    #[command(flatten)]
    output: Output,
}

/// How traces are read.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Reading")]
struct ReadingArgs {
    /// Format of the traces, instead of the one that their names imply
    #[arg(long, value_parser = format_parser())]
    format: Option<Format>,
    /// The column with the references: its name (CSV), or its number from 1
    #[arg(long, value_name = "COLUMN", value_parser = Column::from_str)]
    column: Option<Column>,
    /// Values are addresses; divide them by this page size
    #[arg(long, value_name = "SIZE", value_parser = page_size)]
    page_size: Option<NonZeroU64>,
    /// Values are numbers of pages of this size; also print sizes in bytes
    #[arg(long, value_name = "SIZE", value_parser = page_size, conflicts_with = "page_size")]
    unit: Option<NonZeroU64>,
    /// Skip bad records and count them
    #[arg(long)]
    skip_bad: bool,
    /// Most references to read from each trace
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    max_references: Option<u64>,
}

/// How references are counted.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Counting")]
struct CountingArgs {
    /// The engine: exact, avl and list are exact; shards, shards-fixed-size and aet sample;
    /// statistical only estimates how much memory is in use
    #[arg(long, value_name = "NAME", default_value = AUTO, value_parser = engine_parser())]
    engine: EngineChoice,
    /// Memory after which the engine of `auto` samples, and that of `--reading touched` fails; at
    /// the end, every engine needs up to 32 bytes more for each distinct tag, for histogram and
    /// curve
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Bytes,
    /// Pages per tag, a power of two
    #[arg(long, value_name = "PAGES", default_value = "1", value_parser = granularity)]
    granularity: Granularity,
    /// How much memory a tag of several pages counts as; `touched` needs a byte for four pages of
    /// each tag
    #[arg(long, value_enum, default_value_t = Reading::Paper)]
    reading: Reading,
    /// Share of tags that `shards` samples; if there are few tags, it samples more [default: 0.01]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<SampleRate>,
    /// Number of tags that `shards-fixed-size`, `aet` or `statistical` samples
    #[arg(long, value_name = "NUMBER", value_parser = samples)]
    samples: Option<usize>,
    /// Seed for sampling [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Number of pages, from page 0, from which `statistical` picks
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u64).range(1..))]
    allocation: Option<u64>,
    /// References in a period of `statistical` [default: 1000000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Age the counts after every this many references; the last interval may have fewer
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    interval: Option<u64>,
    /// Weight of earlier counts after each interval, from 0 to 1 [default: 0.5]
    #[arg(long, value_name = "FACTOR", value_parser = factor, requires = "interval")]
    aging: Option<f64>,
    /// Also count with a second, plain engine; fail if the two differ
    #[arg(long, conflicts_with = "interval")]
    verify: bool,
}

/// What is shown.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Showing")]
struct ShowingArgs {
    /// Warm miss ratios to print the working sets of, such as 0.01 or 1%
    #[arg(long, value_name = "RATIO,…", value_delimiter = ',', value_parser = ratio,
        default_value = "5%,1%,0.1%")]
    epsilon: Vec<f64>,
    /// Most points per curve in JSON and CSV
    #[arg(long, value_name = "NUMBER", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(2..))]
    points: u32,
    /// Write the curves as CSV: trace,pages,miss_ratio_warm,miss_ratio_total
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a plot: FILE.svg, or FILE.html with every axis and the figures; repeatable
    #[arg(long = "plot", value_name = "FILE", value_parser = Picture::from_str)]
    plots: Vec<Picture>,
    /// Which miss ratio an SVG plot shows
    #[arg(long, value_name = "FORM", default_value = "warm", value_parser = form_parser())]
    plot_form: Form,
    /// Scale of sizes in an SVG plot
    #[arg(long, value_enum, value_name = "SCALE", default_value_t = Scale::Log)]
    plot_memory: Scale,
    /// Scale of miss ratios in an SVG plot
    #[arg(long, value_enum, value_name = "SCALE", default_value_t = Scale::Log)]
    plot_ratio: Scale,
}

/// The engine that the user chose; `None`: the program chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EngineChoice(Option<EngineName>);

/// Measures every trace, writes the requested files, and prints the result.
///
/// # Errors
/// Options that do not go together; a trace that cannot be read; a file that cannot be written;
/// engines whose results differ under `--verify`.
pub fn run(args: Args) -> anyhow::Result<()> {
    let settings = args.settings()?;
    // Checked now, so that a mistake shows before minutes of counting.
    let pictures = args.showing.plots.iter().map(|picture| picture.path.as_path());
    let outputs: Vec<&Path> = args.showing.csv.as_deref().into_iter().chain(pictures).collect();
    files::ensure_apart(&outputs, &args.traces)?;
    measure::check(&args.traces, &settings)?;
    let csv = args.showing.csv.as_deref().map(Destination::open).transpose()?;
    let plots = args.showing.plots.iter().map(|picture| Destination::open(&picture.path));
    let plots = plots.collect::<anyhow::Result<Vec<_>>>()?;
    let mut outcomes = Vec::new();
    for path in &args.traces {
        let mut bar = Bar::new(&measure::name(path));
        outcomes.push(measure::measure(path, &settings, &mut |progress| bar.show(progress))?);
        bar.finish();
    }
    let points = args.showing.points as usize;
    if let Some(file) = csv {
        let mut stream = file.stream()?;
        stream.write(|out| curve_csv::write(&outcomes, points, out))?;
        stream.finish()?;
    }
    let view = args.view();
    for (picture, file) in args.showing.plots.iter().zip(plots) {
        file.write(&match picture.is_page {
            true => page::render(&outcomes, &command_line(), view.epsilon)?,
            false => plot::sheet(&outcomes, view)?,
        })?;
    }
    args.print(&outcomes, points)
}

impl Args {
    /// Converts the options to settings.
    fn settings(&self) -> anyhow::Result<Settings> {
        let (reading, counting) = (&self.reading, &self.counting);
        if let Some(text) = self.conflict() {
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, format!("{text}\n")).into());
        }
        let page_bytes = reading.page_size.or(reading.unit).map(NonZeroU64::get);
        Ok(Settings {
            reading: Options {
                format: reading.format,
                column: reading.column.clone(),
                page_size: reading.page_size,
                skip_bad: reading.skip_bad,
            },
            references_max: reading.max_references,
            units: Units {
                page_bytes,
                granularity: counting.granularity,
                reading: counting.reading,
            },
            engine: counting.engine.0,
            tuning: Tuning {
                rate: counting.rate.unwrap_or(SampleRate::DEFAULT),
                samples: counting.samples,
                seed: counting.seed.unwrap_or(SEED),
                allocation_pages: counting.allocation.unwrap_or(0),
                period: counting.period.unwrap_or(PERIOD_REFERENCES),
            },
            memory_bytes: counting.memory.get(),
            intervals: counting.interval.map(|references| Intervals {
                references,
                factor: counting.aging.unwrap_or(Aging::FACTOR),
            }),
            verify: counting.verify,
            epsilons: self.showing.epsilon.clone(),
        })
    }

    /// What is wrong with options that are valid one by one but not together; `None`: nothing.
    fn conflict(&self) -> Option<&'static str> {
        use EngineName::{Aet, Shards, ShardsFixedSize, Statistical};
        let counting = &self.counting;
        let engine = counting.engine.0;
        let among = |names: &[EngineName]| engine.is_some_and(|engine| names.contains(&engine));
        let stdin = self.traces.iter().filter(|path| *path == Path::new(STDIN)).count();
        let rules = [
            (stdin > 1, "standard input (-) can be read only once"),
            (counting.rate.is_some() && !among(&[Shards]), "--rate is for --engine shards"),
            (
                counting.samples.is_some() && !among(&[ShardsFixedSize, Aet, Statistical]),
                "--samples is for --engine shards-fixed-size, aet or statistical",
            ),
            (
                counting.seed.is_some() && !self.may_sample(),
                "--seed is for engines that sample: shards, shards-fixed-size, aet with --samples, \
                 statistical, and auto",
            ),
            (
                counting.period.is_some() && !among(&[Statistical]),
                "--period is for --engine statistical",
            ),
            (
                among(&[Statistical]) != counting.allocation.is_some(),
                "--engine statistical and --allocation PAGES go together: it picks from the pages below \
                 that",
            ),
            (
                among(&[Statistical]) && (counting.verify || counting.interval.is_some()),
                "--engine statistical counts no distances: there is nothing to verify or to age",
            ),
            (
                counting.reading == Reading::Touched && engine.is_some_and(|it| !it.is_exact()),
                "--reading touched is for exact engines: one that samples sees too few pages of a tag",
            ),
        ];
        rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, text)| text)
    }

    /// Whether the result may depend on random sampling.
    fn may_sample(&self) -> bool {
        let counting = &self.counting;
        match counting.engine.0 {
            None => counting.reading == Reading::Paper,
            Some(EngineName::Aet) => counting.samples.is_some(),
            Some(engine) => !engine.is_exact(),
        }
    }

    fn view(&self) -> View {
        let showing = &self.showing;
        let first = showing.epsilon.first().copied().unwrap_or(EPSILON_MARKED);
        let is_there = showing.epsilon.contains(&EPSILON_MARKED);
        View {
            form: showing.plot_form,
            memory: showing.plot_memory,
            ratio: showing.plot_ratio,
            epsilon: if is_there { EPSILON_MARKED } else { first },
        }
    }

    fn print(&self, outcomes: &[Outcome], points: usize) -> anyhow::Result<()> {
        if self.output.json {
            for outcome in outcomes {
                // Errors are ignored: a command does not fail because standard error is closed.
                let _ = writeln!(io::stderr(), "{}", summary::speed(outcome));
            }
        }
        let all: Vec<_> = outcomes.iter().map(|one| json::Trace::new(one, points)).collect();
        match all.as_slice() {
            [one] => self.output.print(one, |_, width| summary::render(outcomes, width)),
            all => self.output.print(&all, |_, width| summary::render(outcomes, width)),
        }
    }
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::as_str))
        .try_map(|name| Format::from_str(&name))
}

fn engine_parser() -> impl TypedValueParser<Value = EngineChoice> {
    let names = std::iter::once(AUTO).chain(EngineName::ALL.map(EngineName::as_str));
    let named = |name: String| EngineName::ALL.into_iter().find(|it| it.as_str() == name);
    PossibleValuesParser::new(names).map(move |name| EngineChoice(named(name)))
}

fn form_parser() -> impl TypedValueParser<Value = Form> {
    PossibleValuesParser::new(["warm", "total"])
        .map(|name| if name == "total" { Form::Total } else { Form::Warm })
}

fn page_size(text: &str) -> Result<NonZeroU64, String> {
    let size = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    NonZeroU64::new(size.get())
        .ok_or_else(|| "a page is not of 0 bytes: expected 4KiB or so".into())
}

fn granularity(text: &str) -> Result<Granularity, String> {
    let pages = text.parse().ok().and_then(Granularity::new);
    pages.ok_or_else(|| format!("expected a power of two from 1 to {}", Granularity::PAGES_MAX))
}

fn rate(text: &str) -> Result<SampleRate, String> {
    let rate = ratio(text).ok().and_then(SampleRate::new);
    rate.ok_or_else(|| "expected a rate above 0 and at most 1, such as 0.01".to_owned())
}

fn samples(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a number from 1".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    ratio(text).map_err(|_| "expected a factor from 0 to 1".to_owned())
}

/// A ratio, or a percentage such as `1%`.
fn ratio(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let ratio = number.parse::<f64>().ok().map(|number| number / scale);
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "expected a ratio from 0 to 1, such as 0.01 or 1%".to_owned())
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

    fn parsed(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.args)
    }

    #[test]
    fn options_become_settings() {
        let line = "mrc a.u64 b.u64 --page-size 4KiB --engine shards --rate 1% --granularity 32 \
                    --epsilon 0.5,20% --interval 1000 --aging 0.25 --max-references 7 --seed 9";
        let args = parsed(line).unwrap();
        let settings = args.settings().unwrap();
        assert_eq!(settings.engine, Some(EngineName::Shards));
        assert_eq!(Some(settings.tuning.rate), SampleRate::new(0.01));
        assert_eq!(settings.tuning.seed, 9);
        assert_eq!(settings.units.page_bytes, Some(4096));
        assert_eq!(settings.reading.page_size.map(NonZeroU64::get), Some(4096));
        assert_eq!(settings.units.granularity.pages(), 32);
        assert_eq!(settings.intervals, Some(Intervals { references: 1000, factor: 0.25 }));
        assert_eq!((settings.references_max, settings.epsilons), (Some(7), vec![0.5, 0.2]));
        assert_eq!(args.view().epsilon, 0.5);
    }

    #[test]
    fn without_options_the_chooser_counts_and_values_are_not_divided() {
        let args = parsed("mrc a.u64 --unit 4KiB").unwrap();
        let settings = args.settings().unwrap();
        assert_eq!((settings.engine, settings.reading.page_size), (None, None));
        assert_eq!(settings.units.page_bytes, Some(4096));
        assert_eq!(settings.memory_bytes, 1 << 30);
        assert_eq!((settings.tuning.seed, settings.tuning.period), (1, 1_000_000));
        assert_eq!((settings.epsilons, args.view().epsilon), (vec![0.05, 0.01, 0.001], 0.01));
    }

    #[test]
    fn what_does_not_go_together_is_wrong_usage() {
        for (options, expected) in [
            ("a - -", "only once"),
            ("a --rate 0.1", "--engine shards"),
            ("a --engine exact --samples 5", "--samples is for"),
            ("a --engine exact --seed 5", "--seed is for"),
            ("a --engine aet --seed 5", "--seed is for"),
            ("a --reading touched --seed 5", "--seed is for"),
            ("a --period 5", "--period is for"),
            ("a --engine statistical", "--allocation"),
            ("a --allocation 5", "go together"),
            ("a --engine statistical --allocation 5 --verify", "nothing to verify"),
            ("a --engine shards --reading touched", "exact engines"),
            ("a --verify --interval 5", "--interval"),
            ("a --aging 0.5", "--interval"),
            ("a --page-size 4KiB --unit 4KiB", "--unit"),
            ("a --page-size 0", "0 bytes"),
            ("a --page-size 4KB", "decimal"),
            ("a --granularity 3", "power of two"),
            ("a --engine shards --rate 2", "at most 1"),
            ("a --engine fastest", "possible values"),
            ("a --format oracle", "possible values"),
            ("a --epsilon 2", "from 0 to 1"),
            ("a --plot x.png", ".svg or .html"),
            ("a --points 1", "1 is not in"),
            ("--json", "TRACE"),
        ] {
            let error = match parsed(&format!("mrc {options}")) {
                Ok(args) => args.settings().expect_err(options).downcast().expect(options),
                Err(error) => error,
            };
            assert_eq!(error.exit_code(), 2, "{options}");
            assert!(error.to_string().contains(expected), "{options}: {error}");
        }
    }
}
