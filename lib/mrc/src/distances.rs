//! Distances counted in an array: one count for each possible distance.

/// Distances that are compared together: a cache line.
const RUN: usize = 16;

/// Adds 1 to the count of each distance; no distance is greater than `len`, the number of tags.
///
/// In a loop all distances are the same, and each addition would wait for the previous one to be
/// stored, so runs of equal distances are added together.
pub(crate) fn add_distances(counts: &mut Vec<u64>, len: u64, distances: &[u32]) {
    let counts_len = len as usize + 1;
    if counts.len() < counts_len {
        if counts.capacity() < counts_len {
            counts.reserve_exact(counts_len + counts_len / 8 - counts.len());
        }
        counts.resize(counts_len, 0);
    }
    let runs = distances.chunks_exact(RUN);
    runs.remainder().iter().for_each(|&distance| counts[distance as usize] += 1);
    for run in runs {
        let differs = run.iter().fold(0, |differs, distance| differs | (distance ^ run[0]));
        if differs == 0 {
            counts[run[0] as usize] += RUN as u64;
        } else {
            run.iter().for_each(|&distance| counts[distance as usize] += 1);
        }
    }
}
