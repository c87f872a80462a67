//! The client against servers that answer wrongly, slowly, hugely or not at all.

use std::path::Path;
use std::time::Duration;

use ballast_api::{Client, ClientError, REPLY_BYTES_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// Answers the first connection with `reply` and keeps it open as long as the task lives.
fn answering(path: &Path, reply: Vec<u8>) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        let _ = stream.write_all(&reply).await;
        std::future::pending::<()>().await;
    })
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[tokio::test]
async fn without_a_daemon_the_error_says_how_to_start_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ballast.sock");
    let expected = format!(
        "no daemon listens on {}: start one with `systemctl start ballast` or `ballast daemon --config \
         FILE`, or name its socket with --socket",
        path.display()
    );
    let absent = Client::new(&path).status().await.unwrap_err();
    assert_eq!(absent.to_string(), expected);
    drop(UnixListener::bind(&path).unwrap());
    let stale = Client::new(&path).status().await.unwrap_err();
    assert_eq!(stale.to_string(), expected);
}

#[tokio::test]
async fn a_silent_daemon_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ballast.sock");
    let _server = answering(&path, Vec::new());
    let client = Client::new(&path).with_timeout(Duration::from_millis(100));
    let error = client.status().await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    assert!(error.to_string().ends_with("did not answer within 0.1s"), "{error}");
}

#[tokio::test]
async fn replies_of_other_programs_are_refused_as_such() {
    for (reply, part) in [
        (ok("<html>"), "expected value at line 1 column 1: \"<html>\""),
        (ok("{\"api_version\": 1}"), "missing field"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops".to_vec(), "502 Bad Gateway"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast.sock");
        let _server = answering(&path, reply);
        let error = Client::new(&path).status().await.unwrap_err();
        assert!(matches!(error, ClientError::Unreadable { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn garbage_and_a_closed_connection_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("garbage.sock");
    let _server = answering(&path, b"\0\0not HTTP at all\r\n\r\n".to_vec());
    let error = Client::new(&path).status().await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");

    let path = folder.path().join("closed.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let _server = tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
    let error = Client::new(&path).status().await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
}

#[tokio::test]
async fn an_endless_reply_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ballast.sock");
    let mut reply = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    reply.resize(REPLY_BYTES_MAX + (1 << 20), b' ');
    let _server = answering(&path, reply);
    let error = Client::new(&path).status().await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
}
