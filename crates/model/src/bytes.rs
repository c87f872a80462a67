//! Sizes of memory.
//!
//! Idea: one newtype for every amount of memory, in bytes, so that pages, KiB and MiB never mix.
//! It reads and prints the units operators write (`512MiB`, `2GiB`, plain bytes).
//! Limits: sums saturate. A negative difference is a programming error and panics.
//!
//! Deliberately a plain number: with a niche, `Option<Bytes>` would be half as large, but rustc
//! 1.95 miscompiles some of these (decision 18).

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Size of a guest page in bytes; the unit in which a balloon moves memory.
pub const PAGE_SIZE: u64 = 4096;

/// An amount of memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Bytes = Bytes::new(0);
    /// The largest representable amount.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Bytes(n)
    }

    /// `n` KiB (1,024 bytes each); saturates.
    pub const fn kib(n: u64) -> Self {
        Bytes::new(n.saturating_mul(1 << 10))
    }

    /// `n` MiB (2^20 bytes each); saturates.
    pub const fn mib(n: u64) -> Self {
        Bytes::new(n.saturating_mul(1 << 20))
    }

    /// `n` GiB (2^30 bytes each); saturates.
    pub const fn gib(n: u64) -> Self {
        Bytes::new(n.saturating_mul(1 << 30))
    }

    /// `n` pages of [`PAGE_SIZE`]; saturates.
    pub const fn pages(n: u64) -> Self {
        Bytes::new(n.saturating_mul(PAGE_SIZE))
    }

    /// The amount in bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole pages in this amount, rounded down.
    pub const fn to_pages(self) -> u64 {
        self.get() / PAGE_SIZE
    }

    /// This amount rounded down to a whole page.
    pub const fn page_floor(self) -> Self {
        Bytes::new(self.get() - self.get() % PAGE_SIZE)
    }

    /// This amount rounded up to a whole page; saturates at the last whole page.
    pub const fn page_ceil(self) -> Self {
        Bytes::new(self.get().saturating_add(PAGE_SIZE - 1)).page_floor()
    }

    /// The amount in MiB, for printing and plots only.
    pub fn as_mib_f64(self) -> f64 {
        self.get() as f64 / (1u64 << 20) as f64
    }

    /// `self − other`, or zero where `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Bytes::new(self.get().saturating_sub(other.get()))
    }

    /// `self + other`, or [`Bytes::MAX`] on overflow.
    pub const fn saturating_add(self, other: Self) -> Self {
        Bytes::new(self.get().saturating_add(other.get()))
    }

    /// The distance between two amounts, whichever is larger.
    pub const fn abs_diff(self, other: Self) -> Self {
        Bytes::new(self.get().abs_diff(other.get()))
    }

    /// `numerator / denominator` of this amount, rounded down; saturates. A zero denominator gives
    /// zero.
    pub const fn fraction(self, numerator: u64, denominator: u64) -> Self {
        if denominator == 0 {
            return Bytes::ZERO;
        }
        // Most products fit 64 bits, where dividing by a constant needs no division instruction.
        if let Some(product) = self.get().checked_mul(numerator) {
            return Bytes::new(product / denominator);
        }
        let part = self.get() as u128 * numerator as u128 / denominator as u128;
        if part > u64::MAX as u128 { Bytes::MAX } else { Bytes::new(part as u64) }
    }
}

/// Saturates, as sums do.
impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        self.saturating_add(other)
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes::new(self.get() - other.get())
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

/// Sums saturate: a guest that claims 2^64 bytes must not overflow the host's bookkeeping.
impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(parts: I) -> Bytes {
        parts.fold(Bytes::ZERO, Bytes::saturating_add)
    }
}

/// Prints in the largest binary unit that does not exceed the amount: exactly if one decimal is
/// enough, else rounded to one decimal (`512MiB`, `1.5GiB`, `837.3MiB`, `12B`). `{:#}` prints
/// without loss, in the largest unit that divides the amount.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        if f.alternate() {
            for (unit, shift) in UNITS {
                if self.get() != 0 && self.get().trailing_zeros() >= shift {
                    return f.pad(&format!("{}{unit}", self.get() >> shift));
                }
            }
            return f.pad(&format!("{}", self.get()));
        }
        for (unit, shift) in UNITS {
            if self.get() >> shift == 0 {
                continue;
            }
            let tenths = (u128::from(self.get()) * 10 + (1 << (shift - 1))) >> shift;
            let (whole, tenth) = (tenths / 10, tenths % 10);
            return match tenth {
                0 => f.pad(&format!("{whole}{unit}")),
                _ => f.pad(&format!("{whole}.{tenth}{unit}")),
            };
        }
        f.pad(&format!("{}B", self.get()))
    }
}

/// Why a size could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// Not a number followed by a known unit.
    #[error(
        "`{0}` is not a size: expected bytes or a number with KiB, MiB, GiB or TiB, such as 512MiB"
    )]
    Malformed(String),
    /// A decimal unit, which operators often write when they mean the binary one.
    #[error("`{0}` uses a decimal unit: write KiB, MiB, GiB or TiB")]
    DecimalUnit(String),
    /// More than 2^64 − 1 bytes.
    #[error("`{0}` is more than 16 EiB")]
    TooLarge(String),
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let malformed = || ParseBytesError::Malformed(text.to_owned());
        let trimmed = text.trim();
        let unit_at =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(unit_at);
        let shift = match unit.trim_start() {
            "" | "B" => 0,
            "KiB" | "K" => 10,
            "MiB" | "M" => 20,
            "GiB" | "G" => 30,
            "TiB" | "T" => 40,
            "kB" | "KB" | "MB" | "GB" | "TB" => {
                return Err(ParseBytesError::DecimalUnit(text.to_owned()));
            }
            _ => return Err(malformed()),
        };
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || (number.contains('.') && (decimals.is_empty() || shift == 0)) {
            return Err(malformed());
        }
        // Nine decimals are finer than a byte of a GiB; more digits could only overflow.
        if decimals.len() > 9 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        let too_large = || ParseBytesError::TooLarge(text.to_owned());
        let whole: u64 = whole.parse().map_err(|_| too_large())?;
        let part: u128 = if decimals.is_empty() {
            0
        } else {
            let digits: u128 = decimals.parse().map_err(|_| malformed())?;
            (digits << shift) / 10u128.pow(decimals.len() as u32)
        };
        let total = (u128::from(whole) << shift) + part;
        u64::try_from(total).map(Bytes::new).map_err(|_| too_large())
    }
}

/// Written as a string in its largest exact unit, so that files stay readable and lossless.
impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:#}"))
    }
}

/// Read from a string with a unit or from a whole number of bytes.
impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"512MiB\", or a number of bytes")
            }
            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Bytes, E> {
                Ok(Bytes::new(n))
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Bytes, E> {
                u64::try_from(n)
                    .map(Bytes::new)
                    .map_err(|_| E::custom(format!("{n} is negative: a size is at least 0")))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_operators_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512MiB", 512 << 20),
            ("512 MiB", 512 << 20),
            ("2GiB", 2 << 30),
            ("1.5GiB", 3 << 29),
            ("64K", 64 << 10),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Bytes::new(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in ["", "MiB", "-1", "1.5", "1.", ".5GiB", "12QiB", "1.2.3GiB", "1e3", "ten"] {
            assert!(matches!(text.parse::<Bytes>(), Err(ParseBytesError::Malformed(_))), "{text}");
        }
        assert!(matches!("5GB".parse::<Bytes>(), Err(ParseBytesError::DecimalUnit(_))));
        for text in ["17179869184GiB", "99999999999999999999999"] {
            assert!(matches!(text.parse::<Bytes>(), Err(ParseBytesError::TooLarge(_))), "{text}");
        }
    }

    #[test]
    fn prints_in_the_units_operators_read() {
        for (bytes, text) in [
            (Bytes::ZERO, "0B"),
            (Bytes::new(12), "12B"),
            (Bytes::mib(512), "512MiB"),
            (Bytes::mib(1536), "1.5GiB"),
            (Bytes::new(877_999_000), "837.3MiB"),
        ] {
            assert_eq!(bytes.to_string(), text);
        }
        assert_eq!(format!("{:>8}|", Bytes::mib(5)), "    5MiB|");
    }

    proptest! {
        #[test]
        fn lossless_form_reads_back(n: u64) {
            let printed = format!("{:#}", Bytes::new(n));
            prop_assert_eq!(printed.parse::<Bytes>(), Ok(Bytes::new(n)));
        }

        #[test]
        fn any_text_is_refused_or_read_without_panic(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn page_rounding_brackets(n in 0..u64::MAX - PAGE_SIZE) {
            let bytes = Bytes::new(n);
            prop_assert!(bytes.page_floor() <= bytes && bytes <= bytes.page_ceil());
            prop_assert!(bytes.page_ceil() - bytes.page_floor() <= Bytes::new(PAGE_SIZE));
        }
    }
}
