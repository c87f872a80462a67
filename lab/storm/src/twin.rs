//! Whether lies harm honest guests: the same seed is run twice, as drawn and without lies.
//!
//! Idea: both runs have the same guests, faults and needs; only the lies are left out, and an
//! offender that takes its memory back and fills it becomes a guest that needs as much. The ticks
//! of both runs are at the same times. An engine ticks faster while memory moves, so without that a
//! fault of some seconds would end a few ticks earlier or later, and the runs would differ by more
//! than the lies. At the end of the lull every honest guest is due what it has in the run without
//! lies, as far as it uses that. More is not due to it: what policies divide beyond needs depends
//! on earlier claims.
//!
//! Liars may gain some memory, and no more than that:
//!
//! - each may hide what a measured hypervisor may have come to need since, and gets room for its
//!   hypervisor when it is paged out;
//! - each is believed to need a quarter more than it fills of its grant (nothing where shares alone
//!   count). That concerns only its *needs*: what policies give each guest in addition to needs,
//!   they give with a lie or without (`docs/decisions/0012-entitlements.md`);
//! - memory that it filled while no grant to it was known, because it is new or a daemon lost its
//!   journal, is its own: the daemon cannot tell it from what the guest should have (either this or
//!   the quarter counts, not both);
//! - a guest that claims to use everything and to have no swap keeps what it was granted, by then
//!   and since (`docs/security.md`): its part by shares, or what it is believed to need and a
//!   reserve. A grant beyond these counts as its gain;
//! - what it really uses and fills of its grants after its process has begun anew is no gain, as
//!   far as honest guests whose processes also began anew lack it. They fill the same free memory
//!   in turn, and what is filled is evidence (decision 12): a guest that is believed a quarter more
//!   at each decision is served before one that waits for its use to show, and if more is needed
//!   than there is, the last one lacks memory. What a liar takes that others used before does count
//!   as its gain;
//! - what it may come to occupy beyond its grant and the host's swap has no room for: the host
//!   could not take that back, so it is granted to no guest (`docs/security.md`).
//!
//! Honest guests may lack that amount *in all*, however it is distributed among them: if one has
//! more because of the lies, another has less. A single guest's due would be no sound measure: if
//! more is needed than there is, many divisions are stable, and lies, like any other event, may
//! lead from one to another. But only memory that an honest guest *uses* makes up for what another
//! one lacks. If unused memory counted, a lie that starves one guest and leaves another more than
//! it needs would seem harmless.
//!
//! Policies that divide by bids never settle: what guests hold at one moment says nothing about
//! them, so nothing is compared.
//!
//! A guest may hold a dead band more than its part, because policies send no order for less;
//! whether it does depends on the order of events. For one guest that lacks memory, the amounts
//! that are not worth an order to each of the others add up, as in the calm (`judge.rs`). So what
//! the others have more than in the run without lies, and do not use, is allowed up to a dead band
//! each.

use std::collections::BTreeSet;

use ballast_model::PolicyName;

use crate::drawn::Drawn;
use crate::due::{BELIEVED_PART, DEAD_BAND, SLACK, settles};
use crate::fault::Fault;
use crate::run::Kept;
use crate::strike::Strike;
use crate::violation::Violation;
use crate::world::{CAP_ROOM, NEED_GROWS};

/// What a liar may hide in its hypervisor's measured need, and what is not worth an order, MiB.
const HIDDEN: u64 = NEED_GROWS + SLACK;

/// What an honest guest does instead of `strike`; `None`: nothing.
pub(crate) fn honest(strike: &Strike) -> Option<Strike> {
    Some(Strike { fault: strike.fault.honest()?, ..strike.clone() })
}

/// Whether `strike` is a lie of its guest.
pub(crate) fn is_lie(strike: &Strike) -> bool {
    strike.fault.honest() != Some(strike.fault)
}

/// Compares what honest guests have after `struck` with what they have without its lies.
pub(crate) fn compare(
    drawn: &Drawn,
    struck: &[Strike],
    lying: &[Kept],
    honest: &[Kept],
) -> Result<(), Violation> {
    if !settles(drawn.settings.policy) {
        return Ok(());
    }
    let began_anew = |place: usize| {
        struck.iter().any(|strike| match strike.fault {
            Fault::LosePower => true,
            Fault::Replace | Fault::Exit | Fault::Depart | Fault::Arrive => strike.guest == place,
            _ => false,
        })
    };
    let (mut lacking, mut gained, mut at_rest, mut lacking_anew) = (0, 0, 0, 0);
    let mut worst: Option<(u64, &Kept, u64)> = None;
    let guests = drawn.guests.iter().zip(lying.iter().zip(honest));
    for (place, (guest, (mine, twin))) in guests.enumerate() {
        if guest.is_offender {
            continue;
        }
        let due = mine.wants.min(twin.has);
        gained += mine.has.min(mine.wants).saturating_sub(twin.has);
        at_rest += mine.has.saturating_sub(mine.wants.max(twin.has)).min(DEAD_BAND);
        let lacks = due.saturating_sub(mine.has + SLACK);
        lacking += lacks;
        if began_anew(place) {
            lacking_anew += lacks;
        }
        if lacks > 0 && worst.is_none_or(|(most, ..)| lacks > most) {
            worst = Some((lacks, mine, due));
        }
    }
    let liars: BTreeSet<usize> =
        struck.iter().filter(|strike| is_lie(strike)).map(|strike| strike.guest).collect();
    let (mut allowed, mut filled_anew) = (at_rest, 0);
    for place in liars {
        let gain = |is_new| gain_max(drawn, &lying[place], &honest[place], is_new);
        allowed += gain(false) + lying[place].beyond;
        filled_anew += gain(began_anew(place)) - gain(false);
    }
    allowed += filled_anew.min(lacking_anew);
    let lacking = lacking.saturating_sub(gained);
    match worst {
        Some((_, &Kept { ref guest, has, .. }, due)) if lacking > allowed => {
            let guest = guest.clone();
            Err(Violation::Interference { guest, has, due, lacking, allowed })
        }
        _ => Ok(()),
    }
}

/// The most that a liar may gain, MiB. `is_new`: its process began anew, so what it filled is no
/// gain.
fn gain_max(drawn: &Drawn, lying: &Kept, honest: &Kept, is_new: bool) -> u64 {
    let believed = match drawn.settings.policy {
        PolicyName::Static => 0,
        _ => lying.filled / BELIEVED_PART,
    };
    let own = lying.own.saturating_sub(honest.has);
    // What it holds for its needs is at most its own, or what it is believed to need. What guests
    // get in addition to their needs it gets without a lie, too.
    let needs = honest.has.min(honest.wants);
    let most = lying.own.max(lying.filled + believed).saturating_sub(needs);
    let filled = if is_new { lying.filled.saturating_sub(needs) } else { 0 };
    HIDDEN + CAP_ROOM + most.min(believed + own + filled)
}
