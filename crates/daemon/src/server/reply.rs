//! Refusals: an HTTP status with an [`ErrorReply`] as its body.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ballast_api::ErrorReply;

/// Similarity from which a known name is worth suggesting (Jaro–Winkler, 0 to 1); below it the
/// suggestion is more often odd than helpful.
const NEAREST_SIMILARITY_MIN: f64 = 0.7;

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

    /// The same, with the nearest of `known` to `word`, if one is near at all.
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

/// The one of `known` that is most like `word`, if any is.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity >= NEAREST_SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
