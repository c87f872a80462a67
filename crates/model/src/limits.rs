//! The limits that an operator sets for one guest.

#[cfg(feature = "serde")]
use crate::unit::{self, is_default, is_none};
use crate::{Bounds, Bytes, GuestSample};

/// The operator's limits for one guest, already resolved from defaults and overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GuestLimits {
    /// Guaranteed minimum allocation. `None`: the default of [`GuestLimits::floor_for`].
    #[cfg_attr(
        feature = "serde",
        serde(rename = "floor_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub floor: Option<Bytes>,
    /// Largest allocation. `None`: boot memory and all that can be plugged in.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "ceiling_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub ceiling: Option<Bytes>,
    /// Weight in every division of memory between guests; at least 1.
    pub shares: u32,
    /// When memory is short, guests of lower priority go without first; 0 is the lowest.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub priority: u8,
    /// Misses a second that the guest should stay under (a service objective); `None`: none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub miss_rate_max: Option<u64>,
    /// Whether the guest has swap of its own. `None`: as its agent reports; without an agent, once
    /// the guest was seen to write to swap. A guest without swap is left what it uses, whatever its
    /// ceiling.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub swap: Option<bool>,
    /// Whether its cgroup is limited to its target and what its hypervisor needs.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub fence: bool,
    /// Whether Ballast may move this guest's memory at all.
    pub managed: bool,
    /// Whether it does so even if something else moves the guest's balloon too.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub take_over: bool,
}

impl Default for GuestLimits {
    fn default() -> Self {
        GuestLimits {
            floor: None,
            ceiling: None,
            shares: GuestLimits::SHARES_DEFAULT,
            priority: 0,
            miss_rate_max: None,
            swap: None,
            fence: false,
            managed: true,
            take_over: false,
        }
    }
}

impl GuestLimits {
    /// Shares of a guest for which the operator sets none.
    pub const SHARES_DEFAULT: u32 = 1000;
    /// Most shares of a guest; keeps products of shares and pages within 128 bits.
    pub const SHARES_MAX: u32 = 1_000_000;
    /// No default floor is below this: a Linux guest with 512 MiB of boot memory stalls for good
    /// near 77 MiB, and without swap it meets its OOM killer.
    pub const FLOOR_DEFAULT_MIN: Bytes = Bytes::mib(128);

    /// The floor of a guest with `boot` bytes of boot memory: the operator's, else an eighth of
    /// `boot` (page tables and kernel memory grow with it) but at least
    /// [`GuestLimits::FLOOR_DEFAULT_MIN`]. Never above `boot`; whole pages.
    pub fn floor_for(&self, boot: Bytes) -> Bytes {
        let default = boot.fraction(1, 8).max(GuestLimits::FLOOR_DEFAULT_MIN);
        self.floor.unwrap_or(default).min(boot).page_ceil().min(boot.page_floor())
    }

    /// The ceiling of a guest with `boot` bytes of boot memory that can grow to at most `max`, its
    /// boot memory and all that can be plugged in. Whole pages; never below
    /// [`GuestLimits::floor_for`].
    pub fn ceiling_for(&self, boot: Bytes, max: Bytes) -> Bytes {
        self.ceiling.unwrap_or(max).min(max).page_floor().max(self.floor_for(boot))
    }

    /// Floor and ceiling of a guest; `None` while its boot memory is unknown.
    pub fn bounds_for(&self, guest: &GuestSample) -> Option<Bounds> {
        let boot = guest.boot_memory?;
        let ceiling = self.ceiling_for(boot, guest.memory_max()?);
        Some(Bounds { floor: self.floor_for(boot), ceiling })
    }

    /// Checks that the limits can be kept at all.
    ///
    /// # Errors
    /// Names the bound that cannot be kept.
    pub fn validate(&self) -> Result<(), BoundsError> {
        if let (Some(floor), Some(ceiling)) = (self.floor, self.ceiling)
            && floor > ceiling
        {
            return Err(BoundsError::FloorOverCeiling { floor, ceiling });
        }
        if self.shares == 0 || self.shares > GuestLimits::SHARES_MAX {
            return Err(BoundsError::Shares(self.shares));
        }
        Ok(())
    }
}

/// Bounds that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundsError {
    /// The floor is above the ceiling.
    #[error("floor {floor} is above ceiling {ceiling}")]
    FloorOverCeiling {
        /// Guaranteed minimum.
        floor: Bytes,
        /// Largest allocation.
        ceiling: Bytes,
    },
    /// Shares out of range.
    #[error("shares {0} is out of range: expected 1 to {max}", max = GuestLimits::SHARES_MAX)]
    Shares(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_floor_grows_with_boot_memory_and_never_passes_it() {
        let limits = GuestLimits::default();
        for (boot, floor) in [
            (Bytes::mib(64), Bytes::mib(64)),
            (Bytes::mib(512), Bytes::mib(128)),
            (Bytes::gib(1), Bytes::mib(128)),
            (Bytes::gib(16), Bytes::gib(2)),
        ] {
            assert_eq!(limits.floor_for(boot), floor, "boot {boot}");
        }
    }

    #[test]
    fn a_ceiling_lies_between_floor_and_reachable_memory() {
        let limits = GuestLimits { ceiling: Some(Bytes::mib(100)), ..GuestLimits::default() };
        assert_eq!(limits.ceiling_for(Bytes::gib(1), Bytes::gib(1)), Bytes::mib(128));
        let limits = GuestLimits { ceiling: Some(Bytes::gib(9)), ..GuestLimits::default() };
        assert_eq!(limits.ceiling_for(Bytes::gib(1), Bytes::gib(1)), Bytes::gib(1));
        assert_eq!(limits.ceiling_for(Bytes::gib(1), Bytes::gib(4)), Bytes::gib(4));
        assert_eq!(GuestLimits::default().ceiling_for(Bytes::gib(1), Bytes::gib(4)), Bytes::gib(4));
    }

    #[test]
    fn impossible_bounds_are_named() {
        let limits = GuestLimits {
            floor: Some(Bytes::mib(512)),
            ceiling: Some(Bytes::mib(256)),
            ..GuestLimits::default()
        };
        let message = limits.validate().unwrap_err().to_string();
        assert_eq!(message, "floor 512MiB is above ceiling 256MiB");
        for shares in [0, GuestLimits::SHARES_MAX + 1] {
            assert!(GuestLimits { shares, ..GuestLimits::default() }.validate().is_err());
        }
    }
}
