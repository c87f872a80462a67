//! Random numbers and Zipf's law, for the examples' streams: the same in every run.

/// xorshift64*.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Ranks whose frequency falls with a power of the rank.
pub(crate) struct Zipf(Vec<f64>);

impl Zipf {
    pub(crate) fn new(ranks: u64, exponent: f64) -> Self {
        let sum = |sum: &mut f64, rank: u64| {
            *sum += (rank as f64).powf(-exponent);
            Some(*sum)
        };
        Self((1..=ranks).scan(0.0, sum).collect())
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let sum = self.0[self.0.len() - 1];
        let at = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * sum;
        self.0.partition_point(|&up_to| up_to <= at) as u64
    }
}
