//! Orders of the state: its only way to affect the terminal, the daemon and the journal.

use ballast_api::GuestChange;
use ballast_model::GuestId;
use ballast_store::Seek;

/// What the loop has to do for the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// End the view.
    Quit,
    /// Ask for a guest's explanation.
    Explain(GuestId),
    /// Pause the daemon.
    Pause,
    /// Resume the daemon.
    Resume,
    /// Change a guest's bounds.
    Set(GuestId, GuestChange),
    /// Go to another tick of the journal.
    Seek(Seek),
}
