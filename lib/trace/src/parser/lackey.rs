//! The output of valgrind's lackey with `--trace-mem=yes`.
//!
//! Source: valgrind, `lackey/lk_main.c`: `I  %08lx,%lu` for instructions, ` L `, ` S ` and ` M `
//! for loads, stores and both at once. Messages of valgrind begin with `==`, `--` or `**`. Limits:
//! output of the traced program between these lines is bad; `--log-file` keeps it apart.

use super::lines::{Dialect, LineError};
use super::number::{self, Division};

/// Most bytes of one access. Lackey itself stops at 512. A larger number is no access, and would
/// turn one line into any number of references.
pub const ACCESS_BYTES_MAX: u64 = 4096;

const EXPECTED: &str = "an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)";

pub(super) struct Lackey {
    /// Without a division a reference is the address of an access; with one, each page it touches.
    pages: Division,
}

impl Lackey {
    pub(super) fn new(pages: Division) -> Lackey {
        Lackey { pages }
    }

    fn touch(&self, first: u64, last: u64, out: &mut Vec<u64>) {
        let mut pages = [first, last];
        match self.pages {
            Division::None => return out.push(first),
            pages_of => pages_of.apply(&mut pages),
        }
        out.push(pages[0]);
        if pages[0] < pages[1] {
            out.extend(pages[0] + 1..=pages[1]);
        }
    }
}

/// First and last byte of the access in a line.
fn parse(line: &[u8]) -> Option<(u64, u64)> {
    let [b'I' | b'L' | b'S' | b'M', b' ', rest @ ..] = line.trim_ascii_start() else { return None };
    let rest = rest.trim_ascii();
    let (address, size) = rest.split_at_checked(rest.iter().position(|it| *it == b',')?)?;
    access(number::hexadecimal(address)?, number::decimal(&size[1..])?)
}

/// First and last byte of an access, if its address and size are possible.
fn access(address: u64, size: u64) -> Option<(u64, u64)> {
    if !(1..=ACCESS_BYTES_MAX).contains(&size) {
        return None;
    }
    Some((address, address.checked_add(size - 1)?))
}

impl Dialect for Lackey {
    fn line<'a>(&self, line: &'a [u8], out: &mut Vec<u64>) -> Result<(), LineError<'a>> {
        let Some((first, last)) = parse(line) else {
            let message = [b"==", b"--", b"**"].iter().any(|mark| line.starts_with(*mark));
            if message || line.trim_ascii().is_empty() {
                return Ok(());
            }
            return Err(LineError::Bytes(line.trim_ascii_end(), EXPECTED));
        };
        self.touch(first, last, out);
        Ok(())
    }

    /// A line exactly as lackey writes it.
    #[inline]
    fn usual(&self, bytes: &[u8], out: &mut Vec<u64>) -> Option<usize> {
        let ([b'I', b' ', b' '] | [b' ', b'L' | b'S' | b'M', b' ']) = bytes.first_chunk()? else {
            return None;
        };
        let (address, digits) = number::leading_hexadecimal(&bytes[3..])?;
        let comma = 3 + digits;
        if *bytes.get(comma)? != b',' {
            return None;
        }
        let (size, digits) = number::leading_decimal(&bytes[comma + 1..])?;
        let end = comma + 1 + digits;
        if *bytes.get(end)? != b'\n' {
            return None;
        }
        let (first, last) = access(address, size)?;
        self.touch(first, last, out);
        Some(end + 1)
    }
}
