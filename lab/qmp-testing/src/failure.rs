//! How a command fails.

/// Class and description of a failure.
pub(super) type Failure = (&'static str, String);
