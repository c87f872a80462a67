//! Bodies of the API: any bytes are refused or give a value, which survives a round trip. A request
//! with an unknown field is refused, and changed limits are validated.
#![no_main]

use ballast_api::{
    CarriedReply, CarriedView, CommandReply, ErrorReply, ExplainReply, GuestChange, GuestsReply,
    ModeReply, PlanReply, Reserve, SetMode, SetPolicy, StatusReply, ThrashedView,
};
use ballast_model::{Bytes, GuestLimits, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(change) = round_trip::<GuestChange>(bytes) {
        assert_refuses_unknown_fields::<GuestChange>(bytes);
        let limits = change.apply(&GuestLimits::default());
        assert_eq!(change.apply(&limits), limits, "applied twice");
        if limits.validate().is_ok()
            && let (Some(floor), Some(ceiling)) = (limits.floor, limits.ceiling)
        {
            assert!(floor <= ceiling && ceiling <= Bytes::MAX);
        }
    }
    if round_trip::<SetPolicy>(bytes).is_some() {
        assert_refuses_unknown_fields::<SetPolicy>(bytes);
    }
    if round_trip::<SetMode>(bytes).is_some() {
        assert_refuses_unknown_fields::<SetMode>(bytes);
    }
    if round_trip::<Reserve>(bytes).is_some() {
        assert_refuses_unknown_fields::<Reserve>(bytes);
    }
    if let Some(carried) = round_trip::<CarriedView>(bytes) {
        assert_refuses_unknown_fields::<CarriedView>(bytes);
        if let (Ok(()), Some(thrashed)) = (carried.validate(), carried.thrashed) {
            let now = Timestamp::from_millis(1 << 40);
            let again = ThrashedView::at(thrashed.taken_at(now), now);
            assert_eq!(again, Some(thrashed).filter(|it| it.left_ms > 0));
        }
    }
    round_trip::<CarriedReply>(bytes);
    round_trip::<StatusReply>(bytes);
    round_trip::<GuestsReply>(bytes);
    round_trip::<ExplainReply>(bytes);
    round_trip::<PlanReply>(bytes);
    round_trip::<ModeReply>(bytes);
    round_trip::<CommandReply>(bytes);
    round_trip::<ErrorReply>(bytes);
});

fn round_trip<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let first = serde_json::to_string(&value).expect("a body has a form");
    let again: T = serde_json::from_str(&first).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&again).expect("a body has a form"), first);
    Some(value)
}

fn assert_refuses_unknown_fields<T: DeserializeOwned>(bytes: &[u8]) {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(bytes) else { return };
    fields.insert("unheard-of".to_owned(), Value::Null);
    assert!(serde_json::from_value::<T>(Value::Object(fields)).is_err());
}
