//! The routes: each turns the latest view into a reply, or a request into a command.
//!
//! Idea: a reply is built from one immutable view, so it is consistent. A command or a request for
//! a dry run goes into a bounded queue of the main loop; its answer is awaited for a bounded time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes as Received};
use axum::extract::Query;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodFilter;
use ballast_api::{
    CarriedReply, CarriedView, CommandReply, DaemonView, ExplainReply, GuestChange, GuestsReply,
    MetricsFormat, ModeReply, PlanReply, Reserve, SetMode, SetPolicy, Source, StatusReply, Tick,
    path,
};
use ballast_model::{Bytes, GuestId, Mode, PolicyName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use super::metrics;
use super::page::Visitor;
use super::reply::{Refusal, in_json};
use super::route::{RouteHandler, RouteRequest};
use crate::view::{Command, Handle, Request as Asked, View};

/// Largest request body; a change of bounds is far below 1 KiB.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Time limit for receiving a request's body.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);
/// Time the main loop has to answer a command: far more than a decision takes.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(10);
/// Most characters of an unknown name shown in an error.
const NAME_CHARS_MAX: usize = 100;

/// Every route of the API, for admitted requests.
pub(super) fn router(handle: Handle) -> Router {
    const GET: MethodFilter = MethodFilter::GET;
    const POST: MethodFilter = MethodFilter::POST;
    let unknown = RouteHandler::new(|request| async move { Err(unknown_path(&request.parts.uri)) });
    RouteHandler::new(move |request| answer(handle.clone(), request))
        .router(&[
            (GET, path::STATUS),
            (GET, path::GUESTS),
            (GET, path::EXPLAIN),
            (GET, path::PLAN),
            (GET, path::METRICS),
            (POST, path::PAUSE),
            (POST, path::RESUME),
            (POST, path::SET_GUEST),
            (POST, path::PERSIST_GUEST),
            (GET.or(POST), path::CARRIED),
            (GET.or(POST), path::MODE),
            (POST, path::POLICY),
            (POST, path::RESERVE),
            (POST, path::UNRESERVE),
        ])
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_methods())
}

/// Metrics and nothing else, for a port without access control.
pub(super) fn only_metrics(handle: Handle) -> Router {
    let unknown = RouteHandler::new(|_| async {
        let text = format!("there is only {} here: the API has a Unix socket", path::METRICS);
        Err(Refusal::new(StatusCode::NOT_FOUND, "unknown-path", text))
    });
    RouteHandler::new(move |request| answer(handle.clone(), request))
        .router(&[(MethodFilter::GET, path::METRICS)])
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_methods())
}

fn wrong_methods() -> RouteHandler {
    RouteHandler::new(|request| async move { Err(wrong_method(&request.parts)) })
}

async fn answer(handle: Handle, request: RouteRequest) -> Result<Response, Refusal> {
    let RouteRequest { route, name, parts, body } = request;
    let name = match name {
        Ok(name) => name,
        Err(response) => return Ok(response),
    };
    match route.as_str() {
        _ if parts.method == Method::POST => {
            let who = Visitor::of(&parts)?.who();
            let command = command(&handle, &route, &name, body).await?;
            let message = ask(&handle.commands, |answer| Asked { command, who, answer }).await?;
            Ok(in_json(&CommandReply::new(message)))
        }
        path::PLAN => plan(&handle, &parts.uri).await,
        path::METRICS => metrics(&*latest(&handle)?, &parts.headers),
        route => show(&*latest(&handle)?, route, name),
    }
}

/// The reply to a request at `route`; `name` is the guest in its path.
fn show(view: &View, route: &str, name: String) -> Result<Response, Refusal> {
    let tick = tick(view, SystemTime::now());
    Ok(match route {
        path::STATUS => in_json(&StatusReply::from(&tick)),
        path::GUESTS => in_json(&GuestsReply::from(&tick)),
        path::EXPLAIN => {
            let reply = ExplainReply::new(&tick, &known_guest(view, &name)?);
            in_json(&reply.ok_or_else(|| unknown_guest(view, &name))?)
        }
        path::CARRIED => {
            let id = known_guest(view, &name)?;
            let carried_in = view.carried_in.get(&id).cloned();
            in_json(&CarriedReply::new(name, view.carried(&id), carried_in))
        }
        // `path::MODE` is the only other one.
        _ => in_json(&ModeReply::from(view.mode)),
    })
}

/// Parameters of `GET /v1/plan`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanQuery {
    #[serde(default)]
    dry_run: bool,
}

async fn plan(handle: &Handle, uri: &Uri) -> Result<Response, Refusal> {
    let Query(query) = Query::<PlanQuery>::try_from_uri(uri).map_err(|error| {
        let text = format!("{error}: expected nothing, or dry_run=true");
        Refusal::new(StatusCode::BAD_REQUEST, "bad-query", text)
    })?;
    let view = latest(handle)?;
    if !query.dry_run {
        return Ok(in_json(&PlanReply::latest(&tick(&view, SystemTime::now()))));
    }
    let plan = ask(&handle.dry_runs, |answer| answer).await?;
    Ok(in_json(&PlanReply::dry_run(&tick(&view, SystemTime::now()), &plan)))
}

fn metrics(view: &View, headers: &HeaderMap) -> Result<Response, Refusal> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let format = MetricsFormat::accepted(&accepted.collect::<Vec<_>>().join(","));
    let text = metrics::encode(view, SystemTime::now(), format)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics", error))?;
    let media_type = HeaderValue::from_static(format.media_type());
    let headers = [(header::CONTENT_TYPE, media_type), (header::VARY, header::ACCEPT.into())];
    Ok((headers, text).into_response())
}

/// The command that a request at `route` gives; `name` is the guest in its path.
async fn command(handle: &Handle, route: &str, name: &str, body: Body) -> Result<Command, Refusal> {
    Ok(match route {
        path::PAUSE => Command::Pause,
        path::RESUME => Command::Resume,
        path::SET_GUEST => {
            let change = read_change(body).await?;
            Command::SetGuest(known_or_gone_guest(&*latest(handle)?, name)?, change)
        }
        path::PERSIST_GUEST => {
            let change = read_change(body).await?;
            Command::PersistGuest(known_guest(&*latest(handle)?, name)?, change)
        }
        path::CARRIED => {
            let carried: Box<CarriedView> = Box::new(read_json(body).await?);
            carried
                .validate()
                .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, "bad-carried", error))?;
            Command::TakeCarried(known_guest(&*latest(handle)?, name)?, carried)
        }
        path::MODE => {
            let SetMode { mode } = read_json(body).await?;
            Command::SetMode(mode.parse().map_err(|error| {
                Refusal::new(StatusCode::BAD_REQUEST, "unknown-mode", error)
                    .nearest(&mode, Mode::ALL.map(Mode::as_str))
            })?)
        }
        path::POLICY => {
            let SetPolicy { policy } = read_json(body).await?;
            Command::SetPolicy(policy_named(&policy)?)
        }
        path::RESERVE => {
            let id = guest_to_come(name)?;
            // Before the first tick, what can be reserved is unknown: answer that it is starting.
            latest(handle)?;
            let Reserve { size_bytes, lasts_s } = read_json(body).await?;
            Command::Reserve(id, Bytes::new(size_bytes), Duration::from_secs(lasts_s))
        }
        // `path::UNRESERVE` is the only other one.
        _ => Command::Unreserve(guest_to_come(name)?),
    })
}

async fn read_change(body: Body) -> Result<GuestChange, Refusal> {
    let change: GuestChange = read_json(body).await?;
    if change.is_empty() {
        let text = "nothing to change: give floor_bytes, ceiling_bytes, ceiling_unset, shares, \
                    priority, miss_rate_max_per_s, managed or take_over";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "empty-change", text));
    }
    Ok(change)
}

/// The policy of this name, or the nearest one.
pub(super) fn policy_named(name: &str) -> Result<PolicyName, Refusal> {
    name.parse().map_err(|error| {
        Refusal::new(StatusCode::BAD_REQUEST, "unknown-policy", error)
            .nearest(name, PolicyName::ALL.map(PolicyName::as_str))
    })
}

/// The name of a guest that need not exist.
fn guest_to_come(name: &str) -> Result<GuestId, Refusal> {
    name.parse().map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, "bad-name", error))
}

fn unknown_path(uri: &Uri) -> Refusal {
    let asked: String = uri.path().chars().take(NAME_CHARS_MAX).collect();
    Refusal::new(StatusCode::NOT_FOUND, "unknown-path", format!("there is no `{asked}`"))
        .nearest(&asked, path::ALL)
}

fn wrong_method(request: &Parts) -> Refusal {
    let other = if request.method == Method::GET { Method::POST } else { Method::GET };
    let asked: String = request.uri.path().chars().take(NAME_CHARS_MAX).collect();
    let text = format!("`{asked}` does not take {}: use {other}", request.method);
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", text)
}

/// The latest view, or why there is none.
pub(super) fn latest(handle: &Handle) -> Result<Arc<View>, Refusal> {
    handle.view.borrow().clone().ok_or_else(|| {
        let text = "the daemon has not finished its first tick";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "starting", text)
    })
}

/// `view` as a tick to be shown at `now`.
pub fn tick(view: &View, now: SystemTime) -> Tick<'_> {
    Tick {
        source: Source::Daemon,
        now,
        seen_at: view.seen_at,
        snapshot: &view.snapshot,
        plan: &view.plan,
        limits: &view.limits,
        limit_sources: &view.limit_sources,
        outcomes: &view.outcomes,
        paused: view.paused,
        mode: view.mode.in_force(),
        decision_cost: view.decision_cost,
        daemon: Some(DaemonView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at_unix_ms: DaemonView::unix_millis(view.started_at),
            policy: view.policy.to_string(),
            tick_ms: view.tick.as_millis().try_into().unwrap_or(u64::MAX),
            host_reserve_bytes: Some(view.host_reserve.get()),
            ticks: view.ticks,
            plans_refused: view.plans_refused,
            fairness: view.fairness,
            reload_error: view.reload_error.clone(),
            journal_error: view.journal_error.clone(),
            journal_aside: view.journal_aside.iter().map(|to| to.display().to_string()).collect(),
            guests_refused: view.guests_refused as u64,
            api_restarts: view.api.restarts,
            api_trouble: view.api.trouble.clone(),
            page_error: view.api.page_error.clone(),
            metrics_trouble: view.api.metrics_trouble.clone(),
        }),
    }
}

/// The guest of this name, or the nearest one.
pub(super) fn known_guest(view: &View, name: &str) -> Result<GuestId, Refusal> {
    let id = name.parse::<GuestId>().map_err(|error| {
        Refusal::new(StatusCode::NOT_FOUND, "unknown-guest", error).nearest(name, guest_names(view))
    })?;
    if view.snapshot.guest(&id).is_some() { Ok(id) } else { Err(unknown_guest(view, name)) }
}

/// Like [`known_guest`], but also accepts a guest that is gone and has limits from `ballast set`:
/// these would be in force again if it came back, so they can still be changed.
fn known_or_gone_guest(view: &View, name: &str) -> Result<GuestId, Refusal> {
    let gone = name.parse::<GuestId>().ok().filter(|id| view.gone_with_limits.contains(id));
    gone.map_or_else(|| known_guest(view, name), Ok)
}

fn unknown_guest(view: &View, name: &str) -> Refusal {
    let text = match view.snapshot.guests().len() {
        0 => format!("there is no guest `{name}`: no guest was found at all"),
        _ => format!("there is no guest `{name}`"),
    };
    Refusal::new(StatusCode::NOT_FOUND, "unknown-guest", text).nearest(name, guest_names(view))
}

fn guest_names(view: &View) -> impl Iterator<Item = &str> {
    view.snapshot.guests().iter().map(|guest| guest.id.as_str())
}

/// Puts a question into a queue of the main loop and waits for the answer.
async fn ask<Q, A>(
    queue: &mpsc::Sender<Q>,
    question: impl FnOnce(oneshot::Sender<Result<A, String>>) -> Q,
) -> Result<A, Refusal> {
    let unavailable =
        |code, text: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, text);
    let ending = || unavailable("ending", "the daemon is ending".to_owned());
    let (sender, answer) = oneshot::channel();
    queue.try_send(question(sender)).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => {
            let most = queue.max_capacity();
            unavailable("busy", format!("{most} commands wait for the daemon already: try again"))
        }
        mpsc::error::TrySendError::Closed(_) => ending(),
    })?;
    match tokio::time::timeout(COMMAND_TIME_MAX, answer).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(text))) => Err(Refusal::new(StatusCode::CONFLICT, "refused", text)),
        Ok(Err(_)) => Err(ending()),
        Err(_) => {
            let seconds = COMMAND_TIME_MAX.as_secs();
            let text = format!(
                "the daemon's main loop did not answer within {seconds}s: it may still do what was \
                 asked"
            );
            Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "no-answer", text))
        }
    }
}

/// A request's body in JSON, within the limits of size and time.
pub(super) async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    let body = read_body(body).await?;
    serde_json::from_slice(&body).map_err(|error| {
        let text = format!("the request's body is not what is expected here: {error}");
        Refusal::new(StatusCode::BAD_REQUEST, "bad-body", text)
    })
}

async fn read_body(body: Body) -> Result<Received, Refusal> {
    let read = axum::body::to_bytes(body, BODY_BYTES_MAX);
    let read = tokio::time::timeout(BODY_TIME_MAX, read).await.map_err(|_| {
        let text = format!("the request's body did not come within {}s", BODY_TIME_MAX.as_secs());
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "slow-body", text)
    })?;
    read.map_err(|_| {
        let text = format!("the request's body is cut off or larger than {BODY_BYTES_MAX} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "bad-body", text)
    })
}
