//! What an operator can set about `meb`.

use ballast_model::Bytes;

/// Hundredths of a percent in a whole.
const WHOLE_BASIS_POINTS: u32 = 10_000;

/// What an operator can set about `meb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The least distance between two sizes of a guest, whole pages; at least one.
    pub step: Bytes,
    /// Most that a guest shrinks in a decision, in hundredths of a percent of what it holds; more than
    /// all of it is all of it.
    pub shrink_basis_points: u32,
    /// Most that it grows, alike.
    pub grow_basis_points: u32,
    /// What misses and the bonus are weighted by.
    pub weighting: Weighting,
}

/// What misses and the bonus are weighted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// The guests' shares.
    #[default]
    Shares,
    /// Nothing, as in the paper: a miss is a miss, and the bonus goes by demand alone.
    Equal,
}

impl Settings {
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

    /// The least a guest that holds so many pages may have next.
    pub(super) fn least_pages(&self, held: u64) -> u64 {
        let left = WHOLE_BASIS_POINTS.saturating_sub(self.shrink_basis_points);
        let part = (u128::from(held) * u128::from(left)).div_ceil(u128::from(WHOLE_BASIS_POINTS));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// The most it may have next; a step more at least, so that the smallest can grow.
    pub(super) fn most_pages(&self, held: u64) -> u64 {
        let more = u128::from(held) * u128::from(self.grow_basis_points);
        let more = u64::try_from(more / u128::from(WHOLE_BASIS_POINTS)).unwrap_or(u64::MAX);
        held.saturating_add(more.max(self.step_pages()))
    }

    /// The weight of a guest with so many shares.
    pub(super) fn weight(&self, shares: u32) -> u64 {
        match self.weighting {
            Weighting::Shares => u64::from(shares),
            Weighting::Equal => 1,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            step: Settings::STEP_DEFAULT,
            shrink_basis_points: Settings::SHRINK_DEFAULT_BASIS_POINTS,
            grow_basis_points: Settings::GROW_DEFAULT_BASIS_POINTS,
            weighting: Weighting::Shares,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.9 and 1.3 of 1,000 pages, and of 1,003: limits are kept to the page.
    #[test]
    fn limits_by_hand() {
        let settings = Settings::default();
        assert_eq!((settings.least_pages(1000), settings.most_pages(1000)), (900, 1300));
        assert_eq!((settings.least_pages(1003), settings.most_pages(1003)), (903, 1303));
        // A guest of nearly nothing may still take a step.
        assert_eq!((settings.least_pages(1), settings.most_pages(1)), (1, 257));
        let loose = Settings { shrink_basis_points: 20_000, grow_basis_points: 0, ..settings };
        assert_eq!((loose.least_pages(1000), loose.most_pages(1000)), (0, 1256));
        assert_eq!(loose.least_pages(u64::MAX), 0);
        assert_eq!(settings.most_pages(u64::MAX), u64::MAX);
    }
}
