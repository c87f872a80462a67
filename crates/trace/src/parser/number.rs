//! Numbers as text traces have them, and the division of addresses.

use std::num::NonZeroU64;

/// What [`parse`] takes, for messages.
pub(super) const EXPECTED: &str = "a decimal number, or 0x and hexadecimal digits, below 2^64";

/// A decimal number, or one of hexadecimal digits behind `0x`.
pub(super) fn parse(text: &[u8]) -> Option<u64> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        digits => decimal(digits),
    }
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

/// The value of each byte as a hexadecimal digit; 255 for what is none. A table, because digits and
/// letters follow each other without a pattern a branch could be predicted by.
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

/// Addresses to pages. Page sizes are powers of two nearly always, and a shift is many times as fast.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Division {
    /// Values stand as they are.
    #[default]
    None,
    /// By this power of two.
    Shift(u32),
    /// By anything else.
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
