//! An operator's changes to one guest's limits.
//!
//! Idea: one value from the command line through the API and the configuration to the limits in
//! force. Its JSON is that of `POST /v1/guests/{id}/set`: an absent or `null` field leaves that
//! limit as it is.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, GuestLimits};

/// Changes to one guest's limits. A limit whose field is absent or `null` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GuestChange {
    /// New floor: memory that the guest is guaranteed.
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    #[serde(
        rename = "floor_bytes",
        with = "number",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub floor: Option<Bytes>,
    /// New ceiling: the most memory that the guest may hold.
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    #[serde(
        rename = "ceiling_bytes",
        with = "number",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub ceiling: Option<Bytes>,
    /// Whether to remove the ceiling that earlier changes have set, so that the one of the
    /// configuration file or of the guest's own settings applies again. Has no effect together with
    /// `ceiling_bytes`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ceiling_unset: bool,
    /// New weight, 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u32>,
    /// New priority, 0 to 255: when memory is short, guests of lower priority give up memory first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// New objective: the most misses a second that the guest should have; 0 removes it.
    #[serde(rename = "miss_rate_max_per_s", default, skip_serializing_if = "Option::is_none")]
    pub miss_rate_max: Option<u64>,
    /// Whether Ballast may move the guest's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<bool>,
    /// Whether Ballast moves the guest's memory even if something else moves it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over: Option<bool>,
}

impl GuestChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == GuestChange::default()
    }

    /// `limits` with these changes.
    #[must_use]
    pub fn apply(&self, limits: &GuestLimits) -> GuestLimits {
        GuestLimits {
            floor: self.floor.or(limits.floor),
            ceiling: self.ceiling.or(limits.ceiling.filter(|_| !self.ceiling_unset)),
            shares: self.shares.unwrap_or(limits.shares),
            priority: self.priority.unwrap_or(limits.priority),
            miss_rate_max: match self.miss_rate_max {
                // 0 removes the objective, which no guest could keep.
                Some(0) => None,
                given => given.or(limits.miss_rate_max),
            },
            swap: limits.swap,
            fence: limits.fence,
            managed: self.managed.unwrap_or(limits.managed),
            take_over: self.take_over.unwrap_or(limits.take_over),
        }
    }

    /// These changes, completed by those of `under` where they say nothing: the content of a layer,
    /// without a ceiling that they unset.
    #[must_use]
    pub fn layered_over(&self, under: &GuestChange) -> GuestChange {
        GuestChange {
            floor: self.floor.or(under.floor),
            ceiling: self.ceiling.or(under.ceiling.filter(|_| !self.ceiling_unset)),
            ceiling_unset: false,
            shares: self.shares.or(under.shares),
            priority: self.priority.or(under.priority),
            miss_rate_max: self.miss_rate_max.or(under.miss_rate_max),
            managed: self.managed.or(under.managed),
            take_over: self.take_over.or(under.take_over),
        }
    }

    /// What these changes set, without the fields that `others` sets or unsets.
    #[must_use]
    pub fn without(&self, others: &GuestChange) -> GuestChange {
        fn unless<T>(own: Option<T>, other: Option<T>) -> Option<T> {
            own.filter(|_| other.is_none())
        }
        GuestChange {
            floor: unless(self.floor, others.floor),
            ceiling: unless(self.ceiling, others.ceiling).filter(|_| !others.ceiling_unset),
            ceiling_unset: false,
            shares: unless(self.shares, others.shares),
            priority: unless(self.priority, others.priority),
            miss_rate_max: unless(self.miss_rate_max, others.miss_rate_max),
            managed: unless(self.managed, others.managed),
            take_over: unless(self.take_over, others.take_over),
        }
    }
}

/// Sizes as whole numbers of bytes.
mod number {
    use super::{Bytes, Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        amount: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        amount.map(Bytes::get).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Bytes::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_given_changes() {
        let limits = GuestLimits {
            ceiling: Some(Bytes::gib(2)),
            miss_rate_max: Some(5),
            swap: Some(true),
            fence: true,
            ..GuestLimits::default()
        };
        assert_eq!(GuestChange::default().apply(&limits), limits);
        let change = GuestChange {
            floor: Some(Bytes::mib(512)),
            shares: Some(7),
            miss_rate_max: Some(0),
            managed: Some(false),
            ..GuestChange::default()
        };
        let expected = GuestLimits {
            floor: Some(Bytes::mib(512)),
            shares: 7,
            miss_rate_max: None,
            managed: false,
            ..limits.clone()
        };
        assert_eq!(change.apply(&limits), expected);
        assert!(!change.is_empty() && GuestChange::default().is_empty());
    }

    #[test]
    fn an_unset_ceiling_no_longer_applies() {
        let ceiling =
            |mib| GuestChange { ceiling: Some(Bytes::mib(mib)), ..GuestChange::default() };
        let set = GuestChange { shares: Some(7), ..ceiling(512) };
        let unset = GuestChange { ceiling_unset: true, ..GuestChange::default() };
        let left = GuestChange { shares: Some(7), ..GuestChange::default() };
        assert!(!unset.is_empty());
        assert_eq!((unset.layered_over(&set), set.without(&unset)), (left.clone(), left));
        let limits = GuestLimits { ceiling: Some(Bytes::gib(2)), ..GuestLimits::default() };
        assert_eq!(unset.apply(&limits), GuestLimits::default());
        let both = GuestChange { ceiling_unset: true, ..ceiling(256) };
        let given = Some(Bytes::mib(256));
        assert_eq!((both.apply(&limits).ceiling, both.layered_over(&set).ceiling), (given, given));
    }
}
