//! The host's files below `/proc`: any bytes give figures or an error that names the file and its
//! line; each figure is in its range, with any text in the other lines.
#![no_main]

use std::path::Path;

use ballast_fuzz::assert_harmless;
use ballast_host::{
    ReadError, parse_meminfo, parse_nodes, parse_number, parse_pressure, parse_release,
    parse_rights, parse_start_time, parse_status, parse_swaps,
};

/// Longest error, in characters: a path, a line's beginning, and what was expected.
const ERROR_CHARS_MAX: usize = 400;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let path = Path::new("/proc/x");
    let lines = text.split(|&byte| byte == b'\n').count();
    // A line with an unknown name before the others changes only the line numbers.
    let later = [b"Unknown: 7\n", text].concat();

    let memory = value_of_read(parse_meminfo(path, text), lines);
    assert_eq!(memory, value_of_read(parse_meminfo(path, &later), lines + 1));
    if let Some(memory) = memory {
        let figures = [Some(memory.total), memory.available, memory.swap_total, memory.swap_free];
        assert!(figures.iter().flatten().all(|figure| figure.get() % 1024 == 0));
    }
    let pressure = value_of_read(parse_pressure(path, text), lines);
    assert_eq!(pressure, value_of_read(parse_pressure(path, &later), lines + 1));
    if let Some(pressure) = pressure {
        assert!(pressure.some_basis_points <= 10_000 && pressure.full_basis_points <= 10_000);
    }
    let process = value_of_read(parse_status(path, text), lines);
    assert_eq!(process, value_of_read(parse_status(path, &later), lines + 1));
    value_of_read(parse_start_time(path, text), lines);
    let rights = value_of_read(parse_rights(path, text), lines);
    assert_eq!(rights, value_of_read(parse_rights(path, &later), lines + 1));
    value_of_read(parse_number(path, text), lines);
    value_of_read(parse_release(path, text), lines);
    value_of_read(parse_nodes(path, text), lines);
    if let Some(areas) = value_of_read(parse_swaps(path, text), lines) {
        assert!(areas.len() < lines);
    }
});

fn value_of_read<T>(read: Result<T, ReadError>, lines: usize) -> Option<T> {
    let error = match read {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(text.starts_with("/proc/x"), "{text}");
    assert_harmless(&text, ERROR_CHARS_MAX);
    if let ReadError::Malformed { line, .. } = error {
        assert!((1..=lines).contains(&line), "{text}");
    }
    None
}
