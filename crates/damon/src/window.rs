//! Assembles DAMON's records of each guest into windows.
//!
//! Idea: at a window's end the kernel reports every region of every target, in the order of
//! addresses. So a guest's window begins with its first sampled page and is complete with its last.
//! A window that lacks a page, because the kernel's buffer was full or reading began in the middle,
//! is dropped as a whole: half a window would look like an idle guest.
//! Cost: O(1) per line.
//! Limits: a line longer than [`LINE_BYTES_MAX`] is ignored, because DAMON's lines are shorter.

use ballast_model::PAGE_SIZE;

use crate::trace::{RegionRecord, parse_record};

/// Longest line kept while its end has not been read.
const LINE_BYTES_MAX: usize = 512;

/// One guest to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamonTarget {
    /// Its hypervisor's process.
    pub pid: u32,
    /// The addresses of the pages to sample, ascending.
    pub pages: Vec<u64>,
}

/// One guest's touches in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamonWindow {
    /// Position of its target.
    pub target: usize,
    /// The positions of the pages that were touched, ascending.
    pub touched: Vec<u32>,
}

/// Reads windows from the text of tracefs.
#[derive(Debug, Default)]
pub struct WindowReader {
    targets: Vec<TargetProgress>,
    line: Vec<u8>,
    is_line_too_long: bool,
}

/// The part of a guest's window that was read.
#[derive(Debug)]
struct TargetProgress {
    pages: Vec<u64>,
    /// The position of the page that the kernel reports next; `None` until a window begins.
    next: Option<usize>,
    touched: Vec<u32>,
}

impl WindowReader {
    /// A reader of windows of `targets`.
    pub fn new(targets: &[DamonTarget]) -> WindowReader {
        let progress = |target: &DamonTarget| TargetProgress {
            pages: target.pages.clone(),
            next: None,
            touched: Vec::new(),
        };
        WindowReader { targets: targets.iter().map(progress).collect(), ..WindowReader::default() }
    }

    /// Reads another piece of text; adds the windows that it completes to `windows`.
    pub fn read(&mut self, text: &[u8], windows: &mut Vec<DamonWindow>) {
        for piece in text.split_inclusive(|&byte| byte == b'\n') {
            let (piece, is_end) = match piece.strip_suffix(b"\n") {
                Some(piece) => (piece, true),
                None => (piece, false),
            };
            if self.line.len() + piece.len() > LINE_BYTES_MAX {
                self.is_line_too_long = true;
                self.line.clear();
            } else if !self.is_line_too_long {
                self.line.extend_from_slice(piece);
            }
            if is_end {
                let record = std::str::from_utf8(&self.line).ok().and_then(parse_record);
                if let Some(record) = record.filter(|_| !self.is_line_too_long) {
                    windows.extend(self.add(record));
                }
                self.line.clear();
                self.is_line_too_long = false;
            }
        }
    }

    fn add(&mut self, record: RegionRecord) -> Option<DamonWindow> {
        let target = usize::try_from(record.target).ok()?;
        let progress = self.targets.get_mut(target)?;
        if progress.pages.first() == Some(&record.start) {
            progress.next = Some(0);
            progress.touched.clear();
        }
        let next = progress.next?;
        let is_expected = progress.pages.get(next) == Some(&record.start)
            && record.end - record.start == PAGE_SIZE;
        if !is_expected {
            progress.next = None;
            return None;
        }
        if record.touches > 0 {
            // Samples are far fewer than 2^32.
            progress.touched.push(next as u32);
        }
        progress.next = Some(next + 1);
        if next + 1 < progress.pages.len() {
            return None;
        }
        progress.next = None;
        Some(DamonWindow { target, touched: std::mem::take(&mut progress.touched) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn targets() -> Vec<DamonTarget> {
        let pages = |pages: &[u64]| pages.iter().map(|page| page * PAGE_SIZE).collect();
        vec![
            DamonTarget { pid: 7, pages: pages(&[1, 5, 6]) },
            DamonTarget { pid: 8, pages: pages(&[2]) },
        ]
    }

    fn line(target: usize, page: u64, touches: u32) -> String {
        let (start, end) = (page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
        format!(
            "k-1 [0] 1.0: damon_aggregated: target_id={target} nr_regions=3 {start}-{end}: {touches} 2\n"
        )
    }

    fn windows(text: &str) -> Vec<DamonWindow> {
        let (mut reader, mut windows) = (WindowReader::new(&targets()), Vec::new());
        reader.read(text.as_bytes(), &mut windows);
        windows
    }

    #[test]
    fn complete_windows_are_read_with_what_was_touched() {
        let text = [line(0, 1, 0), line(0, 5, 1), line(0, 6, 1), line(1, 2, 0)].concat();
        let first = DamonWindow { target: 0, touched: vec![1, 2] };
        assert_eq!(windows(&text), [first, DamonWindow { target: 1, touched: vec![] }]);
    }

    #[test]
    fn a_window_that_lacks_a_page_is_dropped() {
        for text in [
            [line(0, 1, 1), "CPU:0 [LOST 1 EVENTS]\n".to_owned(), line(0, 6, 1)].concat(),
            [line(0, 5, 1), line(0, 6, 1)].concat(),
            [line(0, 1, 1), line(0, 5, 1).replace("-24576", "-28672"), line(0, 6, 1)].concat(),
            line(2, 2, 1),
        ] {
            assert_eq!(windows(&text), [], "{text}");
        }
        let text = [line(0, 1, 1), line(0, 1, 0), line(0, 5, 0), line(0, 6, 1)].concat();
        assert_eq!(windows(&text), [DamonWindow { target: 0, touched: vec![2] }]);
    }

    #[test]
    fn lines_too_long_are_skipped() {
        let text = format!("{}{}{}", "x".repeat(600), line(1, 2, 1), line(1, 2, 1));
        assert_eq!(windows(&text), [DamonWindow { target: 1, touched: vec![0] }]);
    }

    proptest! {
        /// The naive way: every run of records that is a whole window, in one text.
        #[test]
        fn windows_equal_those_found_in_the_whole_text(
            records in prop::collection::vec((0..2_usize, prop::sample::select(vec![1_u64, 2, 5, 6]), 0..2_u32), 0..60),
            cut in 1..40_usize,
        ) {
            let text: String = records.iter().map(|&(t, page, touches)| line(t, page, touches)).collect();
            let mut expected = Vec::new();
            for (at, &(target, _, _)) in records.iter().enumerate() {
                // The last records of this target up to here.
                let of_target: Vec<_> = records[..=at].iter().filter(|it| it.0 == target).collect();
                let pages = &targets()[target].pages;
                let Some(from) = of_target.len().checked_sub(pages.len()) else { continue };
                let last = &of_target[from..];
                if last.iter().zip(pages).all(|(record, page)| record.1 * PAGE_SIZE == *page) {
                    let touched = (0..).zip(last).filter(|(_, it)| it.2 > 0).map(|(n, _)| n);
                    expected.push(DamonWindow { target, touched: touched.collect() });
                }
            }
            let (mut reader, mut windows) = (WindowReader::new(&targets()), Vec::new());
            for piece in text.as_bytes().chunks(cut) {
                reader.read(piece, &mut windows);
            }
            prop_assert_eq!(windows, expected);
        }

        #[test]
        fn rubbish_is_bounded(pieces in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
            let (mut reader, mut windows) = (WindowReader::new(&targets()), Vec::new());
            for piece in pieces {
                reader.read(&piece, &mut windows);
                prop_assert!(reader.line.len() <= LINE_BYTES_MAX);
            }
            prop_assert_eq!(windows, []);
        }
    }
}
