//! Recordings of real programs: page numbers recorded by `scripts/record-traces`.

use std::path::Path;

/// The recorded programs.
pub(crate) const NAMES: [&str; 3] = ["sort", "perl", "python"];

/// The greatest size of a recording in bytes; the bound keeps a bad file from filling the memory.
const BYTES_MAX: usize = 8 * 4_000_000;

/// The page numbers that a program referenced, in order.
pub(crate) fn read(name: &str) -> Vec<u64> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let path = folder.join(format!("{name}.pg.zst"));
    let compressed = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let bytes = zstd::bulk::decompress(&compressed, BYTES_MAX).unwrap();
    let (numbers, rest) = bytes.as_chunks();
    assert!(rest.is_empty() && !numbers.is_empty(), "{name}");
    numbers.iter().copied().map(u64::from_le_bytes).collect()
}
