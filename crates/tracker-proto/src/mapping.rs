//! Parses a line of `/proc/PID/maps`.
//!
//! The daemon uses it to find the files of guest memory, the tracker to find where they are mapped.
//! Both name a file by device and inode.
//! Source: proc_pid_maps(5).

/// A mapping, of a file or anonymous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// The first address.
    pub start: u64,
    /// The length in bytes.
    pub len: u64,
    /// Whether writes go to the file.
    pub is_shared: bool,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 if there is no file.
    pub inode: u64,
    /// The file's path, or a label such as `[heap]`; may have spaces.
    pub path: &'a str,
}

impl Mapping<'_> {
    /// Parses a line such as `7f12a4000000-7f12e4000000 rw-s 00000000 00:01 1045  /memfd:ram
    /// (deleted)`.
    pub fn parse(line: &str) -> Option<Mapping<'_>> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after.trim_start_matches(' ');
            field
        };
        let (start, end) = field().split_once('-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let is_shared = field().as_bytes().get(3) == Some(&b's');
        let offset = hex(field())?;
        let (major, minor) = field().split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = field().parse().ok()?;
        let len = end.checked_sub(start)?;
        Some(Mapping { start, len, is_shared, offset, device, inode, path: rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_lines_are_parsed_and_others_refused() {
        let line = "7f31-7f41 rw-s 00001000 fd:1f 9592                       /memfd:a b (deleted)";
        let mapping = Mapping {
            start: 0x7f31,
            len: 0x10,
            is_shared: true,
            offset: 0x1000,
            device: (0xfd, 0x1f),
            inode: 9592,
            path: "/memfd:a b (deleted)",
        };
        assert_eq!(Mapping::parse(line), Some(mapping));
        let heap = Mapping::parse("55d0-55d1 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((heap.is_shared, heap.inode, heap.path), (false, 0, ""));
        assert!(Mapping::parse("1000-2000 r--p 00000000 00:00 0").is_some());
        for invalid in ["", "rubbish", "2000-1000 r--p 0 00:00 0", "1-2 r--p x 00:00 0", "1-2 r--p"]
        {
            assert_eq!(Mapping::parse(invalid), None, "{invalid}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_lines_do_not_panic(line in "[0-9a-f: rwsp/-]{0,60}") {
            if let Some(mapping) = Mapping::parse(&line) {
                proptest::prop_assert!(line.ends_with(mapping.path));
            }
        }
    }
}
