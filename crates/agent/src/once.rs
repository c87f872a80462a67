//! One sample, printed.
//!
//! Idea: the JSON form is that of the protocol's `statistics`; the other is for people, a figure a line.

use std::io::{self, Write};

use ballast_agent_wire::Statistics;
use ballast_model::Bytes;

/// Prints `statistics`.
///
/// # Errors
/// Standard output is closed.
pub fn print(statistics: &Statistics, json: bool) -> io::Result<()> {
    io::stdout().write_all(text(statistics, json)?.as_bytes())
}

fn text(statistics: &Statistics, json: bool) -> io::Result<String> {
    if json {
        return Ok(serde_json::to_string(statistics)? + "\n");
    }
    let mut text = String::new();
    let pressure = statistics.pressure.unwrap_or_default();
    let rest = statistics.memory.figures().chain(statistics.watermarks.figures());
    let rest = rest.chain(statistics.counters.figures());
    let stalls = [("some", pressure.some), ("full", pressure.full)];
    let stalls = stalls.into_iter().flat_map(|(kind, stall)| {
        stall.figures().map(move |(name, value)| (format!("pressure_{kind}_{name}"), value))
    });
    for (name, value) in rest.map(|(name, value)| (name.to_owned(), value)).chain(stalls) {
        let value = match value {
            None => "-".to_owned(),
            Some(value) if name.ends_with("_bytes") => format!("{:#}", Bytes::new(value)),
            Some(value) => value.to_string(),
        };
        text.push_str(&format!("{name:<36} {value}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_form_has_what_is_known() {
        let mut statistics = Statistics::default();
        statistics.memory.free_bytes = Some(3 << 20);
        statistics.counters.oom_kills = Some(2);
        let json = text(&statistics, true).unwrap();
        assert_eq!(serde_json::from_str::<Statistics>(&json).unwrap(), statistics);
        let lines = text(&statistics, false).unwrap();
        let value = |name: &str| {
            let line = lines.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        assert_eq!(value("free_bytes").as_deref(), Some("3MiB"));
        assert_eq!(value("oom_kills").as_deref(), Some("2"));
        assert_eq!(value("total_bytes").as_deref(), Some("-"));
    }
}
