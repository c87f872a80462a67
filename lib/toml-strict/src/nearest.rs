//! The known name nearest to one that is not known.
//!
//! Source: Jaro–Winkler similarity, which favours a common beginning.

/// Similarity from which a known name is worth suggesting (Jaro–Winkler, 0 to 1); below it the
/// suggestion is more often odd than helpful.
const NEAREST_SIMILARITY_MIN: f64 = 0.7;

/// The one of `known` that is most like `word`, if any is.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity >= NEAREST_SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
