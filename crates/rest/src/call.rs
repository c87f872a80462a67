//! A call of a REST API, and its answer. No I/O.
//!
//! Limits: text of an answer is cut to [`TEXT_CHARS_MAX`] characters and made printable before it
//! is shown, because another program may listen on the socket.

use std::fmt;

use ballast_model::LinkDown;
use serde::de::DeserializeOwned;

/// Longest body of an answer, in bytes. Cloud Hypervisor's description of a guest has some 10 KiB
/// and grows with its devices.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// Most characters shown of an answer's text.
const TEXT_CHARS_MAX: usize = 300;

/// Most parts of an error's text that are shown.
const PARTS_MAX: usize = 8;

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Sets the whole of something.
    Put,
    /// Sets a part of something.
    Patch,
}

impl Method {
    /// Its name in HTTP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
        }
    }
}

/// A call. Its effect is absolute and idempotent, so that it may be made twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// The path, beginning with a slash.
    pub path: &'static str,
    /// The body as JSON; empty if there is none.
    pub body: String,
}

impl Call {
    /// A call that reads.
    pub const fn get(path: &'static str) -> Call {
        Call { method: Method::Get, path, body: String::new() }
    }

    /// A call that sends `body`.
    pub fn send(method: Method, path: &'static str, body: &serde_json::Value) -> Call {
        Call { method, path, body: body.to_string() }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)
    }
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code of HTTP.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Whether the call was carried out.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body of a call that was carried out, read as JSON.
    ///
    /// # Errors
    /// The call failed, or the body is not an answer to `call`: another program listens.
    pub fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, LinkDown> {
        if !self.is_success() {
            return Err(LinkDown::Protocol(self.refusal(call)));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let start = shown(&String::from_utf8_lossy(head(&self.body)));
            // The error may repeat text of the other side, too.
            let error = shown(&error.to_string());
            LinkDown::Protocol(format!("{call} was answered with `{start}`: {error}"))
        })
    }

    /// A message that `call` was refused, with the API's own text.
    pub fn refusal(&self, call: &Call) -> String {
        let status = self.status;
        match self.message() {
            Some(message) => format!("{call} failed with status {status}: {message}"),
            None => format!("{call} failed with status {status}"),
        }
    }

    /// The API's own text of an error. Firecracker sends an object with a `fault_message`, Cloud
    /// Hypervisor a list of texts, and before its version 46 one plain text.
    fn message(&self) -> Option<String> {
        let text = match serde_json::from_slice(&self.body) {
            Ok(serde_json::Value::Object(object)) => {
                object.get("fault_message").and_then(|it| it.as_str()).map(str::to_owned)
            }
            Ok(serde_json::Value::Array(parts)) => {
                let parts = parts.iter().filter_map(|it| it.as_str()).take(PARTS_MAX);
                Some(parts.collect::<Vec<_>>().join(": "))
            }
            _ => None,
        };
        let text = text.unwrap_or_else(|| String::from_utf8_lossy(head(&self.body)).into_owned());
        let text = text.trim();
        (!text.is_empty()).then(|| shown(text))
    }
}

/// The part of a body that may be shown.
fn head(body: &[u8]) -> &[u8] {
    &body[..body.len().min(4 * TEXT_CHARS_MAX)]
}

/// Makes text of another program safe for a log: it is cut, and characters that do not print are
/// escaped.
pub fn shown(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars().take(TEXT_CHARS_MAX) {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INFO: Call = Call::get("/vm.info");

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, body: body.into() }
    }

    #[test]
    fn errors_have_the_words_of_the_api() {
        for (body, expected) in [
            (
                r#"{"fault_message":"No balloon."}"#,
                "GET /vm.info failed with status 400: No balloon.",
            ),
            (
                r#"["Error from API","No VM"]"#,
                "GET /vm.info failed with status 400: Error from API: No VM",
            ),
            ("Internal Error\n", "GET /vm.info failed with status 400: Internal Error"),
            ("<html>a</html>", "GET /vm.info failed with status 400: <html>a</html>"),
            (r#"{"other":1}"#, r#"GET /vm.info failed with status 400: {"other":1}"#),
            ("", "GET /vm.info failed with status 400"),
            ("a\u{1b}[2J", "GET /vm.info failed with status 400: a\\u{1b}[2J"),
        ] {
            assert_eq!(answer(400, body).refusal(&INFO), expected);
        }
    }

    #[test]
    fn what_is_no_json_is_another_program() {
        let page = answer(200, "<!doctype html><title>It works</title>");
        let why = page.read::<serde_json::Value>(&INFO).unwrap_err().to_string();
        assert!(why.contains("GET /vm.info was answered with `<!doctype html>"), "{why}");
        let refused = answer(404, "[\"The VM is not created\"]").read::<u64>(&INFO).unwrap_err();
        assert!(refused.to_string().contains("status 404: The VM is not created"), "{refused}");
        assert_eq!(answer(200, "7").read::<u64>(&INFO), Ok(7));
    }

    proptest! {
        #[test]
        fn whatever_is_answered_is_short_and_prints(body: Vec<u8>, status: u16) {
            let answer = Answer { status, body };
            let text = answer.refusal(&INFO);
            prop_assert!(text.chars().count() < 2 * TEXT_CHARS_MAX);
            prop_assert!(!text.chars().any(char::is_control));
            if let Err(LinkDown::Protocol(why)) = answer.read::<u64>(&INFO) {
                prop_assert!(why.chars().count() < 3 * TEXT_CHARS_MAX);
                prop_assert!(!why.chars().any(char::is_control));
            }
        }
    }
}
