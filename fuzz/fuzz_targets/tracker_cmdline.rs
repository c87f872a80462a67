//! A hypervisor's `environ` and `cmdline`, chosen by the user who starts it: any bytes give an
//! address and a few paths, all of them parts of the text.
#![no_main]

use ballast_tracker::{PATHS_MAX, parse_cmdline, parse_environ};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let has = |part: &str| text.windows(part.len()).any(|window| window == part.as_bytes());
    if let Some(address) = parse_environ(text) {
        let address = address.path().to_str().expect("a word of the text");
        assert!(!address.is_empty() && !address.starts_with('@') && has(address), "{address}");
    }
    let line = parse_cmdline(text);
    assert!(line.name.as_ref().is_none_or(|name| !name.is_empty() && has(name)), "{line:?}");
    assert!(line.memory_paths.len() <= PATHS_MAX);
    for path in &line.memory_paths {
        assert!(path.starts_with('/') && !path.ends_with('/') && has(path), "{path}");
    }
    // Two command lines give at most the paths of both, and one more where they join.
    let twice = parse_cmdline(&[text, b"\0", text].concat());
    assert!(twice.memory_paths.len() <= PATHS_MAX.min(2 * line.memory_paths.len() + 1));
});
