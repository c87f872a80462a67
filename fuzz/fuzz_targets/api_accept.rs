//! `Accept` headers of scrapers: any text selects a format, and OpenMetrics only if it names it.
#![no_main]

use ballast_api::MetricsFormat;

libfuzzer_sys::fuzz_target!(|header: &str| {
    if MetricsFormat::accepted(header) == MetricsFormat::OpenMetrics {
        let header = header.to_ascii_lowercase();
        assert!(header.contains("application/openmetrics-text"), "{header}");
    }
});
