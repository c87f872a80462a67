//! Requests and answers of etcd's gateway as JSON.
//!
//! Idea: only what a coordinator needs. Keys and values are base64, 64-bit numbers are text, and
//! etcd leaves out fields that are zero, false or empty.
//! Source: etcd's `rpc.proto` and `kv.proto`, by the mapping of Protocol Buffers to JSON.

use ballast_fleet_proto::{
    Changes, Condition, CoordinatorError, Entry, KeyEvent, KeyWrite, LeaseId, Revision,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// Most keys in one page of a range.
pub(crate) const PAGE_KEYS: u64 = 500;

/// Most characters of etcd's texts in an error.
const EXCERPT_CHARS_MAX: usize = 160;

/// The header of every answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    /// The identity of the cluster.
    #[serde(deserialize_with = "number")]
    pub(crate) cluster_id: u64,
    /// The revision of all keys.
    #[serde(deserialize_with = "number")]
    pub(crate) revision: u64,
}

/// Any answer; only its header is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HeaderOnly {
    pub(crate) header: Header,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Range {
    pub(crate) header: Header,
    pub(crate) kvs: Vec<Pair>,
    pub(crate) more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pair {
    #[serde(deserialize_with = "bytes")]
    pub(crate) key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Transaction {
    pub(crate) header: Header,
    pub(crate) succeeded: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Grant {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(crate) id: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Renewal {
    /// Seconds; 0 or less if there is no such lease.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(crate) ttl: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Token {
    pub(crate) token: String,
}

/// One line of a stream: a result or an error.
#[derive(Debug, Deserialize)]
pub(crate) struct Line<T> {
    pub(crate) result: Option<T>,
    pub(crate) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchAnswer {
    canceled: bool,
    #[serde(deserialize_with = "number")]
    compact_revision: u64,
    cancel_reason: String,
    events: Vec<WireEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireEvent {
    r#type: String,
    kv: Pair,
}

impl WatchAnswer {
    /// The changes; `None` if there are none, as when a watch begins.
    pub(crate) fn changes(self) -> Result<Option<Changes>, CoordinatorError> {
        if self.compact_revision != 0 {
            return Err(CoordinatorError::Compacted(self.compact_revision));
        }
        if self.canceled {
            return Err(error_of_text(&self.cancel_reason));
        }
        if self.events.is_empty() {
            return Ok(None);
        }
        let mut events = Vec::with_capacity(self.events.len());
        // The header may be ahead of the events, as a watch that catches up gets them in parts.
        let mut revision = Revision(0);
        for event in self.events {
            let entry = event.kv.entry()?;
            revision = revision.max(entry.written);
            events.push(match event.r#type.as_str() {
                "DELETE" => KeyEvent::Deleted(entry.key),
                _ => KeyEvent::Written(entry),
            });
        }
        Ok(Some(Changes { revision, events }))
    }
}

impl Pair {
    pub(crate) fn entry(self) -> Result<Entry, CoordinatorError> {
        let key = String::from_utf8(self.key)
            .map_err(|_| CoordinatorError::Protocol("a key that is no text".to_owned()))?;
        Ok(Entry { key, value: self.value, written: Revision(self.mod_revision) })
    }
}

/// Reads one answer.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, CoordinatorError> {
    serde_json::from_slice(body).map_err(|error| {
        let text = String::from_utf8_lossy(body);
        CoordinatorError::Protocol(format!("no answer of etcd ({error}): {}", excerpt(&text)))
    })
}

/// Reads one line of a stream.
pub(crate) fn parse_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, CoordinatorError> {
    let Line { result, error } = parse(line)?;
    match (result, error) {
        (Some(result), _) => Ok(result),
        (None, Some(error)) => Err(error_of_text(message(&error))),
        (None, None) => Err(CoordinatorError::Protocol("a line of nothing".to_owned())),
    }
}

/// Why etcd refused, from the body of its answer.
pub(crate) fn error_of_body(status: u16, body: &[u8]) -> CoordinatorError {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => error_of_text(message(&value)),
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            CoordinatorError::Protocol(format!("HTTP status {status}: {}", excerpt(&text)))
        }
    }
}

fn message(error: &Value) -> &str {
    let text = error.get("message").or(error.get("error")).and_then(Value::as_str);
    text.unwrap_or("refused without a reason")
}

/// The error that a text of etcd means. Its status numbers are too few to tell errors apart.
fn error_of_text(text: &str) -> CoordinatorError {
    let says = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    let shown = excerpt(text);
    if says(&["requested lease not found"]) {
        CoordinatorError::LeaseGone
    } else if says(&["database space exceeded", "corrupt"]) {
        CoordinatorError::NoSpace(shown)
    } else if says(&["no leader", "leader changed", "not leader"]) {
        CoordinatorError::NoLeader(shown)
    } else if says(&["timed out", "deadline", "stopped", "too many requests", "unavailable"]) {
        CoordinatorError::Unreachable(shown)
    } else if says(&["auth", "permission denied", "user name", "password"]) {
        CoordinatorError::Denied(shown)
    } else {
        CoordinatorError::Protocol(shown)
    }
}

/// Whether a call was refused only because it needs a new token.
pub(crate) fn needs_new_token(error: &CoordinatorError) -> bool {
    let texts = ["invalid auth token", "user name is empty", "revision of auth store is old"];
    matches!(error, CoordinatorError::Denied(text) if texts.iter().any(|it| text.contains(it)))
}

/// A text as one short line for logs and terminals.
pub(crate) fn excerpt(text: &str) -> String {
    text.trim().chars().flat_map(char::escape_debug).take(EXCERPT_CHARS_MAX).collect()
}

/// The request for a page of the keys with `prefix`, from the key `from` on, at the revision
/// `state`; 0: the latest.
pub(crate) fn range(prefix: &str, from: &[u8], state: u64) -> Value {
    json!({
        "key": BASE64.encode(from),
        "range_end": BASE64.encode(end_of(prefix)),
        "limit": PAGE_KEYS.to_string(),
        "revision": state.to_string(),
    })
}

pub(crate) fn watch(prefix: &str, after: Revision) -> Value {
    json!({"create_request": {
        "key": BASE64.encode(prefix),
        "range_end": BASE64.encode(end_of(prefix)),
        "start_revision": (after.0 + 1).to_string(),
    }})
}

/// A transaction in as few bytes as possible, as each host sends one a tick.
#[derive(Serialize)]
pub(crate) struct TransactionRequest {
    compare: Vec<Compare>,
    success: Vec<Write>,
}

#[derive(Serialize)]
struct Compare {
    key: String,
    target: &'static str,
    mod_revision: String,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Write {
    RequestPut {
        key: String,
        value: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        lease: Option<String>,
    },
    RequestDeleteRange {
        key: String,
    },
}

impl TransactionRequest {
    pub(crate) fn new(conditions: &[Condition], writes: Vec<KeyWrite>) -> TransactionRequest {
        // A key that does not exist has revision 0. etcd compares for equality by default.
        let compare = conditions.iter().map(|it| Compare {
            key: BASE64.encode(&it.key),
            target: "MOD",
            mod_revision: it.written.unwrap_or_default().0.to_string(),
        });
        let success = writes.into_iter().map(|write| match write {
            KeyWrite::Put { key, value, lease } => Write::RequestPut {
                key: BASE64.encode(key),
                value: BASE64.encode(value),
                lease: lease.map(|LeaseId(id)| id.to_string()),
            },
            KeyWrite::Delete(key) => Write::RequestDeleteRange { key: BASE64.encode(key) },
        });
        TransactionRequest { compare: compare.collect(), success: success.collect() }
    }
}

/// The first key after all that begin with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // UTF-8 has no byte 255, so this does not overflow.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn number<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
where
    T: std::str::FromStr + TryFrom<i64>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Text(String),
        Plain(i64),
    }
    let wrong = || D::Error::custom("no whole number");
    match Number::deserialize(deserializer)? {
        Number::Text(text) => text.parse().map_err(|_| wrong()),
        Number::Plain(n) => T::try_from(n).map_err(|_| wrong()),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text).map_err(|_| D::Error::custom("no base64"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn missing_fields_are_zero() {
        let range: Range = parse(br#"{"header":{"cluster_id":"7","revision":"3"}}"#).unwrap();
        assert_eq!((range.header.cluster_id, range.kvs.len(), range.more), (7, 0, false));
        let lease: Renewal = parse_line(br#"{"result":{"header":{},"ID":"5"}}"#).unwrap();
        assert_eq!(lease.ttl, 0);
    }

    #[test]
    fn refusals_are_distinguished() {
        let of = |text: &str| error_of_body(400, format!("{{\"message\": \"{text}\"}}").as_bytes());
        assert_eq!(of("etcdserver: requested lease not found"), CoordinatorError::LeaseGone);
        for (text, is_right) in [
            (
                "etcdserver: mvcc: database space exceeded",
                (|it| matches!(it, CoordinatorError::NoSpace(_))) as fn(CoordinatorError) -> bool,
            ),
            ("etcdserver: no leader", |it| matches!(it, CoordinatorError::NoLeader(_))),
            ("etcdserver: request timed out", |it| matches!(it, CoordinatorError::Unreachable(_))),
            ("etcdserver: permission denied", |it| matches!(it, CoordinatorError::Denied(_))),
            ("etcdserver: something new", |it| matches!(it, CoordinatorError::Protocol(_))),
        ] {
            assert!(is_right(of(text)), "{text}");
        }
        let page = error_of_body(502, b"<html>\n<b>bad gateway</b>").to_string();
        assert!(page.starts_with("HTTP status 502: <html>\\n"), "{page}");
    }

    #[test]
    fn a_cancelled_watch_says_why() {
        let of =
            |text: &str| parse_line::<WatchAnswer>(text.as_bytes()).and_then(WatchAnswer::changes);
        assert_eq!(
            of(r#"{"result":{"canceled":true,"compact_revision":"9"}}"#),
            Err(CoordinatorError::Compacted(9))
        );
        assert_eq!(of(r#"{"result":{"created":true}}"#), Ok(None));
        let lost = of(r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#);
        assert!(matches!(lost, Err(CoordinatorError::NoLeader(_))));
        let events = r#"{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"YQ==","value":"Yg==","mod_revision":"4"}},{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"5"}}]}}"#;
        let changes = of(events).unwrap().unwrap();
        assert_eq!(changes.events[1], KeyEvent::Deleted("a".to_owned()));
        assert_eq!(changes.revision, Revision(5), "that of the last event");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error_in_words(
            body in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                "\\{\"(result|header|kvs|error)\":[\\[{\"]{1,3}[a-zA-Z0-9:,\"]{0,40}[\\]}\"]{1,4}".prop_map(String::into_bytes),
            ],
        ) {
            let errors = [
                parse::<Range>(&body).err(), parse_line::<WatchAnswer>(&body).err(),
                Some(error_of_body(400, &body)),
            ];
            for error in errors.into_iter().flatten() {
                let text = error.to_string();
                prop_assert!(text.chars().count() < 500 && !text.chars().any(char::is_control));
            }
        }
    }
}
