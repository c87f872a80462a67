//! `proportional`: rentable memory by weight, whatever anybody wants (flexmemd §4.1).
//!
//! Properties: divides everything; depends on floors, ceilings and shares only, so that targets
//! change only when guests come or go or the operator changes a bound; strictly fair, and wasteful
//! as soon as some need less than their part.
//!
//! Algorithm: `static_min + R × weight / Σ weight`.
//!
//! Deviations: the paper weighs by `static_min`, here it is `static_min × shares`, the same at equal
//! shares; what ceilings cut off goes to the others, by weight again. Cost: O(n log n).

use super::max_min::divide;

/// Pages above the floor for guests that may have up to `room[i]` above it.
pub(super) fn proportional(room: &[u64], weights: &[u64], rentable: u64) -> Vec<u64> {
    divide(room, weights, rentable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Floors 100, 200 and 300 pages of 1,200: 600 to rent, 100, 200 and 300 more each.
        assert_eq!(proportional(&[9999; 3], &[100, 200, 300], 600), [100, 200, 300]);
        // The last may have no more than 120 above its floor: 480 by 1 and 2.
        assert_eq!(proportional(&[9999, 9999, 120], &[100, 200, 300], 600), [160, 320, 120]);
        // Twice the shares of the first weigh as much as twice its floor.
        assert_eq!(proportional(&[9999; 3], &[200, 200, 300], 700), [200, 200, 300]);
    }
}
