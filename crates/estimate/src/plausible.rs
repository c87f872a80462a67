//! What a guest's statistics are believed to say.
//!
//! Idea: a guest can lie, so figures that contradict what the hypervisor knows are refused as a
//! whole. A plausible lie can harm only the guest that tells it: it moves its own target within
//! its own bounds.

use ballast_model::{Bytes, GuestStats, Implausible};

/// Refuses statistics that cannot be true of a guest that can have `boot` bytes: booted with, and all that can be
/// plugged in, as statistics may be of before some was pulled out.
pub(crate) fn check(stats: &GuestStats, boot: Option<Bytes>) -> Result<(), Implausible> {
    if let (Some(total), Some(boot)) = (stats.total, boot)
        && total > boot
    {
        return Err(Implausible::TotalOverBoot { total, boot });
    }
    let Some(total) = stats.total.or(boot) else { return Ok(()) };
    if let Some(free) = stats.free
        && free > total
    {
        return Err(Implausible::FreeOverTotal { free, total });
    }
    if let Some(available) = stats.available
        && available > total
    {
        return Err(Implausible::AvailableOverTotal { available, total });
    }
    Ok(())
}
