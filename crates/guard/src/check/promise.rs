//! Promises that a plan makes to a guest besides its target.

use ballast_model::{Bytes, GuestId};

/// What a plan promises one guest besides its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The guest.
    pub guest: GuestId,
    /// What it may come to hold, if that exceeds its target.
    pub entitled: Option<Bytes>,
    /// What a guest that owes memory is asked to hold from now on; `None`: unchanged.
    pub asked: Option<Bytes>,
    /// The cap on its process from now on; `None`: no cap.
    pub cap: Option<Bytes>,
}
