//! Tables of mistakes and their messages, and random texts that must not cause a panic.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{DOCUMENT_BYTES_MAX, Error, Mistake, duration, parse};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // Not read: the mistakes are the subject.
struct Config {
    #[serde(default)]
    policy: Option<Policy>,
    #[serde(default)]
    guests: BTreeMap<String, Guest>,
    #[serde(default)]
    step: Vec<Step>,
    #[serde(default)]
    empty: Option<Empty>,
    #[serde(default, with = "duration::option")]
    interval: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Policy {
    Static,
    SelfScheduling,
    Global,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Guest {
    floor: u64,
    #[serde(default)]
    ceiling: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Step {
    at: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

fn error_of(text: &str) -> Error {
    parse::<Config>(text, Path::new("ballast.toml")).expect_err(text)
}

#[test]
fn mistakes_are_named_with_place_key_and_remedy() {
    for (text, expected) in [
        ("polcy = \"global\"", "ballast.toml:1:1: unknown key `polcy`: did you mean `policy`?"),
        (
            "\n[guests.web]\nfloor = 1\nflor = 2\n",
            "ballast.toml:4:1: unknown key `flor` in [guests.web]: did you mean `floor`?",
        ),
        (
            "[guests.web]\nfloor = 1\n  memory = 2\n",
            "ballast.toml:3:3: unknown key `memory` in [guests.web]: the known keys are `ceiling`, `floor`",
        ),
        (
            "guests.web = { floor = 1, Floor = 2 }\n",
            "ballast.toml:1:27: unknown key `Floor` in [guests.web]: did you mean `floor`?",
        ),
        (
            "[guests.\"a b\"]\nfloor = true\n",
            "ballast.toml:2:9: guests.\"a b\".floor: invalid type: boolean `true`, expected u64",
        ),
        ("[guests.web]\nceiling = 1\n", "ballast.toml:1:1: missing key `floor` in [guests.web]"),
        (
            "[[step]]\nat = 1\n[[step]]\nat = \"x\"\n",
            "ballast.toml:4:6: step[1].at: invalid type: string \"x\", expected u32",
        ),
        (
            "[[step]]\nat = 1\n[[step]]\natt = 1\n",
            "ballast.toml:4:1: unknown key `att` in [step[1]]: did you mean `at`?",
        ),
        (
            "step = [{ at = 1 }, 7]",
            "ballast.toml:1:21: step[1]: invalid type: integer `7`, expected struct Step",
        ),
        (
            "policy = \"globl\"",
            "ballast.toml:1:10: policy: unknown value \"globl\": did you mean `global`?",
        ),
        (
            "policy = \"Self_Scheduling\"",
            "ballast.toml:1:10: policy: unknown value \"Self_Scheduling\": did you mean `self-scheduling`?",
        ),
        (
            "policy = \"fair\"",
            "ballast.toml:1:10: policy: unknown value \"fair\": the known values are `global`, `self-scheduling`, `static`",
        ),
        (
            "empty = { x = 1 }",
            "ballast.toml:1:11: unknown key `x` in [empty]: no keys are known here",
        ),
        ("interval = 2", "ballast.toml:1:12: interval: 2 has no unit: write \"2s\" for seconds"),
        (
            "\"`, expected `floor`\" = 1",
            "ballast.toml:1:1: unknown key `\"`, expected `floor`\"`: the known keys are `empty`, `guests`, `interval`, `policy`, `step`",
        ),
    ] {
        assert_eq!(error_of(text).to_string(), expected, "{text}");
    }
}

#[test]
fn malformed_documents_are_refused_where_they_break() {
    for (text, (line, column)) in [
        ("policy = ", (1, 10)),
        ("policy = \"global", (1, 17)),
        ("[guests.web\nfloor = 1", (1, 12)),
        ("[guests.web]\nfloor = 1\nfloor = 2", (3, 1)),
        ("# ü\npolicy = ü", (2, 10)),
    ] {
        let error = error_of(text);
        let message = error.to_string();
        assert!(message.starts_with(&format!("ballast.toml:{line}:{column}: ")), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn what_is_well_formed_is_read() {
    let text = "\u{feff}policy = \"static\"\ninterval = \"1h 30min\"\n[guests.web]\nfloor = 5\n";
    let config: Config = parse(text, Path::new("x")).unwrap();
    assert_eq!(config.guests["web"].floor, 5);
    assert_eq!(config.interval, Some(Duration::from_secs(5400)));
}

#[test]
fn callers_attach_their_own_mistakes_to_a_key() {
    let text = "a = 1\n[guests.web]\nfloor = 9\n[[step]]\nat = 1\n[[step]]\nat = 2\n";
    for (key, expected) in [
        (&["guests", "web", "floor"][..], "f:3:9: guests.web.floor: over its ceiling"),
        (&["guests", "web", "ceiling"], "f:2:1: guests.web.ceiling: over its ceiling"),
        (&["step", "1", "at"], "f:7:6: step[1].at: over its ceiling"),
        (&["step", "7", "at"], "f:4:1: step[7].at: over its ceiling"),
        (&["a", "b"], "f:1:5: a.b: over its ceiling"),
        (&["nothing"], "f: nothing: over its ceiling"),
        (&[], "f: over its ceiling"),
    ] {
        let error = Mistake::at(key, "over its ceiling").in_file(text, Path::new("f"));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_document_too_long_is_refused_unread() {
    let text = "#".repeat(DOCUMENT_BYTES_MAX + 1);
    assert_eq!(
        error_of(&text).to_string(),
        "ballast.toml: 4194305 bytes long, expected at most 4194304"
    );
    assert!(parse::<Config>(&text[1..], Path::new("x")).is_ok());
}

#[test]
fn messages_stay_short_whatever_the_document_quotes() {
    let name = "x".repeat(100_000);
    for text in [format!("{name} = 1"), format!("policy = \"{name}\""), format!("[guests.{name}]")]
    {
        assert!(error_of(&text).to_string().chars().count() < 1200);
    }
}

#[test]
fn nesting_however_deep_is_refused_or_read() {
    // Debug builds have large frames, so the default test stack is the harder case.
    for text in [
        "[".repeat(100_000),
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        format!("{} = 1", vec!["a"; 100_000].join(".")),
        format!("[{}]\nb = 1", vec!["a"; 100_000].join(".")),
        format!("[[{}]]\nb = 1", vec!["a"; 100_000].join(".")),
    ] {
        assert!(parse::<Config>(&text, Path::new("x")).is_err());
        let _ = Error::at(&text, Path::new("x"), &["a", "a"], "no");
    }
}

#[derive(Debug, Deserialize, Serialize, PartialEq)]
struct Span {
    #[serde(with = "duration")]
    span: Duration,
}

#[test]
fn durations_are_read_with_their_unit() {
    for (text, ms) in
        [("2s", 2000), ("500ms", 500), ("5min", 300_000), ("1m 30s", 90_000), ("0s", 0)]
    {
        let read: Span = parse(&format!("span = \"{text}\""), Path::new("x")).unwrap();
        assert_eq!(read.span, Duration::from_millis(ms), "{text}");
    }
    for value in [
        "\"\"",
        "\"2\"",
        "\"-2s\"",
        "\"2 parsecs\"",
        "2",
        "-2",
        "1.5",
        "true",
        "\"99999999999999999999h\"",
    ] {
        let error = parse::<Span>(&format!("span = {value}"), Path::new("x")).expect_err(value);
        assert_eq!(error.key(), "span", "{error}");
    }
}

/// Pieces that make up nearly valid documents.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "policy",
        "guests",
        "web",
        "floor",
        "step",
        "at",
        "interval",
        "empty",
        "=",
        ".",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        ",",
        "\n",
        " ",
        "\"",
        "'",
        "\"\"\"",
        "1",
        "-1",
        "0x",
        "1e9",
        "true",
        "\"2s\"",
        "#",
        "ü",
        "\u{feff}",
        "1979-05-27",
        "\\u",
        "\r",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn is_refused_with_a_place_in_the_text(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = parse::<Config>(text, Path::new("x")) {
        let message = error.to_string();
        prop_assert!(!message.contains('\n'));
        let place = message.strip_prefix("x:").and_then(|rest| rest.split_once(": "));
        let (line, column) = place.and_then(|(at, _)| at.split_once(':')).expect("a place");
        let (line, column): (usize, usize) = (line.parse().unwrap(), column.parse().unwrap());
        prop_assert!(line <= text.split('\n').count());
        prop_assert!(column <= text.chars().count() + 1);
    }
    let _ = Error::at(text, Path::new("x"), &["guests", "web", "0"], "no");
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_panic(text in "\\PC{0,60}") {
        is_refused_with_a_place_in_the_text(&text)?;
    }

    #[test]
    fn nearly_sensible_text_is_read_or_refused_without_panic(text in pieces()) {
        is_refused_with_a_place_in_the_text(&text)?;
    }

    #[test]
    fn durations_read_back(secs in 0..u64::from(u32::MAX), nanos in 0..1_000_000_000u32) {
        let span = Span { span: Duration::new(secs, nanos) };
        let text = toml::to_string(&span).unwrap();
        prop_assert_eq!(parse::<Span>(&text, Path::new("x")), Ok(span));
    }
}
