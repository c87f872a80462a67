//! A session with a hostile program on xenstored's socket.
//!
//! Idea: property tests and a fuzzer use the same function. Its input is the bytes of the answers,
//! with the lengths of the pieces in which they arrive.

use std::collections::BTreeSet;

use crate::{GuardedWrite, Request, StorePath, XenstoreSession};

/// Longest piece that arrives at once, in bytes.
const PART_MAX: usize = 64;

/// Feeds `data` to a session as the bytes that it receives; a byte before each piece is the piece's
/// length. Whatever it receives, a session does not panic, returns at most one answer for each
/// request, and no other answers.
///
/// # Panics
/// The session breaks one of these rules.
pub fn try_session(data: &[u8]) {
    let mut session = XenstoreSession::new();
    let path = |text: &str| text.parse::<StorePath>().expect("a path");
    let (mut made, mut answered) = (BTreeSet::new(), BTreeSet::new());
    let (expected, written) = ((path("/a"), b"1".to_vec()), (path("/b"), b"2".to_vec()));
    let mut write = GuardedWrite::begin(&mut session, expected, written).expect("room");
    let mut has_ended = false;
    let mut rest = data;
    while let Some((&len, more)) = rest.split_first() {
        let (part, later) = more.split_at(usize::from(len).min(PART_MAX).min(more.len()));
        rest = later;
        if session.receive(part).is_err() {
            return;
        }
        made.extend(session.request(Request::Directory(path("/"))));
        made.extend(session.request(Request::Read(path("/a"))));
        made.extend(session.request(Request::DirectoryPart { path: path("/"), offset: 3 }));
        session.mark_written(usize::from(len));
        while session.next_event().is_some() {}
        while let Some((id, answer)) = session.next_answer() {
            assert!(answered.insert(id), "{id:?} is answered twice");
            if !has_ended && write.awaited() == Some(id) {
                has_ended = write.take(&mut session, answer).is_some();
            } else {
                assert!(made.contains(&id), "{id:?} was not asked");
            }
        }
    }
}
