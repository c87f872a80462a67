//! `GET /v1/what-if`: the daemon's own journal under another policy, by replay.
//!
//! Idea: the running program is started once more, as `ballast advise`, at the lowest priority. A
//! replay takes a core for seconds and as much memory as it needs, so it must not run in the
//! daemon; another process can be killed. One runs at a time, whoever asks. It ends when its client
//! leaves, when its time is over, and when the daemon ends in any way: it asks the kernel to be
//! killed then.
//!
//! Cost: a process, for as long as it runs.
//! Limits: the answer must come within [`TIME_MAX`], and has at most [`ADVICE_BYTES_MAX`]. There is
//! no pause between two requests: a reader can keep one process at the lowest priority busy.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::MethodFilter;
use ballast_api::{AdviceView, WhatIfReply, path};
use ballast_model::PolicyName;
use ballast_replay::ensure_replayable;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::Semaphore;

use super::reply::{Refusal, in_json};
use super::route::RouteHandler;
use super::routes::policy_named;
use crate::operator_program;

/// How long a replay may take: less than a connection may last.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of an advice: about a megabyte for a thousand guests, and there are at most 4,096.
const ADVICE_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of an error message.
const ERROR_BYTES_MAX: u64 = 4096;
/// The default span of a replay: a day.
const SINCE_S: u64 = 86_400;
/// The longest span that `ballast advise` accepts.
const SINCE_S_MAX: u64 = 366 * 86_400;

/// The program that replays a journal.
#[derive(Clone, Debug)]
pub struct ReplayProgram {
    /// The program, which takes the arguments of `ballast`.
    pub program: PathBuf,
    /// How long it may take.
    pub time_max: Duration,
}

impl Default for ReplayProgram {
    /// The running program itself, even if another version has replaced its file since.
    fn default() -> Self {
        ReplayProgram { program: "/proc/self/exe".into(), time_max: TIME_MAX }
    }
}

/// The state of the route.
#[derive(Clone)]
struct WhatIf {
    program: ReplayProgram,
    journal: Option<PathBuf>,
    /// A permit to run the program.
    turn: Arc<Semaphore>,
}

/// The route, for admitted requests.
pub(super) fn router(program: ReplayProgram, journal: Option<PathBuf>) -> Router {
    let turn = Arc::new(Semaphore::new(1));
    let what_if = WhatIf { program, journal, turn };
    RouteHandler::new(move |request| {
        let what_if = what_if.clone();
        async move { Ok::<_, Refusal>(in_json(&what_if.answer(&request.parts).await?)) }
    })
    .router(&[(MethodFilter::GET, path::WHAT_IF)])
}

/// Parameters of `GET /v1/what-if`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfQuery {
    /// The policy; `None`: the one in force at the last tick.
    policy: Option<String>,
    /// How far back from the last tick, in seconds.
    #[serde(default = "since_s")]
    since_s: u64,
}

const fn since_s() -> u64 {
    SINCE_S
}

impl WhatIf {
    async fn answer(&self, request: &Parts) -> Result<WhatIfReply, Refusal> {
        let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, "bad-query", text);
        let query = Query::<WhatIfQuery>::try_from_uri(&request.uri);
        let Query(WhatIfQuery { policy, since_s }) = query
            .map_err(|error| bad(format!("{error}: expected policy=NAME, since_s=SECONDS")))?;
        if !(1..=SINCE_S_MAX).contains(&since_s) {
            return Err(bad(format!("since_s={since_s}: expected 1 to {SINCE_S_MAX} seconds")));
        }
        let policy = policy.as_deref().map(policy_named).transpose()?;
        if let Some(policy) = policy {
            ensure_replayable(policy)
                .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, "not-replayable", error))?;
        }
        if is_of_another_site(&request.headers) {
            let text = "this did not come from the page itself: open the page and ask there";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "csrf", text));
        }
        let Some(journal) = &self.journal else {
            let text = "the daemon keeps no journal, so there is nothing to replay: enable \
                        [journal] in its configuration, and let it record for a while";
            return Err(Refusal::new(StatusCode::CONFLICT, "no-journal", text));
        };
        let Ok(_turn) = self.turn.try_acquire() else {
            let text = "one is running, and only one does at a time: ask again when it is done";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "running", text));
        };
        let advice = self.program.replay(journal, policy, since_s).await?;
        Ok(WhatIfReply::new(advice))
    }
}

/// Whether a browser sends this request for a page of another site. Such a page cannot read the
/// answer, but could make the host work for nothing.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    site.is_some_and(|site| site != b"same-origin" && site != b"none")
}

impl ReplayProgram {
    /// The advice of `ballast advise` about a journal.
    async fn replay(
        &self,
        journal: &Path,
        policy: Option<PolicyName>,
        since_s: u64,
    ) -> Result<AdviceView, Refusal> {
        let failed =
            |text: String| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "replay-failed", text);
        let mut child = self
            .start(journal, policy, since_s)
            .map_err(|error| failed(format!("the replay cannot be started: {error}")))?;
        let Ok(ended) = tokio::time::timeout(self.time_max, finish(&mut child)).await else {
            operator_program::kill(&mut child).await;
            let text = format!(
                "the replay was ended: it took longer than {:?}; ask for less time, or run \
                 `ballast advise`, which has no such limit",
                self.time_max
            );
            return Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "late", text));
        };
        let Replayed { status, advice, errors } =
            ended.map_err(|error| failed(format!("the replay cannot be read: {error}")))?;
        if advice.len() as u64 >= ADVICE_BYTES_MAX {
            return Err(failed(format!("the advice is longer than {ADVICE_BYTES_MAX} bytes")));
        }
        if !status.success() {
            let errors = String::from_utf8_lossy(&errors);
            let text = match errors.trim() {
                "" => format!("the replay ended with {status}"),
                errors => errors.trim_start_matches("error: ").to_owned(),
            };
            return Err(Refusal::new(StatusCode::CONFLICT, "no-advice", text));
        }
        serde_json::from_slice(&advice)
            .map_err(|error| failed(format!("the advice is not what was expected: {error}")))
    }

    fn start(&self, journal: &Path, policy: Option<PolicyName>, since_s: u64) -> io::Result<Child> {
        let mut command = operator_program::command(&self.program);
        // It runs in another folder, so the path must be absolute.
        command.args(["advise", "--json", "--journal"]).arg(std::path::absolute(journal)?);
        command.args(["--since", &format!("{since_s}s")]);
        if let Some(policy) = policy {
            command.args(["--policy", policy.as_str()]);
        }
        command.args(["--for-daemon", &std::process::id().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    }
}

/// Exit status and output of a program.
struct Replayed {
    status: ExitStatus,
    advice: Vec<u8>,
    errors: Vec<u8>,
}

async fn finish(child: &mut Child) -> io::Result<Replayed> {
    let (advice, errors) = tokio::try_join!(
        read(child.stdout.take(), ADVICE_BYTES_MAX),
        read(child.stderr.take(), ERROR_BYTES_MAX),
    )?;
    Ok(Replayed { status: child.wait().await?, advice, errors })
}

/// Reads to the end, or until `bytes_max`.
async fn read(from: Option<impl AsyncRead + Unpin>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(bytes_max).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
