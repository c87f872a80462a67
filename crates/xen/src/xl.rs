//! Parses the output of `xl list` and `xl info`.
//!
//! Idea: plain tables for people, whose columns have been the same for all versions of xl. A
//! malformed line is an error that names the line.
//! Source: `xl(1)`, and xl 4.17 itself. Limits: sizes are whole MiB, rounded down; the first
//! [`DOMAINS_MAX`] domains.

use ballast_model::{Bytes, RunState};
use thiserror::Error;

/// Most domains read: Xen has no more numbers.
const DOMAINS_MAX: usize = 32_752;
/// Largest size accepted, in MiB: 1 PiB.
const MIB_MAX: u64 = 1 << 30;
/// Longest part of a line in an error.
const SHOWN: usize = 80;

/// A domain as `xl list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XlDomain {
    /// Its number.
    pub id: u16,
    /// What it holds by the hypervisor's count, rounded down to whole MiB.
    pub holds: Bytes,
    /// Its run state.
    pub state: RunState,
}

/// The host as `xl info` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XlInfo {
    /// Memory of the machine, as far as Xen manages it.
    pub total: Bytes,
    /// Memory that no domain holds and that is promised to none.
    pub free: Bytes,
}

/// Why an output cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum XlError {
    /// A line of the table is malformed.
    #[error("line {line} of `xl list`, `{found}`: expected name, ID, MiB, VCPUs, state and time")]
    Row {
        /// Its number, from 1.
        line: usize,
        /// The beginning of the line.
        found: String,
    },
    /// The table's head is missing.
    #[error("`xl list` begins with `{0}`: expected the columns Name, ID, Mem")]
    Head(String),
    /// A figure is missing or wrong.
    #[error("`xl info` has no line `{0} : MiB`")]
    Figure(&'static str),
}

/// Reads the output of `xl list`.
///
/// # Errors
/// [`XlError::Head`], [`XlError::Row`].
pub fn parse_xl_list(output: &[u8]) -> Result<Vec<XlDomain>, XlError> {
    let text = String::from_utf8_lossy(output);
    let mut lines = text.lines().zip(1..);
    let head = lines.next().map_or("", |(head, _)| head);
    if head.split_whitespace().take(3).ne(["Name", "ID", "Mem"]) {
        return Err(XlError::Head(shown(head)));
    }
    let mut domains = Vec::new();
    for (row, line) in lines.take(DOMAINS_MAX) {
        let found = || XlError::Row { line, found: shown(row) };
        domains.push(parse_row(row).ok_or_else(found)?);
    }
    Ok(domains)
}

/// A name may have spaces: the other columns are counted from the end.
fn parse_row(row: &str) -> Option<XlDomain> {
    let mut columns = row.split_whitespace().rev();
    let (_time, state, _processors) = (columns.next()?, columns.next()?, columns.next()?);
    let (mib, id) = (columns.next()?, columns.next()?);
    columns.next()?;
    let is_state = state.chars().all(|it| "rbpscd-".contains(it));
    let mib: u64 = mib.parse().ok().filter(|mib| *mib <= MIB_MAX && is_state)?;
    Some(XlDomain { id: id.parse().ok()?, holds: Bytes::mib(mib), state: run_state(state) })
}

/// The state column: running, blocked, paused, shut down, crashed, dying.
fn run_state(column: &str) -> RunState {
    let has = |letter: char| column.contains(letter);
    if has('c') {
        RunState::Panicked
    } else if has('s') || has('d') {
        RunState::Shutdown
    } else if has('p') {
        RunState::Paused
    } else {
        RunState::Running
    }
}

/// Reads the output of `xl info`.
///
/// # Errors
/// [`XlError::Figure`].
pub fn parse_xl_info(output: &[u8]) -> Result<XlInfo, XlError> {
    let text = String::from_utf8_lossy(output);
    let figure = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
        value.trim().parse().ok().filter(|mib: &u64| *mib <= MIB_MAX).map(Bytes::mib)
    };
    let total = figure("total_memory").ok_or(XlError::Figure("total_memory"))?;
    let free = figure("free_memory").ok_or(XlError::Figure("free_memory"))?;
    // Memory promised to domains that are being built; older versions do not report it.
    let promised = figure("outstanding_claims").unwrap_or_default();
    Ok(XlInfo { total, free: free.saturating_sub(promised).min(total) })
}

fn shown(line: &str) -> String {
    line.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::parse_kib;

    /// Output of xl 4.17.7.
    const LIST: &str = "\
Name                                        ID   Mem VCPUs\tState\tTime(s)
Domain-0                                     0   512     1     r-----      14.2
u1                                           1   192     1     -b----       1.3
(null)                                       2     0     1     --p--d       0.0
my guest                                    31  1024     2     ------   99999.9
";

    #[test]
    fn domains_are_read_with_what_they_hold() {
        let domains = parse_xl_list(LIST.as_bytes()).unwrap();
        let found: Vec<_> = domains.iter().map(|it| (it.id, it.holds.get() >> 20)).collect();
        assert_eq!(found, [(0, 512), (1, 192), (2, 0), (31, 1024)]);
        let states: Vec<_> = domains.into_iter().map(|it| it.state).collect();
        let running = RunState::Running;
        assert_eq!(states, [running.clone(), running.clone(), RunState::Shutdown, running]);
    }

    #[test]
    fn a_row_that_is_not_understood_is_named() {
        let head = "Name ID Mem VCPUs State Time(s)\n";
        for row in ["web", "web 1 x 1 r----- 1.0", "web 70000 1 1 r----- 1.0", "1 2 3 r----- 4"] {
            let error = parse_xl_list(format!("{head}{row}\n").as_bytes()).unwrap_err();
            assert_eq!(error, XlError::Row { line: 2, found: row.to_owned() });
        }
        let error = parse_xl_list(b"<html>\x1b[2J").unwrap_err().to_string();
        assert!(error.contains("`<html>\\u{1b}[2J`"), "{error}");
    }

    #[test]
    fn the_host_has_a_total_and_what_is_free() {
        let info = "release : 6.1.0\ntotal_memory           : 1535\nfree_memory            : 96\n\
                    sharing_freed_memory   : 0\noutstanding_claims     : 16\nfree_cpus : 0\n";
        let expected = XlInfo { total: Bytes::mib(1535), free: Bytes::mib(80) };
        assert_eq!(parse_xl_info(info.as_bytes()), Ok(expected));
        let none = parse_xl_info(b"total_memory : 12\nfree_memory : -3");
        assert_eq!(none, Err(XlError::Figure("free_memory")));
    }

    proptest! {
        #[test]
        fn any_output_is_read_or_refused(bytes: Vec<u8>, rows in "[ a-z0-9\n-]{0,200}") {
            let _ = parse_xl_info(&bytes);
            let _ = parse_xl_list(&bytes);
            let _ = parse_xl_list(format!("Name ID Mem\n{rows}").as_bytes());
            let _ = parse_kib(&bytes);
        }
    }
}
