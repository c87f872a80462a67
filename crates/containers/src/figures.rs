//! Parsers of a cgroup's files.
//!
//! Cost: O(bytes). Limits: a malformed line is an error; a line missing in `memory.stat` counts as
//! zero, because kernels differ in their lines.

use std::time::Duration;

use ballast_model::{Bytes, PAGE_SIZE};

/// The figures used of a cgroup's `memory.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
    /// Page cache, also of files in memory (`file`).
    pub file: Bytes,
    /// Page cache that was not used recently (`inactive_file`).
    pub inactive_file: Bytes,
    /// Kernel memory that can be dropped (`slab_reclaimable`).
    pub slab_reclaimable: Bytes,
    /// Memory that was reclaimed and was soon needed again, since the cgroup was created: anonymous
    /// (`workingset_refault_anon`), and page cache that went straight to the active pages
    /// (`workingset_activate_file`).
    pub refaulted: Bytes,
    /// Faults that waited for a disk, since the cgroup was created (`pgmajfault`).
    pub major_faults: u64,
    /// Faults that did not wait for a disk (`pgfault` less `pgmajfault`).
    pub minor_faults: u64,
}

/// Parses the text of `memory.stat`.
///
/// # Errors
/// A figure that is used is not a number; the error says which.
pub fn parse_memory_stat(text: &[u8]) -> Result<MemoryStat, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is no text".to_owned())?;
    let mut stat = MemoryStat::default();
    let mut faults = 0;
    for (at, line) in text.lines().enumerate() {
        let Some((name, number)) = line.split_once(' ') else { continue };
        let number = || decimal(number).ok_or_else(|| malformed(at, line, "`NAME NUMBER`"));
        let pages = |count: u64| Bytes::new(count.saturating_mul(PAGE_SIZE));
        match name {
            "file" => stat.file = Bytes::new(number()?),
            "inactive_file" => stat.inactive_file = Bytes::new(number()?),
            "slab_reclaimable" => stat.slab_reclaimable = Bytes::new(number()?),
            "workingset_refault_anon" | "workingset_activate_file" => {
                stat.refaulted = stat.refaulted.saturating_add(pages(number()?));
            }
            "pgmajfault" => stat.major_faults = number()?,
            "pgfault" => faults = number()?,
            _ => {}
        }
    }
    stat.minor_faults = faults.saturating_sub(stat.major_faults);
    Ok(stat)
}

/// Parses the text of a file with one amount, such as `memory.high`; `None`: no limit.
///
/// # Errors
/// The text is neither a whole number nor `max`.
pub fn parse_amount(text: &[u8]) -> Result<Option<Bytes>, String> {
    let word = std::str::from_utf8(text).unwrap_or_default().trim();
    if word == "max" {
        return Ok(None);
    }
    let amount = decimal(word).ok_or_else(|| malformed(0, word, "a number of bytes, or `max`"))?;
    Ok(Some(Bytes::new(amount)))
}

/// Parses the text of `memory.pressure`: how long some task of the cgroup has waited for memory,
/// since the cgroup was created.
///
/// # Errors
/// There is no such line.
pub fn parse_stalled(text: &[u8]) -> Result<Duration, String> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let some = text.lines().find_map(|line| line.strip_prefix("some "));
    let total = some.and_then(|some| some.rsplit_once("total="));
    let total = total.and_then(|(_, total)| decimal(total.trim()));
    let expected = "`some avg10=… avg60=… avg300=… total=MICROSECONDS`";
    total
        .map(Duration::from_micros)
        .ok_or_else(|| malformed(0, text.lines().next().unwrap_or_default(), expected))
}

/// Digits and nothing else.
fn decimal(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

fn malformed(at: usize, line: &str, expected: &str) -> String {
    let shown: String = line.chars().flat_map(char::escape_debug).take(60).collect();
    format!("line {}: `{shown}`: expected {expected}", at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_kernels_texts_are_read() {
        let text =
            b"anon 73728\nfile 8192\nkernel 4096\ninactive_file 4096\nslab_reclaimable 512\n\
                     workingset_refault_anon 3\nworkingset_activate_file 1\npgfault 100\npgmajfault 7\n";
        let stat = parse_memory_stat(text).unwrap();
        assert_eq!(stat.file, Bytes::pages(2));
        assert_eq!(stat.inactive_file, Bytes::pages(1));
        assert_eq!(stat.slab_reclaimable, Bytes::new(512));
        assert_eq!(stat.refaulted, Bytes::pages(4));
        assert_eq!((stat.major_faults, stat.minor_faults), (7, 93));
        assert_eq!(parse_amount(b"max\n"), Ok(None));
        assert_eq!(parse_amount(b"4096\n"), Ok(Some(Bytes::pages(1))));
        let pressure = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1234567\n\
                         full avg10=0.00 avg60=0.00 avg300=0.00 total=89\n";
        assert_eq!(parse_stalled(pressure), Ok(Duration::from_micros(1_234_567)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |result: Result<MemoryStat, String>| result.unwrap_err();
        assert_eq!(
            error(parse_memory_stat(b"anon 1\nfile -1\n")),
            "line 2: `file -1`: expected `NAME NUMBER`"
        );
        let why = parse_amount(b"1M").unwrap_err();
        assert_eq!(why, "line 1: `1M`: expected a number of bytes, or `max`");
        assert!(parse_stalled(b"full total=1").unwrap_err().contains("expected `some"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>, amount in 0..u64::MAX) {
            let _ = (parse_memory_stat(&text), parse_stalled(&text), parse_amount(&text));
            let written = format!("{amount}\n");
            prop_assert_eq!(parse_amount(written.as_bytes()), Ok(Some(Bytes::new(amount))));
        }
    }
}
