//! What a plan promises a guest beside its target.

use ballast_model::{Bytes, GuestId};

/// What a plan promises a guest beside its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The guest.
    pub guest: GuestId,
    /// What it may come to hold, if that is more than its target.
    pub entitled: Option<Bytes>,
    /// What it is asked to hold from now on, of a guest that owes memory; `None`: what it was.
    pub asked: Option<Bytes>,
    /// What the host holds its process to from now on; `None`: nothing.
    pub cap: Option<Bytes>,
}
