//! The engine that counts a trace, whichever it is.
//!
//! Idea: engines differ in what they take (tags, or pages) and in what they tell (distances, or only a
//! working set); here they are one.

use ballast_mrc::{
    Aet, Choice, Counted, Curve, Engine, EngineName, Full, Granularity, Histogram, PageWeighted,
    ShardsFixedSize, Statistical,
};

use super::any_stack::AnyStack;
use super::chosen::Chosen;
use super::outcome::{Reading, Units, Used};
use super::settings::{Settings, Tuning};

/// Counts references to pages.
pub(super) struct Counter {
    kind: Kind,
    granularity: Granularity,
    /// Tags of a block; kept to be used again.
    tags: Vec<u64>,
}

enum Kind {
    /// An engine that was asked for.
    Asked(Box<dyn Engine>),
    /// The same with distances in touched pages.
    Touched(EngineName, PageWeighted<AnyStack>),
    /// Sampling of a working set.
    Statistical(Statistical),
    /// The chooser's.
    Chosen(Chosen),
}

/// What was counted.
pub(super) struct Counts {
    pub(super) histogram: Option<Histogram>,
    pub(super) curve: Option<Curve>,
    pub(super) distinct: u64,
    pub(super) pages_touched: Option<u64>,
    pub(super) active_pages: Option<u64>,
    pub(super) used: Used,
}

impl Counter {
    /// The counter that `settings` ask for, of a trace of at most `references_max`, if that is known.
    pub(super) fn new(settings: &Settings, references_max: Option<u64>) -> Self {
        let (tuning, units) = (settings.tuning, settings.units);
        let kind = match settings.engine {
            asked if units.reading == Reading::Touched => {
                let engine = asked.unwrap_or(EngineName::Exact);
                let stack = AnyStack::new(engine);
                Kind::Touched(engine, PageWeighted::new(stack, units.granularity))
            }
            Some(EngineName::Statistical) => Kind::Statistical(statistical(tuning, units)),
            Some(engine) => Kind::Asked(build(engine, tuning)),
            None => Kind::Chosen(Chosen::new(settings, references_max)),
        };
        Self { kind, granularity: units.granularity, tags: Vec::new() }
    }

    /// Counts references to `pages`.
    ///
    /// # Errors
    /// [`Full`] when there are too many different tags.
    pub(super) fn record(&mut self, pages: &[u64]) -> Result<(), Full> {
        if let Kind::Touched(_, weighted) = &mut self.kind {
            return weighted.record(pages);
        }
        let tags = match self.granularity {
            Granularity::PAGE => pages,
            granularity => {
                self.tags.clear();
                self.tags.extend(pages.iter().map(|&page| granularity.tag(page)));
                &self.tags
            }
        };
        match &mut self.kind {
            Kind::Asked(engine) => engine.record(tags),
            Kind::Statistical(engine) => engine.record(tags),
            Kind::Chosen(chosen) => chosen.record(tags),
            Kind::Touched(..) => Ok(()),
        }
    }

    /// What the interval counted, by distance; an interval starts.
    pub(super) fn end_interval(&mut self) -> Option<Histogram> {
        let histogram = self.histogram();
        match &mut self.kind {
            Kind::Asked(engine) => engine.start_interval(),
            Kind::Statistical(engine) => engine.start_interval(),
            Kind::Chosen(chosen) => chosen.start_interval(),
            Kind::Touched(_, weighted) => weighted.start_interval(),
        }
        histogram
    }

    fn histogram(&self) -> Option<Histogram> {
        match &self.kind {
            Kind::Asked(engine) => engine.histogram(),
            Kind::Statistical(_) => None,
            Kind::Chosen(chosen) => chosen.engine().histogram(),
            Kind::Touched(_, weighted) => Some(weighted.histogram()),
        }
    }

    /// What was counted since the interval started.
    pub(super) fn counts(&self) -> Counts {
        let histogram = self.histogram();
        let by_tags = || histogram.as_ref().map(|it| Curve::new(it, self.granularity));
        let used = |engine, memory_bytes, why| Used { engine, why, memory_bytes };
        let of_engine = |engine: &dyn Engine, why| Counts {
            curve: by_tags(),
            histogram: histogram.clone(),
            distinct: engine.distinct(),
            pages_touched: None,
            active_pages: None,
            used: used(engine.name(), engine.memory_bytes(), why),
        };
        match &self.kind {
            Kind::Asked(engine) => of_engine(&**engine, None),
            Kind::Statistical(engine) => Counts {
                active_pages: engine
                    .working_set()
                    .map(|tags| tags.saturating_mul(self.granularity.pages())),
                ..of_engine(engine, None)
            },
            Kind::Chosen(chosen) => of_engine(chosen.engine(), Some(chosen.why())),
            Kind::Touched(engine, weighted) => Counts {
                curve: Some(weighted.curve()),
                histogram,
                distinct: weighted.order().len() as u64,
                pages_touched: Some(weighted.distinct()),
                active_pages: None,
                used: used(*engine, weighted.memory_bytes(), None),
            },
        }
    }
}

/// The engine of this name, which is not `statistical`'s.
fn build(engine: EngineName, tuning: Tuning) -> Box<dyn Engine> {
    let Tuning { rate, samples, seed, .. } = tuning;
    match engine {
        EngineName::List | EngineName::Avl => Box::new(Counted::new(engine, AnyStack::new(engine))),
        EngineName::Shards => Choice::Shards { rate }.build(seed),
        EngineName::ShardsFixedSize => {
            let samples = samples.unwrap_or(ShardsFixedSize::SAMPLES_DEFAULT);
            Box::new(ShardsFixedSize::new(samples, seed))
        }
        EngineName::Aet => Box::new(samples.map_or_else(Aet::new, |it| Aet::sampled(it, seed))),
        EngineName::Exact | EngineName::Statistical => Choice::Exact.build(seed),
    }
}

fn statistical(tuning: Tuning, units: Units) -> Statistical {
    let tags = tuning.allocation_pages.div_ceil(units.granularity.pages());
    let picked = tuning.samples.unwrap_or(Statistical::PICKED_DEFAULT);
    Statistical::new(tags, picked, tuning.seed).with_period(tuning.period)
}
