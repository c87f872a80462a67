//! The session and the store in memory against a naive oracle: a map of paths to values.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Pair, path};
use crate::{Reply, Request, StoreError, TransactionId};

/// One step of a test; paths and values by number.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Write(usize, u8),
    Read(usize),
    Remove(usize),
    List(usize),
    /// Steps within a transaction, which is committed or not.
    Transaction(Vec<Step>, bool),
}

/// Some paths, within each other.
pub(super) const PATHS: [&str; 7] = ["/t", "/t/a", "/t/a/b", "/t/a/b/c", "/t/ab", "/t/d", "/t/d/e"];

fn plain_step() -> impl Strategy<Value = Step> {
    let at = 0..PATHS.len();
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, value)| Step::Write(at, value)),
        at.clone().prop_map(Step::Read),
        // The first path stays, because its parent is the store's root.
        (1..PATHS.len()).prop_map(Step::Remove),
        at.prop_map(Step::List),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let several = prop::collection::vec(plain_step(), 0..6);
    let transaction = (several, any::<bool>()).prop_map(|(all, ends)| Step::Transaction(all, ends));
    prop::collection::vec(prop_oneof![4 => plain_step(), 1 => transaction], 0..30)
}

/// The oracle: each existing path, with its value.
pub(super) type Oracle = BTreeMap<String, Vec<u8>>;

/// The request of a plain step.
pub(super) fn request(step: &Step) -> Request {
    match step {
        Step::Write(at, value) => {
            Request::Write { path: path(PATHS[*at]), value: value.to_string().into_bytes() }
        }
        Step::Read(at) => Request::Read(path(PATHS[*at])),
        Step::Remove(at) => Request::Remove(path(PATHS[*at])),
        Step::List(at) => Request::Directory(path(PATHS[*at])),
        Step::Transaction(..) => unreachable!("it is more than one"),
    }
}

/// The expected answer to a plain step, which is also applied to the oracle.
pub(super) fn expected(oracle: &mut Oracle, step: &Step) -> Result<Reply, StoreError> {
    let above = |at: &str| {
        let ends: Vec<usize> = at.match_indices('/').map(|(end, _)| end).skip(1).collect();
        ends.into_iter().map(|end| at[..end].to_owned()).collect::<Vec<String>>()
    };
    match step {
        Step::Write(at, value) => {
            for node in above(PATHS[*at]) {
                oracle.entry(node).or_default();
            }
            oracle.insert(PATHS[*at].to_owned(), value.to_string().into_bytes());
            Ok(Reply::Done)
        }
        Step::Read(at) => {
            let value = oracle.get(PATHS[*at]).cloned();
            value.map(Reply::Value).ok_or(StoreError::NotFound)
        }
        Step::Remove(at) => {
            let node = PATHS[*at];
            let parent = above(node).pop().unwrap_or_default();
            let is_there = oracle.contains_key(node);
            oracle.retain(|it, _| it != node && !it.starts_with(&format!("{node}/")));
            let can_be = is_there || oracle.contains_key(&parent);
            can_be.then_some(Reply::Done).ok_or(StoreError::NotFound)
        }
        Step::List(at) => {
            let node = PATHS[*at];
            let prefix = format!("{node}/");
            let names = oracle.keys().filter_map(|it| it.strip_prefix(&prefix));
            let names = names.filter(|it| !it.contains('/')).map(str::to_owned).collect();
            oracle.get(node).map(|_| Reply::Names(names)).ok_or(StoreError::NotFound)
        }
        Step::Transaction(..) => unreachable!("it is more than one"),
    }
}

/// Sends a request, and waits for its answer.
pub(super) type SendRequest<'a> =
    dyn FnMut(Request, Option<TransactionId>) -> Result<Reply, StoreError> + 'a;

/// Takes all steps, and compares each answer with the oracle's.
pub(super) fn compare(steps: &[Step], ask: &mut SendRequest<'_>) -> Result<(), TestCaseError> {
    let mut oracle = Oracle::new();
    for step in steps {
        let Step::Transaction(inner, commits) = step else {
            let answer = ask(request(step), None);
            prop_assert_eq!(sorted(answer), expected(&mut oracle, step), "{:?}", step);
            continue;
        };
        let Ok(Reply::Transaction(id)) = ask(Request::StartTransaction, None) else {
            return Err(TestCaseError::fail("no transaction"));
        };
        let mut inside = oracle.clone();
        for step in inner {
            let answer = ask(request(step), Some(id));
            prop_assert_eq!(sorted(answer), expected(&mut inside, step), "{:?} inside", step);
        }
        let ended = ask(Request::EndTransaction { commit: *commits }, Some(id));
        prop_assert_eq!(ended, Ok(Reply::Done));
        if *commits {
            oracle = inside;
        }
    }
    Ok(())
}

/// A store lists children in any order.
fn sorted(answer: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
    match answer {
        Ok(Reply::Names(mut names)) => {
            names.sort();
            Ok(Reply::Names(names))
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn the_store_in_memory_answers_as_a_map_would(steps in steps()) {
        let mut pair = Pair::new();
        compare(&steps, &mut |request, transaction| {
            let id = pair.session.request_in(request, transaction).unwrap();
            pair.carry();
            pair.answer(id)
        })?;
    }
}
