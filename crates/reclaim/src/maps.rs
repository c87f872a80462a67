//! `/proc/PID/maps`, and what `smaps` and `smaps_rollup` add up to.
//!
//! Source: proc_pid_maps(5), proc_pid_smaps(5).
//! Limits: a line that is not as the kernel writes them refuses the whole file.

use ballast_model::Bytes;

use crate::AddressRange;
use crate::line::{KIB_EXPECTED, decimal, hex, kib, malformed, numbered, word};

const EXPECTED: &str = "`START-END rwxp OFFSET MAJOR:MINOR INODE PATH`, as in /proc/PID/maps";

/// A line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Where in the process.
    pub range: AddressRange,
    /// Whether the process may write to it.
    pub is_writable: bool,
    /// Whether what is written to it is written to the file.
    pub is_shared: bool,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file; 0 where there is none.
    pub inode: u64,
    /// The file's path, or what stands for it, as the kernel writes it; may have blanks, and may be of any bytes.
    pub path: &'a [u8],
}

/// Understands the text of `maps`.
///
/// # Errors
/// What is wrong with which line.
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
    // The kernel maps whole pages, and no empty ones.
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

fn pair(text: &[u8], between: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == between)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Memory of a process, by the word of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Memory it has in its page tables (`Rss`).
    pub resident: Bytes,
    /// Memory of its mappings that is in swap, that of shared files as well (`Swap`).
    pub swapped: Bytes,
}

/// Understands the text of `smaps` or `smaps_rollup`, and adds it up.
///
/// # Errors
/// What is wrong with which line, or that a line is missing.
pub fn parse_totals(text: &[u8]) -> Result<Totals, String> {
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
        (Some(resident), Some(swapped)) => Ok(Totals { resident, swapped }),
        (None, _) => Err("no line `Rss:`: expected one for each mapping".to_owned()),
        (_, None) => Err("no line `Swap:`: expected one for each mapping".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mappings_as_the_kernel_writes_them() {
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
    fn what_is_no_mapping_is_named() {
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
    fn totals_add_up() {
        let smaps =
            b"1000-2000 rw-p 0 00:00 0\nRss:  4 kB\nPss: 1 kB\nSwap:  8 kB\nSwapPss: 9 kB\n\
            3000-4000 rw-p 0 00:00 0\nRss:  4 kB\nSwap:  0 kB\n";
        let expected = Totals { resident: Bytes::kib(8), swapped: Bytes::kib(8) };
        assert_eq!(parse_totals(smaps), Ok(expected));
        for (text, why) in [
            ("", "no line `Rss:`"),
            ("Rss: 1 kB\n", "no line `Swap:`"),
            ("Rss: 1 kB\nSwap: -1 kB\n", "line 2: `Swap: -1 kB`: expected a whole number of kB"),
        ] {
            let told = parse_totals(text.as_bytes()).unwrap_err();
            assert!(told.starts_with(why), "{told}");
        }
    }

    /// As naive as can be: fields by white space, by the standard library's words.
    fn naive(line: &str) -> Option<(u64, u64, bool, u64)> {
        let fields: Vec<&str> = line.split(' ').filter(|field| !field.is_empty()).collect();
        let (start, end) = fields.first()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let shared = fields.get(1)?.chars().nth(3)? == 's';
        Some((hex(start)?, hex(end)?, shared, fields.get(4)?.parse().ok()?))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            first in 0u64..1 << 40, pages in 1u64..1 << 20, write: bool, shared: bool, offset in 0u64..1 << 50,
            major in 0u32..512, minor: u32, inode: u64, path in "(/[a-z (]{0,20})?",
        ) {
            let (start, end) = (first << 12, (first + pages) << 12);
            let path = path.trim_end();
            let line = format!(
                "{start:08x}-{end:08x} r{}-{} {offset:08x} {major:02x}:{minor:02x} {inode}    {path}",
                if write { 'w' } else { '-' }, if shared { 's' } else { 'p' },
            );
            let maps = parse_maps(line.as_bytes()).unwrap();
            prop_assert_eq!(maps.len(), 1);
            let seen = &maps[0];
            prop_assert_eq!((seen.range.start(), seen.range.end(), seen.offset), (start, end, offset));
            prop_assert_eq!((seen.is_writable, seen.is_shared, seen.inode), (write, shared, inode));
            prop_assert_eq!((seen.device, seen.path), ((major, minor), path.as_bytes()));
        }

        #[test]
        fn what_is_read_is_what_a_naive_reader_reads(line in "[0-9a-f]{1,5}000-[0-9a-f]{1,5}000 r[w-]-[sp] [0-9a-fx]{1,3} [0-9a-f]{1,2}:[0-9]{1,2} [0-9-]{1,3} ?[/a ]{0,9}") {
            if let Ok(maps) = parse_maps(line.as_bytes()) {
                let seen = maps.first().map(|it| (it.range.start(), it.range.end(), it.is_shared, it.inode));
                prop_assert_eq!(seen, naive(&line));
            }
        }

        #[test]
        fn rubbish_is_refused_and_no_more(text: Vec<u8>, line in "[0-9a-f: rwsp\n/-]{0,80}") {
            let _ = (parse_maps(&text), parse_totals(&text));
            let _ = (parse_maps(line.as_bytes()), parse_totals(line.as_bytes()));
        }
    }
}
