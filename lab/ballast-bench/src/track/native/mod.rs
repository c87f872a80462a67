//! Programs that are tracked at the machine's own speed: the parts that several tables share.
//!
//! Idea: the tracker's library is loaded into a program that only touches memory, in a known order,
//! and is steered from this thread as the daemon would do it. So for each interval the tracker's
//! report, its cost and the truth are known.
//!
//! Limits: the program runs on the first core, the measuring thread on the last; if there is only
//! one core they share it. The tracker's thread that revokes is on the last core, too; in a
//! hypervisor it would be wherever there is room. The event that marks phases is here the program's
//! own count of touches.

pub(super) mod algorithm;
pub(super) mod clock;
pub(super) mod followed;
pub(super) mod program;
pub(super) mod running;
pub(super) mod steer;
pub(super) mod way;
