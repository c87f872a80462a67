//! Requests to the store, and its answers.
//!
//! Idea: a [`Request`] encodes itself and decodes its answer; nothing else is ever sent. Source:
//! Xen's `docs/misc/xenstore.txt`.
//! Limits: a node with more children than fit one answer is listed in parts.

use thiserror::Error;

use crate::message::MessageKind;
use crate::path::StorePath;

/// Longest name of an error that is kept, in bytes.
const ERROR_NAME_MAX: usize = 32;

/// Identifies a transaction until it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub(crate) u32);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Lists the names of all children of a node.
    Directory(StorePath),
    /// Lists the names of a node's children from an offset on.
    DirectoryPart {
        /// The node.
        path: StorePath,
        /// Bytes of names that were listed before.
        offset: u32,
    },
    /// Reads the value of a node.
    Read(StorePath),
    /// Writes a node; creates it and its ancestors if they are missing.
    Write {
        /// The node.
        path: StorePath,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Removes a node and all below it.
    Remove(StorePath),
    /// Sets a watch on a node and all below it.
    Watch {
        /// The node.
        path: StorePath,
        /// A text without a zero byte, which the events repeat.
        token: String,
    },
    /// Removes a watch.
    Unwatch {
        /// The node.
        path: StorePath,
        /// The token of the watch.
        token: String,
    },
    /// Begins a transaction.
    StartTransaction,
    /// Ends the transaction in which it is sent.
    EndTransaction {
        /// Whether its writes count.
        commit: bool,
    },
}

/// A successful answer of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Names of children.
    Names(Vec<String>),
    /// A part of the names of children.
    NamesPart {
        /// A generation of the node's children: another value means that they have changed.
        generation: String,
        /// The names.
        names: Vec<String>,
        /// Bytes of these names in the answer; added to the offset, they give the offset of the
        /// next part.
        len: u32,
        /// Whether there are no more.
        is_last: bool,
    },
    /// The value of a node.
    Value(Vec<u8>),
    /// The transaction that has begun.
    Transaction(TransactionId),
    /// The request succeeded and returns nothing.
    Done,
}

/// Why the store refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// There is no such node.
    #[error("there is no such key in xenstore (ENOENT)")]
    NotFound,
    /// This client lacks the permission.
    #[error("xenstore does not permit that (EACCES): Ballast has to run in dom0")]
    PermissionDenied,
    /// Another client changed a node that the transaction used.
    #[error("the transaction met another one (EAGAIN)")]
    Conflict,
    /// The quota of the node's owner is used up.
    #[error("the domain's quota in xenstore is used up (ENOSPC)")]
    Quota,
    /// An answer or a value is too large.
    #[error("too large for xenstore (E2BIG)")]
    TooLarge,
    /// The request is malformed.
    #[error("xenstore finds the request malformed (EINVAL)")]
    Malformed,
    /// Another reason, by its name.
    #[error("xenstore refuses: {0}")]
    Other(String),
}

impl StoreError {
    /// Reads the payload of an error.
    pub(crate) fn read(payload: &[u8]) -> StoreError {
        let name = payload.split(|byte| *byte == 0).next().unwrap_or_default();
        match name {
            b"ENOENT" => StoreError::NotFound,
            b"EACCES" | b"EPERM" => StoreError::PermissionDenied,
            b"EAGAIN" => StoreError::Conflict,
            b"ENOSPC" | b"EQUOTA" => StoreError::Quota,
            b"E2BIG" => StoreError::TooLarge,
            b"EINVAL" => StoreError::Malformed,
            other => {
                let shown = &other[..other.len().min(ERROR_NAME_MAX)];
                StoreError::Other(shown.escape_ascii().to_string())
            }
        }
    }
}

/// Why a payload is not an answer to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum ReplyError {
    #[error("names that are not text, or do not end with a zero byte")]
    Names,
    #[error("a transaction's number that is none")]
    Transaction,
    #[error("anything but OK")]
    Done,
}

impl Request {
    /// The kind of its message; its answer has the same kind.
    pub(crate) fn kind(&self) -> MessageKind {
        match self {
            Request::Directory(_) => MessageKind::Directory,
            Request::DirectoryPart { .. } => MessageKind::DirectoryPart,
            Request::Read(_) => MessageKind::Read,
            Request::Write { .. } => MessageKind::Write,
            Request::Remove(_) => MessageKind::Remove,
            Request::Watch { .. } => MessageKind::Watch,
            Request::Unwatch { .. } => MessageKind::Unwatch,
            Request::StartTransaction => MessageKind::TransactionStart,
            Request::EndTransaction { .. } => MessageKind::TransactionEnd,
        }
    }

    /// The payload of its message.
    pub(crate) fn payload(&self) -> Vec<u8> {
        match self {
            Request::Directory(path) | Request::Read(path) | Request::Remove(path) => {
                texts(&[path.as_str()])
            }
            Request::DirectoryPart { path, offset } => texts(&[path.as_str(), &offset.to_string()]),
            Request::Write { path, value } => {
                let mut payload = texts(&[path.as_str()]);
                payload.extend_from_slice(value);
                payload
            }
            Request::Watch { path, token } | Request::Unwatch { path, token } => {
                texts(&[path.as_str(), token])
            }
            Request::StartTransaction => texts(&[""]),
            Request::EndTransaction { commit } => texts(&[if *commit { "T" } else { "F" }]),
        }
    }

    /// Reads the payload of its answer.
    pub(crate) fn reply(&self, payload: &[u8]) -> Result<Reply, ReplyError> {
        match self {
            Request::Directory(_) => Ok(Reply::Names(names(payload)?)),
            Request::DirectoryPart { .. } => names_part(payload),
            Request::Read(_) => Ok(Reply::Value(payload.to_vec())),
            Request::StartTransaction => {
                let text = payload.strip_suffix(&[0]).ok_or(ReplyError::Transaction)?;
                let text = str::from_utf8(text).map_err(|_| ReplyError::Transaction)?;
                let number = text.parse().map_err(|_| ReplyError::Transaction)?;
                Ok(Reply::Transaction(TransactionId(number)))
            }
            Request::Write { .. }
            | Request::Remove(_)
            | Request::Watch { .. }
            | Request::Unwatch { .. }
            | Request::EndTransaction { .. } => {
                (payload == b"OK\0").then_some(Reply::Done).ok_or(ReplyError::Done)
            }
        }
    }
}

/// Encodes texts, each with a zero byte at its end.
pub(crate) fn texts(texts: &[&str]) -> Vec<u8> {
    let mut payload = Vec::new();
    for text in texts {
        payload.extend_from_slice(text.as_bytes());
        payload.push(0);
    }
    payload
}

/// Decodes such texts.
fn names(payload: &[u8]) -> Result<Vec<String>, ReplyError> {
    let mut names = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0).ok_or(ReplyError::Names)?;
        let name = str::from_utf8(&rest[..end]).map_err(|_| ReplyError::Names)?;
        names.push(name.to_owned());
        rest = &rest[end + 1..];
    }
    Ok(names)
}

/// Decodes a generation and names; an empty name at the end means that there are no more.
fn names_part(payload: &[u8]) -> Result<Reply, ReplyError> {
    let mut names = names(payload)?.into_iter();
    let generation = names.next().ok_or(ReplyError::Names)?;
    let mut names: Vec<String> = names.collect();
    let is_last = names.last().is_some_and(String::is_empty);
    if is_last {
        names.pop();
    }
    if names.iter().any(String::is_empty) || names.is_empty() && !is_last {
        return Err(ReplyError::Names);
    }
    let len: usize = names.iter().map(|name| name.len() + 1).sum();
    // A payload is at most 4 KiB.
    let len = u32::try_from(len).map_err(|_| ReplyError::Names)?;
    Ok(Reply::NamesPart { generation, names, len, is_last })
}
