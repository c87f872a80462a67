//! A value with its age.

use std::time::Duration;

/// A value and how old it was when the snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured<T> {
    /// The value as read.
    pub value: T,
    /// Time since the value was true at its source.
    pub age: Duration,
}

impl<T> Measured<T> {
    /// A value read at the moment of the snapshot.
    pub const fn fresh(value: T) -> Self {
        Measured { value, age: Duration::ZERO }
    }
}
