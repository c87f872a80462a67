//! `Accept` headers of scrapers: any text has a format, and OpenMetrics only where it is named.
#![no_main]

use ballast_api::MetricsFormat;

libfuzzer_sys::fuzz_target!(|header: &str| {
    if MetricsFormat::accepted(header) == MetricsFormat::OpenMetrics {
        let header = header.to_ascii_lowercase();
        assert!(header.contains("application/openmetrics-text"), "{header}");
    }
});
