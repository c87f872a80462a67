//! Live events for the page's clients.
//!
//! Idea: each tick is encoded once, as the status that `GET /v1/status` answers, and put into every
//! listener's queue. A listener whose queue is full does not read; it is dropped, and its browser
//! reconnects if it is still there. So neither the number nor the speed of listeners delays
//! anything.
//! Cost: [`QUEUED_MAX`] references to texts for each listener.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use ballast_api::StatusReply;
use futures_util::stream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::server::reply::json;
use crate::server::routes::tick;
use crate::view::View;
use crate::worker::lock;

/// Most listeners at once.
pub(in crate::server) const LISTENERS_MAX: usize = 16;
/// Events that may wait for a listener.
const QUEUED_MAX: usize = 4;
/// Shortest time between two events, however often the daemon ticks.
const APART_MIN: Duration = Duration::from_millis(500);
/// How long a browser waits before it reconnects, in milliseconds.
const RETRY_MS: u64 = 1000;

#[derive(Debug, Default)]
pub(in crate::server) struct Listeners {
    queues: Mutex<Vec<mpsc::Sender<Bytes>>>,
}

impl Listeners {
    /// Adds a listener, whose first event is `view`; `None`: there are too many.
    pub(in crate::server) fn join(&self, view: &View) -> Option<mpsc::Receiver<Bytes>> {
        let mut queues = lock(&self.queues);
        queues.retain(|queue| !queue.is_closed());
        if queues.len() >= LISTENERS_MAX {
            return None;
        }
        let (queue, events) = mpsc::channel(QUEUED_MAX);
        queue.try_send(event(view)).ok()?;
        queues.push(queue);
        Some(events)
    }

    /// Sends every new view to all, until the daemon ends.
    pub(in crate::server) async fn feed(&self, mut view: watch::Receiver<Option<Arc<View>>>) {
        while view.changed().await.is_ok() {
            let latest = view.borrow_and_update().clone();
            if let Some(latest) = latest.filter(|_| self.is_any()) {
                self.send(&event(&latest));
                tokio::time::sleep(APART_MIN).await;
            }
        }
    }

    fn is_any(&self) -> bool {
        let mut queues = lock(&self.queues);
        queues.retain(|queue| !queue.is_closed());
        !queues.is_empty()
    }

    fn send(&self, event: &Bytes) {
        lock(&self.queues).retain(|queue| queue.try_send(event.clone()).is_ok());
    }
}

/// The body of a reply with all `events`, until `end` or until the listener is dropped.
pub(super) fn body(events: mpsc::Receiver<Bytes>, end: Instant) -> Body {
    Body::from_stream(stream::unfold(events, move |mut events| async move {
        let next = tokio::time::timeout_at(end, events.recv()).await.ok()??;
        Some((Ok::<_, Infallible>(next), events))
    }))
}

/// A view as a server-sent event.
fn event(view: &View) -> Bytes {
    let status = StatusReply::from(&tick(view, SystemTime::now()));
    let mut event = format!("event: tick\nretry: {RETRY_MS}\ndata: ").into_bytes();
    // JSON as written here has no line breaks, which would end the event.
    event.extend(json(&status).unwrap_or_default());
    event.extend(b"\n\n");
    event.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fixture;

    #[tokio::test]
    async fn each_listener_gets_the_latest_view_and_the_next() {
        let (sender, view) = watch::channel(None);
        let listeners = Arc::new(Listeners::default());
        let mut events = listeners.join(&fixture::view()).unwrap();
        let feed = Arc::clone(&listeners);
        let feed = tokio::spawn(async move { feed.feed(view).await });
        let first = String::from_utf8(events.recv().await.unwrap().to_vec()).unwrap();
        assert!(first.starts_with("event: tick\n") && first.ends_with("}\n\n"), "{first}");
        let data = first.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let status: StatusReply = serde_json::from_str(data).unwrap();
        assert_eq!((status.tick.generation, status.guests.len()), (42, 5));
        sender.send_replace(Some(Arc::new(View { paused: true, ..fixture::view() })));
        let second = String::from_utf8(events.recv().await.unwrap().to_vec()).unwrap();
        assert!(second.contains("\"paused\":true"), "{second}");
        drop(sender);
        feed.await.unwrap();
    }

    #[test]
    fn a_listener_that_does_not_read_is_dropped() {
        let (listeners, view) = (Listeners::default(), fixture::view());
        let mut idle = listeners.join(&view).unwrap();
        let mut quick = listeners.join(&view).unwrap();
        for _ in 0..=QUEUED_MAX {
            assert!(quick.try_recv().is_ok());
            listeners.send(&event(&view));
        }
        // It still gets what was queued, and then the end.
        let left = std::iter::from_fn(|| idle.try_recv().ok()).count();
        assert_eq!(left, QUEUED_MAX);
        assert!(idle.is_closed() && !quick.is_closed());
    }

    #[test]
    fn one_listener_too_many_is_refused_until_another_leaves() {
        let (listeners, view) = (Listeners::default(), fixture::view());
        let mut all: Vec<_> = (0..LISTENERS_MAX).map(|_| listeners.join(&view).unwrap()).collect();
        assert!(listeners.join(&view).is_none());
        all.pop();
        assert!(listeners.join(&view).is_some());
    }
}
