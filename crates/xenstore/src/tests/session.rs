//! A session: each answer belongs to its request, events come at any time, and limits hold.

use ballast_model::LinkDown;

use super::{Pair, path, write};
use crate::testing::Fault;
use crate::{EVENTS_MAX, Message, MessageKind, Reply, Request, StoreError, WatchEvent};

fn watch(at: &str, token: &str) -> Request {
    Request::Watch { path: path(at), token: token.to_owned() }
}

fn event(at: &str, token: &str) -> WatchEvent {
    WatchEvent { path: at.to_owned(), token: token.to_owned() }
}

#[test]
fn answers_are_those_of_their_requests() {
    let mut pair = Pair::new();
    let requests = [
        write("/a/b", "7"),
        Request::Read(path("/a/b")),
        Request::Read(path("/a/c")),
        Request::Directory(path("/a")),
        Request::Remove(path("/a/b")),
        Request::Directory(path("/a")),
    ];
    // All requests are sent at once.
    let ids = requests.map(|request| pair.session.request(request).unwrap());
    pair.carry();
    let answers = ids.map(|id| pair.answer(id));
    assert_eq!(
        answers,
        [
            Ok(Reply::Done),
            Ok(Reply::Value(b"7".to_vec())),
            Err(StoreError::NotFound),
            Ok(Reply::Names(vec!["b".to_owned()])),
            Ok(Reply::Done),
            Ok(Reply::Names(Vec::new())),
        ]
    );
    assert_eq!(pair.session.unanswered(), 0);
}

#[test]
fn events_come_between_answers() {
    let mut pair = Pair::new();
    assert_eq!(pair.ask(watch("/a", "t")), Ok(Reply::Done));
    assert_eq!(pair.session.next_event(), Some(event("/a", "t")), "once at the beginning");
    let id = pair.session.request(Request::Read(path("/a"))).unwrap();
    pair.store.write("/a/b/c", "1");
    pair.store.write("/ab", "1");
    pair.carry();
    assert_eq!(pair.answer(id), Ok(Reply::Value(Vec::new())));
    assert_eq!(pair.session.next_event(), Some(event("/a/b/c", "t")));
    assert_eq!(pair.session.next_event(), None, "not of what only begins alike");
    assert_eq!(pair.ask(watch("/a", "t")), Err(StoreError::Other("EEXIST".to_owned())));
    let unwatch = Request::Unwatch { path: path("/a"), token: "t".to_owned() };
    assert_eq!(pair.ask(unwatch), Ok(Reply::Done));
    pair.store.remove("/a");
    pair.carry();
    assert_eq!(pair.session.next_event(), None);
}

#[test]
fn loss_of_events_that_nobody_takes_is_reported() {
    let mut pair = Pair::new();
    pair.ask(watch("/a", "t")).unwrap();
    assert!(!pair.session.has_lost_events());
    for n in 0..EVENTS_MAX {
        pair.store.write("/a/b", n.to_string());
    }
    pair.carry();
    assert!(pair.session.has_lost_events());
    assert!(!pair.session.has_lost_events(), "it is reported once");
    let mut taken = 0;
    while pair.session.next_event().is_some() {
        taken += 1;
    }
    assert_eq!(taken, EVENTS_MAX);
}

#[test]
fn refusals_have_names() {
    let mut pair = Pair::new();
    for (fault, error) in [
        (Fault::Denied("/a".to_owned()), StoreError::PermissionDenied),
        (Fault::Full, StoreError::Quota),
    ] {
        pair.store.faults = vec![fault];
        assert_eq!(pair.ask(write("/a/b", "1")), Err(error));
    }
    assert!(pair.session.request(write("/a", &"x".repeat(5000))).is_none(), "too long to send");
    assert_eq!(pair.session.outgoing(), b"");
}

#[test]
fn a_node_with_many_children_is_listed_in_parts() {
    let mut pair = Pair::new();
    let names: Vec<String> = (0..2000).map(|n| format!("{n:05}")).collect();
    for name in &names {
        pair.store.write(&format!("/local/domain/{name}/name"), "x");
    }
    let domains = || path("/local/domain");
    assert_eq!(pair.ask(Request::Directory(domains())), Err(StoreError::TooLarge));
    let (mut found, mut offset) = (Vec::new(), 0);
    loop {
        let answer = pair.ask(Request::DirectoryPart { path: domains(), offset }).unwrap();
        let Reply::NamesPart { names, len, is_last, .. } = answer else { panic!("{answer:?}") };
        found.extend(names);
        offset += len;
        if is_last {
            break;
        }
    }
    assert_eq!(found, names);
}

#[test]
fn what_was_not_asked_ends_the_connection() {
    let message = |kind, request, transaction, payload: &[u8]| {
        let mut bytes = Vec::new();
        let message = Message { kind, request, transaction, payload: payload.to_vec() };
        message.write(&mut bytes).unwrap();
        bytes
    };
    for (sent, why) in [
        (message(MessageKind::Read, 9, 0, b""), "a request that was not made"),
        (message(MessageKind::Write, 1, 0, b"OK\0"), "another request"),
        (message(MessageKind::Directory, 1, 7, b""), "another transaction"),
        (message(MessageKind::Directory, 1, 0, b"a"), "end with a zero byte"),
        (message(MessageKind::Directory, 1, 0, b"\xFF\0"), "not text"),
        (message(MessageKind::WatchEvent, 0, 0, b"/a\0"), "without path or token"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n<html>".to_vec(), "is this the socket of xenstored?"),
    ] {
        let mut pair = Pair::new();
        pair.session.request(Request::Directory(path("/"))).unwrap();
        let Err(LinkDown::Protocol(text)) = pair.session.receive(&sent) else { panic!("{why}") };
        assert!(text.contains(why), "{text}");
    }
    let mut pair = Pair::new();
    let id = pair.session.request(Request::Directory(path("/"))).unwrap();
    let strange = [b'\x1b'; 100];
    pair.session.receive(&message(MessageKind::Error, 1, 0, &strange)).unwrap();
    let Err(StoreError::Other(name)) = pair.answer(id) else { panic!() };
    assert!(name.len() < 200 && name.starts_with(r"\x1b"), "{name}");
}
