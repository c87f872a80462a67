//! Sizes as text with few characters: a host writes about ninety of them at a time.
//!
//! Idea: digits of five bits, the lowest first, each written as one character of base64; the sixth
//! bit says that another digit follows. A difference has its sign in the lowest bit. JSON's decimal
//! digits and commas take nearly twice as much.
//! Cost: one character up to 31, two up to 1,023, three up to 32,767.
//! Source: the base 64 VLQ of source maps (ECMA-426), with base64url's last two digits.

/// The characters of all digits, by value.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Bits of a digit.
const BITS: u32 = 5;
/// Set in a digit if another one follows.
const CONTINUATION: u64 = 1 << BITS;

/// Appends a size.
pub(crate) fn write_size(text: &mut String, mut size: u64) {
    loop {
        let (digit, rest) = (size % CONTINUATION, size >> BITS);
        let digit = if rest > 0 { digit + CONTINUATION } else { digit };
        text.push(char::from(DIGITS[digit as usize]));
        if rest == 0 {
            return;
        }
        size = rest;
    }
}

/// Appends the difference `more - than`, which may be negative.
pub(crate) fn write_difference(text: &mut String, more: u64, than: u64) {
    let is_less = more < than;
    write_size(text, (more.abs_diff(than) << 1) | u64::from(is_less));
}

/// Takes a size off the front; `None` if there is none, or it is 2^60 or more.
pub(crate) fn read_size(text: &mut &[u8]) -> Option<u64> {
    let mut size = 0;
    for place in 0..12 {
        let (&first, rest) = text.split_first()?;
        *text = rest;
        let digit = DIGITS.iter().position(|&it| it == first)? as u64;
        size |= (digit % CONTINUATION) << (place * BITS);
        if digit < CONTINUATION {
            return Some(size);
        }
    }
    None
}

/// Takes a size off the front that was written as the difference to `than`; `None` if there is
/// none, or it would be negative.
pub(crate) fn read_difference(text: &mut &[u8], than: u64) -> Option<u64> {
    let written = read_size(text)?;
    match written & 1 {
        0 => than.checked_add(written >> 1),
        _ => than.checked_sub(written >> 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_sizes_have_few_characters() {
        for (size, text) in
            [(0, "A"), (31, "f"), (32, "gB"), (1023, "_f"), (1024, "ggB"), (32_767, "__f")]
        {
            let mut found = String::new();
            write_size(&mut found, size);
            assert_eq!(found, text, "{size}");
        }
    }

    proptest! {
        #[test]
        fn sizes_come_back_as_they_were(sizes in prop::collection::vec(0..1u64 << 59, 0..9)) {
            let mut text = String::new();
            let mut last = 0;
            for &size in &sizes {
                write_size(&mut text, size);
                write_difference(&mut text, size, last);
                last = size;
            }
            let mut left = text.as_bytes();
            last = 0;
            for &size in &sizes {
                prop_assert_eq!(read_size(&mut left), Some(size));
                prop_assert_eq!(read_difference(&mut left, last), Some(size));
                last = size;
            }
            prop_assert!(left.is_empty());
            prop_assert_eq!(read_size(&mut left), None);
        }

        #[test]
        fn any_bytes_are_sizes_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40), than: u64) {
            let mut left = &bytes[..];
            while read_difference(&mut left, than).is_some() {}
            prop_assert!(left.len() <= bytes.len());
        }
    }
}
