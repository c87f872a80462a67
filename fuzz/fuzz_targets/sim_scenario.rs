//! A scenario of the simulator: any text gives a scenario or an error with a place.
#![no_main]

use ballast::simulate::scenario_file::ScenarioFile;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match ScenarioFile::parse(text, "scenario.toml".as_ref()) {
        Ok(file) => assert!(file.scenario.validate().is_ok(), "read and cannot be"),
        Err(error) => assert!(error.to_string().starts_with("scenario.toml"), "{error}"),
    }
});
