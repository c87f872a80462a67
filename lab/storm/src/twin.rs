//! Whether lies cost honest guests anything: the same seed twice, as drawn and with nobody lying.
//!
//! Idea: both runs have the same guests, faults and needs; only the lies are left out, and an
//! offender that takes its memory back and fills it becomes a guest that needs as much. Their ticks
//! are at the same moments: an engine ticks faster while memory moves, and what lasts some seconds
//! would end some ticks earlier or later, so that the two runs would differ by more than the lies.
//! At the end of the lull every honest guest is due what it was left where nobody lies, as far as
//! it uses that. More is not its due: what policies divide beyond needs depends on what was claimed
//! before.
//!
//! Liars are promised to gain something, and no more:
//!
//! - each may hide what a measured hypervisor may have come to need since, and is left room for its
//!   hypervisor when it is paged out;
//! - it is believed to need a quarter more than it fills of what it was granted (nothing where
//!   shares alone count). That comes to its *needs*: what policies give each guest beside them,
//!   they give it with a lie or without (`docs/decisions/0012-entitlements.md`);
//! - what it filled while no grant to it was known, as it is new or a daemon lost its journal, is
//!   its own: nobody can tell it from what it was to have (it has that or the quarter, not both);
//! - a guest that says that it uses all and has no swap keeps what it was granted, by then and
//!   since (`docs/security.md`): its part by shares or what it is believed to need and a reserve,
//!   but no grant beyond these excuses itself;
//! - what it really uses and fills of its grants once its process has begun anew is no gain, as far
//!   as honest guests whose processes began anew as well lack it. They fill the same free memory in
//!   turn, and what is filled is evidence (decision 12): one that is believed a quarter more at
//!   each decision is served before one that waits for its use to show, and where more is needed
//!   than there is, the last one lacks. What a liar takes that others used before counts as its
//!   gain;
//! - what it may come to occupy beyond its grant and the host's swap has no room for: the host
//!   could not take that back, so nobody is granted it (`docs/security.md`).
//!
//! Honest guests may lack as much *in all*, whoever of them lacks it: what one of them has more for
//! the lies, another one has less. A single guest's due would be no sound measure: where more is
//! needed than there is, many divisions are at rest, and lies, as any other event, may lead from
//! one to another. But only what an honest guest *uses* makes up for what another one lacks: were
//! memory that lies in surplus counted, a lie that starves one guest and leaves another more than
//! it needs would cost nothing.
//!
//! Policies that divide by bids never come to rest: what guests hold at one moment is no measure of
//! them, and nothing is compared.
//!
//! A guest may hold a dead band more than is divided to it, as the policies send no order for less,
//! and whether it does is left to the order of events. What is not worth an order to each of the
//! others adds up for one that lacks memory, as in the calm (`judge.rs`): what they have more than
//! where nobody lies, and do not use, up to a dead band each.

use std::collections::BTreeSet;

use ballast_model::PolicyName;

use crate::drawn::Drawn;
use crate::due::{BELIEVED_PART, DEAD_BAND, SLACK, settles};
use crate::fault::Fault;
use crate::run::Kept;
use crate::strike::Strike;
use crate::violation::Violation;
use crate::world::{CAP_ROOM, NEED_GROWS};

/// What a liar may hide where its hypervisor's need is measured, and what is not worth an order.
const HIDDEN: u64 = NEED_GROWS + SLACK;

/// What an honest guest may do instead of `strike`.
pub(crate) fn honest(strike: &Strike) -> Option<Strike> {
    Some(Strike { fault: strike.fault.honest()?, ..strike.clone() })
}

/// Whether `strike` makes a liar of its guest.
pub(crate) fn is_lie(strike: &Strike) -> bool {
    strike.fault.honest() != Some(strike.fault)
}

/// Judges what honest guests were left after `struck` by what they were left without its lies.
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

/// The most that a liar may gain; `is_new`: what it filled is no gain, as its process began anew.
fn gain_max(drawn: &Drawn, lying: &Kept, honest: &Kept, is_new: bool) -> u64 {
    let believed = match drawn.settings.policy {
        PolicyName::Static => 0,
        _ => lying.filled / BELIEVED_PART,
    };
    let own = lying.own.saturating_sub(honest.has);
    // What it holds for its needs is no more than its own, or than it is believed to need; what
    // guests are given beside their needs it has without a lie as well.
    let needs = honest.has.min(honest.wants);
    let most = lying.own.max(lying.filled + believed).saturating_sub(needs);
    let filled = if is_new { lying.filled.saturating_sub(needs) } else { 0 };
    HIDDEN + CAP_ROOM + most.min(believed + own + filled)
}
