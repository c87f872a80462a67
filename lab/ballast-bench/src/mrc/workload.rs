//! The input of the engines: page numbers in the order of their references.
//!
//! Idea: three generated streams that never change, and recordings of real programs
//! (`scripts/record-traces`; three recordings are included in the program).
//! Limits: a whole stream is in memory, with 8 bytes for a reference and 8 more if page numbers are
//! not small; of a trace at most [`TRACE_REFERENCES_MAX`] references are used.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use anyhow::Context;
use ballast_trace::{Format, Options, TraceReader};

use super::super::random::{Random, Zipf};
use crate::scaffold::name_of;

/// The greatest number of references taken from a trace: 1 GiB.
const TRACE_REFERENCES_MAX: usize = 1 << 27;

/// References of a generated stream.
const REFERENCES: usize = 16_000_000;
/// A quick run has this many times fewer references, pages and repetitions of a recording.
const QUICK: usize = 50;

/// Recordings by the programs' names.
const RECORDED: [(&str, &[u8]); 3] = [
    ("sort", include_bytes!("../../../../lib/mrc/tests/traces/sort.pg.zst")),
    ("perl", include_bytes!("../../../../lib/mrc/tests/traces/perl.pg.zst")),
    ("python", include_bytes!("../../../../lib/mrc/tests/traces/python.pg.zst")),
];

/// The workloads there are without any file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum WorkloadName {
    /// Zipf(0.9) over 1 M pages in random places
    Zipf,
    /// 300 k pages from the first to the last, again and again
    Scan,
    /// Phases of loops, Zipf and random references in parts of 1.5 M pages
    Mix,
    /// A recording of sort
    Sort,
    /// A recording of perl
    Perl,
    /// A recording of python
    Python,
}

/// References to pages.
#[derive(Debug)]
pub(super) struct Workload {
    /// Its name, or its file's.
    pub(super) name: String,
    /// A description.
    pub(super) what: String,
    /// Page numbers in the order of their references.
    pub(super) pages: Vec<u64>,
    /// The same with pages numbered in the order of their first reference; `None` if `pages` are
    /// small numbers already.
    dense: Option<Vec<u64>>,
    /// The number of different pages.
    pub(super) distinct: u64,
}

impl Workload {
    /// A workload that needs no file; with `quick` it is small.
    ///
    /// # Errors
    /// A recording cannot be decompressed.
    pub(super) fn named(name: WorkloadName, quick: bool) -> anyhow::Result<Self> {
        let part = if quick { QUICK } else { 1 };
        let (len, part) = (REFERENCES / part, part as u64);
        let (what, pages) = match name {
            WorkloadName::Zipf => {
                ("Zipf(0.9), pages in random places", zipf(len, 1_000_000 / part))
            }
            WorkloadName::Scan => ("cyclic scan", scan(len, 300_000 / part)),
            WorkloadName::Mix => {
                ("phases of loops, Zipf and random references", mix(len, 1_500_000 / part))
            }
            WorkloadName::Sort | WorkloadName::Perl | WorkloadName::Python => {
                let mut pages = recorded(&name_of(name))?;
                pages.truncate(pages.len() / part as usize);
                ("a program recorded by valgrind", pages)
            }
        };
        Ok(Self::new(name_of(name), what.to_owned(), pages))
    }

    /// Reads a trace from a file, whose name tells the format.
    ///
    /// # Errors
    /// It cannot be read, or is empty.
    pub(super) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let pages = read(TraceReader::open(path, &Options::default())?)?;
        let what = match pages.len() {
            TRACE_REFERENCES_MAX => "the beginning of a trace",
            _ => "a trace",
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        anyhow::ensure!(!pages.is_empty(), "{}: no references", path.display());
        Ok(Self::new(name, what.to_owned(), pages))
    }

    fn new(name: String, what: String, pages: Vec<u64>) -> Self {
        let mut numbers = HashMap::new();
        let mut number = |page| {
            let next = numbers.len() as u64;
            *numbers.entry(page).or_insert(next)
        };
        let dense: Vec<u64> = pages.iter().map(|&page| number(page)).collect();
        let distinct = numbers.len() as u64;
        drop(numbers);
        let are_small = pages.iter().all(|&page| page < 2 * distinct);
        Self { name, what, pages, dense: (!are_small).then_some(dense), distinct }
    }

    /// The references with pages numbered from 0; there are at most twice as many numbers as pages.
    pub(super) fn dense(&self) -> &[u64] {
        self.dense.as_deref().unwrap_or(&self.pages)
    }
}

fn zipf(len: usize, pages: u64) -> Vec<u64> {
    let mut random = Random::new(1);
    let (places, law) = (random.shuffled(pages), Zipf::new(pages, 0.9));
    (0..len).map(|_| places[law.draw(&mut random) as usize]).collect()
}

fn scan(len: usize, pages: u64) -> Vec<u64> {
    (0..pages).cycle().take(len).collect()
}

/// Twenty-one phases whose ranges move over all pages and overlap, as the stages of a program do.
fn mix(len: usize, pages: u64) -> Vec<u64> {
    const PHASES: usize = 21;
    let mut random = Random::new(3);
    let mut out = Vec::with_capacity(len);
    for phase in 0..PHASES {
        let references = len * (phase + 1) / PHASES - out.len();
        // From half of all pages to a thirtieth, anywhere.
        let range = pages / [2, 5, 12, 3, 30][phase % 5];
        let start = random.below(pages - range + 1);
        match phase % 3 {
            0 => out.extend((0..range).cycle().take(references).map(|at| start + at)),
            1 => {
                let (places, law) = (random.shuffled(range), Zipf::new(range, 0.9));
                let page = |_| start + places[law.draw(&mut random) as usize];
                out.extend((0..references).map(page));
            }
            _ => out.extend((0..references).map(|_| start + random.below(range))),
        }
    }
    out
}

/// The references of a recorded program.
///
/// # Errors
/// There is no such recording, or it cannot be decompressed.
pub(in super::super) fn recorded(name: &str) -> anyhow::Result<Vec<u64>> {
    let (_, bytes) = RECORDED
        .iter()
        .find(|(program, _)| *program == name)
        .with_context(|| format!("no recording is called {name}"))?;
    let options = Options { format: Some(Format::U64), ..Options::default() };
    read(TraceReader::from_read(name, Box::new(Cursor::new(*bytes)), &options)?)
}

fn read(mut reader: TraceReader) -> anyhow::Result<Vec<u64>> {
    let (mut pages, mut block) = (Vec::new(), Vec::new());
    while pages.len() < TRACE_REFERENCES_MAX && reader.read_block(&mut block)? > 0 {
        pages.extend_from_slice(&block);
    }
    pages.truncate(TRACE_REFERENCES_MAX);
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn quick_ones_are_what_they_say() {
        for &name in WorkloadName::value_variants() {
            let workload = Workload::named(name, true).unwrap();
            let (distinct, len) = (workload.distinct, workload.pages.len());
            assert_eq!(workload.dense().len(), len, "{name:?}");
            assert!(workload.dense().iter().all(|&page| page < 2 * distinct), "{name:?}");
            let expected = match name {
                WorkloadName::Zipf => 15_000..=20_000,
                WorkloadName::Scan => 6000..=6000,
                WorkloadName::Mix => 25_000..=30_000,
                _ => 50..=2000,
            };
            assert!(expected.contains(&distinct), "{name:?}: {distinct} pages");
            assert!((len as u64) > distinct, "{name:?}: {len} references");
        }
    }
}
