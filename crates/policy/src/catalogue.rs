//! What there is to know of each policy before one is chosen.
//!
//! Idea: one table says what the rule is and where it comes from, which keys of the configuration it
//! goes by, and which data it needs; `ballast policy` prints it, plans say by it what is missing, and
//! a test compares its keys with what the configuration reads.

use std::borrow::Cow;

use ballast_model::{Input, Note, PolicyName};

use crate::problem::{Contender, Problem};
use crate::{Pacing, PolicySettings, build};

/// A policy as it is told to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: PolicyName,
    /// What it does, in one sentence.
    pub rule: &'static str,
    /// What it does when all that guests want does not fit, in one sentence.
    pub shortage: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// The keys of the configuration it goes by.
    pub parameters: &'static [Parameter],
    /// What it needs to know of a guest beside the memory in use.
    pub needs: &'static [Need],
}

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The key, within `[policy]`; one of a table inside is `table.key`.
    pub key: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Of what it is a number.
    pub unit: &'static str,
    /// Its default, as it is written in the configuration; empty: the policy's own.
    pub default: &'static str,
    /// What it may be.
    pub range: &'static str,
}

/// An input and what is done without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The input.
    pub input: Input,
    /// What is done for a guest of which it is not known, as a clause.
    pub fallback: &'static str,
}

const INTERVAL: Parameter = Parameter {
    key: "interval",
    meaning: "time between decisions",
    unit: "span of time",
    default: "",
    range: "one tick to 1h",
};
const RESERVE: Parameter = Parameter {
    key: "reserve_per_guest",
    meaning: "free memory left to a guest on top of what it uses; also part of what a guest of higher \
              priority needs",
    unit: "size",
    default: "\"100MiB\"",
    range: "any size",
};
const TAU: Parameter = Parameter {
    key: "tau",
    meaning: "idle-memory tax: 0 divides by shares alone, 1 by use",
    unit: "share of idle memory",
    default: "\"dynamic\"",
    range: "\"dynamic\", or 0 to 1",
};
const IN_USE: &str = "they want what they use and the reserve";

const MEB: &[Parameter] = &[
    INTERVAL,
    RESERVE,
    Parameter {
        key: "meb.step",
        meaning: "least distance between two sizes that are tried; a smaller change is not made",
        unit: "size",
        default: "\"1MiB\"",
        range: "4KiB to 1GiB, whole pages",
    },
    Parameter {
        key: "meb.shrink_max",
        meaning: "most that a guest shrinks in a decision, unless the budget leaves no other way",
        unit: "part of what it holds",
        default: "0.1",
        range: "0.001 to 1",
    },
    Parameter {
        key: "meb.grow_max",
        meaning: "most that a guest grows in a decision, or one step if that is more",
        unit: "part of what it holds",
        default: "0.3",
        range: "0.001 to 10",
    },
    Parameter {
        key: "meb.weighting",
        meaning: "what misses, and what nobody demands, are weighted by",
        unit: "word",
        default: "\"shares\"",
        range: "\"shares\" or \"equal\"",
    },
];

/// Of the machine that probes, which runs whatever the policy; its epochs are readings, one a second.
const TWS: &[Parameter] = &[
    INTERVAL,
    RESERVE,
    Parameter {
        key: "tws.fast",
        meaning: "what is taken away in an epoch before the guest first reads anything back",
        unit: "part of Committed_AS",
        default: "0.05",
        range: "0.001 to 0.5",
    },
    Parameter {
        key: "tws.slow",
        meaning: "what is taken away in an epoch after that",
        unit: "part of Committed_AS",
        default: "0.01",
        range: "0.0001 to 0.5, not above tws.fast",
    },
    Parameter {
        key: "tws.cool_down_epochs",
        meaning: "epochs without reading back before anything is taken away again",
        unit: "epochs",
        default: "8",
        range: "1 to 3600",
    },
    Parameter {
        key: "tws.change",
        meaning: "probing begins again when Committed_AS moved by more than this and tws.change_min",
        unit: "part of Committed_AS",
        default: "0.02",
        range: "0 to 1",
    },
    Parameter {
        key: "tws.change_min",
        meaning: "the amount that such a move must exceed too",
        unit: "size",
        default: "\"4MiB\"",
        range: "any size",
    },
];

/// What the six of flexmemd are put together from; an empty default is what the paper evaluates each with.
const FLEXMEMD: &[Parameter] = &[
    INTERVAL,
    RESERVE,
    Parameter {
        key: "flexmemd.period",
        meaning: "time for which rent is paid, after which a periodic policy decides",
        unit: "span of time",
        default: "\"1s\"",
        range: "100ms to 1h",
    },
    Parameter {
        key: "flexmemd.tax_per_second",
        meaning: "part of every balance of credits that is shared out anew each second",
        unit: "part of a balance",
        default: "0.05",
        range: "0 to 1",
    },
    Parameter {
        key: "flexmemd.swaps_per_second",
        meaning: "a guest that swaps more than this, in and out, wants more memory",
        unit: "pages a second",
        default: "90",
        range: "any number",
    },
    Parameter {
        key: "flexmemd.free_min",
        meaning: "a guest with less free memory than this wants more",
        unit: "size",
        default: "\"100MiB\"",
        range: "any size",
    },
    Parameter {
        key: "flexmemd.round",
        meaning: "what guests may receive in a round of round-robin, compared with each other",
        unit: "word",
        default: "\"equal\"",
        range: "\"equal\" or \"by-floor\"",
    },
    Parameter {
        key: "flexmemd.frequency",
        meaning: "when the algorithm runs",
        unit: "word",
        default: "",
        range: "\"once\", \"immediate\" or \"periodic\"",
    },
    Parameter {
        key: "flexmemd.price",
        meaning: "what memory costs while not all that is wanted fits",
        unit: "word",
        default: "",
        range: "\"none\", \"fixed\", \"proportional\", \"custom\" or \"market\"",
    },
    Parameter {
        key: "flexmemd.price_per_kib",
        meaning: "the fixed price, or the proportional one of a guest that rents everything",
        unit: "credits per KiB and period",
        default: "",
        range: "0 to 1048576",
    },
    Parameter {
        key: "flexmemd.tariff",
        meaning: "the custom price: steps { from, per_kib }, from being the part of rentable memory rented",
        unit: "table of steps",
        default: "",
        range: "1 to 16 steps, neither part nor price falling",
    },
    Parameter {
        key: "flexmemd.demand",
        meaning: "where demand is taken from",
        unit: "word",
        default: "",
        range: "\"ignored\", \"explicit\" or \"implicit\"",
    },
];

const REQUESTS: &[Need] = &[Need { input: Input::Requests, fallback: "they keep what they rent" }];
const STATISTICS: &[Need] = &[
    Need { input: Input::Free, fallback: "they keep what they have" },
    Need { input: Input::SwapRate, fallback: "they are never asked to give memory back" },
];

/// Every policy that can be chosen by name, in the order of [`PolicyName::ALL`].
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: PolicyName::Static,
        rule: "Every guest has its share of the budget, whatever it does with it.",
        shortage: "Nothing else: it looks at nobody's use.",
        source: "Global §3.2, at a tax of 0; the baseline for all others",
        parameters: &[INTERVAL, RESERVE],
        needs: &[],
    },
    Entry {
        name: PolicyName::SelfBalloon,
        rule: "Every guest has what its kernel has promised to processes (Committed_AS).",
        shortage: "Who wants less than its part by shares has it; the others divide the rest by shares.",
        source: "Xen's self-ballooning, as TWS §2 tells it",
        parameters: &[INTERVAL, RESERVE],
        needs: &[Need { input: Input::Committed, fallback: IN_USE }],
    },
    Entry {
        name: PolicyName::SelfScheduling,
        rule: "Every guest has what it uses and a reserve.",
        shortage: "It decides as global, until all fits again with a margin of a twentieth.",
        source: "Global §3",
        parameters: &[INTERVAL, RESERVE, TAU],
        needs: &[],
    },
    Entry {
        name: PolicyName::Global,
        rule: "The whole budget is divided by shares, and idle memory is taxed just as much as the \
               neediest guest requires.",
        shortage: "The tax is full: everybody has what it uses, less its part of what is lacking.",
        source: "Global §3.1–3.4",
        parameters: &[INTERVAL, RESERVE, TAU],
        needs: &[],
    },
    Entry {
        name: PolicyName::Meb,
        rule: "Every guest has its demand, and what nobody demands is shared out; a tenth less or three \
               tenths more at a time.",
        shortage: "Memory goes where it avoids most misses, by the guests' miss curves and shares.",
        source: "MEB §4, Algorithm 1",
        parameters: MEB,
        needs: &[Need {
            input: Input::MissCurve,
            fallback: "they are taken to miss the less the more of what they use they have",
        }],
    },
    Entry {
        name: PolicyName::Tws,
        rule: "Every guest has its working set, found by taking memory away until it reads some back.",
        shortage: "Who wants less than its part by shares has it; the others divide the rest by shares.",
        source: "TWS §2",
        parameters: TWS,
        needs: &[Need { input: Input::Probed, fallback: IN_USE }],
    },
    Entry {
        name: PolicyName::Proportional,
        rule: "Every guest has its floor, and the rest of the budget is divided by floor and shares.",
        shortage: "Nothing else: it looks at nobody's use.",
        source: "flexmemd §4.1",
        parameters: FLEXMEMD,
        needs: &[],
    },
    Entry {
        name: PolicyName::Fcfs,
        rule: "Requests are granted at once while there is memory; whoever has it keeps it.",
        shortage: "Everybody pays for what it rents, the more the more it rents, or keeps what it can pay for.",
        source: "flexmemd §4.2",
        parameters: FLEXMEMD,
        needs: REQUESTS,
    },
    Entry {
        name: PolicyName::DemandProportional,
        rule: "Requests are granted at once while there is memory.",
        shortage: "Those that rent most for their weight give way, until who asks rents as much as they do.",
        source: "flexmemd §4.3",
        parameters: FLEXMEMD,
        needs: REQUESTS,
    },
    Entry {
        name: PolicyName::DirectAssign,
        rule: "Every guest has what its free memory and its swapping call for.",
        shortage: "The richest in credits are served first, at the highest price that sells everything.",
        source: "flexmemd §4.4",
        parameters: FLEXMEMD,
        needs: STATISTICS,
    },
    Entry {
        name: PolicyName::Auction,
        rule: "Every guest has what its free memory and its swapping call for.",
        shortage: "The highest bids are served first; guests with like credits have everything in turn.",
        source: "flexmemd §4.5",
        parameters: FLEXMEMD,
        needs: STATISTICS,
    },
    Entry {
        name: PolicyName::RoundRobin,
        rule: "Every guest has what its free memory and its swapping call for.",
        shortage: "The auction's price, but served in rounds: guests with like credits have like memory.",
        source: "flexmemd §4.6",
        parameters: FLEXMEMD,
        needs: STATISTICS,
    },
];

/// The entry of a policy; `None` where it cannot be chosen by name.
pub fn entry(name: PolicyName) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// How often and how finely it means to act unless the operator says otherwise.
    pub fn pacing(&self) -> Pacing {
        build(self.name, PolicySettings::default()).pacing()
    }

    /// What it needs and does not have of the guests of `problem`.
    pub fn missing(&self, problem: &Problem) -> impl Iterator<Item = Note> {
        self.needs.iter().filter_map(|need| {
            let lacks = |contender: &&Contender| !is_known(need.input, contender);
            let guests = problem.contenders().iter().filter(lacks).count();
            let fallback = Cow::Borrowed(need.fallback);
            (guests > 0).then_some(Note::MissingInput { what: need.input, guests, fallback })
        })
    }
}

/// Whether somebody provides `input` of a guest.
fn is_known(input: Input, contender: &Contender) -> bool {
    let signals = &contender.signals;
    match input {
        Input::Committed => signals.committed.is_some(),
        Input::Probed => signals.probed.is_some(),
        Input::MissCurve => contender.curve.is_some(),
        Input::SwapRate => signals.swapped_pages_per_s.is_some(),
        Input::Free => signals.free.is_some(),
        Input::Requests => signals.request.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_entry_in_order() {
        let names: Vec<PolicyName> = ENTRIES.iter().map(|entry| entry.name).collect();
        assert_eq!(names, PolicyName::ALL);
        for found in ENTRIES {
            assert_eq!(entry(found.name), Some(found));
            assert!(found.parameters.contains(&INTERVAL), "{}", found.name);
        }
        assert_eq!(entry(PolicyName::Custom("rival")), None);
    }
}
