//! What a guest says of its memory.
//!
//! Idea: figures as its kernel has them, each of which may be missing; a missing figure is left out and
//! is not zero. Sizes are bytes. Counters count from the guest's boot, so that a message that is lost
//! loses nothing: whoever reads takes differences.
//!
//! Source: `proc(5)`; the kernel's `Documentation/accounting/psi.rst` and
//! `Documentation/admin-guide/mm/multigen_lru.rst`. Limits: [`NUMBER_MAX`]; [`AGE_GROUPS_MAX`] groups.

use serde::{Deserialize, Serialize};

/// Largest number in any message: what every reader of JSON reads exactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Most groups of a histogram of ages: Linux has four generations a node, and 64 nodes are rare.
pub const AGE_GROUPS_MAX: usize = 64;

/// A struct of figures that may be missing, which can be gone through.
macro_rules! figures {
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
            /// Every figure with its name.
            pub fn figures(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> + use<> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

figures! {
    /// Sizes, from `/proc/meminfo` where the kernel is Linux.
    Memory {
        /// Memory the kernel manages (`MemTotal`).
        total_bytes,
        /// In no use at all (`MemFree`).
        free_bytes,
        /// What programs could be given without swapping (`MemAvailable`).
        available_bytes,
        /// `Buffers`.
        buffers_bytes,
        /// Page cache (`Cached`).
        cached_bytes,
        /// Memory shared by name (`Shmem`), which counts as page cache and cannot be dropped.
        shmem_bytes,
        /// Used not long ago (`Active`).
        active_bytes,
        /// Not used for longer (`Inactive`).
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
    }
}

figures! {
    /// Counters since boot, from `/proc/vmstat` where the kernel is Linux. Pages are those of the
    /// hello.
    Counters {
        /// Pages read back from swap (`pswpin`).
        swap_in_pages,
        /// Pages written to swap (`pswpout`).
        swap_out_pages,
        /// Refaults of programs' memory (`workingset_refault_anon`).
        refault_anon_pages,
        /// Refaults of page cache (`workingset_refault_file`).
        refault_file_pages,
        /// Faults that waited for a disk (`pgmajfault`).
        major_faults,
        /// Pages looked at by the reclaim daemon (`pgscan_kswapd`).
        scan_kswapd_pages,
        /// Pages looked at by those who wanted memory themselves (`pgscan_direct`).
        scan_direct_pages,
        /// Pages won by the daemon (`pgsteal_kswapd`).
        steal_kswapd_pages,
        /// Pages won by those who wanted memory (`pgsteal_direct`).
        steal_direct_pages,
        /// Times somebody had to reclaim before getting memory (`allocstall_*`).
        alloc_stalls,
        /// Processes killed for want of memory (`oom_kill`).
        oom_kills,
    }
}

figures! {
    /// The sums of the zones' watermarks, from `/proc/zoneinfo`.
    Watermarks {
        /// Below it only the kernel itself gets memory.
        min_bytes,
        /// Below it the reclaim daemon wakes.
        low_bytes,
        /// Above it the reclaim daemon rests.
        high_bytes,
    }
}

figures! {
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

/// One sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Sizes.
    #[serde(default)]
    pub memory: Memory,
    /// Counters.
    #[serde(default)]
    pub counters: Counters,
    /// Watermarks.
    #[serde(default)]
    pub watermarks: Watermarks,
    /// Pressure; `None` where the kernel does not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
}

impl Statistics {
    /// Every figure with its name.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> + use<> {
        let pressure = self.pressure.unwrap_or_default();
        let sizes = self.memory.figures().chain(self.counters.figures());
        let stalls = pressure.some.figures().chain(pressure.full.figures());
        sizes.chain(self.watermarks.figures()).chain(stalls)
    }
}

/// Memory last used at about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgeGroup {
    /// Nothing in it was used within that time.
    pub idle_ms: u64,
    /// Programs' memory.
    pub anon_bytes: u64,
    /// Page cache.
    pub file_bytes: u64,
}

/// How long memory has not been used, as coarse as the kernel knows: its generations (MGLRU).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ages {
    /// Groups, the longest idle first.
    pub groups: Vec<AgeGroup>,
}
