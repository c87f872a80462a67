//! Parses events about memory devices: which device was removed, or was not released by the guest.

use std::borrow::Cow;

use serde::Deserialize;

use crate::session::QmpEvent;

#[derive(Deserialize)]
struct EventData<'a> {
    #[serde(borrow)]
    device: Option<Cow<'a, str>>,
    #[serde(borrow)]
    info: Option<OstInfo<'a>>,
}

/// A guest's status report on an ACPI request.
#[derive(Deserialize)]
struct OstInfo<'a> {
    #[serde(borrow)]
    device: Option<Cow<'a, str>>,
    source: u64,
    status: u64,
}

/// ACPI 6.5 §6.3.5: the source of the request is an ejection.
const OST_EJECT: u64 = 3;
/// The same section: statuses that are no refusal, success and in progress.
const OST_NO_REFUSAL: [u64; 2] = [0, 0x84];

/// The device that an event reports as removed, or as not released by the guest.
pub(super) fn event_device(event: &QmpEvent) -> Option<String> {
    let data: EventData<'_> = serde_json::from_str(event.data.as_deref()?).ok()?;
    let device = match data.info {
        Some(info) if info.source != OST_EJECT || OST_NO_REFUSAL.contains(&info.status) => None,
        Some(info) => info.device,
        None => data.device,
    }?;
    Some(device.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_kept_module_name_its_device() {
        let device = |data: &str| {
            event_device(&QmpEvent { name: String::new(), data: Some(data.to_owned()) })
        };
        let ost = |source: u32, status: u32| {
            device(&format!(
                r#"{{"info":{{"device":"d","source":{source},"status":{status},"slot":"0",
                "slot-type":"DIMM"}}}}"#
            ))
        };
        assert_eq!(ost(3, 1).as_deref(), Some("d"));
        assert_eq!(ost(3, 0x82).as_deref(), Some("d"));
        assert_eq!((ost(3, 0), ost(3, 0x84), ost(1, 1)), (None, None, None));
        assert_eq!(device(r#"{"device":"d","msg":"busy"}"#).as_deref(), Some("d"));
        assert_eq!((device("{}"), device("5")), (None, None));
    }
}
