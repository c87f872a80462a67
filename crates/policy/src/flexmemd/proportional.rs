//! `proportional`: divides rentable memory by weight, whatever guests want (flexmemd §4.1).
//!
//! Properties: divides everything; depends on floors, ceilings and shares only, so that targets
//! change only when guests come or go or the operator changes a bound; strictly fair, but wasteful
//! if some guests need less than their part.
//!
//! Algorithm: `static_min + R × weight / Σ weight`.
//!
//! Deviations: the paper's weight is `static_min`; here it is `static_min × shares`, the same at
//! equal shares; memory above a guest's ceiling goes to the others, again by weight.
//! Cost: O(n log n).

use super::max_min::divide;

/// Pages above the floor for guests that may have up to `room[i]` above it.
pub(super) fn proportional(room: &[u64], weights: &[u64], rentable: u64) -> Vec<u64> {
    divide(room, weights, rentable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_by_weight_up_to_ceilings() {
        // Floors of 100, 200 and 300 pages out of 1,200 leave 600: 100, 200 and 300 more.
        assert_eq!(proportional(&[9999; 3], &[100, 200, 300], 600), [100, 200, 300]);
        // The last may have only 120 above its floor: 480 are divided by 1 and 2.
        assert_eq!(proportional(&[9999, 9999, 120], &[100, 200, 300], 600), [160, 320, 120]);
        // Twice the shares count as much as twice the floor.
        assert_eq!(proportional(&[9999; 3], &[200, 200, 300], 700), [200, 200, 300]);
    }
}
