//! Sanitizes text from outside, such as names from hypervisors and guests.

/// `text` without control characters except line ends, so that foreign text cannot control the
/// operator's terminal.
#[must_use]
pub fn harmless(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

/// `text` without any control characters: line ends in a name could forge lines, and XML cannot
/// represent the others.
pub fn harmless_line(text: &str) -> String {
    harmless(text).replace('\n', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(harmless("a\u{1b}[2Jb\r\nc\u{9b}d"), "a\u{fffd}[2Jb\u{fffd}\nc\u{fffd}d");
    }
}
