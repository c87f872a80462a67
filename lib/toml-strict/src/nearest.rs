//! Finds the known name that is nearest to an unknown one.
//!
//! Source: Jaro–Winkler similarity, which favours a common beginning.

/// Least similarity at which a known name is suggested (Jaro–Winkler, 0 to 1); below it a
/// suggestion is more often odd than helpful.
const NEAREST_SIMILARITY_MIN: f64 = 0.7;

/// The name in `known` that is most like `word`, if any is similar enough.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity >= NEAREST_SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
