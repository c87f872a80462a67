//! `/proc/pressure/memory`: the share of time in which tasks waited for memory (PSI).
//!
//! Limits: the 10-second averages only. A kernel without PSI (not built in, or disabled with
//! `psi=0`) gives `None`, which is not an error.

use std::path::Path;

use ballast_model::Pressure;
use rustix::io::Errno;

use crate::error::ReadError;
use crate::file::KernelFile;
use crate::line::{number, numbered};

const EXPECTED: &str = "`some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, at most 100.00";

/// Reads the open file. `None`: the kernel has no PSI.
pub(crate) fn read_open(
    file: &mut KernelFile,
    buffer: &mut Vec<u8>,
) -> Result<Option<Pressure>, ReadError> {
    match file.read(buffer) {
        Ok(None) => Ok(None),
        Ok(Some(text)) => parse_pressure(file.path(), text).map(Some),
        // `psi=0`: the file exists and cannot be read.
        Err(error) if error.is(Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses the text of `/proc/pressure/memory`; `path` is for error messages.
///
/// # Errors
/// The `some` or `full` line is malformed or missing.
pub fn parse_pressure(path: &Path, text: &[u8]) -> Result<Pressure, ReadError> {
    let (mut some, mut full) = (None, None);
    for (at, line) in numbered(text) {
        let mut words = line.split(|&b| b == b' ').filter(|word| !word.is_empty());
        let field = match words.next() {
            Some(b"some") => &mut some,
            Some(b"full") => &mut full,
            _ => continue,
        };
        let average = words
            .find_map(|word| word.strip_prefix(b"avg10="))
            .and_then(basis_points)
            .ok_or_else(|| ReadError::malformed(path, at, line, EXPECTED))?;
        *field = Some(average);
    }
    Ok(Pressure {
        some_basis_points: some.ok_or_else(|| ReadError::missing_line(path, "some", EXPECTED))?,
        full_basis_points: full.ok_or_else(|| ReadError::missing_line(path, "full", EXPECTED))?,
    })
}

/// Parses `12.34` (per cent) as 1,234 basis points.
fn basis_points(percent: &[u8]) -> Option<u32> {
    let point = percent.iter().position(|&b| b == b'.')?;
    let (whole, decimals) = (number(&percent[..point])?, &percent[point + 1..]);
    if decimals.len() != 2 {
        return None;
    }
    let points = whole.checked_mul(100)?.checked_add(number(decimals)?)?;
    u32::try_from(points).ok().filter(|&points| points <= 10_000)
}
