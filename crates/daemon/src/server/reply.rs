//! Replies in JSON, and refusals: an HTTP status with an [`ErrorReply`] as its body.

use std::fmt::Display;
use std::io::Write;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ballast_api::ErrorReply;
use ballast_toml_strict::nearest;
use serde::Serialize;

pub(super) fn in_json(reply: &impl Serialize) -> Response {
    sent(json(reply))
}

/// `reply` in JSON. It is written through `dyn Write`, as commands do it, so that the program has
/// the code for each type only once.
pub(super) fn json(reply: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    let out: &mut dyn Write = &mut text;
    serde_json::to_writer(out, reply)?;
    Ok(text)
}

fn sent(text: serde_json::Result<Vec<u8>>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// A refused request.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    reply: Box<ErrorReply>,
}

impl Refusal {
    /// A refusal with `status`, a stable word for programs, and a sentence for people.
    pub(super) fn new(status: StatusCode, code: &str, text: impl Display) -> Self {
        Refusal { status, reply: Box::new(ErrorReply::new(code, text)) }
    }

    /// Adds a suggestion: the word of `known` nearest to `word`, if one is near.
    pub(super) fn nearest<'a>(
        mut self,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        if let Some(near) = nearest(word, known) {
            self.reply.error.text.push_str(&format!("; the nearest is `{near}`"));
            self.reply.nearest = Some(near.to_owned());
        }
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, in_json(&self.reply)).into_response()
    }
}
