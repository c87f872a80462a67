//! Programs that are tracked at the machine's own speed: what the tables about them share.
//!
//! Idea: the tracker's library is loaded into a program that does nothing but touch memory in an order
//! that is known, and steered from this thread as the daemon would. So for each interval there is what the
//! tracker said, what it cost, and what is true.
//!
//! Limits: program on the first core, this side on the last; with one core alone they share it. The
//! tracker's thread that revokes is on the last, too, as one in a hypervisor is wherever there is room. The event
//! by which phases are told is the program's own count of touches here.

pub(super) mod brain;
pub(super) mod clock;
pub(super) mod program;
pub(super) mod running;
pub(super) mod steer;
pub(super) mod way;

use anyhow::Context;
use rustix::thread::CpuSet;

/// The cores that there are for a program, its tracker, and this side.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    /// The program's.
    first: usize,
    all: Vec<usize>,
}

impl Cores {
    /// Those that this thread may run on; to be asked before it stays on one.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn allowed() -> anyhow::Result<Cores> {
        let allowed = rustix::thread::sched_getaffinity(None)
            .context("cannot tell which cores this thread may run on")?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&it| allowed.is_set(it)).collect();
        Ok(Cores { first: all.first().copied().unwrap_or(0), all })
    }
}
