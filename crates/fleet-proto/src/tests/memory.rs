//! What a coordinator promises, tested on the one in memory; `crates/etcd` tests it on etcd.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{
    Condition, Coordinator, CoordinatorError, KeyEvent, KeyWatch, KeyWrite, MemoryCoordinator,
    PutResult, Registration, Revision,
};

const TTL: Duration = Duration::from_secs(10);

/// The result of a future that is ready at once; `None` if it waits.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn done<T>(future: impl Future<Output = T>) -> T {
    now(future).expect("it waits for nothing")
}

#[test]
fn a_name_is_taken_once_and_free_after_its_lease() {
    let it = MemoryCoordinator::default();
    let register = |found| done(it.register("k", b"v".to_vec(), TTL, found)).unwrap();
    let Registration::Registered { lease, written } = register(None) else { panic!("taken") };
    assert_eq!(register(None), Registration::Taken);
    let Registration::Registered { lease: second, .. } = register(Some(written)) else {
        panic!("whoever knows its revision takes it over");
    };
    it.advance(Duration::from_secs(9));
    done(it.renew(second)).unwrap();
    it.advance(Duration::from_secs(9));
    assert_eq!(done(it.renew(lease)), Err(CoordinatorError::LeaseGone));
    assert_eq!(done(it.read("k")).unwrap().entries.len(), 1, "the later lease holds it");
    it.advance(Duration::from_secs(1));
    assert_eq!(done(it.read("k")).unwrap().entries, []);
}

#[test]
fn leaderships_have_rising_revisions() {
    let it = MemoryCoordinator::default();
    let (a, b) = (done(it.grant(TTL)).unwrap(), done(it.grant(TTL)).unwrap());
    let first = done(it.campaign("l", b"a".to_vec(), a)).unwrap().unwrap();
    assert_eq!(done(it.campaign("l", b"b".to_vec(), b)).unwrap(), None);
    done(it.release(a)).unwrap();
    let second = done(it.campaign("l", b"b".to_vec(), b)).unwrap().unwrap();
    assert!(second > first);
    let stale = [Condition { key: "l".to_owned(), written: Some(first) }];
    let write = KeyWrite::Put { key: "order".to_owned(), value: Vec::new(), lease: None };
    assert_eq!(done(it.compare_and_put(&stale, vec![write])).unwrap(), PutResult::Conflict);
    assert_eq!(done(it.read("order")).unwrap().entries, []);
}

#[test]
fn a_watch_sees_each_change_once_or_fails() {
    let it = MemoryCoordinator::default();
    let put = |key: &str| {
        let write = KeyWrite::Put { key: key.to_owned(), value: b"v".to_vec(), lease: None };
        done(it.compare_and_put(&[], vec![write])).unwrap();
    };
    put("a/1");
    let mut watch = done(it.watch("a/", Revision(0))).unwrap();
    assert_eq!(done(watch.next()).unwrap().events.len(), 1);
    assert!(now(watch.next()).is_none());
    put("b/1");
    assert!(now(watch.next()).is_none());
    done(it.compare_and_put(&[], vec![KeyWrite::Delete("a/1".to_owned())])).unwrap();
    assert_eq!(done(watch.next()).unwrap().events, [KeyEvent::Deleted("a/1".to_owned())]);
    put("a/2");
    it.compact();
    assert_eq!(done(watch.next()), Err(CoordinatorError::Compacted(4)));
    it.set_down(true);
    assert!(matches!(done(it.read("a/")), Err(CoordinatorError::Unreachable(_))));
}
