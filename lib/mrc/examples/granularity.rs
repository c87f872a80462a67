//! What tags of many pages do to a miss-ratio curve: the table of `src/page_weighted.rs`.
//!
//! For each workload and `G`: the error of WSS(1 %) and the mean absolute error of the total miss
//! ratio (500 sizes up to the largest that matters) against `G = 1`, for the paper's reading, for
//! distances in touched pages, and for sampling one page in `G` by its hash, which needs as many
//! tags.
//!
//!     cargo run --release -p ballast-mrc --example granularity

#[path = "streams/mod.rs"]
mod streams;

use ballast_mrc::{
    Avl, CountingEngine, Curve, Engine, EngineName, Form, Full, Granularity, PageWeighted,
    mean_absolute_error,
};
use streams::{Random, Zipf};

const PAGES: u64 = 1 << 16;
const REFERENCES: u64 = 1_500_000;
const SIZES: u64 = 500;

fn main() -> Result<(), Full> {
    println!("{:32}{:>18}{:>18}{:>18}", "", "d × G", "touched pages", "1/G sampled");
    println!("{:16}{:>9}{:>6}", "workload", "WSS", "G");
    for (name, pages) in workloads() {
        let truth = Curve::new(&histogram(&pages)?, Granularity::PAGE);
        let row = |what: &str, curves: [Curve; 3]| {
            let cells = curves.map(|curve| cell(&truth, &curve));
            println!("{what:32}{:>18}{:>18}{:>18}", cells[0], cells[1], cells[2]);
        };
        for granularity in [1, 8, 32, 512].map(|pages| Granularity::new(pages).expect("a power")) {
            let tags: Vec<u64> = pages.iter().map(|&page| granularity.tag(page)).collect();
            let paper = Curve::new(&histogram(&tags)?, granularity);

            let mut weighted = PageWeighted::new(Avl::new(), granularity);
            weighted.record(&pages)?;

            let rate = u64::MAX / granularity.pages();
            let sample: Vec<u64> =
                pages.iter().copied().filter(|&page| mix(page) <= rate).collect();
            let sampled = Curve::new(&histogram(&sample)?, granularity);

            let what = format!("{name:16}{:>9}{granularity:>6}", truth.working_set(0.01));
            row(&what, [paper, weighted.curve(), sampled]);
        }
    }
    Ok(())
}

fn histogram(tags: &[u64]) -> Result<ballast_mrc::Histogram, Full> {
    let mut engine = CountingEngine::new(EngineName::Avl, Avl::new());
    engine.record(tags)?;
    Ok(engine.histogram().expect("a counting engine has one"))
}

fn cell(truth: &Curve, curve: &Curve) -> String {
    let sizes = (0..=SIZES).map(|size| size * truth.pages_max() / SIZES);
    let mean = mean_absolute_error(truth, curve, sizes, Form::Total);
    let wss = curve.working_set(0.01) as f64 / truth.working_set(0.01) as f64 - 1.0;
    format!("{:+.1} % {mean:.4}", wss * 100.0)
}

fn workloads() -> Vec<(&'static str, Vec<u64>)> {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let zipf = Zipf::new(PAGES, 0.9);
    let mut places: Vec<u64> = (0..PAGES).collect();
    for last in (1..places.len()).rev() {
        places.swap(last, random.below(last as u64 + 1) as usize);
    }
    let scan = (0..REFERENCES).map(|at| at % PAGES).collect();
    let sparse = (0..REFERENCES).map(|_| random.below(4096) * 512).collect();
    let eighth = (0..REFERENCES).map(|_| random.below(PAGES / 4) * 8).collect();
    let clustered = (0..REFERENCES).map(|_| zipf.draw(&mut random)).collect();
    let mut shuffled = |count: u64| -> Vec<u64> {
        (0..count).map(|_| places[zipf.draw(&mut random) as usize]).collect()
    };
    let scattered = shuffled(REFERENCES);
    // Four rounds of: skewed use of one region, a loop over a second, sparse use of a third that
    // moves every other time.
    let mut phases = Vec::new();
    for round in 0..4 {
        let length = REFERENCES / 12;
        phases.extend(shuffled(length));
        phases.extend((0..length).map(|at| PAGES + at % 40_000));
        let mut random = Random(round + 1);
        phases.extend((0..length).map(|_| 2 * PAGES + round % 2 * 8192 + random.below(2048) * 4));
    }
    vec![
        ("scan", scan),
        ("1 page of 512", sparse),
        ("1 page of 8", eighth),
        ("Zipf, clustered", clustered),
        ("Zipf, shuffled", scattered),
        ("phases", phases),
    ]
}

/// The finalizer of MurmurHash3.
fn mix(page: u64) -> u64 {
    let page = (page ^ page >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let page = (page ^ page >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    page ^ page >> 33
}
