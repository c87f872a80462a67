//! How far sampled curves are from the exact one:
//! `cargo run --release -p ballast-mrc --example sampling_error`.
//!
//! Idea: three streams of 16 M references; the mean absolute error of total miss ratios over sizes
//! up to all pages, for each way of scaling, rate and seed. `ballast bench mrc` measures the speed.

// Examples may print.

#[path = "streams/mod.rs"]
mod streams;

use ballast_mrc::*;
use streams::{Random, Zipf};

const REFERENCES: usize = 16_000_000;
const SIZES: u64 = 5000;
const SEEDS: [u64; 3] = [1, 2, 3];

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
    let mut exact = CountingEngine::new(EngineName::Exact, Exact::new());
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
            let mut shards = Shards::with_stack(Exact::new(), rate, seed);
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
}

/// Zipf(0.9) over `pages` pages in random places.
fn zipf(random: &mut Random, references: usize, pages: u64) -> Vec<u64> {
    let mut places: Vec<u64> = (0..pages).collect();
    for at in (1..places.len()).rev() {
        places.swap(at, random.below(at as u64 + 1) as usize);
    }
    let zipf = Zipf::new(pages, 0.9);
    (0..references).map(|_| places[zipf.draw(random) as usize]).collect()
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
