//! Xen's own xenstored gives the same answers as the oracle and the store in memory.
//!
//! Limits: prints `SKIPPED` where xenstored or the library that it needs here is missing.

use std::cell::RefCell;
use std::time::Duration;

use ballast_model::LinkDown;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};

use super::oracle::{compare, steps};
use super::{Pair, path, write};
use crate::session::Answer;
use crate::testing::RealStore;
use crate::{Connection, GuardedWrite, Reply, Request, StoreError, TransactionId, is_xenstore};

/// Sequences of steps that are compared.
const CASES: u32 = 64;
/// More names than fit one answer.
const DOMAINS: u32 = 2000;
const PATIENCE: Duration = Duration::from_secs(10);

/// A xenstored and connections to it.
struct RealXenstored {
    runtime: Runtime,
    store: RealStore,
    _folder: TempDir,
}

impl RealXenstored {
    /// `None`, with a `SKIPPED` line, where there is no xenstored.
    fn start() -> Option<RealXenstored> {
        let folder = tempfile::tempdir().unwrap();
        match RealStore::start(folder.path()) {
            Ok(store) => {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build().unwrap();
                Some(RealXenstored { runtime, store, _folder: folder })
            }
            Err(why) => {
                println!("SKIPPED: {why}");
                None
            }
        }
    }

    fn connect(&self) -> Connection {
        let until = Instant::now() + PATIENCE;
        self.runtime.block_on(Connection::open(self.store.socket(), until)).unwrap()
    }

    fn ask(&self, connection: &mut Connection, request: Request) -> Answer {
        self.ask_in(connection, request, None)
    }

    fn ask_in(
        &self,
        connection: &mut Connection,
        request: Request,
        transaction: Option<TransactionId>,
    ) -> Answer {
        let asked = connection.session.request_in(request, transaction).unwrap();
        loop {
            if let Some((id, answer)) = connection.session.next_answer() {
                assert_eq!(id, asked);
                return answer;
            }
            self.wait(connection);
        }
    }

    fn wait(&self, connection: &mut Connection) {
        self.runtime.block_on(async {
            timeout(PATIENCE, connection.exchange()).await.unwrap().unwrap();
        });
    }
}

#[test]
fn xenstored_answers_as_a_map_would() {
    let Some(real) = RealXenstored::start() else { return };
    let connection = RefCell::new(real.connect());
    let mut runner =
        TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let result = runner.run(&steps(), |steps| {
        let mut connection = connection.borrow_mut();
        // Remove what the previous case left.
        let _ = real.ask(&mut connection, Request::Remove(path("/t")));
        compare(&steps, &mut |request, transaction| {
            real.ask_in(&mut connection, request, transaction)
        })?;
        Ok::<(), TestCaseError>(())
    });
    result.unwrap();
}

#[test]
fn events_are_those_of_the_store_in_memory() {
    let Some(real) = RealXenstored::start() else { return };
    let (mut watcher, mut writer, mut pair) = (real.connect(), real.connect(), Pair::new());
    let watch = || Request::Watch { path: path("/w"), token: "t".to_owned() };
    assert_eq!(real.ask(&mut watcher, watch()), pair.ask(watch()));
    for request in [
        write("/w/a/b", "1"),
        write("/w/a/b", "2"),
        write("/other", "1"),
        Request::Remove(path("/w/a/b")),
        write("/w/c", "1"),
        Request::Remove(path("/w")),
    ] {
        assert_eq!(
            real.ask(&mut writer, request.clone()),
            pair.ask(request.clone()),
            "{request:?}"
        );
    }
    let mut expected = Vec::new();
    while let Some(event) = pair.session.next_event() {
        expected.push(event);
    }
    let mut found = Vec::new();
    while found.len() < expected.len() {
        match watcher.session.next_event() {
            Some(event) => found.push(event),
            None => real.wait(&mut watcher),
        }
    }
    assert_eq!(found, expected);
    assert_eq!(watcher.session.next_event(), None);
}

#[test]
fn more_domains_than_an_answer_holds_are_listed() {
    let Some(real) = RealXenstored::start() else { return };
    let mut connection = real.connect();
    for id in 0..DOMAINS {
        connection.session.request(write(&format!("/local/domain/{id}/name"), "x")).unwrap();
    }
    while connection.session.unanswered() > 0 {
        real.wait(&mut connection);
    }
    while connection.session.next_answer().is_some() {}
    let domains = || path("/local/domain");
    let all = real.ask(&mut connection, Request::Directory(domains()));
    assert_eq!(all, Err(StoreError::TooLarge));
    let (mut found, mut offset) = (Vec::new(), 0);
    loop {
        let request = Request::DirectoryPart { path: domains(), offset };
        let answer = real.ask(&mut connection, request).unwrap();
        let Reply::NamesPart { names, len, is_last, .. } = answer else { panic!("{answer:?}") };
        found.extend(names);
        offset += len;
        if is_last {
            break;
        }
    }
    let mut ids: Vec<u32> = found.iter().map(|name| name.parse().unwrap()).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..DOMAINS));
}

#[test]
fn a_guarded_write_meets_other_transactions() {
    let Some(real) = RealXenstored::start() else { return };
    let (mut connection, mut other) = (real.connect(), real.connect());
    let (vm, target) = ("/local/domain/7/vm", "/local/domain/7/memory/target");
    real.ask(&mut connection, write(vm, "/vm/a")).unwrap();
    let mut end = |meddles: u32| {
        let expected = (path(vm), b"/vm/a".to_vec());
        let written = (path(target), b"4096".to_vec());
        let mut write_ = GuardedWrite::begin(&mut connection.session, expected, written).unwrap();
        let mut left = meddles;
        loop {
            let Some((id, answer)) = connection.session.next_answer() else {
                real.wait(&mut connection);
                continue;
            };
            assert_eq!(Some(id), write_.awaited());
            if left > 0 {
                left -= 1;
                real.ask(&mut other, write(target, &left.to_string())).unwrap();
            }
            if let Some(result) = write_.take(&mut connection.session, answer) {
                return result;
            }
        }
    };
    assert_eq!(end(0), Ok(()));
    assert_eq!(end(6), Ok(()), "it begins anew");
    assert_eq!(end(1000), Err(crate::WriteError::Conflicts), "and not for ever");
    real.ask(&mut other, Request::Remove(path("/local/domain/7"))).unwrap();
    let expected = (path(vm), b"/vm/a".to_vec());
    let written = (path(target), b"1".to_vec());
    let mut late = GuardedWrite::begin(&mut connection.session, expected, written).unwrap();
    let result = loop {
        let Some((_, answer)) = connection.session.next_answer() else {
            real.wait(&mut connection);
            continue;
        };
        if let Some(result) = late.take(&mut connection.session, answer) {
            break result;
        }
    };
    assert_eq!(result, Err(crate::WriteError::Changed(path(vm))));
    let gone = real.ask(&mut other, Request::Read(path(target)));
    assert_eq!(gone, Err(StoreError::NotFound), "no key was left behind");
}

#[test]
fn only_a_xenstored_is_recognized_as_one() {
    let Some(real) = RealXenstored::start() else { return };
    let socket = real.store.socket().to_owned();
    let is = |socket: &std::path::Path| real.runtime.block_on(is_xenstore(socket, PATIENCE));
    assert_eq!(is(&socket), Ok(()));
    assert_eq!(is(&socket.with_file_name("none")), Err(LinkDown::Refused));
}
