//! Refuses impossible statistics of a guest.
//!
//! Idea: a guest can lie, so statistics that contradict what the hypervisor knows are refused as a
//! whole. A plausible lie harms only the guest itself: it moves its own target within its own
//! bounds.

use ballast_model::{Bytes, GuestStats, Implausible};

/// Refuses statistics that are impossible for a guest with at most `memory_max`. That is its boot
/// memory plus all memory that can be plugged in, because statistics may be older than the last
/// unplug.
pub(crate) fn check(stats: &GuestStats, memory_max: Option<Bytes>) -> Result<(), Implausible> {
    if let (Some(total), Some(most)) = (stats.total, memory_max)
        && total > most
    {
        return Err(Implausible::TotalOverBoot { total, boot: most });
    }
    let Some(total) = stats.total.or(memory_max) else { return Ok(()) };
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
