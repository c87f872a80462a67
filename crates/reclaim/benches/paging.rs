//! How fast pages go to a swap file and come back, for shared and private memory. Run as root:
//! `cargo bench -p ballast-reclaim --bench paging`.
//!
//! Each figure is the best of [`ROUNDS`], each of [`SIZE_MIB`] MiB that were just written. `step ms` is the longest step
//! of 8 MiB, and `kept` how much of it the host still has in memory right after it was paged out, as a copy that waits to
//! be given away. Those copies are taken before it is paged in, by the group the process is in, so that the disk is read.

// Shared with the tests, which use all of it.
#[allow(dead_code)]
#[path = "../tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::{PageIn, PageOut, Paging, Picker, Progress, State, Swap};
use common::{Child, Group, IN, OUT, PROC, SwapFile};

const SIZE_MIB: u64 = 128;
const ROUNDS: u32 = 3;

/// A figure of one direction.
#[derive(Clone, Copy, Default)]
struct Figure {
    mib_per_second: f64,
    longest: Duration,
}

impl Figure {
    fn better(self, other: Figure) -> Figure {
        if other.mib_per_second > self.mib_per_second { other } else { self }
    }
}

/// Takes all steps, of an order without bounds.
fn measure(mut step: impl FnMut(Timestamp) -> Progress) -> Figure {
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        let before = Instant::now();
        let ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let progress = step(Timestamp::from_millis(ms));
        longest = longest.max(before.elapsed());
        match progress.state {
            State::Going | State::Waiting { until: Some(_) } => {}
            State::Finished(_) => {
                let mib_per_second = progress.moved.as_mib_f64() / begin.elapsed().as_secs_f64();
                return Figure { mib_per_second, longest };
            }
            state => panic!("{state:?}"),
        }
    }
}

fn kept() -> Bytes {
    Swap::read(Path::new(PROC)).map_or(Bytes::ZERO, |swap| swap.cached)
}

fn round(paging: &Paging, picker: Picker, group: &Group) -> (Figure, Figure, Bytes) {
    let mut out = PageOut::new(Bytes::mib(SIZE_MIB), picker, OUT);
    let before = kept();
    let out = measure(|now| out.step(paging, now));
    let kept = kept().saturating_sub(before);
    // Else it would come from those copies.
    fs::write(group.0.join("memory.force_empty"), "0").unwrap();
    let mut back = PageIn::new(None, IN);
    (out, measure(|now| back.step(paging, now, Bytes::MAX)), kept)
}

fn main() {
    let Some(_swap) = SwapFile::new(3 * SIZE_MIB) else { return };
    let Some(group) = Group::new() else { return };
    println!(
        "{:8} {:>8}  {:>9} {:>8}  {:>9} {:>8}  {:>8}",
        "memory", "granule", "out MiB/s", "step ms", "in MiB/s", "step ms", "kept"
    );
    for (name, shared, private) in [("shared", SIZE_MIB, 0), ("private", 0, SIZE_MIB)] {
        for granule in [1, 4, 16, 64, 512] {
            let mut best = (Figure::default(), Figure::default(), Bytes::ZERO);
            for seed in 0..ROUNDS {
                // A new process each time: what was read back is not written again where a copy is left.
                let child = Child::new(shared, private);
                group.add(&child);
                child.fill();
                let picker = Picker::new(seed.into()).granule_pages(granule);
                let (out, back, kept) = round(&child.paging(), picker, &group);
                best = (best.0.better(out), best.1.better(back), kept);
            }
            let (out, back, kept) = best;
            println!(
                "{name:8} {granule:>8}  {:>9.0} {:>8.0}  {:>9.0} {:>8.0}  {kept:>8}",
                out.mib_per_second,
                out.longest.as_secs_f64() * 1e3,
                back.mib_per_second,
                back.longest.as_secs_f64() * 1e3,
            );
        }
    }
}
