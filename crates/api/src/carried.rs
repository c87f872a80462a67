//! What goes along with a guest that moves to another host.
//!
//! Idea: one form for both daemons, the one that gives and the one that takes. A field that the
//! taker does not know is refused rather than lost. Points in time are sent as spans from now,
//! because the hosts' clocks differ.
//! Limits: a policy without rent has no credits to send. Only limits that were set for this guest
//! are sent; for the others the defaults of the other host apply.

use ballast_model::{Bytes, GuestChange, Thrashed, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::API_VERSION;
use crate::tick::millis;

/// Most credits of a guest.
const CREDITS_MAX: u64 = 1 << 62;
/// Most memory that a guest can have thrashed at.
const LEAST_MAX: Bytes = Bytes::gib(1 << 20);
/// Longest pause after a guest thrashed.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// What a guest takes along when it moves to another host. Body of `POST /v1/guests/{id}/carried`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CarriedView {
    /// Limits that were set for this guest. A limit that is not in here is left as it is.
    #[serde(default)]
    pub limits: GuestChange,
    /// Credits that it pays rent with, 0 to 2^62; absent or `null`: its host's policy has no
    /// accounts, or none for it yet.
    #[serde(default)]
    pub credits: Option<u64>,
    /// Where it thrashed last; absent or `null`: it did not, or its pause is over.
    #[serde(default)]
    pub thrashed: Option<ThrashedView>,
}

/// A size below which a guest is not shrunk for a while, because it thrashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ThrashedView {
    /// The size below which it is not shrunk, 1 to 2^50 bytes (1 PiB).
    pub least_bytes: u64,
    /// How much of the pause is left, in milliseconds, 0 to `pause_ms`.
    pub left_ms: u64,
    /// How long the whole pause is, in milliseconds, 1 to 3,600,000. If the guest thrashes again,
    /// the next pause is twice as long, but at most 960,000.
    pub pause_ms: u64,
}

/// Answer to `GET /v1/guests/{id}/carried`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarriedReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// The guest's name.
    pub guest: String,
    /// What it would take along to another host now.
    pub carried: CarriedView,
    /// What it has brought from another host, as this daemon took it; `null`: nothing since this
    /// daemon started, or since the guest's hypervisor was started again.
    pub taken: Option<CarriedView>,
}

impl CarriedReply {
    /// The reply about `guest`.
    pub fn new(guest: String, carried: CarriedView, taken: Option<CarriedView>) -> CarriedReply {
        CarriedReply { api_version: API_VERSION, guest, carried, taken }
    }
}

impl CarriedView {
    /// Checks that every figure is within its range.
    ///
    /// # Errors
    /// Names the first figure that is not, and what was expected.
    pub fn validate(&self) -> Result<(), String> {
        if let Some(credits) = self.credits.filter(|credits| *credits > CREDITS_MAX) {
            return Err(format!("credits {credits}: expected up to {CREDITS_MAX}"));
        }
        let Some(ThrashedView { least_bytes, left_ms, pause_ms }) = self.thrashed else {
            return Ok(());
        };
        if least_bytes == 0 || least_bytes > LEAST_MAX.get() {
            return Err(format!(
                "thrashed.least_bytes {least_bytes}: expected 1 to {}",
                LEAST_MAX.get()
            ));
        }
        let pause_max = millis(PAUSE_MAX);
        if pause_ms == 0 || pause_ms > pause_max {
            return Err(format!("thrashed.pause_ms {pause_ms}: expected 1 to {pause_max}"));
        }
        if left_ms > pause_ms {
            return Err(format!(
                "thrashed.left_ms {left_ms}: expected no more than the pause, {pause_ms}"
            ));
        }
        Ok(())
    }
}

impl ThrashedView {
    /// The part of a guest's history that still counts at `now`; `None`: the pause is over.
    pub fn at(thrashed: Thrashed, now: Timestamp) -> Option<ThrashedView> {
        let left = thrashed.until.saturating_since(now);
        (!left.is_zero()).then(|| ThrashedView {
            least_bytes: thrashed.least.get(),
            left_ms: millis(left),
            pause_ms: millis(thrashed.pause),
        })
    }

    /// Converts back, by the clock of the host that takes it at `now`.
    pub fn taken_at(self, now: Timestamp) -> Thrashed {
        Thrashed {
            least: Bytes::new(self.least_bytes),
            until: now + Duration::from_millis(self.left_ms),
            pause: Duration::from_millis(self.pause_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(json: &str) -> Result<CarriedView, String> {
        let carried: CarriedView = serde_json::from_str(json).map_err(|error| error.to_string())?;
        carried.validate().map(|()| carried)
    }

    #[test]
    fn figures_that_cannot_be_are_named() {
        let thrashed = |least: u64, left: u64, pause: u64| {
            format!(
                r#"{{"thrashed":{{"least_bytes":{least},"left_ms":{left},"pause_ms":{pause}}}}}"#
            )
        };
        for (json, named) in [
            (thrashed(0, 1, 1), "least_bytes"),
            (thrashed(u64::MAX, 1, 1), "least_bytes"),
            (thrashed(4096, 2, 1), "left_ms"),
            (thrashed(4096, 0, 0), "pause_ms"),
            (thrashed(4096, 1, 3_600_001), "pause_ms"),
            (r#"{"credits":9223372036854775807}"#.to_owned(), "credits"),
            (r#"{"credits":-1}"#.to_owned(), "invalid value"),
            (r#"{"luck":7}"#.to_owned(), "unknown field `luck`"),
            (r#"{"limits":{"luck":7}}"#.to_owned(), "unknown field `luck`"),
        ] {
            let error = parse(&json).unwrap_err();
            assert!(error.contains(named), "{json}: {error}");
        }
        assert_eq!(parse("{}"), Ok(CarriedView::default()));
    }

    fn thrashed() -> impl Strategy<Value = ThrashedView> {
        (1..1u64 << 50, 1..3_600_000u64).prop_flat_map(|(least_bytes, pause_ms)| {
            (1..=pause_ms).prop_map(move |left_ms| ThrashedView { least_bytes, left_ms, pause_ms })
        })
    }

    proptest! {
        #[test]
        fn what_is_given_is_taken_unchanged(
            floor in prop::option::of(any::<u64>()),
            shares in prop::option::of(any::<u32>()),
            credits in prop::option::of(0..=CREDITS_MAX),
            thrashed in prop::option::of(thrashed()),
        ) {
            let limits =
                GuestChange { floor: floor.map(Bytes::new), shares, ..GuestChange::default() };
            let carried = CarriedView { limits, credits, thrashed };
            prop_assert_eq!(parse(&serde_json::to_string(&carried).unwrap()), Ok(carried));
        }

        /// The clocks of the two hosts may differ by any amount.
        #[test]
        fn a_pause_lasts_as_long_on_the_other_host(
            view in thrashed(),
            here in 0..1u64 << 40,
            there in 0..1u64 << 40,
        ) {
            let (here, there) = (Timestamp::from_millis(here), Timestamp::from_millis(there));
            let thrashed = view.taken_at(here);
            prop_assert_eq!(ThrashedView::at(thrashed, here), Some(view));
            prop_assert_eq!(ThrashedView::at(view.taken_at(there), there), Some(view));
            prop_assert_eq!(ThrashedView::at(thrashed, thrashed.until), None);
        }

        #[test]
        fn rubbish_never_panics(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
