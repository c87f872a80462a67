//! The machine that figures are from, and pinning to one of its cores.
//!
//! Idea: times are the processor time of this thread on its core, so other programs on the core do
//! not count; their memory traffic still has an effect.

use std::fs;

use anyhow::Context;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::ClockId;
use serde::Serialize;

/// The properties of a machine that figures depend on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// The processor, as the kernel calls it.
    pub(crate) processor: Option<String>,
    /// The core on which everything ran.
    pub(crate) core: usize,
    /// Its caches, the nearest first, such as `L1d 32K`.
    pub(crate) caches: Vec<String>,
    /// Instruction sets beyond the baseline that the processor has, of those that could matter.
    pub(crate) features: Vec<&'static str>,
    /// Those of them that the compiler was allowed to use everywhere.
    pub(crate) compiled_for: Vec<&'static str>,
}

impl Machine {
    /// Pins this thread to the last core that it may run on, and describes the machine.
    ///
    /// # Errors
    /// The kernel refuses one of the two.
    pub(crate) fn pinned() -> anyhow::Result<Self> {
        let core = allowed_cores()?.last().copied().unwrap_or(0);
        pin(None, core).with_context(|| format!("cannot stay on core {core}"))?;
        let (features, compiled_for) = features();
        Ok(Self { processor: processor(), core, caches: caches(core), features, compiled_for })
    }

    /// The first line of a report.
    pub(crate) fn line(&self) -> String {
        let processor = self.processor.as_deref().unwrap_or("unknown");
        format!("processor  {processor}, core {}", self.core)
    }
}

/// The cores that this thread may run on, in order.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn allowed_cores() -> anyhow::Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .context("cannot tell which cores this thread may run on")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// Keeps a thread on one core; `None`: this thread.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn pin(thread: Option<Pid>, core: usize) -> rustix::io::Result<()> {
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(thread, &one)
}

/// The processor, as the kernel calls it.
pub(crate) fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn caches(core: usize) -> Vec<String> {
    let folder = |index| format!("/sys/devices/system/cpu/cpu{core}/cache/index{index}");
    let read = |index: usize, name| {
        let text = fs::read_to_string(format!("{}/{name}", folder(index))).ok()?;
        Some(text.trim().to_owned())
    };
    // Level by level; no processor has more levels than these.
    let cache = |index| {
        let (level, kind) = (read(index, "level")?, read(index, "type")?);
        let kind = match kind.as_str() {
            "Data" => "d",
            "Instruction" => return None,
            _ => "",
        };
        Some(format!("L{level}{kind} {}", read(index, "size")?))
    };
    (0..8).filter_map(cache).collect()
}

/// The names of these instruction sets, each with whether the processor has it and whether it was
/// compiled for.
macro_rules! features {
    ($($name:tt)*) => {
        [$(($name, is_x86_feature_detected!($name), cfg!(target_feature = $name))),*]
    };
}

/// The processor's features of those that could matter, and those of them compiled for.
fn features() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = features!("popcnt" "avx2" "bmi2" "avx512f" "avx512bw" "avx512vl" "avx512vpopcntdq");
    let had = all.iter().filter(|feature| feature.1).map(|feature| feature.0).collect();
    let compiled_for = all.iter().filter(|feature| feature.2).map(|feature| feature.0).collect();
    (had, compiled_for)
}

/// Processor time of this thread, in seconds.
pub(crate) fn seconds() -> f64 {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
