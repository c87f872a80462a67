//! The operator's settings for `meb`.

use ballast_model::Bytes;

/// Basis points (hundredths of a percent) in a whole.
const WHOLE_BASIS_POINTS: u32 = 10_000;

/// The operator's settings for `meb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MebSettings {
    /// Step between the sizes of a guest, in whole pages; at least one.
    pub step: Bytes,
    /// Most that a guest shrinks in a decision, in hundredths of a percent of what it holds; values
    /// above 10,000 count as 10,000.
    pub shrink_basis_points: u32,
    /// Most that a guest grows in a decision, likewise.
    pub grow_basis_points: u32,
    /// Weight of misses and of the bonus.
    pub weighting: Weighting,
}

/// Weight of misses and of the bonus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// The guests' shares.
    #[default]
    Shares,
    /// The same for all guests, as in the paper; the bonus depends on demand alone.
    Equal,
}

impl MebSettings {
    /// Eight granules of 32 pages (MEB §4, §3.1.2).
    pub const STEP_DEFAULT: Bytes = Bytes::pages(8 * 32);
    /// A tenth (MEB §4).
    pub const SHRINK_DEFAULT_BASIS_POINTS: u32 = 1_000;
    /// Three tenths (MEB §4).
    pub const GROW_DEFAULT_BASIS_POINTS: u32 = 3_000;

    /// The step in pages.
    pub(super) fn step_pages(&self) -> u64 {
        self.step.to_pages().max(1)
    }

    /// Fewest pages that a guest which holds `held` may have next.
    pub(super) fn least_pages(&self, held: u64) -> u64 {
        let left = WHOLE_BASIS_POINTS.saturating_sub(self.shrink_basis_points);
        let part = (u128::from(held) * u128::from(left)).div_ceil(u128::from(WHOLE_BASIS_POINTS));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// Most pages it may have next; at least a step more, so that the smallest guest can grow.
    pub(super) fn most_pages(&self, held: u64) -> u64 {
        let more = u128::from(held) * u128::from(self.grow_basis_points);
        let more = u64::try_from(more / u128::from(WHOLE_BASIS_POINTS)).unwrap_or(u64::MAX);
        held.saturating_add(more.max(self.step_pages()))
    }

    /// The weight of a guest with `shares`.
    pub(super) fn weight(&self, shares: u32) -> u64 {
        match self.weighting {
            Weighting::Shares => u64::from(shares),
            Weighting::Equal => 1,
        }
    }
}

impl Default for MebSettings {
    fn default() -> MebSettings {
        MebSettings {
            step: MebSettings::STEP_DEFAULT,
            shrink_basis_points: MebSettings::SHRINK_DEFAULT_BASIS_POINTS,
            grow_basis_points: MebSettings::GROW_DEFAULT_BASIS_POINTS,
            weighting: Weighting::Shares,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact_to_the_page() {
        let settings = MebSettings::default();
        assert_eq!((settings.least_pages(1000), settings.most_pages(1000)), (900, 1300));
        assert_eq!((settings.least_pages(1003), settings.most_pages(1003)), (903, 1303));
        // The smallest guest can still grow by a step.
        assert_eq!((settings.least_pages(1), settings.most_pages(1)), (1, 257));
        let loose = MebSettings { shrink_basis_points: 20_000, grow_basis_points: 0, ..settings };
        assert_eq!((loose.least_pages(1000), loose.most_pages(1000)), (0, 1256));
        assert_eq!(loose.least_pages(u64::MAX), 0);
        assert_eq!(settings.most_pages(u64::MAX), u64::MAX);
    }
}
