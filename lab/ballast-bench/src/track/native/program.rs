//! Programs that are tracked: which pages each touches, in which order.

use std::io::Write;
use std::ops::Range;

use anyhow::Context;
use ballast_track_subject::{Kind, Order, PAGE, Settings};
use clap::ValueEnum;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::scaffold::name_of;

/// Pages of a MiB.
pub(crate) const MIB_PAGES: u32 = (1 << 20) / PAGE as u32;
/// The seed of the random orders.
const SEED: u64 = 1;
/// Memory of the recorded programs, in MiB: they have up to 931 pages, each stretched to 32.
const RECORDED_MIB: u32 = 128;
/// The sizes that `phases` touches in MiB, one part after the other: the bounds of MEB's
/// random-array, and sizes between.
const PHASES_MIB: [u32; 6] = [120, 350, 40, 260, 80, 200];
/// Touches in a part of it: 5 to 15 s at some 20 to 60 million a second.
const PHASE_TOUCHES: u64 = 300_000_000;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Subject {
    /// A pointer chase through 200 MiB
    Chase,
    /// Pages of unequal popularity in 200 MiB
    Zipf,
    /// 200 MiB in the order of addresses
    Scan,
    /// Random pages of 40 to 350 MiB, by turns
    Phases,
    /// The recorded pages of a perl program, each stretched to 32
    Perl,
    /// The recorded pages of a python program, each stretched to 32
    Python,
    /// The recorded pages of sort(1), each stretched to 32
    Sort,
}

impl Subject {
    /// The program's description.
    ///
    /// # Errors
    /// A recording cannot be unpacked.
    pub(crate) fn program(self) -> anyhow::Result<Program> {
        let of = |kind, mib| Program::new(kind, mib * MIB_PAGES);
        Ok(match self {
            Subject::Chase => of(Kind::Chase, 200),
            Subject::Zipf => of(Kind::Zipf, 200),
            Subject::Scan => of(Kind::Scan, 200),
            Subject::Phases => Program::random(400, &PHASES_MIB, PHASE_TOUCHES),
            Subject::Perl => {
                recorded(include_bytes!("../../../../../lib/mrc/tests/traces/perl.pg.zst"))?
            }
            Subject::Python => {
                recorded(include_bytes!("../../../../../lib/mrc/tests/traces/python.pg.zst"))?
            }
            Subject::Sort => {
                recorded(include_bytes!("../../../../../lib/mrc/tests/traces/sort.pg.zst"))?
            }
        })
    }
}

fn recorded(packed: &[u8]) -> anyhow::Result<Program> {
    let bytes = zstd::decode_all(packed).context("cannot unpack a recording")?;
    let (words, _) = bytes.as_chunks::<8>();
    let mut program = Program::new(Kind::Trace, RECORDED_MIB * MIB_PAGES);
    program.settings.trace = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Ok(program)
}

/// The description of a program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    settings: Settings,
}

impl Program {
    fn new(kind: Kind, pages: u32) -> Program {
        let (sizes, trace) = (Vec::new(), Vec::new());
        Program { settings: Settings { kind, pages, seed: SEED, sizes, part_touches: 0, trace } }
    }

    /// Visits random pages of the first `sizes_mib` MiB, one part after the other, of `mib` MiB in
    /// all.
    pub(crate) fn random(mib: u32, sizes_mib: &[u32], part_touches: u64) -> Program {
        let mut program = Program::new(Kind::Random, mib * MIB_PAGES);
        program.settings.sizes = sizes_mib.iter().map(|mib| mib * MIB_PAGES).collect();
        program.settings.part_touches = part_touches;
        program
    }

    /// The order of its touches.
    ///
    /// # Errors
    /// There is no such order.
    pub(crate) fn truth(&self) -> anyhow::Result<Truth> {
        Ok(Truth { order: Order::new(&self.settings)? })
    }

    /// The command line that starts such a program, and a file that the program reads.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn arguments(&self) -> anyhow::Result<(Vec<String>, Option<NamedTempFile>)> {
        let Settings { kind, pages, seed, sizes, part_touches, trace } = &self.settings;
        let mut arguments = vec![name_of(*kind)];
        let mut option = |name: &str, value: String| {
            arguments.extend([format!("--{name}"), value]);
        };
        option("mib", (pages / MIB_PAGES).to_string());
        option("seed", seed.to_string());
        option("part-touches", part_touches.to_string());
        sizes.iter().for_each(|size| option("size-mib", (size / MIB_PAGES).to_string()));
        if trace.is_empty() {
            return Ok((arguments, None));
        }
        let mut file = NamedTempFile::new().context("cannot make a file for a recording")?;
        let bytes: Vec<u8> = trace.iter().flat_map(|page| page.to_le_bytes()).collect();
        file.write_all(&bytes).context("cannot write a recording")?;
        option("trace", file.path().display().to_string());
        Ok((arguments, Some(file)))
    }
}

/// Knows which page each touch of a program touches.
pub(crate) struct Truth {
    order: Order,
}

impl Truth {
    /// The memory that these touches cover, in bytes.
    pub(crate) fn touched(&self, touches: Range<u64>) -> u64 {
        self.order.first_touches(touches).len() as u64 * PAGE
    }

    /// The pages that these touches cover, each once, in the order of the first touch.
    pub(crate) fn first_touches(&self, touches: Range<u64>) -> Vec<u64> {
        self.order.first_touches(touches).into_iter().map(u64::from).collect()
    }

    /// The page of each of these touches, in order.
    pub(crate) fn visits(&self, touches: Range<u64>, mut take: impl FnMut(u64)) {
        self.order.visits(touches, |page| take(page.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_an_order_and_a_command_line() {
        for &subject in Subject::value_variants() {
            let program = subject.program().unwrap();
            let (arguments, file) = program.arguments().unwrap();
            assert_eq!(arguments[1], "--mib", "{subject:?}");
            assert_eq!(file.is_some(), arguments[0] == "trace");
            // The others have long orders, which take seconds without optimization.
            if matches!(subject, Subject::Scan | Subject::Zipf | Subject::Sort) {
                let truth = program.truth().unwrap();
                assert_eq!((truth.touched(0..1), truth.first_touches(0..1).len()), (PAGE, 1));
            }
        }
        let (arguments, _) = Program::random(8, &[2, 4], 9).arguments().unwrap();
        let expected = "random --mib 8 --seed 1 --part-touches 9 --size-mib 2 --size-mib 4";
        assert_eq!(arguments.join(" "), expected);
    }
}
