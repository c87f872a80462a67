//! Reads a guest once, for a diagnosis.
//!
//! Idea: makes only the reading calls of a sample, once, and needs no backend. Nothing is changed.
//! Limits: what takes two samples (the age of statistics) stays unknown.

use std::path::Path;
use std::time::Duration;

use ballast_model::{LinkDown, Timestamp};
use tokio::time::Instant;

use crate::call::Method;
use crate::client::exchange;
use crate::guest::RestGuest;

/// Most rounds of calls: a sample of a real hypervisor has three.
const ROUNDS_MAX: usize = 4;

/// Makes the reading calls of a sample of `guest` on `socket`, for at most `timeout`. Returns the
/// guest with what they found.
///
/// # Errors
/// The socket does not answer as this hypervisor does.
pub async fn probe_guest(
    mut guest: Box<dyn RestGuest>,
    socket: &Path,
    timeout: Duration,
) -> Result<Box<dyn RestGuest>, LinkDown> {
    let until = Instant::now() + timeout;
    guest.begin(Timestamp::ZERO, false);
    for _ in 0..ROUNDS_MAX {
        let mut calls = guest.calls();
        calls.retain(|call| call.method == Method::Get);
        if calls.is_empty() {
            break;
        }
        let (answers, error) = exchange(socket, calls, false, until).await.into_answers();
        for (call, answer) in &answers {
            guest.take(call, answer, Timestamp::ZERO, Timestamp::ZERO)?;
        }
        if let Some(error) = error {
            return Err(error.why);
        }
    }
    Ok(guest)
}
