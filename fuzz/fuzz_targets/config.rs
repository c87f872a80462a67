//! The daemon's configuration: any text gives a configuration or an error with a place.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = ballast_config::parse(text, "ballast.toml".as_ref()) {
        assert!(error.to_string().starts_with("ballast.toml"), "{error}");
    }
});
