//! Guarded writes: they count only for the intended domain, and never wait for ever.

use super::{Pair, path};
use crate::testing::Fault;
use crate::{ATTEMPTS_MAX, GuardedWrite, StoreError, WriteError};

const VM: &str = "/local/domain/7/vm";
const TARGET: &str = "/local/domain/7/memory/target";

fn begin(pair: &mut Pair) -> GuardedWrite {
    let expected = (path(VM), b"/vm/a".to_vec());
    GuardedWrite::begin(&mut pair.session, expected, (path(TARGET), b"4096".to_vec())).unwrap()
}

/// Carries a write to its end; `meddle` runs before each step.
fn end(
    pair: &mut Pair,
    mut write: GuardedWrite,
    mut meddle: impl FnMut(&mut Pair),
) -> Result<(), WriteError> {
    for _ in 0..100 {
        meddle(pair);
        pair.carry();
        let id = write.awaited().unwrap();
        let answer = pair.answer(id);
        if let Some(result) = write.take(&mut pair.session, answer) {
            return result;
        }
    }
    panic!("it does not end");
}

fn pair() -> Pair {
    let mut pair = Pair::new();
    pair.store.write(VM, "/vm/a");
    pair.store.write(TARGET, "8192");
    pair
}

#[test]
fn a_write_counts_for_the_domain_that_was_meant() {
    let mut pair = pair();
    let write = begin(&mut pair);
    assert_eq!(end(&mut pair, write, |_| {}), Ok(()));
    assert_eq!(pair.store.read(TARGET), Some(&b"4096"[..]));
    pair.store.write(VM, "/vm/b");
    pair.store.write(TARGET, "1");
    let write = begin(&mut pair);
    assert_eq!(end(&mut pair, write, |_| {}), Err(WriteError::Changed(path(VM))));
    assert_eq!(pair.store.read(TARGET), Some(&b"1"[..]), "another domain has the number");
    pair.store.remove("/local/domain/7");
    let write = begin(&mut pair);
    assert_eq!(end(&mut pair, write, |_| {}), Err(WriteError::Changed(path(VM))));
    assert_eq!(pair.store.read(TARGET), None, "no key of a domain that is gone is made");
}

#[test]
fn a_domain_that_ends_during_the_write_is_not_written() {
    for step in 0..4 {
        let mut pair = pair();
        let (write, mut steps) = (begin(&mut pair), 0);
        let result = end(&mut pair, write, |pair| {
            if steps == step {
                pair.store.remove("/local/domain/7");
                pair.store.write(VM, "/vm/b");
            }
            steps += 1;
        });
        assert_eq!(result, Err(WriteError::Changed(path(VM))), "before step {step}");
        assert_eq!(pair.store.read(TARGET), None);
    }
}

#[test]
fn a_write_that_meets_another_is_repeated() {
    let mut pair = pair();
    let (write, mut left) = (begin(&mut pair), 10);
    let result = end(&mut pair, write, |pair| {
        if left > 0 {
            pair.store.write(TARGET, left.to_string());
            left -= 1;
        }
    });
    assert_eq!(result, Ok(()));
    assert_eq!(pair.store.read(TARGET), Some(&b"4096"[..]));
}

#[test]
fn transactions_that_conflict_for_ever_are_given_up() {
    let mut pair = pair();
    pair.store.faults = vec![Fault::Conflicts];
    let write = begin(&mut pair);
    assert_eq!(end(&mut pair, write, |_| {}), Err(WriteError::Conflicts));
    assert_eq!(pair.store.received, u64::from(ATTEMPTS_MAX) * 4);
    assert_eq!(pair.store.read(TARGET), Some(&b"8192"[..]));
}

#[test]
fn what_the_store_refuses_is_named_and_ends_the_transaction() {
    for (fault, error) in [
        (Fault::Denied("/local".to_owned()), StoreError::PermissionDenied),
        (Fault::Full, StoreError::Quota),
    ] {
        let mut pair = pair();
        pair.store.faults = vec![fault];
        let write = begin(&mut pair);
        let path = path(TARGET);
        assert_eq!(end(&mut pair, write, |_| {}), Err(WriteError::Refused { path, error }));
        assert_eq!(pair.session.unanswered(), 0);
    }
}
