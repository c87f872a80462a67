//! Throughput of paging out to a swap file and back in, for shared and private memory. Run as root:
//! `cargo bench -p ballast-reclaim --bench paging`.
//!
//! Each figure is the best of [`ROUNDS`] rounds of [`SIZE_MIB`] MiB that were just written. `step
//! ms` is the longest step of 8 MiB. `cached` is what the host still has in its swap cache right
//! after paging out; the swap cache is freed before paging in, so that the disk is read.

// The tests use the rest of the module.
#[allow(dead_code)]
#[path = "../tests/it/common.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::{
    CgroupVersion, GuestMemory, PageIn, PageOut, PagingProgress, PagingState, Picker, SwapUsage,
};
use common::{Child, IN, OUT, PROC, SwapFile, TestCgroup};

const SIZE_MIB: u64 = 128;
const ROUNDS: u32 = 3;

/// The result of one direction.
#[derive(Clone, Copy, Default)]
struct Throughput {
    mib_per_second: f64,
    longest_step: Duration,
}

impl Throughput {
    fn better(self, other: Throughput) -> Throughput {
        if other.mib_per_second > self.mib_per_second { other } else { self }
    }
}

/// Takes all steps of a job without rate limit.
fn measure(mut step: impl FnMut(Timestamp) -> PagingProgress) -> Throughput {
    let begin = Instant::now();
    let mut longest_step = Duration::ZERO;
    loop {
        let before = Instant::now();
        let ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let progress = step(Timestamp::from_millis(ms));
        longest_step = longest_step.max(before.elapsed());
        match progress.state {
            PagingState::InProgress | PagingState::Waiting { until: Some(_) } => {}
            PagingState::Finished(_) => {
                let mib_per_second = progress.moved.as_mib_f64() / begin.elapsed().as_secs_f64();
                return Throughput { mib_per_second, longest_step };
            }
            state => panic!("{state:?}"),
        }
    }
}

fn cached() -> Bytes {
    SwapUsage::read(Path::new(PROC)).map_or(Bytes::ZERO, |swap| swap.cached)
}

fn round(
    memory: &GuestMemory,
    picker: Picker,
    group: &TestCgroup,
) -> (Throughput, Throughput, Bytes) {
    let mut out = PageOut::new(Bytes::mib(SIZE_MIB), picker, OUT);
    let before = cached();
    let out = measure(|now| out.step(memory, now));
    let cached = cached().saturating_sub(before);
    // Frees the swap cache, so that paging in reads the disk.
    let (file, amount) = match group.version {
        CgroupVersion::One => ("memory.force_empty", "0".to_owned()),
        CgroupVersion::Two => ("memory.reclaim", Bytes::mib(SIZE_MIB).get().to_string()),
    };
    // Version 2 fails if there is less to reclaim than that.
    let _ = fs::write(group.folder.join(file), amount);
    let mut back = PageIn::new(None, IN);
    (out, measure(|now| back.step(memory, now, Bytes::MAX)), cached)
}

fn main() {
    let Some(_swap) = SwapFile::new() else { return };
    let Some(group) = TestCgroup::new() else { return };
    println!(
        "{:8} {:>8}  {:>9} {:>8}  {:>9} {:>8}  {:>8}",
        "memory", "granule", "out MiB/s", "step ms", "in MiB/s", "step ms", "cached"
    );
    for (name, shared, private) in [("shared", SIZE_MIB, 0), ("private", 0, SIZE_MIB)] {
        for granule in [1, 4, 16, 64, 512] {
            let mut best = (Throughput::default(), Throughput::default(), Bytes::ZERO);
            for seed in 0..ROUNDS {
                // A new process each time: pages with a copy left in swap would not be written
                // again.
                let child = Child::new(shared, private);
                group.add(&child);
                child.fill();
                let picker = Picker::new(seed.into()).granule_pages(granule);
                let (out, back, cached) = round(&child.open(), picker, &group);
                best = (best.0.better(out), best.1.better(back), cached);
            }
            let (out, back, cached) = best;
            println!(
                "{name:8} {granule:>8}  {:>9.0} {:>8.0}  {:>9.0} {:>8.0}  {cached:>8}",
                out.mib_per_second,
                out.longest_step.as_secs_f64() * 1e3,
                back.mib_per_second,
                back.longest_step.as_secs_f64() * 1e3,
            );
        }
    }
}
