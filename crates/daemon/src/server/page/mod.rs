//! The page: what a browser gets beyond the API.
//!
//! Idea: the page's files are the same for everyone and say nothing about the host. Their scripts
//! use the API, as commands do, and five paths for things that only a page needs: the login, live
//! events, an explanation in words, the past from the journal, and the list of policies. These
//! paths belong to the page of the same version; programs use `/v1`.
//!
//! Limits: one reader of the journal at a time.

mod admission;
mod hosts;
mod keys;
mod listeners;
mod past;
mod port;
mod sessions;
#[cfg(test)]
mod tests;
mod token;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::MethodFilter;
use ballast_api::ExplainReply;
use ballast_model::GuestId;
use ballast_page::File;
use ballast_policy::catalogue::{ENTRIES, PolicyEntry};
use ballast_replay::ensure_replayable;
use ballast_store::JournalError;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub(super) use self::admission::admit;
use self::admission::{INDEX_PATH, LOGIN_PATH, LOGOUT_PATH, SESSION_PATH};
pub(super) use self::keys::{Entrance, Keys, Visitor};
pub(super) use self::listeners::Listeners;
use self::past::Past;
pub use self::port::PortError;
pub(super) use self::port::{Port, Tokens};
use super::access::Access;
use super::connections::{Began, STREAM_TIME_MAX};
use super::reply::{Refusal, in_json};
use super::route::{RouteHandler, RouteRequest};
use super::routes::{known_guest, latest, read_json, tick};
use crate::rate_limited::RateLimited;
use crate::view::Handle;
use crate::worker::lock;

/// Paths for the page's own use, beside those of `admission.rs`.
const FILE_ROUTE: &str = "/page/files/{name}";
const STREAM_PATH: &str = "/page/stream";
const WHY_ROUTE: &str = "/page/guests/{id}/why";
const PAST_PATH: &str = "/page/past";
const EVENTS_PATH: &str = "/page/events";
const POLICIES_PATH: &str = "/page/policies";
/// Delay of the answer to a wrong token, so that many cannot be tried.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_secs(1);
/// How long a reader of the journal waits for readers before it.
const JOURNAL_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest span of a plot, in seconds.
const PAST_S_MAX: u64 = 7 * 86_400;

/// Renders an explanation as `ballast explain` prints it.
pub type Explain = fn(&ExplainReply) -> String;

/// The state of the page's routes.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) handle: Handle,
    pub(super) keys: Arc<Keys>,
    pub(super) listeners: Arc<Listeners>,
    pub(super) explain: Explain,
    pub(super) journal: Option<PathBuf>,
    pub(super) journal_reader: Arc<Semaphore>,
    /// Limits the warnings about wrong tokens, which anybody who reaches the port can cause.
    pub(super) wrong_tokens: Arc<Mutex<RateLimited>>,
}

/// The page's own routes.
pub(super) fn router(site: Site) -> Router {
    const GET: MethodFilter = MethodFilter::GET;
    RouteHandler::new(move |request| answer(site.clone(), request)).router(&[
        (GET, INDEX_PATH),
        (GET, FILE_ROUTE),
        (GET, SESSION_PATH),
        (MethodFilter::POST, LOGIN_PATH),
        (MethodFilter::POST, LOGOUT_PATH),
        (GET, STREAM_PATH),
        (GET, WHY_ROUTE),
        (GET, PAST_PATH),
        (GET, EVENTS_PATH),
        (GET, POLICIES_PATH),
    ])
}

async fn answer(site: Site, request: RouteRequest) -> Result<Response, Refusal> {
    let RouteRequest { route, name, parts, body } = request;
    let name = match name {
        Ok(name) => name,
        Err(response) => return Ok(response),
    };
    match route.as_str() {
        INDEX_PATH => index(&site, Visitor::of(&parts)?, &parts.uri).await,
        FILE_ROUTE => sent(ballast_page::file(&name)),
        SESSION_PATH => Ok(in_json(&session(Visitor::of(&parts)?))),
        LOGIN_PATH => log_in(&site, body).await,
        LOGOUT_PATH => Ok(log_out(&site, &parts.headers)),
        STREAM_PATH => stream(&site, parts.extensions.get()),
        WHY_ROUTE => Ok(why(&site, &name)?.into_response()),
        PAST_PATH => past(&site, &parts.uri).await,
        EVENTS_PATH => {
            let events = of_journal(&site, |path| past::events(path, SystemTime::now())).await?;
            Ok(in_json(&events))
        }
        // `POLICIES_PATH` is the only other one.
        _ => Ok(in_json(&policies())),
    }
}

/// Parameters of `GET /`.
#[derive(Debug, Default, Deserialize)]
struct IndexQuery {
    token: Option<String>,
}

/// The page. A token in its address first makes a session, and then redirects to the address
/// without it.
async fn index(site: &Site, visitor: &Visitor, uri: &Uri) -> Result<Response, Refusal> {
    let query = Query::<IndexQuery>::try_from_uri(uri).unwrap_or_default();
    match query.0.token {
        Some(token) if visitor.entrance == Entrance::Port => {
            let cookie = session_for(site, &token).await?;
            Ok(([(header::SET_COOKIE, cookie)], Redirect::to(INDEX_PATH)).into_response())
        }
        _ => sent(ballast_page::file(ballast_page::INDEX)),
    }
}

fn sent(file: Option<&'static File>) -> Result<Response, Refusal> {
    let file = file.ok_or_else(|| {
        Refusal::new(StatusCode::NOT_FOUND, "unknown-path", "the page has no such file")
    })?;
    let headers = [(header::CONTENT_TYPE, file.content_type), (header::CONTENT_ENCODING, "gzip")];
    Ok((headers, file.gzip).into_response())
}

/// Answer to `GET /page/session`.
#[derive(Debug, Serialize)]
struct SessionReply {
    /// `none`, `read` or `write`.
    access: &'static str,
    /// The secret that actions carry; `None`: this visitor cannot act.
    csrf: Option<String>,
    /// Whether it can log out.
    by_token: bool,
}

fn session(visitor: &Visitor) -> SessionReply {
    let access = match visitor.access {
        Access::None => "none",
        Access::Read => "read",
        Access::Write => "write",
    };
    let csrf = visitor.csrf.clone().filter(|_| visitor.access == Access::Write);
    SessionReply { access, csrf, by_token: visitor.entrance == Entrance::Port }
}

/// Body of `POST /page/login`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogIn {
    token: String,
}

async fn log_in(site: &Site, body: Body) -> Result<Response, Refusal> {
    let LogIn { token } = read_json(body).await?;
    let cookie = session_for(site, &token).await?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// The cookie for `token`.
async fn session_for(site: &Site, token: &str) -> Result<HeaderValue, Refusal> {
    let failed =
        |error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no-session", format!("{error}"));
    let Some(cookie) = site.keys.log_in(token).map_err(failed)? else {
        lock(&site.wrong_tokens).warn("somebody gave the page a wrong token".to_owned());
        tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
        let text = "this is not the token: it is in the file that `token_file` of [page] names in \
                    the daemon's configuration";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "wrong-token", text));
    };
    HeaderValue::try_from(cookie)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no-session", error))
}

fn log_out(site: &Site, headers: &HeaderMap) -> Response {
    let cookie = site.keys.log_out(headers);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

/// Every tick as it comes, until the connection's time is over; browsers reconnect by themselves.
fn stream(site: &Site, began: Option<&Began>) -> Result<Response, Refusal> {
    let view = latest(&site.handle)?;
    let Some(events) = site.listeners.join(&view) else {
        let most = listeners::LISTENERS_MAX;
        let text = format!("{most} pages are open already: close one");
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-listeners", text));
    };
    let began = began.map_or_else(Instant::now, |Began(began)| Instant::from_std(*began));
    let end = began + STREAM_TIME_MAX;
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (ACCEL, "no")];
    Ok((headers, listeners::body(events, end)).into_response())
}

/// Tells nginx, as a reverse proxy, to forward events at once.
const ACCEL: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The explanation as `ballast explain` prints it.
fn why(site: &Site, name: &str) -> Result<String, Refusal> {
    let view = latest(&site.handle)?;
    let id = known_guest(&view, name)?;
    let reply = ExplainReply::new(&tick(&view, SystemTime::now()), &id);
    let reply = reply.ok_or_else(|| {
        Refusal::new(StatusCode::NOT_FOUND, "unknown-guest", "this tick has no such guest")
    })?;
    Ok((site.explain)(&reply))
}

/// Parameters of `GET /page/past`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PastQuery {
    /// How far back, in seconds.
    span_s: u64,
    /// A single guest; `None`: all guests, more coarsely.
    guest: Option<String>,
}

async fn past(site: &Site, uri: &Uri) -> Result<Response, Refusal> {
    let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, "bad-query", text);
    let query = Query::<PastQuery>::try_from_uri(uri);
    let Query(query) =
        query.map_err(|error| bad(format!("{error}: expected span_s=SECONDS, guest=NAME")))?;
    let guest: Option<GuestId> = match query.guest.as_deref() {
        Some(name) => Some(name.parse().map_err(|error| bad(format!("{error}")))?),
        None => None,
    };
    let span = Duration::from_secs(query.span_s.clamp(1, PAST_S_MAX));
    let past = of_journal(site, move |path| Past::read(path, span, guest.as_ref())).await?;
    Ok(in_json(&past))
}

/// A policy that can be chosen.
#[derive(Debug, Serialize)]
struct PolicyChoice {
    policy: &'static str,
    /// What it does.
    rule: &'static str,
    /// Why it cannot be replayed; `None`: it can.
    not_replayable: Option<String>,
}

fn policies() -> Vec<PolicyChoice> {
    let choice = |entry: &PolicyEntry| PolicyChoice {
        policy: entry.name.as_str(),
        rule: entry.rule,
        not_replayable: ensure_replayable(entry.name).err().map(|error| error.to_string()),
    };
    ENTRIES.iter().map(choice).collect()
}

/// Reads the journal on another thread than the server's. Without a journal the result is empty.
async fn of_journal<T: Default + Send + 'static>(
    site: &Site,
    read: impl FnOnce(&std::path::Path) -> Result<T, JournalError> + Send + 'static,
) -> Result<T, Refusal> {
    let unavailable =
        |code, text: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, text);
    let Some(path) = site.journal.clone() else { return Ok(T::default()) };
    let place = Arc::clone(&site.journal_reader).acquire_owned();
    let Ok(Ok(place)) = tokio::time::timeout(JOURNAL_TIME_MAX, place).await else {
        return Err(unavailable("busy", "the journal is being read for other pages".to_owned()));
    };
    let reading = tokio::task::spawn_blocking(move || {
        let _place = place;
        read(&path)
    });
    match reading.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(unavailable("journal", error.to_string())),
        Err(error) => Err(unavailable("journal", format!("reading the journal failed: {error}"))),
    }
}
