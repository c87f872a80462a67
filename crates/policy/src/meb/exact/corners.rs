//! The sizes at which curves fall, and the worth of a step of memory.
//!
//! Idea: sizes with no fewer misses than the size before are left out; an allocation does not need
//! them, because steps may be left over. If fractions of sizes were allowed, the best allocation
//! would follow the convex hulls of the curves, the steepest edges of all first, until the steps
//! run out on some edge. Its slope λ is the worth of a step.
//!
//! Cost: O(sizes + E log E) for E edges of all hulls.
//! Source: the relaxed multiple-choice knapsack problem (Sinha and Zoltners 1979); the hull by
//! monotone chain (Andrew 1979).

use std::cmp::Ordering;

use crate::meb::instance::Instance;

/// The slope of a falling edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slope {
    pub(super) misses: u64,
    /// Never zero.
    pub(super) steps: u64,
}

impl Slope {
    fn between(from: Corner, to: Corner) -> Self {
        Self { misses: from.misses - to.misses, steps: u64::from(to.at - from.at) }
    }

    fn steepness(self, other: Slope) -> Ordering {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        product(self.misses, other.steps).cmp(&product(other.misses, self.steps))
    }
}

/// A size with fewer misses than the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Corner {
    /// Steps above the guest's lower bound.
    pub(super) at: u32,
    /// Misses beyond those with all its memory.
    pub(super) misses: u64,
}

/// The corners of all curves.
#[derive(Debug)]
pub(super) struct Corners {
    corners: Vec<Corner>,
    /// Start of each guest's corners, and the end of the last.
    starts: Vec<usize>,
    /// Edges of the hulls, the steepest first.
    slopes: Vec<Slope>,
}

impl Corners {
    pub(super) fn of(instance: &Instance) -> Self {
        let mut all = Self { corners: vec![], starts: vec![0], slopes: vec![] };
        let mut hull: Vec<Corner> = Vec::new();
        for guest in instance.guests() {
            let least = guest.misses.last().copied().unwrap_or(0);
            let mut before = None;
            hull.clear();
            for (at, &misses) in guest.misses.iter().enumerate().take(instance.spare() + 1) {
                if before.replace(misses) == Some(misses) {
                    continue;
                }
                let corner = Corner { at: at as u32, misses: misses - least };
                all.corners.push(corner);
                while let [.., first, last] = hull[..] {
                    let (edge, next) = (Slope::between(first, last), Slope::between(last, corner));
                    if edge.steepness(next).is_gt() {
                        break;
                    }
                    hull.pop();
                }
                hull.push(corner);
            }
            all.slopes.extend(hull.windows(2).map(|edge| Slope::between(edge[0], edge[1])));
            all.starts.push(all.corners.len());
        }
        all.slopes.sort_unstable_by(|a, b| b.steepness(*a));
        all
    }

    /// The corners of each guest; never empty.
    pub(super) fn by_guest(&self) -> impl Iterator<Item = &[Corner]> {
        self.starts.windows(2).map(|bounds| &self.corners[bounds[0]..bounds[1]])
    }

    /// λ: the slope at which `spare` steps run out; `None` if they suffice for all edges.
    pub(super) fn worth(&self, spare: usize) -> Option<Slope> {
        let mut left = spare as u64;
        for &slope in &self.slopes {
            match left.checked_sub(slope.steps) {
                Some(rest) => left = rest,
                None => return Some(slope),
            }
        }
        None
    }
}
