//! SHARDS: the stack distances of few tags, selected by their hash, represent those of all.
//!
//! Idea: a tag is sampled if its hash is below a threshold, so either all references to it are
//! sampled or none. Between two references to a sampled tag there are `R` times as many sampled
//! tags as there are tags, so a distance among sampled tags, divided by `R`, estimates the real
//! one.
//!
//! The number of sampled tags is random, and so is whether the few hottest are among them. Our
//! version corrects both with what can be counted without sampling: the references and the
//! different tags ([`Scaling::Measured`]).
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC Construction with SHARDS, FAST 2015.

pub(crate) mod filter;
mod fixed_rate;
mod fixed_size;
mod rank_window;
mod scan;
pub(crate) mod threshold;

pub use fixed_rate::{SampleRate, Scaling, Shards};
pub use fixed_size::ShardsFixedSize;

use crate::{Histogram, Layout};

/// Estimated distances up to this one are counted individually (32 MiB while a histogram is made);
/// greater ones are rounded to 64 buckets per octave.
const EXACT_MAX: u64 = 1 << 22;

/// Estimated distances of references in rising order, with their weights.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    points: Vec<(u64, f64)>,
}

impl Estimates {
    /// Adds references of `weight` at `distance`, which is not less than the previous one.
    pub(crate) fn push(&mut self, distance: f64, weight: f64) {
        if weight > 0.0 {
            self.points.push(((distance.round() as u64).max(1), weight));
        }
    }

    /// Makes the weights add up to `warm`. What is missing are references to hot tags that were by
    /// chance not sampled; an excess is of hot tags that were. So the difference is added to, or
    /// removed from, the shortest distances.
    pub(crate) fn correct(&mut self, warm: f64) {
        let mut too_much = self.points.iter().map(|point| point.1).sum::<f64>() - warm;
        if too_much <= 0.0 {
            self.points.insert(0, (1, -too_much));
            return;
        }
        for (_, weight) in &mut self.points {
            let taken = too_much.min(*weight);
            *weight -= taken;
            too_much -= taken;
            if too_much <= 0.0 {
                break;
            }
        }
    }

    /// The histogram of these distances, with cold references of weight `cold`.
    pub(crate) fn into_histogram(self, cold: f64) -> Histogram {
        let greatest = self.points.last().map_or(0, |point| point.0);
        let is_exact = greatest <= EXACT_MAX;
        let mut histogram =
            Histogram::new(if is_exact { Layout::Exact } else { Layout::LogLinear });
        self.points.iter().for_each(|&(distance, weight)| histogram.add(distance, weight));
        histogram.add_cold(cold);
        histogram
    }
}
