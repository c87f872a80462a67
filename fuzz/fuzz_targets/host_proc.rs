//! The host's files below `/proc`: any bytes give figures or an error that names the file and its
//! line; each figure is in its range, with any text in the other lines.
#![no_main]

use std::path::Path;

use ballast_host::{
    ReadError, parse_meminfo, parse_number, parse_pressure, parse_release, parse_rights,
    parse_start_time, parse_status, parse_swaps,
};

/// Longest error, in characters: a path, a line's beginning, and what was expected.
const ERROR_CHARS_MAX: usize = 400;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let path = Path::new("/proc/x");
    let lines = text.split(|&byte| byte == b'\n').count();
    // A line with an unknown name before the others changes only the line numbers.
    let later = [b"Unknown: 7\n", text].concat();

    let memory = told(parse_meminfo(path, text), lines);
    assert_eq!(memory, told(parse_meminfo(path, &later), lines + 1));
    if let Some(memory) = memory {
        let figures = [Some(memory.total), memory.available, memory.swap_total, memory.swap_free];
        assert!(figures.iter().flatten().all(|figure| figure.get() % 1024 == 0));
    }
    let pressure = told(parse_pressure(path, text), lines);
    assert_eq!(pressure, told(parse_pressure(path, &later), lines + 1));
    if let Some(pressure) = pressure {
        assert!(pressure.some_basis_points <= 10_000 && pressure.full_basis_points <= 10_000);
    }
    let process = told(parse_status(path, text), lines);
    assert_eq!(process, told(parse_status(path, &later), lines + 1));
    told(parse_start_time(path, text), lines);
    let rights = told(parse_rights(path, text), lines);
    assert_eq!(rights, told(parse_rights(path, &later), lines + 1));
    told(parse_number(path, text), lines);
    told(parse_release(path, text), lines);
    if let Some(areas) = told(parse_swaps(path, text), lines) {
        assert!(areas.len() < lines);
    }
});

fn told<T>(read: Result<T, ReadError>, lines: usize) -> Option<T> {
    let error = match read {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(text.starts_with("/proc/x"), "{text}");
    assert!(text.chars().count() <= ERROR_CHARS_MAX, "{text}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
    if let ReadError::Malformed { line, .. } = error {
        assert!((1..=lines).contains(&line), "{text}");
    }
    None
}
