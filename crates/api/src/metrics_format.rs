//! The two text formats of metrics, and which one a scraper asked for.
//!
//! Idea: a client that names OpenMetrics gets it; every other (`curl`, `promtool`, old scrapers)
//! gets the classic format of Prometheus, which all of them read. The metrics library writes
//! OpenMetrics; the classic format is made from that text line by line, with the same samples.
//! Source: RFC 9110 §12.5.1 (`Accept`), OpenMetrics 1.0, Prometheus' exposition formats.
//! Cost: linear in the header; its first [`RANGES_MAX`] ranges count.
//! Limits: a header that excludes both formats is answered with the classic one.

/// Most media ranges that are read from a header; Prometheus sends four or five.
const RANGES_MAX: usize = 32;
/// The highest quality, 1, in thousandths.
const WHOLE: u16 = 1000;

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus' text format 0.0.4.
    Classic,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The format that suits the text of an `Accept` header best; empty: there is no header.
    pub fn accepted(header: &str) -> MetricsFormat {
        let (mut open, mut classic) = (0, 0);
        for range in header.split(',').take(RANGES_MAX) {
            let range = FormatRange::parse(range);
            match (range.name.as_str(), range.version) {
                ("application/openmetrics-text", None | Some("1.0.0")) => {
                    open = open.max(range.quality);
                }
                ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", None) => {
                    classic = classic.max(range.quality);
                }
                _ => {}
            }
        }
        if open > 0 && open >= classic {
            MetricsFormat::OpenMetrics
        } else {
            MetricsFormat::Classic
        }
    }

    /// Converts a text in OpenMetrics to this format.
    pub fn of_open_metrics(self, text: String) -> String {
        match self {
            MetricsFormat::OpenMetrics => text,
            MetricsFormat::Classic => classic(&text),
        }
    }

    /// Its media type, for `Content-Type`.
    pub const fn media_type(self) -> &'static str {
        match self {
            MetricsFormat::Classic => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }
}

/// Converts OpenMetrics text to the classic format: a family has the name of its samples, an info
/// is a gauge, and there are no units and no end marker.
fn classic(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, text)| text);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.rsplit_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            if let Some(text) = help.take() {
                out.push_str(&format!("# HELP {name}{suffix} {text}\n"));
            }
            out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// One range of an `Accept` header.
struct FormatRange<'a> {
    /// Type and subtype in lower case.
    name: String,
    version: Option<&'a str>,
    /// In thousandths; 0: not wanted, or not a number from 0 to 1.
    quality: u16,
}

impl<'a> FormatRange<'a> {
    fn parse(text: &'a str) -> FormatRange<'a> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut range = FormatRange { name, version: None, quality: WHOLE };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let (key, value) = (key.trim_end(), value.trim_start());
            if key.eq_ignore_ascii_case("q") {
                let quality = value.parse().ok().filter(|it| (0.0..=1.0).contains(it));
                range.quality = quality.map_or(0, |it: f32| (it * f32::from(WHOLE)) as u16);
            } else if key.eq_ignore_ascii_case("version") {
                range.version = Some(value.trim_matches('"'));
            }
        }
        range
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::MetricsFormat::{Classic, OpenMetrics};
    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_prefer_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (header, expected) in [
            ("", Classic),
            ("*/*", Classic),
            ("text/plain", Classic),
            (prometheus, OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.5", OpenMetrics),
            ("application/openmetrics-text;version=2.0.0, text/plain;q=0.1", Classic),
            ("application/openmetrics-text;q=0.4, text/plain;q=0.6", Classic),
            ("application/openmetrics-text;q=0", Classic),
            ("application/openmetrics-text;q=much", Classic),
            ("application/json", Classic),
        ] {
            assert_eq!(MetricsFormat::accepted(header), expected, "{header}");
        }
    }

    proptest! {
        #[test]
        fn any_header_has_a_format(header in "([*/;,=q.0-9 \"]|text|version|openmetrics|\\PC){0,60}") {
            let format = MetricsFormat::accepted(&header);
            let names_it = header.to_ascii_lowercase().contains("application/openmetrics-text");
            prop_assert!(format == Classic || names_it, "{header}");
        }
    }
}
