//! Prints one sample of statistics, as the protocol's JSON or as one line per value.

use std::io::{self, Write};

use ballast_agent_proto::wire::Statistics;
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
    let mut push = |name: &str, value: Option<u64>| {
        let value = match value {
            None => "-".to_owned(),
            Some(value) if name.ends_with("_bytes") => format!("{:#}", Bytes::new(value)),
            Some(value) => value.to_string(),
        };
        text.push_str(&format!("{name:<36} {value}\n"));
    };
    let watermarks = statistics.watermarks.fields();
    let counters = statistics.counters.fields();
    for (name, value) in statistics.memory.fields().chain(watermarks).chain(counters) {
        push(name, value);
    }
    let pressure = statistics.pressure.unwrap_or_default();
    for (kind, stall) in [("some", pressure.some), ("full", pressure.full)] {
        for (name, value) in stall.fields() {
            push(&format!("pressure_{kind}_{name}"), value);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_the_known_values() {
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
