//! How fast an aged histogram follows the working set, and how steady it is: the table of
//! `src/aging.rs`.
//!
//! Intervals of 20,000 references, after 20 intervals over 4,000 pages:
//!
//! - *fall*, *rise*: intervals until WSS(1 %) stays within 10 % of the new working set, after it
//!   fell to 1,000 pages or rose to 8,000; all pages are equally likely, or follow Zipf(0.9);
//! - *pulse*: each fourth interval uses 4,000 pages, the others 1,000: the least estimate as a part
//!   of what the pulse needs;
//! - *noise*: the mean difference between the estimates of one interval and the next, where each
//!   has only 500 references to 4,000 pages by Zipf(0.9).
//!
//!     cargo run --release -p ballast-mrc --example aging

#[path = "streams/mod.rs"]
mod streams;

use ballast_mrc::{
    Aging, Avl, CountingEngine, Curve, Engine, EngineName, Full, Granularity, Layout,
};
use streams::{Random, Zipf};

const REFERENCES: u64 = 20_000;
const INTERVALS: usize = 60;

fn main() -> Result<(), Full> {
    println!(
        "{:>6}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "λ", "fall", "rise", "fall, Z", "rise, Z", "pulse", "noise"
    );
    for factor in [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0] {
        let follows = |to: u64, exponent: f64| -> Result<String, Full> {
            let sizes = |interval| if interval < 20 { 4000 } else { to };
            let sets = working_sets(factor, exponent, REFERENCES, sizes)?;
            let steady = working_sets(0.0, exponent, REFERENCES, sizes)?;
            let goal = mean(&steady[INTERVALS - 10..]);
            let last = sets.iter().rposition(|&set| (set / goal - 1.0).abs() > 0.1);
            let needed = last.map_or(0, |last| (last + 1).saturating_sub(20)) + 1;
            Ok(if needed > INTERVALS - 20 { "> 40".to_owned() } else { needed.to_string() })
        };
        let pulse = |interval| if interval % 4 == 0 { 4000 } else { 1000 };
        let sets = working_sets(factor, 0.0, REFERENCES, pulse)?;
        let least = sets[20..].iter().copied().fold(f64::INFINITY, f64::min);
        let noisy = &working_sets(factor, 0.9, 500, |_| 4000)?[40..];
        let noise: Vec<f64> = noisy.windows(2).map(|two| (two[1] / two[0] - 1.0).abs()).collect();
        println!(
            "{factor:>6}{:>10}{:>10}{:>10}{:>10}{:>8.0} %{:>8.1} %",
            follows(1000, 0.0)?,
            follows(8000, 0.0)?,
            follows(1000, 0.9)?,
            follows(8000, 0.9)?,
            least / 3960.0 * 100.0,
            mean(&noise) * 100.0,
        );
    }
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// WSS(1 %) after each interval; each interval uses the first pages, as many as its entry says.
fn working_sets(
    factor: f64,
    exponent: f64,
    references: u64,
    pages: impl Fn(usize) -> u64,
) -> Result<Vec<f64>, Full> {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let mut engine = CountingEngine::new(EngineName::Avl, Avl::new());
    let mut aging = Aging::new(factor, Layout::Exact).expect("from 0 to 1");
    let mut sets = Vec::new();
    for interval in 0..INTERVALS {
        let zipf = Zipf::new(pages(interval), exponent);
        let tags: Vec<u64> = (0..references).map(|_| zipf.draw(&mut random)).collect();
        engine.record(&tags)?;
        aging.end_interval(&engine.histogram().expect("a counting engine has one"));
        engine.start_interval();
        sets.push(Curve::new(aging.histogram(), Granularity::PAGE).working_set(0.01) as f64);
    }
    Ok(sets)
}
