//! Random numbers for workloads: the same on every machine, now and later.
//!
//! Source: SplitMix64 (Steele, Lea, Flood 2014); the alias method (Walker 1977, Vose 1991), which
//! draws from any distribution in O(1).

/// A sequence of pseudo-random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is below 2^32.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((self.next() >> 32) * end) >> 32
    }

    /// The numbers below `len` in random order.
    pub(crate) fn shuffled(&mut self, len: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..len).collect();
        for at in (1..numbers.len()).rev() {
            let other = self.below(at as u64 + 1) as usize;
            numbers.swap(at, other);
        }
        numbers
    }
}

/// Zipf's law: the probability of rank *k* is proportional to *k*^−exponent.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    /// For each rank: the probability of keeping it, in 2^−32, and the rank to take otherwise.
    ranks: Vec<(u32, u32)>,
}

impl Zipf {
    /// The law over `len` ranks.
    pub(crate) fn new(len: u64, exponent: f64) -> Self {
        let weights: Vec<f64> = (1..=len).map(|rank| (rank as f64).powf(-exponent)).collect();
        let mean = weights.iter().sum::<f64>() / len as f64;
        let mut chances: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut ranks: Vec<(u32, u32)> = (0..len as u32).map(|rank| (u32::MAX, rank)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..chances.len()).partition(|&rank| chances[rank] < 1.0);
        while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
            ranks[poor] = ((chances[poor] * 2f64.powi(32)) as u32, rich as u32);
            chances[rich] -= 1.0 - chances[poor];
            if chances[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Self { ranks }
    }

    /// Draws a rank, from 0.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let rank = random.below(self.ranks.len() as u64) as usize;
        let (stay, other) = self.ranks[rank];
        if (random.next() >> 32) as u32 <= stay { rank as u64 } else { u64::from(other) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_loses_nothing() {
        let mut numbers = Random::new(1).shuffled(1000);
        assert_ne!(numbers[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        let (zipf, mut random) = (Zipf::new(100, 0.9), Random::new(2));
        let mut counts = [0.0; 100];
        let draws = 400_000;
        (0..draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1.0);
        let total: f64 = (1..=100).map(|rank| f64::from(rank).powf(-0.9)).sum();
        for (rank, count) in counts.iter().enumerate() {
            let expected = f64::from(draws) * (rank as f64 + 1.0).powf(-0.9) / total;
            let deviation = 6.0 * expected.sqrt();
            assert!((count - expected).abs() < deviation, "{rank}: {count}, not {expected}");
        }
    }
}
