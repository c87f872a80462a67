//! How far sampled curves are from the exact one, and how fast they come:
//! `cargo run --release -p ballast-mrc --example sampling_error`.
//!
//! Idea: three streams of 16 M references; the mean absolute error of total miss ratios over sizes
//! up to all pages, for each way of scaling, rate and seed; then references per second of each
//! engine, the median of several runs in turn.
//!
//! Limits: times are of one process on a machine that may have other things to do.

// An example prints, and reads the clock.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::time::Instant;

use ballast_mrc::*;

const REFERENCES: usize = 16_000_000;
const SIZES: u64 = 5000;
const SEEDS: [u64; 3] = [1, 2, 3];
const ROUNDS: usize = 5;

type Stacked = Exact;

fn main() {
    let mut random = Random(1);
    let zipf = zipf(&mut random, REFERENCES, 1_000_000);
    let scan: Vec<u64> = (0..300_000).cycle().take(REFERENCES).collect();
    let workloads = [("zipf", zipf), ("scan", scan), ("mix", mix(REFERENCES, 1_500_000))];
    for (name, tags) in &workloads {
        report(name, tags);
    }
}

fn report(name: &str, tags: &[u64]) {
    let mut exact = Counted::new(EngineName::Exact, Stacked::new());
    exact.record(tags).expect("few tags");
    let distinct = exact.distinct();
    let curve = Curve::new(&exact.histogram().expect("exact"), Granularity::PAGE);
    println!("\n{name}: {} references, {distinct} pages", tags.len());
    let error = |histogram: &Histogram| {
        let estimate = Curve::new(histogram, Granularity::PAGE);
        let sizes = || (1..=SIZES).map(|at| (at * distinct).div_ceil(SIZES));
        [Form::Total, Form::Warm].map(|form| mean_absolute_error(&curve, &estimate, sizes(), form))
    };
    println!("  engine                  seed     plain  adjusted  measured (warm)");
    for rate in [0.1, 0.01, 0.001] {
        for seed in SEEDS {
            let rate = SampleRate::new(rate).expect("a rate");
            let mut shards = Shards::with_stack(Stacked::new(), rate, seed);
            shards.record(tags).expect("few tags");
            let by = |scaling| error(&shards.histogram_by(scaling));
            let (plain, adjusted, measured) =
                (by(Scaling::Plain), by(Scaling::Adjusted), by(Scaling::Measured));
            println!(
                "  shards R={:<14} {seed:>4}  {:.6}  {:.6}  {:.6} ({:.6})",
                rate.get(),
                plain[0],
                adjusted[0],
                measured[0],
                measured[1]
            );
        }
    }
    let fixed = |samples_max: usize, seed| {
        let name = format!("fixed size {samples_max}");
        (name, seed, Box::new(ShardsFixedSize::new(samples_max, seed)) as Box<dyn Engine>)
    };
    let mut others: Vec<(String, u64, Box<dyn Engine>)> = Vec::new();
    for samples_max in [8192, 512] {
        others.extend(SEEDS.map(|seed| fixed(samples_max, seed)));
    }
    others.push(("aet".into(), 0, Box::new(Aet::new())));
    others.extend(SEEDS.map(|seed| {
        ("aet 512 sampled".into(), seed, Box::new(Aet::sampled(512, seed)) as Box<dyn Engine>)
    }));
    for (name, seed, mut engine) in others {
        engine.record(tags).expect("few tags");
        let [total, warm] = error(&engine.histogram().expect("a curve"));
        println!(
            "  {name:<23} {seed:>4}                      {total:.6} ({warm:.6})  {} KiB",
            engine.memory_bytes() >> 10
        );
    }
    times(tags);
}

/// References per second of each engine.
fn times(tags: &[u64]) {
    let rate = |rate| SampleRate::new(rate).expect("a rate");
    let shards = |r, seed| Box::new(Shards::with_stack(Stacked::new(), rate(r), seed));
    let mut engines: Vec<(&str, Box<dyn Engine>)> = vec![
        ("exact", Box::new(Counted::new(EngineName::Exact, Stacked::new()))),
        ("shards 0.1", shards(0.1, 1)),
        ("shards 0.01", shards(0.01, 1)),
        ("shards 0.01, seed 2", shards(0.01, 2)),
        ("shards 0.001", shards(0.001, 1)),
        ("fixed size 8192", Box::new(ShardsFixedSize::new(8192, 1))),
        ("aet 512 sampled", Box::new(Aet::sampled(512, 1))),
        ("statistical", Box::new(Statistical::new(1_500_000, 100, 1).with_period(1_000_000))),
    ];
    let mut speeds = vec![Vec::new(); engines.len()];
    for _ in 0..ROUNDS {
        for ((_, engine), speeds) in engines.iter_mut().zip(&mut speeds) {
            let start = Instant::now();
            engine.record(tags).expect("few tags");
            speeds.push(tags.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
        }
    }
    println!("  million references per second, median and best of {ROUNDS}");
    for ((name, _), speeds) in engines.iter().zip(&mut speeds) {
        speeds.sort_by(f64::total_cmp);
        println!("  {name:<23} {:>8.1} {:>8.1}", speeds[ROUNDS / 2], speeds[ROUNDS - 1]);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((self.next() >> 32) * end) >> 32
    }
}

/// Zipf(0.9) over `pages` pages in random places.
fn zipf(random: &mut Random, references: usize, pages: u64) -> Vec<u64> {
    let mut places: Vec<u64> = (0..pages).collect();
    for at in (1..places.len()).rev() {
        places.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut sum = 0.0;
    let mut add = |rank: u64| {
        sum += (rank as f64).powf(-0.9);
        sum
    };
    let sums: Vec<f64> = (1..=pages).map(&mut add).collect();
    let mut draw = || {
        let at = (random.next() >> 11) as f64 / 2_f64.powi(53) * sum;
        places[sums.partition_point(|&upto| upto < at).min(places.len() - 1)]
    };
    (0..references).map(|_| draw()).collect()
}

/// Twenty-one phases of loops, Zipf and random references in overlapping parts of all pages.
fn mix(references: usize, pages: u64) -> Vec<u64> {
    const PHASES: usize = 21;
    let mut random = Random(3);
    let mut out = Vec::with_capacity(references);
    for phase in 0..PHASES {
        let count = references * (phase + 1) / PHASES - out.len();
        let range = pages / [2, 5, 12, 3, 30][phase % 5];
        let start = random.below(pages - range + 1);
        match phase % 3 {
            0 => out.extend((0..range).cycle().take(count).map(|at| start + at)),
            1 => out.extend(zipf(&mut random, count, range).into_iter().map(|at| start + at)),
            _ => out.extend((0..count).map(|_| start + random.below(range))),
        }
    }
    out
}
