//! A script in the program's place: how it is called, and what happens to it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::time::Instant;

use axum::http::Request;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::*;

/// Long enough for a shell on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Writes its PID, and runs forever.
const ENDLESS: &str = "echo $$ >$here/pid.new; mv $here/pid.new $here/pid; exec sleep 1000";

/// A script and the route that runs it.
struct Bench {
    folder: tempfile::TempDir,
    state: WhatIf,
}

impl Bench {
    fn new(script: &str) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let (program, here) = (folder.path().join("ballast"), folder.path().display());
        fs::write(&program, format!("#!/bin/sh\nhere={here}\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("advice"), advice().to_string()).unwrap();
        let state = WhatIf {
            program: ReplayProgram { program, time_max: PATIENCE },
            journal: Some(folder.path().join("journal.db")),
            turn: Arc::new(Semaphore::new(1)),
        };
        Bench { folder, state }
    }

    async fn ask(&self, query: &str) -> Result<WhatIfReply, Refusal> {
        self.ask_from(query, &[]).await
    }

    async fn ask_from(
        &self,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Result<WhatIfReply, Refusal> {
        let mut request = Request::builder().uri(format!("{}{query}", path::WHAT_IF));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        self.state.answer(&parts).await
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(name)).ok()
    }

    /// Waits until the endless program runs. Returns its PID.
    async fn running(&self) -> String {
        wait_for("the program", || self.text("pid")).await.trim().to_owned()
    }
}

async fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a process is gone, or is a zombie.
async fn wait_for_end(pid: &str) {
    wait_for("its end", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        stat.is_none_or(|stat| stat.contains(") Z ")).then_some(())
    })
    .await;
}

async fn refused(answer: Result<WhatIfReply, Refusal>) -> (u16, String, String) {
    let response = answer.map(|reply| reply.advice.policy).unwrap_err().into_response();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let text = |name: &str| body["error"][name].as_str().unwrap().to_owned();
    (status, text("code"), text("text"))
}

fn advice() -> Value {
    let amounts = json!({
        "mean_bytes": 9, "p50_bytes": 8, "p95_bytes": 7, "worst_hour_bytes": 6, "worst_hour_unix_ms": 0,
    });
    json!({
        "journal": "journal.db", "policy": "static", "simulated": true, "assumptions": ["none"],
        "window": { "first_unix_ms": 0, "last_unix_ms": 1000, "ticks": 2, "covered_s": 1.0 },
        "held_mean_bytes": 5, "imagined_mean_bytes": 4, "needed_mean_bytes": 3,
        "given_already_mean_bytes": 0, "returnable": amounts, "room": amounts,
        "more_guests": { "size_bytes": null, "full": null, "need_bytes": null, "alike": null },
        "swap_in_bytes": 0, "imagined_swap_in_bytes": 0, "swap_in_avoided_bytes": 0,
        "guests_hiding_need": 0,
        "plans_refused": 0,
        "confidence": {
            "percent": 1, "coverage_percent": 1, "freshness_percent": 2, "source_percent": 3,
            "visibility_percent": 4, "weakest": "little time is recorded",
        },
        "guests": [], "guests_left_out": 0, "course": [],
    })
}

#[tokio::test]
async fn the_program_is_asked_what_the_request_asks() {
    let bench = Bench::new("echo \"$@\" >$here/args; cat $here/advice");
    let reply = bench.ask("?policy=static&since_s=3600").await.unwrap();
    assert_eq!((reply.api_version, reply.advice.returnable.p95_bytes), (1, 7));
    let journal = bench.folder.path().join("journal.db");
    let (journal, daemon) = (journal.display(), std::process::id());
    let common = format!("advise --json --journal {journal} --since");
    let expected = format!("{common} 3600s --policy static --for-daemon {daemon}\n");
    assert_eq!(bench.text("args").unwrap(), expected);
    assert_eq!(bench.ask("").await.unwrap().advice.policy, "static");
    assert_eq!(bench.text("args").unwrap(), format!("{common} 86400s --for-daemon {daemon}\n"));
}

#[tokio::test]
async fn wrong_requests_start_nothing() {
    let mut bench = Bench::new("echo >$here/started; cat $here/advice");
    for (query, code, part) in [
        ("?policy=globl", "unknown-policy", "the nearest is `global`"),
        ("?policy=", "unknown-policy", "`` is not a policy"),
        ("?policy=tws", "not-replayable", "tws cannot be replayed"),
        ("?policy=external", "not-replayable", "its program is not called"),
        ("?since_s=0", "bad-query", "since_s=0: expected 1 to 31622400 seconds"),
        ("?since_s=31622401", "bad-query", "expected 1 to 31622400 seconds"),
        ("?since_s=1d", "bad-query", "expected policy=NAME, since_s=SECONDS"),
        ("?polcy=static", "bad-query", "unknown field `polcy`"),
    ] {
        let (status, found, text) = refused(bench.ask(query).await).await;
        assert_eq!((status, found.as_str()), (400, code), "{query}: {text}");
        assert!(text.contains(part), "{query}: {text}");
    }
    for site in ["cross-site", "same-site"] {
        let found = refused(bench.ask_from("", &[("sec-fetch-site", site)]).await).await;
        assert_eq!((found.0, found.1.as_str()), (403, "csrf"), "{site}");
    }
    bench.state.journal = None;
    let (status, code, text) = refused(bench.ask("").await).await;
    assert_eq!((status, code.as_str()), (409, "no-journal"));
    assert!(text.contains("the daemon keeps no journal"), "{text}");
    assert_eq!(bench.text("started"), None);
}

#[tokio::test]
async fn a_page_of_the_daemons_own_may_ask() {
    let bench = Bench::new("cat $here/advice");
    for site in ["same-origin", "none"] {
        assert!(bench.ask_from("", &[("sec-fetch-site", site)]).await.is_ok(), "{site}");
    }
}

#[tokio::test]
async fn one_replay_runs_until_its_client_leaves() {
    let bench = Bench::new(ENDLESS);
    let pid = {
        let mut first = pin!(bench.ask(""));
        let pid = tokio::select! {
            biased;
            answer = &mut first => panic!("{}", refused(answer).await.2),
            pid = bench.running() => pid,
        };
        let (status, code, text) = refused(bench.ask("?policy=static").await).await;
        assert_eq!((status, code.as_str()), (429, "running"), "{text}");
        pid
    };
    wait_for_end(&pid).await;
    assert_eq!(bench.state.turn.available_permits(), 1);
}

#[tokio::test]
async fn a_replay_that_takes_too_long_is_killed() {
    let mut bench = Bench::new(&format!("sleep 1000 & echo $! >$here/child; {ENDLESS}"));
    bench.state.program.time_max = Duration::from_millis(500);
    // On a busy machine the script may not even have started.
    let child = loop {
        let (status, code, text) = refused(bench.ask("").await).await;
        assert_eq!((status, code.as_str()), (504, "late"), "{text}");
        assert!(text.contains("it took longer than 500ms"), "{text}");
        if let Some((pid, child)) = bench.text("pid").zip(bench.text("child")) {
            wait_for_end(pid.trim()).await;
            break child;
        }
    };
    wait_for_end(child.trim()).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_replay_is_told() {
    for (script, status, code, part) in [
        ("echo 'error: no two ticks' >&2; exit 1", 409, "no-advice", "no two ticks"),
        ("exit 3", 409, "no-advice", "the replay ended with exit status: 3"),
        ("echo '{}'", 500, "replay-failed", "missing field `journal`"),
        ("exec cat /dev/zero", 500, "replay-failed", "longer than 16777216 bytes"),
        ("cat /dev/zero >&2 & cat $here/none; exit 2", 409, "no-advice", "\0"),
    ] {
        let found = refused(Bench::new(script).ask("").await).await;
        assert_eq!((found.0, found.1.as_str()), (status, code), "{script}: {}", found.2);
        assert!(found.2.contains(part) && found.2.len() <= 4096, "{script}: {}", found.2);
    }
    let missing = Bench::new("");
    fs::remove_file(&missing.state.program.program).unwrap();
    let (status, _, text) = refused(missing.ask("").await).await;
    assert_eq!(status, 500);
    assert!(text.contains("the replay cannot be started: No such file"), "{text}");
}
