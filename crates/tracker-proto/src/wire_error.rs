//! Why a packet is not a message.

use thiserror::Error;

use crate::granule::NotAGranule;
use crate::region::RegionError;

/// The version of messages and ring.
pub const VERSION: u16 = 1;

/// Why a packet is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The packet ends within a field.
    #[error("a message that is too short")]
    TooShort,
    /// Bytes are left after the last field.
    #[error("a message that is {by} bytes too long")]
    TooLong {
        /// The number of bytes left.
        by: usize,
    },
    /// Another version.
    #[error("a message of version {0}: expected {VERSION}")]
    Version(u16),
    /// An unknown kind.
    #[error("a message of unknown kind {0}")]
    Kind(u16),
    /// A refusal with an unknown reason.
    #[error("a refusal with unknown reason {0}")]
    Refusal(u16),
    /// An invalid granule.
    #[error(transparent)]
    Granule(#[from] NotAGranule),
    /// A hash of an unknown kind, or with an even factor.
    #[error("a hash of kind {kind} and factor {factor}: expected kind 1 with an odd factor, or 2")]
    Hash {
        /// The kind.
        kind: u8,
        /// The factor or seed.
        factor: u64,
    },
    /// An invalid region.
    #[error(transparent)]
    Region(#[from] RegionError),
}
