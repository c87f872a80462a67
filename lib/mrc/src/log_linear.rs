//! Weights of numbers of any size, in buckets whose width grows with the number.
//!
//! Idea: the basis of [`Layout::LogLinear`](crate::Layout), with a resolution of choice: with `2^b`
//! buckets per octave a number is misplaced by less than `2^-(b+1)` of itself (to the middle of its
//! bucket), and numbers below `2^(b+1)` are exact.
//!
//! Cost: O(1) to add. Memory: `2^b` buckets of 8 bytes for each octave in use.

/// Weights in `2^BITS` buckets per octave.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogLinear<const BITS: u32> {
    weights: Vec<f64>,
}

impl<const BITS: u32> LogLinear<BITS> {
    /// The bucket of `value`.
    pub(crate) fn index(value: u64) -> usize {
        let shift = (value | 1 << BITS).ilog2() - BITS;
        ((u64::from(shift) << BITS) + (value >> shift)) as usize
    }

    /// The least value of the bucket at `index`, and the number of values in it.
    pub(crate) fn span(index: usize) -> (u64, u64) {
        let shift = ((index >> BITS) as u32).saturating_sub(1);
        let first = (index as u64 - (u64::from(shift) << BITS)) << shift;
        (first, 1 << shift)
    }

    pub(crate) fn add(&mut self, value: u64, weight: f64) {
        let index = Self::index(value);
        if index >= self.weights.len() {
            self.weights.resize(index + 1, 0.0);
        }
        self.weights[index] += weight;
    }

    /// The weight of each bucket, beginning with the bucket of 0.
    pub(crate) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The middle value and the weight of each bucket with a weight above 0, in rising order.
    pub(crate) fn middles(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let weighty = self.weights.iter().enumerate().filter(|&(_, &weight)| weight > 0.0);
        weighty.map(|(index, &weight)| {
            let (first, width) = Self::span(index);
            (first as f64 + (width - 1) as f64 / 2.0, weight)
        })
    }

    pub(crate) fn clear(&mut self) {
        self.weights.clear();
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.weights.capacity() * size_of::<f64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut next = 0;
        for index in 0..64 * 16 {
            let (first, width) = LogLinear::<6>::span(index);
            assert_eq!(first, next);
            next += width;
        }
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in prop_oneof![0..5000_u64, any::<u64>()]) {
            let (first, width) = LogLinear::<6>::span(LogLinear::<6>::index(value));
            prop_assert!(first <= value && value - first < width);
            prop_assert!(width == 1 || width * 64 <= first);
        }
    }
}
