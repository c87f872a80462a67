//! The host's boot identifier.

use std::path::Path;

use crate::error::ReadError;
use crate::file::read_once;

const EXPECTED: &str = "an identifier such as `1b4e28ba-2fa1-11d2-883f-0016d3cca427`";

/// The host's boot identifier. Monotonic times are comparable only within one boot.
///
/// # Errors
/// The file cannot be read or is not an identifier.
pub fn boot_id(proc: &Path) -> Result<String, ReadError> {
    let (path, text) = read_once(proc.join("sys/kernel/random/boot_id"))?;
    let id = text.trim_ascii();
    let valid = id.len() == 36 && id.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
    match std::str::from_utf8(id) {
        Ok(id) if valid => Ok(id.to_owned()),
        _ => Err(ReadError::malformed(&path, 1, id, EXPECTED)),
    }
}
