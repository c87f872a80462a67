//! What the state wants done: the only way from it to the terminal, the daemon and the journal.

use ballast_api::GuestChange;
use ballast_model::GuestId;
use ballast_store::Seek;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// End.
    Quit,
    /// Ask for a guest's explanation.
    Explain(GuestId),
    /// Have the daemon stop acting.
    Pause,
    /// Have it act again.
    Resume,
    /// Change a guest's bounds.
    Set(GuestId, GuestChange),
    /// Go to another tick of the journal.
    Seek(Seek),
}
