//! What valgrind's lackey writes with `--trace-mem=yes`.
//!
//! Source: valgrind, `lackey/lk_main.c`: `I  %08lx,%lu` for instructions, ` L `, ` S ` and ` M ` for
//! loads, stores and both at once. Messages of valgrind begin with `==`, `--` or `**`.
//! Limits: what a traced program itself wrote among the lines is bad; `--log-file` keeps it apart.

use super::lines::{Dialect, Wrong};
use super::number::{self, Division};

/// Most bytes one access has. Lackey itself stops at 512; what is larger is no access, and would make
/// one line into any number of references.
pub const ACCESS_BYTES_MAX: u64 = 4096;

const EXPECTED: &str = "an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)";

pub(super) struct Lackey {
    /// With none a reference is the address of an access; otherwise each page it touches.
    pages: Division,
}

impl Lackey {
    pub(super) fn new(pages: Division) -> Lackey {
        Lackey { pages }
    }
}

/// First and last byte of an access.
fn access(line: &[u8]) -> Option<(u64, u64)> {
    let [b'I' | b'L' | b'S' | b'M', b' ', rest @ ..] = line.trim_ascii_start() else { return None };
    let rest = rest.trim_ascii();
    let (address, size) = rest.split_at_checked(rest.iter().position(|it| *it == b',')?)?;
    let address = number::hexadecimal(address)?;
    let size = number::decimal(&size[1..])?;
    if !(1..=ACCESS_BYTES_MAX).contains(&size) {
        return None;
    }
    Some((address, address.checked_add(size - 1)?))
}

impl Dialect for Lackey {
    fn line<'a>(&self, line: &'a [u8], out: &mut Vec<u64>) -> Result<(), Wrong<'a>> {
        let Some((first, last)) = access(line) else {
            let message = [b"==", b"--", b"**"].iter().any(|mark| line.starts_with(*mark));
            if message || line.trim_ascii().is_empty() {
                return Ok(());
            }
            return Err(Wrong::Bytes(line.trim_ascii_end(), EXPECTED));
        };
        if matches!(self.pages, Division::None) {
            out.push(first);
        } else {
            let mut pages = [first, last];
            self.pages.apply(&mut pages);
            out.extend(pages[0]..=pages[1]);
        }
        Ok(())
    }

    fn run(&self, _: &[u8], _: &mut Vec<u64>) -> usize {
        0
    }
}
