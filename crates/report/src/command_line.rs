//! The command line of this process, quoted so that it can be pasted into a shell.

/// `ballast` and the arguments of this process, quoted where a shell needs it.
pub fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("ballast".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// `word` quoted so that a shell reads it back unchanged.
pub fn quoted(word: String) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=%+:,@".contains(c);
    let plain = !word.is_empty() && word.chars().all(is_plain);
    if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_change_are_quoted() {
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
