//! What a guest reports about its memory.
//!
//! Every field may be missing; a missing field is unknown, not zero. Sizes are bytes. Counters
//! count from boot and readers take differences, so a lost message loses nothing.
//!
//! Source: `proc(5)`; the kernel's `Documentation/accounting/psi.rst` and
//! `Documentation/admin-guide/mm/multigen_lru.rst`. Limits: [`NUMBER_MAX`]; [`AGE_GROUPS_MAX`]
//! groups.

use serde::{Deserialize, Serialize};

/// Largest number in any message: every JSON reader reads it exactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Most groups in a histogram of ages: Linux has four generations per NUMA node.
pub const AGE_GROUPS_MAX: usize = 64;

/// Defines a struct of optional numbers and an iterator over them.
macro_rules! optional_numbers {
    ($(#[$of:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $(
                $(#[$doc])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<u64>,
            )*
        }

        impl $name {
            /// Every field with its name.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> + use<> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

optional_numbers! {
    /// Sizes; on Linux from `/proc/meminfo`.
    MemorySizes {
        /// Memory the kernel manages (`MemTotal`).
        total_bytes,
        /// Unused (`MemFree`).
        free_bytes,
        /// Available to programs without swapping (`MemAvailable`).
        available_bytes,
        /// `Buffers`.
        buffers_bytes,
        /// Page cache (`Cached`).
        cached_bytes,
        /// Shared memory and tmpfs (`Shmem`): part of `Cached`, but cannot be dropped.
        shmem_bytes,
        /// Recently used (`Active`).
        active_bytes,
        /// Not recently used (`Inactive`).
        inactive_bytes,
        /// `Active(file)`.
        active_file_bytes,
        /// `Inactive(file)`.
        inactive_file_bytes,
        /// Cannot be reclaimed (`Unevictable`).
        unevictable_bytes,
        /// Promised to programs (`Committed_AS`).
        committed_bytes,
        /// `SwapTotal`.
        swap_total_bytes,
        /// `SwapFree`.
        swap_free_bytes,
        /// Memory with a copy in swap (`SwapCached`).
        swap_cached_bytes,
    }
}

optional_numbers! {
    /// Counters since boot; on Linux from `/proc/vmstat`. The page size is in the hello.
    KernelCounters {
        /// Pages read back from swap (`pswpin`).
        swap_in_pages,
        /// Pages written to swap (`pswpout`).
        swap_out_pages,
        /// Refaults of anonymous memory (`workingset_refault_anon`).
        refault_anon_pages,
        /// Refaults of page cache (`workingset_refault_file`).
        refault_file_pages,
        /// Faults that waited for a disk (`pgmajfault`).
        major_faults,
        /// Pages scanned by kswapd (`pgscan_kswapd`).
        scan_kswapd_pages,
        /// Pages scanned by direct reclaim (`pgscan_direct`).
        scan_direct_pages,
        /// Pages reclaimed by kswapd (`pgsteal_kswapd`).
        steal_kswapd_pages,
        /// Pages reclaimed by direct reclaim (`pgsteal_direct`).
        steal_direct_pages,
        /// Allocations that had to reclaim first (`allocstall_*`).
        alloc_stalls,
        /// Processes killed for want of memory (`oom_kill`).
        oom_kills,
    }
}

optional_numbers! {
    /// The sums of the zones' watermarks, from `/proc/zoneinfo`.
    Watermarks {
        /// Below it only the kernel can allocate.
        min_bytes,
        /// kswapd wakes below it.
        low_bytes,
        /// kswapd sleeps above it.
        high_bytes,
    }
}

optional_numbers! {
    /// Time in which tasks waited for memory, from one line of `/proc/pressure/memory`.
    Stall {
        /// Share of the last ten seconds, in hundredths of a per cent: 0 to 10,000.
        avg10_basis_points,
        /// Since boot, in microseconds.
        total_us,
    }
}

/// Memory pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Some task waited.
    #[serde(default)]
    pub some: Stall,
    /// All tasks waited.
    #[serde(default)]
    pub full: Stall,
}

/// One sample of a guest's memory statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Sizes.
    #[serde(default)]
    pub memory: MemorySizes,
    /// Counters.
    #[serde(default)]
    pub counters: KernelCounters,
    /// Watermarks.
    #[serde(default)]
    pub watermarks: Watermarks,
    /// Pressure; `None` if the kernel does not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
}

impl Statistics {
    /// Every field with its name.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> + use<> {
        let pressure = self.pressure.unwrap_or_default();
        let sizes = self.memory.fields().chain(self.counters.fields());
        let stalls = pressure.some.fields().chain(pressure.full.fields());
        sizes.chain(self.watermarks.fields()).chain(stalls)
    }
}

/// Memory of about the same idle age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgeGroup {
    /// Time since anything in the group was used.
    pub idle_ms: u64,
    /// Anonymous memory.
    pub anon_bytes: u64,
    /// Page cache.
    pub file_bytes: u64,
}

/// A histogram of idle ages, as coarse as the kernel's generations (MGLRU).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ages {
    /// Groups, longest idle first.
    pub groups: Vec<AgeGroup>,
}
