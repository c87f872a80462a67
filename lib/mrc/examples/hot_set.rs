//! What a hot set does to a miss-ratio curve: the table of `src/hot_set.rs`.
//!
//! For each workload and hot-set size: the share of accesses that trap, and the error of WSS(1 %)
//! and mean absolute error of the total miss ratio (500 sizes) against the curve of all accesses.
//! The curves are those of the trapped accesses alone, of these with the true number of hidden
//! accesses added, and of these with the number estimated from one watched entry in 64; the error
//! of that estimate and the share of traps that it costs follow.
//!
//!     cargo run --release -p ballast-mrc --example hot_set

#[path = "streams/mod.rs"]
mod streams;

use ballast_mrc::{
    Access, Avl, CountingEngine, Curve, Engine, EngineName, Form, Full, Granularity, Histogram,
    HotSet, mean_absolute_error, with_hidden,
};
use streams::{Random, Zipf};

const PAGES: u64 = 1 << 16;
const REFERENCES: u64 = 1_500_000;
const SIZES: u64 = 500;
const WATCH_EVERY: u32 = 64;

fn main() -> Result<(), Full> {
    println!(
        "{:20}{:>8}{:>8}{:>18}{:>18}{:>18}{:>10}{:>8}",
        "workload", "HSS", "traps", "trapped alone", "true count", "watched", "estimate", "traps"
    );
    for (name, pages) in workloads() {
        let truth = curve(&histogram(&pages)?);
        for size in [256, 1024, 4096] {
            let mut hot_set = HotSet::new(size, WATCH_EVERY);
            let trapped: Vec<u64> = pages
                .iter()
                .copied()
                .filter(|&page| hot_set.access(page) == Access::Trapped)
                .collect();
            let alone = histogram(&trapped)?;
            let access_counts = hot_set.access_counts();
            let hidden = access_counts.hidden_of_total(REFERENCES);
            let estimate = access_counts.hidden_of_watched(WATCH_EVERY);
            println!(
                "{name:20}{size:>8}{:>6.1} %{:>18}{:>18}{:>18}{:>+8.1} %{:>6.1} %",
                percent(access_counts.trapped, REFERENCES),
                cell(&truth, &curve(&alone)),
                cell(&truth, &curve(&with_hidden(&alone, hidden as f64, size as u64))),
                cell(&truth, &curve(&with_hidden(&alone, estimate as f64, size as u64))),
                percent(estimate, hidden.max(1)) - 100.0,
                percent(access_counts.watched, REFERENCES),
            );
        }
    }
    Ok(())
}

fn histogram(pages: &[u64]) -> Result<Histogram, Full> {
    let mut engine = CountingEngine::new(EngineName::Avl, Avl::new());
    engine.record(pages)?;
    Ok(engine.histogram().expect("a counting engine has one"))
}

fn curve(histogram: &Histogram) -> Curve {
    Curve::new(histogram, Granularity::PAGE)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}

fn cell(truth: &Curve, curve: &Curve) -> String {
    let sizes = (0..=SIZES).map(|size| size * truth.pages_max() / SIZES);
    let mean = mean_absolute_error(truth, curve, sizes, Form::Total);
    let wss = curve.working_set(0.01) as f64 / truth.working_set(0.01) as f64 - 1.0;
    format!("{:+.1} % {mean:.4}", wss * 100.0)
}

fn workloads() -> Vec<(&'static str, Vec<u64>)> {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let skewed = |exponent: f64, random: &mut Random| -> Vec<u64> {
        let zipf = Zipf::new(PAGES, exponent);
        (0..REFERENCES).map(|_| zipf.draw(random)).collect()
    };
    // Each page of the scan is accessed 8 times in a row.
    let scan = (0..REFERENCES).map(|at| at / 8 % 20_000).collect();
    // 9 of 10 accesses go to 2,000 pages, the others to 30,000.
    let two = (0..REFERENCES).map(|_| match random.below(10) {
        0 => 2000 + random.below(30_000),
        _ => random.below(2000),
    });
    vec![
        ("two levels", two.collect()),
        ("Zipf(0.9)", skewed(0.9, &mut random)),
        ("Zipf(1.1)", skewed(1.1, &mut random)),
        ("scan, 8 each", scan),
    ]
}
