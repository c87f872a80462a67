//! Settings for paging guests by the host.

use ballast_model::Bytes;
use ballast_reclaim::SwapBounds;

/// How memory to page out is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PagingWay {
    /// By process; by cgroup if that is not permitted or not supported by the kernel.
    #[default]
    Auto,
    /// Pages of the guest's process: known cold ones, else random ones.
    Process,
    /// An amount from the guest's own cgroup; the kernel chooses the pages.
    Cgroup,
}

/// Paging settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagerSettings {
    /// How memory to page out is chosen.
    pub way: PagingWay,
    /// The most that is paged out, or in, per second and guest.
    pub per_second: Bytes,
    /// Limits on the use of the host's swap.
    pub swap: SwapBounds,
    /// Available host memory that paging in must leave.
    pub host_reserve: Bytes,
}

impl PagerSettings {
    /// The speed of a slow disk, and less than a guest can read back from it.
    pub const PER_SECOND_DEFAULT: Bytes = Bytes::mib(128);
}
