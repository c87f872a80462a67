//! Parses lines of tracefs with the event `damon_aggregated`.
//!
//! Source: Linux, include/trace/events/damon.h, the same in 6.1 and 6.12.
//! Limits: only the part of a line after the event's name is read; the part before (task,
//! processor, time) may be anything.

/// DAMON's result for one region in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRecord {
    /// The guest: the position of its target.
    pub target: u64,
    /// The first address of the region.
    pub start: u64,
    /// The address after the region's last.
    pub end: u64,
    /// Number of the window's samples in which it was touched.
    pub touches: u32,
}

/// Parses a line such as `kdamond.0-77 [000] ..... 9.1: damon_aggregated: target_id=0 nr_regions=10
/// 4096-8192: 1 3`; `None` if it is another event, or malformed.
pub fn parse_record(line: &str) -> Option<RegionRecord> {
    let (_, event) = line.rsplit_once("damon_aggregated: ")?;
    let mut words = event.split_ascii_whitespace();
    let target = digits(words.next()?.strip_prefix("target_id=")?)?;
    digits(words.next()?.strip_prefix("nr_regions=")?)?;
    let (start, end) = words.next()?.strip_suffix(':')?.split_once('-')?;
    let (start, end) = (digits(start)?, digits(end)?);
    let touches = u32::try_from(digits(words.next()?)?).ok()?;
    (start < end).then_some(RegionRecord { target, start, end, touches })
}

/// Digits and nothing else: no sign.
fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.as_bytes().first().is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "       kdamond.0-432     [000] .....    43.264001: damon_aggregated: \
                        target_id=3 nr_regions=1024 140115276890112-140115276894208: 1 7";

    #[test]
    fn a_line_of_the_kernel_is_parsed() {
        let record = RegionRecord {
            target: 3,
            start: 140_115_276_890_112,
            end: 140_115_276_894_208,
            touches: 1,
        };
        assert_eq!(parse_record(LINE), Some(record));
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "# tracer: nop",
            "CPU:0 [LOST 1234 EVENTS]",
            "x: damos_before_apply: ctx_idx=0 target_idx=0 nr_regions=1 1-2: 1 1",
            "damon_aggregated: target_id=+1 nr_regions=1 1-2: 1 1",
            "damon_aggregated: target_id=1 nr_regions=1 2-1: 1 1",
            "damon_aggregated: target_id=1 nr_regions=1 1-2: 4294967296 1",
            "damon_aggregated: target_id=1 nr_regions=1 1-2:",
        ] {
            assert_eq!(parse_record(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn rubbish_does_not_panic(before in ".{0,40}", after in "[a-z0-9_=:+ -]{0,60}") {
            let line = format!("{before}damon_aggregated: target_id={after}");
            if let Some(record) = parse_record(&line) {
                prop_assert!(record.start < record.end);
            }
        }

        #[test]
        fn what_is_written_is_read(target: u64, start in 0..u64::MAX, touches: u32, age: u32) {
            let end = start + 1;
            let line = format!(
                "k damon_aggregated: target_id={target} nr_regions=5 {start}-{end}: {touches} {age}"
            );
            let record = RegionRecord { target, start, end, touches };
            prop_assert_eq!(parse_record(&line), Some(record));
        }
    }
}
