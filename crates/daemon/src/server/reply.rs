//! Refusals: an HTTP status with an [`ErrorReply`] as its body.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ballast_api::ErrorReply;
use ballast_toml_strict::nearest;

/// A refused request.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    reply: Box<ErrorReply>,
}

impl Refusal {
    /// `status` with its stable word and sentence.
    pub(super) fn new(status: StatusCode, code: &str, text: impl ToString) -> Self {
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
        (self.status, Json(self.reply)).into_response()
    }
}
