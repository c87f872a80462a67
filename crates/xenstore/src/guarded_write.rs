//! A write that counts only while another key has its expected value.
//!
//! Idea: domain numbers are reused, so between a sample of a domain and an order to it the number
//! may have passed to another domain. One transaction reads the key that identifies the domain,
//! compares it, writes, and commits; if it conflicts with another transaction, it starts again.
//! Cost: four requests per attempt; several writes may be open at once.
//! Limits: [`ATTEMPTS_MAX`] attempts; after that many conflicts the write fails, so that it never
//! waits for ever.

use thiserror::Error;

use crate::path::StorePath;
use crate::request::{Reply, Request, StoreError, TransactionId};
use crate::session::{Answer, RequestId, XenstoreSession};

/// Most attempts of one write.
pub const ATTEMPTS_MAX: u32 = 8;

/// Why a write did not count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The key does not have its expected value.
    #[error("{0} in xenstore is not what it was: another domain has its number now")]
    Changed(StorePath),
    /// Every attempt conflicted with another transaction.
    #[error("gave up after {ATTEMPTS_MAX} transactions in xenstore that met others (EAGAIN)")]
    Conflicts,
    /// The store refuses.
    #[error("{path}: {error}")]
    Refused {
        /// The key that was read or written.
        path: StorePath,
        /// The reason.
        error: StoreError,
    },
    /// The session accepts no more requests.
    #[error("too many requests to xenstore have no answer")]
    Full,
}

/// The request whose answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStep {
    Start,
    Compare,
    Write,
    Commit,
    /// The end of a transaction without a change.
    GiveUp,
}

/// A write in progress.
#[derive(Clone, Debug)]
pub struct GuardedWrite {
    /// A key, and the value that it must have.
    expected: (StorePath, Vec<u8>),
    /// A key, and the value to write.
    written: (StorePath, Vec<u8>),
    attempts: u32,
    transaction: Option<TransactionId>,
    step: WriteStep,
    awaited: Option<RequestId>,
    /// Why the transaction ends without a change.
    failed: Option<WriteError>,
}

impl GuardedWrite {
    /// Begins to write `written` on condition that `expected` holds; both are a key and its value.
    ///
    /// # Errors
    /// [`WriteError::Full`].
    pub fn begin(
        session: &mut XenstoreSession,
        expected: (StorePath, Vec<u8>),
        written: (StorePath, Vec<u8>),
    ) -> Result<GuardedWrite, WriteError> {
        let mut write = GuardedWrite {
            expected,
            written,
            attempts: 0,
            transaction: None,
            step: WriteStep::Start,
            awaited: None,
            failed: None,
        };
        write.start(session)?;
        Ok(write)
    }

    /// The request whose answer it waits for.
    pub fn awaited(&self) -> Option<RequestId> {
        self.awaited
    }

    /// Takes in the awaited answer; returns the result, once there is one.
    pub fn take(
        &mut self,
        session: &mut XenstoreSession,
        answer: Answer,
    ) -> Option<Result<(), WriteError>> {
        match self.advance(session, answer) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Takes the next step; returns whether the write is committed.
    fn advance(
        &mut self,
        session: &mut XenstoreSession,
        answer: Answer,
    ) -> Result<bool, WriteError> {
        match (self.step, answer) {
            (WriteStep::Start, Ok(Reply::Transaction(id))) => {
                self.transaction = Some(id);
                self.send(session, WriteStep::Compare, Request::Read(self.expected.0.clone()))?;
            }
            (WriteStep::Compare, Ok(Reply::Value(value))) if value == self.expected.1 => {
                let (path, value) = self.written.clone();
                self.send(session, WriteStep::Write, Request::Write { path, value })?;
            }
            (WriteStep::Compare, Ok(_) | Err(StoreError::NotFound)) => {
                self.abort(session, WriteError::Changed(self.expected.0.clone()))?;
            }
            (WriteStep::Write, Ok(_)) => {
                self.send(session, WriteStep::Commit, Request::EndTransaction { commit: true })?;
            }
            (WriteStep::Commit, Ok(_)) => return Ok(true),
            (WriteStep::Start | WriteStep::Commit, Err(StoreError::Conflict)) => {
                self.start(session)?
            }
            (WriteStep::Compare, Err(error)) => {
                self.abort(session, refused(&self.expected.0, error))?;
            }
            (WriteStep::Write, Err(error)) => {
                self.abort(session, refused(&self.written.0, error))?
            }
            (WriteStep::Start | WriteStep::Commit, Err(error)) => {
                return Err(refused(&self.written.0, error));
            }
            // The transaction has ended either way.
            (WriteStep::GiveUp, _) => return Err(self.failed.take().unwrap_or(WriteError::Full)),
            (WriteStep::Start, Ok(_)) => {
                let error = StoreError::Other("an answer to another request".to_owned());
                return Err(refused(&self.written.0, error));
            }
        }
        Ok(false)
    }

    fn start(&mut self, session: &mut XenstoreSession) -> Result<(), WriteError> {
        if self.attempts >= ATTEMPTS_MAX {
            return Err(WriteError::Conflicts);
        }
        self.attempts += 1;
        self.transaction = None;
        self.send(session, WriteStep::Start, Request::StartTransaction)
    }

    /// Ends the transaction without a change.
    fn abort(&mut self, session: &mut XenstoreSession, why: WriteError) -> Result<(), WriteError> {
        self.failed = Some(why);
        self.send(session, WriteStep::GiveUp, Request::EndTransaction { commit: false })
    }

    fn send(
        &mut self,
        session: &mut XenstoreSession,
        step: WriteStep,
        request: Request,
    ) -> Result<(), WriteError> {
        let id = session.request_in(request, self.transaction).ok_or(WriteError::Full)?;
        (self.step, self.awaited) = (step, Some(id));
        Ok(())
    }
}

fn refused(path: &StorePath, error: StoreError) -> WriteError {
    WriteError::Refused { path: path.clone(), error }
}
