//! The command as it was given, for a page to show.
//!
//! Idea: pasted into a shell, it is the same command again.

/// The words of this process, quoted where a shell would read them differently.
pub(crate) fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("ballast".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: String) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=%+:,@".contains(c);
    let plain = !word.is_empty() && word.chars().all(is_plain);
    if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_expand_them() {
        for (word, shown) in [
            ("--rate=0.1%", "--rate=0.1%"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(quoted(word.to_owned()), shown);
        }
    }
}
