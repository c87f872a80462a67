//! The interface to the service that the hosts of a fleet share.
//!
//! Idea: a few strongly consistent keys with leases, and nothing that only one product has. etcd
//! implements it, and so does memory for tests; Kubernetes' Leases could. Everything that has to be
//! exclusive (a host's name, leadership, what only the leader may write) is one write under the
//! condition that a key has not changed.
//! Limits: futures run on the thread that made them. Keys are text; values have at most
//! [`VALUE_BYTES_MAX`].

use std::time::Duration;

/// Largest value of a key, in bytes: below the 1.5 MiB that etcd accepts in one request.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// The number of the state of all keys after a write; each write has a larger one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// The number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that wrote it.
    pub written: Revision,
}

/// All entries under a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// The state in which they were read.
    pub revision: Revision,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// It has this value.
    Written(Entry),
    /// It was deleted, or its lease ended.
    Deleted(String),
}

/// The changes since the last ones, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The revision of the last of them: a watch that starts there misses none.
    pub revision: Revision,
    /// Each change.
    pub events: Vec<KeyEvent>,
}

/// What has to hold for writes to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The key.
    pub key: String,
    /// The revision that wrote it last; `None`: it must not exist.
    pub written: Option<Revision>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyWrite {
    /// Gives a key a value.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The key is removed when this lease ends.
        lease: Option<LeaseId>,
    },
    /// Removes a key; nothing happens if there is none.
    Delete(String),
}

/// The result of writes under conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// All were made, with this revision.
    Written(Revision),
    /// None was made, because a condition did not hold.
    Conflict,
}

/// The result of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The key is ours as long as the lease is renewed.
    Registered {
        /// The lease.
        lease: LeaseId,
        /// The revision that wrote the key.
        written: Revision,
    },
    /// The key changed meanwhile: somebody else has it.
    Taken,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorError {
    /// No answer, or not in time.
    #[error("{0}")]
    Unreachable(String),
    /// The service answers, but has lost its majority.
    #[error("{0}: it has no leader, as after a partition")]
    NoLeader(String),
    /// The service takes no writes: its disk or quota is full, or it was made read-only.
    #[error("{0}: it takes no writes; free space, then disarm its alarm")]
    NoSpace(String),
    /// The user or the password is wrong, or the user may not do this.
    #[error("{0}: look at `user` and `password_file`, and at the user's rights to the prefix")]
    Denied(String),
    /// The history from which to watch was compacted: all keys have to be read again.
    #[error("history up to revision {0} is compacted")]
    Compacted(u64),
    /// The lease has ended.
    #[error("the lease has ended")]
    LeaseGone,
    /// Another cluster answers than before.
    #[error("cluster {found:x} answers, expected {expected:x}: an endpoint is of another cluster")]
    OtherCluster {
        /// The cluster that answered first.
        expected: u64,
        /// The cluster that answers now.
        found: u64,
    },
    /// The answer cannot be read.
    #[error("{0}")]
    Protocol(String),
}

/// Watches keys for changes.
#[expect(async_fn_in_trait, reason = "one thread runs them: the futures need not be Send")]
pub trait KeyWatch {
    /// Waits for the next changes. Dropping the future loses none.
    async fn next(&mut self) -> Result<Changes, CoordinatorError>;
}

/// A service with strongly consistent keys and leases.
#[expect(async_fn_in_trait, reason = "one thread runs them: the futures need not be Send")]
pub trait Coordinator {
    /// The type that [`watch`](Coordinator::watch) returns.
    type Watch: KeyWatch;

    /// Grants a new lease of `ttl`, in whole seconds.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, CoordinatorError>;

    /// Renews a lease for its whole `ttl`.
    async fn renew(&self, lease: LeaseId) -> Result<(), CoordinatorError>;

    /// Ends a lease, which removes its keys.
    async fn release(&self, lease: LeaseId) -> Result<(), CoordinatorError>;

    /// Reads all entries whose keys begin with `prefix`.
    async fn read(&self, prefix: &str) -> Result<Listing, CoordinatorError>;

    /// Watches the keys that begin with `prefix`, from the first change after `after`.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Self::Watch, CoordinatorError>;

    /// Makes all `writes` if every one of `conditions` holds, else none of them.
    async fn compare_and_put(
        &self,
        conditions: &[Condition],
        writes: Vec<KeyWrite>,
    ) -> Result<PutResult, CoordinatorError>;

    /// Writes `key` under a new lease of `ttl`, if the key is still as `found`: last written by
    /// this revision, or absent.
    async fn register(
        &self,
        key: &str,
        value: Vec<u8>,
        ttl: Duration,
        found: Option<Revision>,
    ) -> Result<Registration, CoordinatorError> {
        let lease = self.grant(ttl).await?;
        let condition = Condition { key: key.to_owned(), written: found };
        let write = KeyWrite::Put { key: key.to_owned(), value, lease: Some(lease) };
        match self.compare_and_put(&[condition], vec![write]).await? {
            PutResult::Written(written) => Ok(Registration::Registered { lease, written }),
            PutResult::Conflict => {
                self.release(lease).await?;
                Ok(Registration::Taken)
            }
        }
    }

    /// Becomes leader if there is none: writes `key` under `lease` if the key is absent. Returns
    /// the revision of the leadership; a later leader has a larger one. `None`: another host leads.
    async fn campaign(
        &self,
        key: &str,
        value: Vec<u8>,
        lease: LeaseId,
    ) -> Result<Option<Revision>, CoordinatorError> {
        let condition = Condition { key: key.to_owned(), written: None };
        let write = KeyWrite::Put { key: key.to_owned(), value, lease: Some(lease) };
        match self.compare_and_put(&[condition], vec![write]).await? {
            PutResult::Written(revision) => Ok(Some(revision)),
            PutResult::Conflict => Ok(None),
        }
    }
}
