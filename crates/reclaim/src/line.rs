//! Parsers for the line formats of kernel files.
//!
//! Limits: numbers are digits and nothing else; a sign or more than 64 bits is an error.

use ballast_model::Bytes;

/// Longest excerpt of a bad line shown in an error, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// The lines of `text` that are not empty, numbered from 1.
pub(crate) fn numbered(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|&b| b == b'\n').enumerate();
    lines.map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.is_empty())
}

/// The error message for a malformed line.
pub(crate) fn malformed(number: usize, line: &[u8], expected: &str) -> String {
    let shown: String = String::from_utf8_lossy(line.get(..4 * SHOWN_CHARS_MAX).unwrap_or(line))
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN_CHARS_MAX)
        .collect();
    format!("line {number}: `{shown}`: expected {expected}")
}

/// Parses decimal digits and nothing else.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    number(digits, 10)
}

/// Parses hexadecimal digits in lower case, as the kernel writes them.
pub(crate) fn hex(digits: &[u8]) -> Option<u64> {
    let is_lower = digits.iter().all(|b| !b.is_ascii_uppercase());
    number(digits, 16).filter(|_| is_lower)
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    // `from_str_radix` alone would accept `+5`.
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, base).ok()
}

/// Parses `  1234 kB`, as in `meminfo` and `smaps`; the kernel's kB are KiB.
pub(crate) fn kib(value: &[u8]) -> Option<Bytes> {
    let kib = decimal(value.trim_ascii().strip_suffix(b" kB")?)?;
    kib.checked_mul(1 << 10).map(Bytes::new)
}

/// The format that [`kib`] accepts, for error messages.
pub(crate) const KIB_EXPECTED: &str = "a whole number of kB, such as `Swap: 1024 kB`";

/// Takes the text before the next blank off `rest`, with all blanks after it.
pub(crate) fn word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    let blanks = after.iter().take_while(|&&b| b == b' ').count();
    *rest = &after[blanks..];
    word
}

/// Decodes a name: the kernel writes blanks, newlines and backslashes as three octal digits
/// (`\040`).
pub(crate) fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if first == b'\\' => {
                bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        for (text, in_ten, in_sixteen) in [
            ("0", Some(0), Some(0)),
            ("10", Some(10), Some(16)),
            ("ff", None, Some(255)),
            ("FF", None, None),
            ("+1", None, None),
            ("-1", None, None),
            ("", None, None),
            ("0x1", None, None),
            ("18446744073709551616", None, None),
            ("ffffffffffffffff", None, Some(u64::MAX)),
        ] {
            let parsed = (decimal(text.as_bytes()), hex(text.as_bytes()));
            assert_eq!(parsed, (in_ten, in_sixteen), "{text}");
        }
        assert_eq!(kib(b"    16 kB"), Some(Bytes::kib(16)));
        for bad in ["", " kB", "1", "1 MB", "18446744073709551615 kB"] {
            assert_eq!(kib(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn words_are_split_and_escapes_decoded() {
        assert_eq!(unescape(br"/a\040b\134c\9"), br"/a b\c\9");
        let mut rest: &[u8] = b"a  b";
        assert_eq!(
            (word(&mut rest), word(&mut rest), word(&mut rest)),
            (&b"a"[..], &b"b"[..], &b""[..])
        );
    }
}
