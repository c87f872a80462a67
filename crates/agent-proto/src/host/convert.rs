//! Statistics of an agent as the model's samples.
//!
//! Idea: field by field, and what is missing stays missing.

use ballast_agent_wire::Statistics;
use ballast_model::{AgentReport, Bytes, GuestStats, MemoryRequest};

/// What only an agent tells.
pub fn agent_report(said: &Statistics, request: Option<MemoryRequest>) -> AgentReport {
    let (memory, counters) = (&said.memory, &said.counters);
    AgentReport {
        committed: memory.committed_bytes.map(Bytes::new),
        swap_used: difference(memory.swap_total_bytes, memory.swap_free_bytes),
        swap_free: memory.swap_free_bytes.map(Bytes::new),
        active: memory.active_bytes.map(Bytes::new),
        inactive: memory.inactive_bytes.map(Bytes::new),
        watermark_high: said.watermarks.high_bytes.map(Bytes::new),
        refaulted_file_pages: counters.refault_file_pages,
        scanned_pages: sum(counters.scan_kswapd_pages, counters.scan_direct_pages),
        reclaimed_pages: sum(counters.steal_kswapd_pages, counters.steal_direct_pages),
        request,
    }
}

/// What the balloon's device tells too, for guests where it does not; `page` is the size of a page.
pub fn guest_stats(said: &Statistics, page: Bytes) -> GuestStats {
    let (memory, counters) = (&said.memory, &said.counters);
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

fn difference(of: Option<u64>, less: Option<u64>) -> Option<Bytes> {
    Some(Bytes::new(of?.saturating_sub(less?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_stays_missing() {
        assert_eq!(agent_report(&Statistics::default(), None), AgentReport::default());
        assert_eq!(guest_stats(&Statistics::default(), Bytes::kib(4)), GuestStats::default());
        let mut said = Statistics::default();
        said.memory.swap_total_bytes = Some(10);
        said.counters.scan_direct_pages = Some(3);
        assert_eq!(agent_report(&said, None), AgentReport::default(), "half of a sum is none");
    }

    #[test]
    fn by_hand() {
        let mut said = Statistics::default();
        said.memory.swap_total_bytes = Some(10);
        said.memory.swap_free_bytes = Some(4);
        said.memory.cached_bytes = Some(7);
        said.memory.buffers_bytes = Some(1);
        said.counters.scan_direct_pages = Some(3);
        said.counters.scan_kswapd_pages = Some(30);
        said.counters.swap_in_pages = Some(2);
        let report = agent_report(&said, None);
        assert_eq!(
            (report.swap_used, report.swap_free),
            (Some(Bytes::new(6)), Some(Bytes::new(4)))
        );
        assert_eq!((report.scanned_pages, report.reclaimed_pages), (Some(33), None));
        let stats = guest_stats(&said, Bytes::kib(4));
        assert_eq!(stats.disk_caches, Some(Bytes::new(8)));
        assert_eq!(stats.swap_in, Some(Bytes::kib(8)));
    }
}
