//! Converts an agent's statistics to the model's samples. Missing fields stay missing.

use ballast_model::{AgentReport, Bytes, GuestStats, MemoryRequest};

use crate::wire::{MemorySizes, Statistics};

/// The statistics that only an agent can supply.
pub fn agent_report(statistics: &Statistics, request: Option<MemoryRequest>) -> AgentReport {
    let (memory, counters) = (&statistics.memory, &statistics.counters);
    AgentReport {
        committed: memory.committed_bytes.map(Bytes::new),
        swap_used: swap_used(memory),
        swap_free: memory.swap_free_bytes.map(Bytes::new),
        active: memory.active_bytes.map(Bytes::new),
        inactive: memory.inactive_bytes.map(Bytes::new),
        watermark_high: statistics.watermarks.high_bytes.map(Bytes::new),
        refaulted_file_pages: counters.refault_file_pages,
        scanned_pages: sum(counters.scan_kswapd_pages, counters.scan_direct_pages),
        reclaimed_pages: sum(counters.steal_kswapd_pages, counters.steal_direct_pages),
        request,
    }
}

/// The statistics that balloon devices supply too, for guests whose balloon does not; `page` is the
/// guest's page size.
pub fn guest_stats(statistics: &Statistics, page: Bytes) -> GuestStats {
    let (memory, counters) = (&statistics.memory, &statistics.counters);
    let pages = |count: u64| Bytes::new(count.saturating_mul(page.get()));
    GuestStats {
        total: memory.total_bytes.map(Bytes::new),
        free: memory.free_bytes.map(Bytes::new),
        available: memory.available_bytes.map(Bytes::new),
        disk_caches: sum(memory.cached_bytes, memory.buffers_bytes).map(Bytes::new),
        swap_in: counters.swap_in_pages.map(pages),
        swap_out: counters.swap_out_pages.map(pages),
        major_faults: counters.major_faults,
        minor_faults: None,
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}

/// Swap in use for memory that only swap has. When a page was read back and not changed, the kernel
/// keeps its copy in swap; such copies are not counted.
fn swap_used(memory: &MemorySizes) -> Option<Bytes> {
    let used = memory.swap_total_bytes?.saturating_sub(memory.swap_free_bytes?);
    Some(Bytes::new(used.saturating_sub(memory.swap_cached_bytes.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_stay_missing() {
        assert_eq!(agent_report(&Statistics::default(), None), AgentReport::default());
        assert_eq!(guest_stats(&Statistics::default(), Bytes::kib(4)), GuestStats::default());
        let mut statistics = Statistics::default();
        statistics.memory.swap_total_bytes = Some(10);
        statistics.counters.scan_direct_pages = Some(3);
        assert_eq!(
            agent_report(&statistics, None),
            AgentReport::default(),
            "one term of a sum is not a sum"
        );
    }

    #[test]
    fn conversion_computed_by_hand() {
        let mut statistics = Statistics::default();
        statistics.memory.swap_total_bytes = Some(10);
        statistics.memory.swap_free_bytes = Some(4);
        statistics.memory.cached_bytes = Some(7);
        statistics.memory.buffers_bytes = Some(1);
        statistics.counters.scan_direct_pages = Some(3);
        statistics.counters.scan_kswapd_pages = Some(30);
        statistics.counters.swap_in_pages = Some(2);
        let report = agent_report(&statistics, None);
        assert_eq!(
            (report.swap_used, report.swap_free),
            (Some(Bytes::new(6)), Some(Bytes::new(4)))
        );
        statistics.memory.swap_cached_bytes = Some(2);
        assert_eq!(agent_report(&statistics, None).swap_used, Some(Bytes::new(4)));
        assert_eq!((report.scanned_pages, report.reclaimed_pages), (Some(33), None));
        let stats = guest_stats(&statistics, Bytes::kib(4));
        assert_eq!(stats.disk_caches, Some(Bytes::new(8)));
        assert_eq!(stats.swap_in, Some(Bytes::kib(8)));
    }
}
