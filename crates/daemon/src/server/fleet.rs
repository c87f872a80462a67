//! `GET /v1/fleet`: the host's fleet, as `ballast-fleet` knows it.
//!
//! Idea: the daemon knows nothing of fleets and, under its unit, reaches no network. It forwards
//! the question to the program that is in the fleet, on the socket beside its own, and returns the
//! answer. However many pages ask, the program is asked once in [`FRESH_FOR`].
//! Limits: the answer must come within [`TIME_MAX`], and has at most
//! [`ballast_api::REPLY_BYTES_MAX`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::MethodFilter;
use ballast_api::{Client, ClientError, FleetReply, fleet_socket, path};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::reply::{Refusal, in_json};
use super::route::RouteHandler;

/// How long an answer is reused.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// How long an answer may take; the program reads all keys of etcd.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The file that makes a host a member.
const CONFIG_FILE: &str = "/etc/ballast/fleet.toml";

/// The program that is asked, and its last answer.
struct Fleet {
    client: Client,
    last: Mutex<Option<(Instant, Result<FleetReply, String>)>>,
}

/// The route of the daemon on `socket`, for admitted requests.
pub(super) fn router(socket: &Path) -> Router {
    let client = Client::new(fleet_socket(socket)).with_timeout(TIME_MAX);
    let fleet = Arc::new(Fleet { client, last: Mutex::default() });
    RouteHandler::new(move |_| answer(Arc::clone(&fleet)))
        .router(&[(MethodFilter::GET, path::FLEET)])
}

async fn answer(fleet: Arc<Fleet>) -> Result<Response, Refusal> {
    // Other requests wait here for the same answer.
    let mut last = fleet.last.lock().await;
    let fresh = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR);
    let answer = match fresh {
        Some((_, answer)) => answer.clone(),
        None => {
            let answer = fleet.ask().await;
            last.insert((Instant::now(), answer)).1.clone()
        }
    };
    match answer {
        Ok(reply) => Ok(in_json(&reply)),
        Err(text) => Err(Refusal::new(StatusCode::BAD_GATEWAY, "no-fleet", text)),
    }
}

impl Fleet {
    async fn ask(&self) -> Result<FleetReply, String> {
        match self.client.fleet().await {
            Ok(reply) => Ok(reply),
            Err(ClientError::NoDaemon { .. }) => Ok(FleetReply::none(hint())),
            Err(ClientError::Refused { reply, .. }) => Err(reply.error.text),
            Err(_) => {
                Err(format!("ballast-fleet does not answer on {}", self.client.socket().display()))
            }
        }
    }
}

fn hint() -> String {
    match Path::new(CONFIG_FILE).exists() {
        true => "ballast-fleet does not run on this host: systemctl enable --now ballast-fleet",
        false => {
            "this host is in no fleet: write /etc/ballast/fleet.toml, then systemctl enable --now \
             ballast-fleet (docs/fleet.md)"
        }
    }
    .to_owned()
}
