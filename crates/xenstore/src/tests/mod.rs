//! The codec, the session and guarded writes: by hand, against a naive oracle, and against a real
//! xenstored.

mod codec;
mod guarded;
mod oracle;
mod real;
mod session;

use crate::session::{Answer, RequestId, XenstoreSession};
use crate::testing::StorePeer;
use crate::{Request, StorePath};

fn path(text: &str) -> StorePath {
    text.parse().unwrap()
}

fn write(at: &str, value: &str) -> Request {
    Request::Write { path: path(at), value: value.as_bytes().to_vec() }
}

/// A session, and the store at the other end.
struct Pair {
    session: XenstoreSession,
    store: StorePeer,
    client: u32,
}

impl Pair {
    fn new() -> Pair {
        let mut store = StorePeer::new();
        let (client, _) = store.connect();
        Pair { session: XenstoreSession::new(), store, client }
    }

    /// Carries all bytes, both ways.
    fn carry(&mut self) {
        let sent = self.session.outgoing().to_vec();
        self.session.mark_written(sent.len());
        self.store.receive(self.client, &sent).unwrap();
        self.session.receive(&self.store.take_outgoing(self.client)).unwrap();
    }

    fn ask(&mut self, request: Request) -> Answer {
        let id = self.session.request(request).unwrap();
        self.carry();
        self.answer(id)
    }

    fn answer(&mut self, id: RequestId) -> Answer {
        let (answered, answer) = self.session.next_answer().unwrap();
        assert_eq!(answered, id);
        answer
    }
}
