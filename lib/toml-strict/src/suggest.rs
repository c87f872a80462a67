//! Suggests the name that was probably meant.
//!
//! Idea: serde's message for an unknown field or variant lists the known ones. The nearest in
//! Damerau–Levenshtein distance is suggested if it is near enough; otherwise all are listed.
//! Limits: serde gives the list only in the text of its message. If that wording changes, the
//! message is passed on unchanged, and the table tests of this crate fail.

/// An unknown name and the known ones, read from serde's message.
pub(crate) struct Unknown<'m> {
    pub(crate) name: &'m str,
    known: Vec<&'m str>,
}

impl<'m> Unknown<'m> {
    /// Parses "unknown field `x`, expected one of `a`, `b`"; `prefix` is its beginning.
    pub(crate) fn read(message: &'m str, prefix: &str) -> Option<Unknown<'m>> {
        let quoted = message.strip_prefix(prefix)?.strip_prefix('`')?;
        // From the right: the name is the operator's and may contain anything, while the known
        // names are ours.
        let (name, rest) = quoted
            .rsplit_once("`, expected ")
            .or_else(|| quoted.rsplit_once("`, there are no "))?;
        Some(Unknown { name, known: rest.split('`').skip(1).step_by(2).collect() })
    }

    /// "did you mean `a`?", or a list of all known names; `plural` is what they are.
    pub(crate) fn advice(&self, plural: &str) -> String {
        if let Some(nearest) = self.nearest() {
            return format!("did you mean `{nearest}`?");
        }
        if self.known.is_empty() {
            return format!("no {plural} are known here");
        }
        let mut known: Vec<String> = self.known.iter().map(|name| format!("`{name}`")).collect();
        known.sort();
        format!("the known {plural} are {}", known.join(", "))
    }

    /// The known name that is within a typing mistake; of equally near ones, the alphabetically
    /// first.
    fn nearest(&self) -> Option<&'m str> {
        // At most a third of the letters may differ: `flor` is near `floor`, `max` is not near
        // `min`.
        let distance_max = (self.name.chars().count() / 3).clamp(1, 4);
        let distance =
            |known: &&'m str| strsim::damerau_levenshtein(&fold(self.name), &fold(known));
        let (nearest_distance, nearest) =
            self.known.iter().map(|known| (distance(known), *known)).min()?;
        (nearest_distance <= distance_max).then_some(nearest)
    }
}

/// Makes names comparable without regard to case and to `-` or `_`. Only the first letters of a
/// long name are used: the cost of the distance is the product of the lengths.
fn fold(name: &str) -> String {
    const LETTERS_MAX: usize = 128;
    name.chars()
        .take(LETTERS_MAX)
        .map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}
