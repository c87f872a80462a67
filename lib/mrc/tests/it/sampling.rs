//! Tests of sampling engines against the exact one: equal where nothing is left out, and within
//! error bounds over several seeds where something is.

use ballast_mrc::*;
use proptest::prelude::*;

use crate::stacks::traces;

const SEEDS: std::ops::Range<u64> = 1..7;

fn exact(tags: &[u64]) -> Histogram {
    let mut engine = CountingEngine::new(EngineName::Avl, Avl::new());
    engine.record(tags).unwrap();
    engine.histogram().unwrap()
}

fn run(mut engine: impl Engine, tags: &[u64]) -> Histogram {
    tags.chunks(5000).for_each(|part| engine.record(part).unwrap());
    let histogram = engine.histogram().unwrap();
    assert_eq!(engine.references(), tags.len() as u64);
    let all = histogram.references();
    assert!((all - tags.len() as f64).abs() <= 1e-6 * all, "{}: {all}", engine.name());
    histogram
}

fn rate(rate: f64) -> SampleRate {
    SampleRate::new(rate).unwrap()
}

/// The mean absolute error of total miss ratios over `sizes`.
fn error(exact: &Histogram, other: &Histogram, sizes: &[u64]) -> f64 {
    let curve = |histogram| Curve::new(histogram, Granularity::PAGE);
    mean_absolute_error(&curve(exact), &curve(other), sizes.iter().copied(), Form::Total)
}

fn all_sizes(pages: u64) -> Vec<u64> {
    (1..=1000).map(|at| at * pages / 1000).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 11
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Zipf(0.9) over `pages` pages in random places.
fn zipf(references: usize, pages: u64) -> Vec<u64> {
    let mut random = Random(1);
    let mut places: Vec<u64> = (0..pages).collect();
    (1..places.len()).for_each(|at| places.swap(at, random.below(at as u64 + 1) as usize));
    let weights = (1..=pages).map(|rank| (rank as f64).powf(-0.9));
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let total = sums[sums.len() - 1];
    let mut draw = || random.next() as f64 / 2_f64.powi(53) * total;
    (0..references)
        .map(|_| {
            let at = draw();
            places[sums.partition_point(|&sum| sum < at).min(places.len() - 1)]
        })
        .collect()
}

fn scan(references: usize, pages: u64) -> Vec<u64> {
    (0..pages).cycle().take(references).collect()
}

/// Loops, Zipf and random references, each in a different part of all pages.
fn mix(references: usize, pages: u64) -> Vec<u64> {
    let (mut random, part) = (Random(2), references / 6);
    let mut tags = Vec::new();
    for phase in 0..6 {
        let range = pages / [2, 5, 3][phase % 3];
        let start = random.below(pages - range);
        match phase % 3 {
            0 => tags.extend(scan(part, range).iter().map(|at| start + at)),
            1 => tags.extend(zipf(part, range).iter().map(|at| start + at)),
            _ => tags.extend((0..part).map(|_| start + random.below(range))),
        }
    }
    tags
}

/// Errors over several seeds: their mean and the greatest.
fn errors(tags: &[u64], pages: u64, engine: impl Fn(u64) -> Histogram) -> (f64, f64) {
    let (exact, sizes) = (exact(tags), all_sizes(pages));
    let errors: Vec<f64> = SEEDS.map(|seed| error(&exact, &engine(seed), &sizes)).collect();
    (errors.iter().sum::<f64>() / errors.len() as f64, errors.into_iter().fold(0.0, f64::max))
}

#[test]
fn shards_keeps_its_error_bounds() {
    for (name, tags, pages, mean_max, worst_max) in [
        ("zipf", zipf(300_000, 20_000), 20_000, 0.012, 0.02),
        ("scan", scan(200_000, 20_000), 20_000, 0.0005, 0.0005),
        ("mix", mix(300_000, 40_000), 40_000, 0.006, 0.012),
    ] {
        let (mean, worst) = errors(&tags, pages, |seed| run(Shards::new(rate(0.02), seed), &tags));
        assert!(mean < mean_max && worst < worst_max, "{name}: {mean} {worst}");
    }
}

#[test]
fn small_programs_are_sampled_at_a_higher_rate() {
    let asked = rate(0.01);
    let engine = |seed| Shards::new(asked, seed).with_samples_min(Shards::SAMPLES_MIN_DEFAULT);
    let mut streams: Vec<(String, Vec<u64>)> = Vec::new();
    for name in traces::NAMES {
        streams.push((name.to_owned(), traces::read(name)));
    }
    for pages in [500, 900, 2000, 4000, 6000, 8000, 10_000, 30_000] {
        streams.push((format!("zipf of {pages}"), zipf(20 * pages as usize, pages)));
        streams.push((format!("mix of {pages}"), mix(20 * pages as usize, pages)));
    }
    for (name, tags) in streams {
        let pages = exact(&tags).cold() as u64;
        let (mean, worst) = errors(&tags, pages, |seed| run(engine(seed), &tags));
        println!("{name}: {pages} pages, mean error {mean:.4}, at most {worst:.4}");
        assert!(mean < 0.005, "{name}: {mean}");
        if pages < 2 * Shards::SAMPLES_MIN_DEFAULT {
            assert!(worst < 1e-3, "{name}: all pages are sampled, but the error is {worst}");
        }
        let mut shards = engine(1);
        shards.record(&tags).unwrap();
        let rate = shards.rate().get();
        let samples_wanted = (Shards::SAMPLES_MIN_DEFAULT * 3 / 4).min(pages);
        let samples = pages as f64 * rate;
        assert!(rate >= asked.get() && samples >= samples_wanted as f64, "{name}: {rate}");
    }
}

#[test]
fn the_rate_falls_to_the_one_asked_for() {
    let tags = scan(600_000, 300_000);
    let mut shards = Shards::new(rate(0.01), 1).with_samples_min(Shards::SAMPLES_MIN_DEFAULT);
    shards.record(&tags).unwrap();
    assert_eq!(shards.rate(), rate(0.01));
    let error = error(&exact(&tags), &shards.histogram().unwrap(), &all_sizes(300_000));
    assert!(error < 0.001, "{error}");
    shards.start_interval();
    assert_eq!(shards.histogram().unwrap().references(), 0.0, "nothing of before is left");
}

#[test]
fn fixed_size_keeps_its_error_bounds() {
    for (name, tags, pages, mean_max, worst_max) in [
        ("zipf", zipf(300_000, 20_000), 20_000, 0.009, 0.016),
        ("scan", scan(200_000, 20_000), 20_000, 0.008, 0.012),
        ("mix", mix(300_000, 40_000), 40_000, 0.008, 0.016),
    ] {
        let (mean, worst) = errors(&tags, pages, |seed| {
            let mut engine = ShardsFixedSize::new(512, seed);
            engine.record(&tags[..1000]).unwrap();
            assert!(engine.rate() < 1.0 || name != "scan");
            let histogram = run(ShardsFixedSize::new(512, seed), &tags);
            assert_eq!(histogram.layout(), Layout::Exact);
            histogram
        });
        assert!(mean < mean_max && worst < worst_max, "{name}: {mean} {worst}");
    }
}

#[test]
fn fixed_size_keeps_to_its_memory() {
    let mut engine = ShardsFixedSize::new(1000, 1);
    for (at, part) in scan(1_000_000, 1_000_000).chunks(100_000).enumerate() {
        engine.record(part).unwrap();
        assert!(engine.sampled_distinct() <= 1000 && engine.sampled_distinct() > 990);
        assert!(engine.memory_bytes() < 400 << 10, "{}", engine.memory_bytes());
        let expected = 1000.0 / ((at + 1) * 100_000) as f64;
        assert!((engine.rate() / expected - 1.0).abs() < 0.1, "{} {expected}", engine.rate());
    }
    let distinct = engine.distinct() as f64;
    assert!((distinct / 1e6 - 1.0).abs() < 0.015, "{distinct}");
}

#[test]
fn aet_keeps_its_error_bounds() {
    for (name, tags, pages, all_max, mean_max) in [
        ("zipf", zipf(300_000, 20_000), 20_000, 0.01, 0.02),
        ("scan", scan(200_000, 20_000), 20_000, 0.001, 0.01),
        ("mix", mix(300_000, 40_000), 40_000, 0.05, 0.07),
    ] {
        let all = error(&exact(&tags), &run(Aet::new(), &tags), &all_sizes(pages));
        assert!(all < all_max, "{name}: {all}");
        let (mean, _) = errors(&tags, pages, |seed| run(Aet::sampled(512, seed), &tags));
        assert!(mean < mean_max, "{name}: {mean}");
    }
}

#[test]
fn aet_beats_shards_at_few_samples() {
    // 200 samples of 20,000 pages: sizes below some hundred pages have none or few of them.
    let (pages, samples) = (20_000, 200);
    let tags = zipf(300_000, pages);
    let exact = exact(&tags);
    let sizes: Vec<u64> = (0..=80).map(|at| 2_f64.powf(f64::from(at) / 8.0) as u64).collect();
    let by = |histogram: &Histogram| error(&exact, histogram, &sizes);
    let (mut aet, mut shards, mut fixed_size) = (0.0, 0.0, 0.0);
    let (mut aet_large, mut plain_large) = (0.0, 0.0);
    for seed in SEEDS {
        let mut engine = Shards::with_stack(Avl::new(), rate(samples as f64 / pages as f64), seed);
        engine.record(&tags).unwrap();
        let histogram = run(Aet::sampled(samples, seed), &tags);
        aet += by(&histogram);
        aet_large += error(&exact, &histogram, &all_sizes(pages));
        shards += by(&engine.histogram().unwrap());
        plain_large += error(&exact, &engine.histogram_by(Scaling::Plain), &all_sizes(pages));
        fixed_size += by(&run(ShardsFixedSize::new(samples, seed), &tags));
    }
    assert!(aet * 1.1 < shards.min(fixed_size), "{aet} {shards} {fixed_size}");
    assert!(aet_large * 2.0 < plain_large, "{aet_large} {plain_large}");
}

#[test]
fn measuring_the_ratio_is_better_than_not() {
    // Pages far apart, so that the number of samples is left to chance.
    let mut random = Random(3);
    let places: Vec<u64> = (0..5000).map(|_| random.below(1 << 25)).collect();
    let tags: Vec<u64> = places.iter().copied().cycle().take(60_000).collect();
    let (exact, sizes) = (exact(&tags), all_sizes(5000));
    let mut sums = [0.0; 3];
    for seed in SEEDS {
        let mut shards = Shards::new(rate(0.02), seed);
        shards.record(&tags).unwrap();
        for (sum, scaling) in
            sums.iter_mut().zip([Scaling::Plain, Scaling::Adjusted, Scaling::Measured])
        {
            *sum += error(&exact, &shards.histogram_by(scaling), &sizes);
        }
    }
    assert!(sums[2] * 20.0 < sums[0].min(sums[1]), "{sums:?}");
}

#[test]
fn intervals_count_from_zero_and_keep_the_order() {
    let tags = scan(20_000, 10_000);
    let engines: [Box<dyn Engine>; 4] = [
        Box::new(Shards::new(rate(0.1), 1)),
        Box::new(ShardsFixedSize::new(1000, 1)),
        Box::new(Aet::new()),
        Box::new(Aet::sampled(500, 1)),
    ];
    for mut engine in engines {
        let name = engine.name();
        engine.record(&tags).unwrap();
        engine.start_interval();
        assert_eq!(engine.references(), 0);
        assert!(engine.histogram().unwrap().is_empty(), "{name}");
        engine.record(&tags).unwrap();
        let histogram = engine.histogram().unwrap();
        assert!(histogram.cold() < 200.0, "{name}: {}", histogram.cold());
        let near = 9700..10_300;
        let at: f64 =
            histogram.buckets().filter(|b| near.contains(&b.last)).map(|b| b.weight).sum();
        assert!(at > 19_000.0, "{name}: {at}");
        assert!((engine.distinct() as f64 / 10_000.0 - 1.0).abs() < 0.02, "{name}");
    }
}

#[test]
fn a_far_tag_makes_no_counted_tag_new() {
    let far = [0, 1 << 40];
    for seed in 0..32 {
        let mut shards = Shards::new(rate(0.1), seed);
        shards.record(&scan(20_000, 20_000)).unwrap();
        shards.start_interval();
        shards.record(&far).unwrap();
        assert!(shards.distinct() >= 20_000, "{seed}: {}", shards.distinct());
        for scaling in [Scaling::Adjusted, Scaling::Measured] {
            let histogram = shards.histogram_by(scaling);
            assert_eq!(histogram.references(), 2.0, "{seed} {scaling:?}");
        }
    }
}

#[test]
fn coarser_tags_keep_the_sampled_order() {
    let granularity = |pages| Granularity::new(pages).unwrap();
    let tags: Vec<u64> = (0..64_000).collect();
    let engines: [Box<dyn Engine>; 3] = [
        Box::new(Shards::new(rate(0.05), 1)),
        Box::new(ShardsFixedSize::new(4000, 1)),
        Box::new(Aet::new()),
    ];
    for mut engine in engines {
        let name = engine.name();
        engine.record(&tags).unwrap();
        engine.regroup(granularity(1), granularity(8)).unwrap();
        let coarse: Vec<u64> = (0..8000).collect();
        engine.record(&coarse).unwrap();
        let histogram = engine.histogram().unwrap();
        assert!(histogram.cold() < 400.0, "{name}: {} cold", histogram.cold());
        assert!(histogram.distance_max() > 7500, "{name}: {}", histogram.distance_max());
        engine.regroup(granularity(8), granularity(1)).unwrap();
        engine.record(&tags).unwrap();
        let all = engine.histogram().unwrap().references();
        assert!((all - 64_000.0).abs() < 1e-3, "{name}: {all}");
    }
}

#[test]
fn aet_makes_no_more_finer_tags_than_there_may_be() {
    let coarse = Granularity::new(Granularity::PAGES_MAX).unwrap();
    let count = TAGS_MAX / Granularity::PAGES_MAX + 1;
    let mut engine = Aet::new();
    engine.record(&scan(5000, count)).unwrap();
    let before = engine.histogram();
    assert_eq!(engine.regroup(coarse, Granularity::PAGE), Err(Full));
    assert_eq!((engine.distinct(), engine.histogram()), (count, before));
    engine.regroup(coarse, coarse).unwrap();
    assert_eq!(engine.distinct(), count);
    // A sampled engine starts over.
    let mut engine = Aet::sampled(100, 1);
    engine.record(&scan(5000, count)).unwrap();
    engine.regroup(coarse, Granularity::PAGE).unwrap();
    assert_eq!((engine.distinct(), engine.references()), (0, 0));
}

#[test]
fn statistical_sampling_finds_the_part_in_use_within_its_error() {
    let (allocation, used, picked) = (50_000, 20_000, 200);
    let mut squares = 0.0;
    let seeds = 40;
    for seed in 0..seeds {
        let mut engine = Statistical::new(allocation, picked, seed);
        assert_eq!(engine.working_set(), None);
        engine.record(&scan(20_000, used)).unwrap();
        let part = engine.working_set().unwrap() as f64 / allocation as f64;
        squares += (part - 0.4_f64).powi(2);
        assert!(engine.histogram().is_none());
    }
    // √(0.4 · 0.6 / 200) = 0.035
    let deviation = (squares / seeds as f64).sqrt();
    assert!((0.02..0.05).contains(&deviation), "{deviation}");
}

#[test]
fn statistical_sampling_cannot_see_beyond_the_allocation_and_falls_slowly() {
    let mut engine = Statistical::new(1000, 100, 1).with_period(5000);
    engine.record(&scan(50_000, 5000)).unwrap();
    assert_eq!(engine.working_set(), Some(1000));
    // One page from now on: the slow average still remembers.
    engine.record(&vec![0; 10_000]).unwrap();
    assert!(engine.latest().unwrap() <= 10);
    let soon = engine.working_set().unwrap();
    assert!((800..1000).contains(&soon), "{soon}");
    engine.record(&vec![0; 400_000]).unwrap();
    assert!(engine.working_set().unwrap() <= 20);
}

#[test]
fn nothing_and_one_page_are_no_special_case() {
    for tags in [&[][..], &[7], &[7, 7, 7], &[u64::MAX, 0, u64::MAX]] {
        for seed in SEEDS {
            for choice in [
                Choice::Exact,
                Choice::Shards { rate: rate(0.001) },
                Choice::ShardsFixedSize { samples_max: 1 },
                Choice::Aet { samples_max: 1 },
            ] {
                let mut engine = choice.build(seed);
                assert_eq!(engine.name(), choice.name());
                engine.record(tags).unwrap();
                let all = engine.histogram().unwrap().references();
                assert!((all - tags.len() as f64).abs() < 1e-6, "{choice:?} {tags:?}: {all}");
            }
        }
    }
}

fn streams() -> impl Strategy<Value = Vec<u64>> {
    let tag = prop_oneof![0..30_u64, 0..1500_u64, (0..20_u64).prop_map(|tag| tag << 40)];
    prop::collection::vec(tag, 0..3000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sampling_all_tags_is_exact(tags in streams(), seed: u64) {
        let expected = exact(&tags);
        let mut shards = Shards::with_stack(List::new(), SampleRate::ALL, seed);
        shards.record(&tags).unwrap();
        prop_assert_eq!(shards.histogram_by(Scaling::Plain), expected.clone());
        prop_assert_eq!(shards.histogram_by(Scaling::Adjusted), expected.clone());
        let mut fixed_size = ShardsFixedSize::new(2048, seed);
        fixed_size.record(&tags).unwrap();
        prop_assert_eq!(fixed_size.rate(), 1.0);
        prop_assert_eq!(fixed_size.histogram().unwrap(), expected.clone());
        // Tags within the range of bits are counted exactly, others with an error of 0.33 %.
        let dense: Vec<u64> = tags.iter().map(|tag| tag.min(&5000)).copied().collect();
        let mut shards = Shards::new(SampleRate::ALL, seed);
        shards.record(&dense).unwrap();
        prop_assert_eq!(shards.histogram().unwrap(), exact(&dense));
    }

    #[test]
    fn aet_of_enough_samples_equals_aet_of_all(tags in streams(), seed: u64) {
        let (mut all, mut sampled) = (Aet::new(), Aet::sampled(4096, seed));
        all.record(&tags).unwrap();
        sampled.record(&tags).unwrap();
        prop_assert_eq!(all.histogram(), sampled.histogram());
        prop_assert_eq!(all.distinct(), sampled.distinct());
    }

    #[test]
    fn weights_are_all_references_whatever_is_sampled(
        tags in streams(), seed: u64, share in 0.001..1.0_f64, samples in 1..50_usize,
    ) {
        run(Shards::new(rate(share), seed), &tags);
        run(ShardsFixedSize::new(samples, seed), &tags);
        run(Aet::sampled(samples, seed), &tags);
    }
}
