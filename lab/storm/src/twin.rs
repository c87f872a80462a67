//! Whether lies cost honest guests anything: the same seed twice, as drawn and with nobody lying.
//!
//! Idea: both runs have the same guests, faults and needs; only the lies are left out, and an offender
//! that takes its memory back and fills it becomes a guest that needs as much. At the end of the
//! lull every honest guest is due what it was left where nobody lies, as far as it uses that. More
//! is not its due: what policies divide beyond needs depends on what was claimed before.
//!
//! Liars are promised to gain something: each may hide what a hypervisor may need, and claims to
//! need a quarter of what it fills (nothing where shares alone count). Honest guests may lack as much
//! *in all*, whoever of them lacks it. A single guest's due would be no sound measure: where more is
//! needed than there is, many divisions are at rest, and lies may lead from one to another.
//!
//! Limits: a quarter of all its memory is allowed to a liar, whatever it filled of it.

use std::collections::BTreeSet;

use ballast_model::PolicyName;

use crate::drawn::{Drawn, Strike};
use crate::judge::{SLACK, hidden};
use crate::run::Kept;
use crate::violation::Violation;

/// What is believed of a liar's needs without evidence, as a part of its memory.
const BELIEVED_PART: u64 = 4;

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
    let mut lacking = 0;
    let mut worst: Option<(u64, &Kept, u64)> = None;
    for (mine, twin) in lying.iter().zip(honest) {
        let due = mine.wants.min(twin.has);
        let lacks = due.saturating_sub(mine.has + SLACK);
        lacking += lacks;
        if lacks > 0 && worst.is_none_or(|(most, ..)| lacks > most) {
            worst = Some((lacks, mine, due));
        }
    }
    let liars: BTreeSet<usize> =
        struck.iter().filter(|strike| is_lie(strike)).map(|strike| strike.guest).collect();
    let allowed = liars.iter().map(|&liar| gain_max(drawn, liar)).sum();
    match worst {
        Some((_, &Kept { ref guest, has, .. }, due)) if lacking > allowed => {
            let guest = guest.clone();
            Err(Violation::Interference { guest, has, due, lacking, allowed })
        }
        _ => Ok(()),
    }
}

/// The most that a lie may gain.
fn gain_max(drawn: &Drawn, liar: usize) -> u64 {
    let guest = &drawn.guests[liar];
    let believed = match drawn.settings.policy {
        PolicyName::Static => 0,
        _ => guest.boot / BELIEVED_PART,
    };
    hidden(guest) + believed
}
