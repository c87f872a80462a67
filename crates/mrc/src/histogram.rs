//! How many references found their tag at which distance.
//!
//! Idea: distances from 1 with a weight each; cold references (a tag's first) counted apart. Weights
//! are `f64`, which is exact for counts to 2^53 and lets samples and aged counts weigh what they must.
//! Two layouts: a weight for each distance, or 64 buckets per octave, which bound the memory and
//! misplace a distance by less than 1/64 of itself.

/// How distances are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each by itself: 8 bytes for each distance up to the greatest.
    Exact,
    /// 64 buckets per octave, exact up to 128: at most 30 KiB.
    LogLinear,
}

/// Distances that are counted together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The least distance, from 1.
    pub first: u64,
    /// The greatest distance.
    pub last: u64,
    /// The weight of the references at these distances, above 0.
    pub weight: f64,
}

/// Weights of references by stack distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    layout: Layout,
    /// By bucket; bucket 0 is distance 1. No zeros at the end, so that equal means equal.
    weights: Vec<f64>,
    cold: f64,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, weights: Vec::new(), cold: 0.0 }
    }

    /// The exact histogram of `counts`, whose index is the distance; `counts[0]` are the cold ones.
    #[must_use]
    pub fn from_counts(counts: &[u64]) -> Self {
        let mut histogram = Self::new(Layout::Exact);
        let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        histogram.cold = counts.first().map_or(0.0, |&count| count as f64);
        histogram.weights = counts.iter().take(last + 1).skip(1).map(|&n| n as f64).collect();
        histogram
    }

    /// The layout it was made with.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The weight of cold references.
    #[must_use]
    pub fn cold(&self) -> f64 {
        self.cold
    }

    /// The weight of references that found their tag.
    #[must_use]
    pub fn warm(&self) -> f64 {
        self.weights.iter().sum()
    }
}
