//! Admission: checks every request before its route, and adds security headers to every reply.
//!
//! Idea: the checks are, in this order: does the request name this host, who sent it, may that
//! visitor do this, and, if it changes something, did the page itself make it. The headers tell
//! browsers that nothing of another origin belongs to the page.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::keys::{CSRF_HEADER, Entrance, Keys, Visitor};
use crate::server::access::Access;
use crate::server::reply::Refusal;

/// The page itself.
pub(super) const INDEX_PATH: &str = "/";
pub(super) const FILES_PATH: &str = "/page/files/";
/// The state of the login.
pub(super) const SESSION_PATH: &str = "/page/session";
/// Exchanges a token for a session.
pub(super) const LOGIN_PATH: &str = "/page/login";
/// Ends a session.
pub(super) const LOGOUT_PATH: &str = "/page/logout";

/// Headers of every reply.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
         object-src 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Admits a request, or answers why not.
pub(in crate::server) async fn admit(
    State(keys): State<Arc<Keys>>,
    Extension(entrance): Extension<Entrance>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admitted(&keys, entrance, request) {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The request, with its [`Visitor`] as an extension.
fn admitted(keys: &Keys, entrance: Entrance, request: Request) -> Result<Request, Refusal> {
    let (parts, body) = request.into_parts();
    if !keys.answers(entrance, &parts) {
        let text = "this is not the daemon's name: ask localhost, or list the name under `hosts` of \
                    [page] in the daemon's configuration";
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "wrong-host", text));
    }
    let visitor = keys.visitor(entrance, &parts.headers);
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    authorize(&visitor, is_read, parts.uri.path())?;
    let given = parts.headers.get(CSRF_HEADER).map(HeaderValue::as_bytes);
    let is_its_own = given.is_some() && given == visitor.csrf.as_deref().map(str::as_bytes);
    if !is_read && visitor.is_browser && !is_open(parts.uri.path()) && !is_its_own {
        let text = "this did not come from the page itself: load the page again";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "csrf", text));
    }
    let mut request = Request::from_parts(parts, body);
    request.extensions_mut().insert(visitor);
    Ok(request)
}

/// Whether nothing at this path is secret: what a browser needs to ask for the token.
fn is_open(path: &str) -> bool {
    matches!(path, INDEX_PATH | SESSION_PATH | LOGIN_PATH | LOGOUT_PATH)
        || path.starts_with(FILES_PATH)
}

/// GET and HEAD need read access, everything else needs write access.
fn authorize(visitor: &Visitor, is_read: bool, path: &str) -> Result<(), Refusal> {
    let needed = if is_read { Access::Read } else { Access::Write };
    let is_port = visitor.entrance == Entrance::Port;
    if visitor.access >= needed || is_open(path) && (is_port || visitor.access != Access::None) {
        return Ok(());
    }
    let (status, code, text) = match (visitor.entrance, visitor.access, needed) {
        (Entrance::Port, Access::None, _) => {
            (StatusCode::UNAUTHORIZED, "not-logged-in", "log in on the page first")
        }
        (Entrance::Port, ..) => (
            StatusCode::FORBIDDEN,
            "forbidden",
            "changing anything needs the owner's token (`token_file` of [page])",
        ),
        (Entrance::Socket { .. }, _, Access::Write) => (
            StatusCode::FORBIDDEN,
            "forbidden",
            "changing anything needs to be the daemon's user or root",
        ),
        (Entrance::Socket { .. }, ..) => (
            StatusCode::FORBIDDEN,
            "forbidden",
            "this needs to be the daemon's user, root, or a member of the group that may read \
             (`group` in the daemon's configuration)",
        ),
    };
    Err(Refusal::new(status, code, text))
}
