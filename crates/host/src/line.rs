//! Parsers for the line formats of `/proc`.
//!
//! Limits: numbers are plain decimal digits; a sign, an inner blank or more than 64 bits is an
//! error.

use ballast_model::Bytes;

/// The lines of `text`, numbered from 1.
pub(crate) fn numbered(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split(|&b| b == b'\n').enumerate().map(|(at, line)| (at + 1, line))
}

/// Parses decimal digits and nothing else.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    // `parse` alone would accept `+5`.
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses `  1234 kB`, as in `meminfo` and `status`; the kernel's kB are KiB.
pub(crate) fn kib(value: &[u8]) -> Option<Bytes> {
    let kib = number(value.trim_ascii().strip_suffix(b" kB")?)?;
    kib.checked_mul(1 << 10).map(Bytes::new)
}

/// The format that [`kib`] accepts, for error messages.
pub(crate) const KIB_EXPECTED: &str = "a whole number of kB, such as `MemTotal: 1024 kB`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_kib() {
        assert_eq!(kib(b"     16 kB"), Some(Bytes::kib(16)));
        assert_eq!(kib(b"\t0 kB"), Some(Bytes::ZERO));
        for bad in [
            "",
            " kB",
            "-1 kB",
            "+1 kB",
            "1",
            "1 MB",
            "1.5 kB",
            "1 2 kB",
            "18446744073709551615 kB",
        ] {
            assert_eq!(kib(bad.as_bytes()), None, "{bad}");
        }
    }
}
