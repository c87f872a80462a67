//! Numbers of text traces, and the division of addresses.

use std::num::NonZeroU64;

/// What [`parse`] accepts, for messages.
pub(super) const EXPECTED: &str = "a decimal number, or 0x and hexadecimal digits, below 2^64";

/// A decimal number, or hexadecimal digits after `0x`.
pub(super) fn parse(text: &[u8]) -> Option<u64> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        digits => decimal(digits),
    }
}

/// Number of decimal digits that always fit 64 bits.
const DIGITS_SURE: usize = 19;

/// The decimal number at the beginning of the bytes, and its number of digits: 1 to
/// [`DIGITS_SURE`]. It reads eight digits at a time, in one word: a branch per digit is predicted
/// badly where numbers differ in length.
#[inline]
pub(super) fn leading_decimal(bytes: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut digits) = (0_u64, 0);
    while digits <= 8
        && let Some(eight) = bytes[digits..].first_chunk()
    {
        let (part, count) = eight_decimals(u64::from_le_bytes(*eight));
        value = value * POWERS_OF_TEN[count] + part;
        digits += count;
        if count < 8 {
            return (digits > 0).then_some((value, digits));
        }
    }
    while let Some(digit) = bytes.get(digits).map(|it| it.wrapping_sub(b'0'))
        && digit < 10
    {
        digits += 1;
        if digits > DIGITS_SURE {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    (digits > 0).then_some((value, digits))
}

const POWERS_OF_TEN: [u64; 9] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The number made of the leading decimal digits among eight characters, the first in the lowest
/// byte, and how many digits there are.
#[inline]
fn eight_decimals(characters: u64) -> (u64, usize) {
    // Digits become 0 to 9, everything else more. Adding 0x76 then sets the top bit of all bytes
    // above 9; a carry spoils only bytes behind the first of them.
    let values = characters ^ 0x3030_3030_3030_3030;
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // The digits move to the top, with zeros before them; then neighbours are joined into pairs,
    // fours and eight.
    let ones = values << (64 - 8 * count);
    let pairs = (ones.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000 << 32 | 1) >> 32, count)
}

/// The hexadecimal number at the beginning of the bytes, and its number of digits: 1 to 16.
#[inline]
pub(super) fn leading_hexadecimal(bytes: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut digits) = (0_u64, 0);
    while let Some(digit) = bytes.get(digits).map(|it| HEXADECIMAL[usize::from(*it)])
        && digit < 16
    {
        digits += 1;
        value = value << 4 | u64::from(digit);
    }
    (1..=16).contains(&digits).then_some((value, digits))
}

/// Decimal digits, at least one.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Hexadecimal digits, at least one.
pub(super) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = HEXADECIMAL[usize::from(byte)];
        if digit > 15 || value >> 60 != 0 {
            return None;
        }
        Some(value << 4 | u64::from(digit))
    })
}

/// The value of each byte as a hexadecimal digit; 255 if it is none. A table, because digits and
/// letters alternate without a pattern, so that a branch would be predicted badly.
static HEXADECIMAL: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// Division of addresses into pages. Page sizes are almost always powers of two, and a shift is
/// many times as fast.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Division {
    /// Values are the references themselves.
    #[default]
    None,
    /// Division by this power of two.
    Shift(u32),
    /// Division by any other number.
    Divide(NonZeroU64),
}

impl Division {
    pub(super) fn by(page_size: Option<NonZeroU64>) -> Division {
        match page_size {
            None => Division::None,
            Some(size) if size.is_power_of_two() => Division::Shift(size.trailing_zeros()),
            Some(size) => Division::Divide(size),
        }
    }

    pub(super) fn apply(self, values: &mut [u64]) {
        match self {
            Division::None => {}
            Division::Shift(bits) => values.iter_mut().for_each(|it| *it >>= bits),
            Division::Divide(size) => values.iter_mut().for_each(|it| *it /= size),
        }
    }
}
