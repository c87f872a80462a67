//! A lab scenario: any text gives a scenario or an error with a place.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = ballast_lab_host::Scenario::parse(text, "scenario.toml".as_ref()) {
        assert!(error.to_string().starts_with("scenario.toml"), "{error}");
    }
});
