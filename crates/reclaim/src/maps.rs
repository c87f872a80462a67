//! Parsers of `/proc/PID/maps`, `smaps` and `smaps_rollup`.
//!
//! Source: proc_pid_maps(5), proc_pid_smaps(5).
//! Limits: one malformed line makes the whole file an error.

use ballast_model::Bytes;

use crate::line::{KIB_EXPECTED, decimal, hex, kib, malformed, numbered, word};
use crate::ranges::AddressRange;

const EXPECTED: &str = "`START-END rwxp OFFSET MAJOR:MINOR INODE PATH`, as in /proc/PID/maps";

/// A line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Addresses in the process.
    pub range: AddressRange,
    /// Whether the process may write to it.
    pub is_writable: bool,
    /// Whether writes go to the file (`MAP_SHARED`).
    pub is_shared: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// The file's path or a name such as `[heap]`, as the kernel writes it; any bytes, blanks too.
    pub path: &'a [u8],
}

/// Parses the text of `maps`.
///
/// # Errors
/// A line is malformed; the error names it.
pub fn parse_maps(text: &[u8]) -> Result<Vec<Mapping<'_>>, String> {
    let lines = numbered(text);
    lines.map(|(at, line)| mapping(line).ok_or_else(|| malformed(at, line, EXPECTED))).collect()
}

fn mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let mut rest = line;
    let (start, end) = pair(word(&mut rest), b'-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let [_, write, _, shared] = word(&mut rest) else { return None };
    let offset = hex(word(&mut rest))?;
    let (major, minor) = pair(word(&mut rest), b':')?;
    let device = (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?);
    let inode = decimal(word(&mut rest))?;
    let range = AddressRange::new(start, end);
    // The kernel maps whole pages, and at least one.
    if (range.start(), range.end()) != (start, end) || range.is_empty() {
        return None;
    }
    Some(Mapping {
        range,
        is_writable: *write == b'w',
        is_shared: *shared == b's',
        offset,
        device,
        inode,
        path: rest,
    })
}

fn pair(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Sums over all mappings of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmapsTotals {
    /// Memory in the page tables (`Rss`).
    pub resident: Bytes,
    /// Mapped memory in swap, including shared files (`Swap`).
    pub swapped: Bytes,
}

/// Parses and sums up the text of `smaps` or `smaps_rollup`.
///
/// # Errors
/// A line is malformed or missing; the error names it.
pub fn parse_smaps(text: &[u8]) -> Result<SmapsTotals, String> {
    let (mut resident, mut swapped) = (None, None);
    for (at, line) in numbered(text) {
        let (sum, value) = if let Some(value) = line.strip_prefix(b"Rss:") {
            (&mut resident, value)
        } else if let Some(value) = line.strip_prefix(b"Swap:") {
            (&mut swapped, value)
        } else {
            continue;
        };
        let more = kib(value).ok_or_else(|| malformed(at, line, KIB_EXPECTED))?;
        *sum = Some(sum.unwrap_or(Bytes::ZERO).saturating_add(more));
    }
    match (resident, swapped) {
        (Some(resident), Some(swapped)) => Ok(SmapsTotals { resident, swapped }),
        (None, _) => Err("no line `Rss:`: expected one for each mapping".to_owned()),
        (_, None) => Err("no line `Swap:`: expected one for each mapping".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mappings_are_parsed() {
        let text =
            b"7f3103ffd000-7f3113ffd000 rw-s 00001000 fd:1f 9594       /memfd:ram b (deleted)\n\
            55d000-55e000 r--p 00000000 00:00 0 \n\
            7f3113ffe000-7f3133ffe000 rw-p 00000000 00:00 0                          [anon:\xff]\n";
        let maps = parse_maps(text).unwrap();
        let ram = Mapping {
            range: AddressRange::new(0x7f31_03ff_d000, 0x7f31_13ff_d000),
            is_writable: true,
            is_shared: true,
            offset: 0x1000,
            device: (0xfd, 0x1f),
            inode: 9594,
            path: b"/memfd:ram b (deleted)",
        };
        assert_eq!(maps[0], ram);
        assert_eq!(
            (maps[1].is_writable, maps[1].is_shared, maps[1].path),
            (false, false, &b""[..])
        );
        assert_eq!(maps[2].path, b"[anon:\xff]");
        assert_eq!(parse_maps(b""), Ok(Vec::new()));
    }

    #[test]
    fn the_error_names_the_malformed_mapping() {
        for line in [
            "rubbish",
            "1000-1000 rw-p 0 00:00 0",
            "2000-1000 rw-p 0 00:00 0",
            "1000-2001 rw-p 0 00:00 0",
            "1000-2000 rw- 0 00:00 0",
            "1000-2000 rw-p x 00:00 0",
            "1000-2000 rw-p 0 00:00",
            "1000-2000 rw-p 0 0000 0",
            "1000-2000 rw-p 0 100000000:00 0",
            "+1000-2000 rw-p 0 00:00 0",
            "1F000-20000 rw-p 0 00:00 0",
        ] {
            let text = format!("1000-2000 rw-p 0 00:00 0\n{line}\n");
            let why = parse_maps(text.as_bytes()).unwrap_err();
            assert!(why.starts_with(&format!("line 2: `{line}`: expected")), "{why}");
        }
    }

    #[test]
    fn smaps_totals_are_sums_over_all_mappings() {
        let smaps =
            b"1000-2000 rw-p 0 00:00 0\nRss:  4 kB\nPss: 1 kB\nSwap:  8 kB\nSwapPss: 9 kB\n\
            3000-4000 rw-p 0 00:00 0\nRss:  4 kB\nSwap:  0 kB\n";
        let expected = SmapsTotals { resident: Bytes::kib(8), swapped: Bytes::kib(8) };
        assert_eq!(parse_smaps(smaps), Ok(expected));
        for (text, why) in [
            ("", "no line `Rss:`"),
            ("Rss: 1 kB\n", "no line `Swap:`"),
            ("Rss: 1 kB\nSwap: -1 kB\n", "line 2: `Swap: -1 kB`: expected a whole number of kB"),
        ] {
            let message = parse_smaps(text.as_bytes()).unwrap_err();
            assert!(message.starts_with(why), "{message}");
        }
    }

    /// A naive parser on the standard library: fields split at blanks.
    fn naive(line: &str) -> Option<(u64, u64, bool, u64)> {
        let fields: Vec<&str> = line.split(' ').filter(|field| !field.is_empty()).collect();
        let (start, end) = fields.first()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let shared = fields.get(1)?.chars().nth(3)? == 's';
        Some((hex(start)?, hex(end)?, shared, fields.get(4)?.parse().ok()?))
    }

    proptest! {
        #[test]
        fn a_formatted_mapping_parses_back(
            first in 0u64..1 << 40, pages in 1u64..1 << 20, write: bool, shared: bool,
            offset in 0u64..1 << 50, major in 0u32..512, minor: u32, inode: u64,
            path in "(/[a-z (]{0,20})?",
        ) {
            let (start, end) = (first << 12, (first + pages) << 12);
            let path = path.trim_end();
            let line = format!(
                "{start:08x}-{end:08x} r{}-{} {offset:08x} {major:02x}:{minor:02x} {inode}    \
                 {path}",
                if write { 'w' } else { '-' }, if shared { 's' } else { 'p' },
            );
            let maps = parse_maps(line.as_bytes()).unwrap();
            prop_assert_eq!(maps.len(), 1);
            let map = &maps[0];
            prop_assert_eq!((map.range.start(), map.range.end(), map.offset), (start, end, offset));
            prop_assert_eq!((map.is_writable, map.is_shared, map.inode), (write, shared, inode));
            prop_assert_eq!((map.device, map.path), ((major, minor), path.as_bytes()));
        }

        #[test]
        fn an_accepted_line_agrees_with_a_naive_parser(
            addresses in "[0-9a-f]{1,5}000-[0-9a-f]{1,5}000",
            rest in "r[w-]-[sp] [0-9a-fx]{1,3} [0-9a-f]{1,2}:[0-9]{1,2} [0-9-]{1,3} ?[/a ]{0,9}",
        ) {
            let line = format!("{addresses} {rest}");
            if let Ok(maps) = parse_maps(line.as_bytes()) {
                let parsed = maps
                    .first()
                    .map(|it| (it.range.start(), it.range.end(), it.is_shared, it.inode));
                prop_assert_eq!(parsed, naive(&line));
            }
        }

        #[test]
        fn garbage_never_panics(text: Vec<u8>, line in "[0-9a-f: rwsp\n/-]{0,80}") {
            let _ = (parse_maps(&text), parse_smaps(&text));
            let _ = (parse_maps(line.as_bytes()), parse_smaps(line.as_bytes()));
        }
    }
}
