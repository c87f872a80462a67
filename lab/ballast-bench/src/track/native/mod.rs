//! Programs that are tracked at the machine's own speed: what the tables about them share.
//!
//! Idea: the tracker's library is loaded into a program that does nothing but touch memory in an
//! order that is known, and steered from this thread as the daemon would. So for each interval
//! there is what the tracker said, what it cost, and what is true.
//!
//! Limits: program on the first core, this side on the last; with one core alone they share it. The
//! tracker's thread that revokes is on the last, too, as one in a hypervisor is wherever there is
//! room. The event that marks phases is the program's own count of touches here.

pub(super) mod brain;
pub(super) mod clock;
pub(super) mod cores;
pub(super) mod followed;
pub(super) mod program;
pub(super) mod running;
pub(super) mod steer;
pub(super) mod way;
