//! Describes every policy to operators.
//!
//! Idea: one table holds each policy's rule and source, its configuration keys, and the data it
//! needs. `ballast policy` prints it, plans report missing data from it, and a test compares its
//! keys with those that the configuration reads.

use std::borrow::Cow;

use ballast_model::{Input, Note, PolicyName};

use crate::problem::{Contender, Problem};

/// The description of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyEntry {
    /// The policy's name.
    pub name: PolicyName,
    /// What it does, in one sentence.
    pub rule: &'static str,
    /// What it does when the guests' wants do not fit, in one sentence.
    pub shortage: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its configuration keys.
    pub parameters: &'static [PolicyParameter],
    /// Data it needs of each guest besides memory in use.
    pub needs: &'static [PolicyInput],
}

/// A configuration key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyParameter {
    /// The key within `[policy]`; `table.key` for a nested table.
    pub key: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its default, as written in the configuration; empty: the policy's own.
    pub default: &'static str,
    /// Its valid values.
    pub range: &'static str,
}

/// An input of a policy, and its substitute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyInput {
    /// The input.
    pub input: Input,
    /// What happens with guests for which it is not known, as a clause.
    pub fallback: &'static str,
}

const INTERVAL: PolicyParameter = PolicyParameter {
    key: "interval",
    meaning: "time between decisions",
    unit: "span of time",
    default: "",
    range: "one tick to 1h",
};
const RESERVE: PolicyParameter = PolicyParameter {
    key: "reserve_per_guest",
    meaning: "free memory for each guest on top of what it uses; part of the need of guests with \
              higher priority",
    unit: "size",
    default: "\"100MiB\"",
    range: "any size",
};
const BELIEVED: PolicyParameter = PolicyParameter {
    key: "believed_without_evidence",
    meaning: "how much more memory than it has filled of its grant a guest is believed to need on \
              its word alone",
    unit: "part of what it has filled",
    default: "0.25",
    range: "0 to 1000",
};
const TAU: PolicyParameter = PolicyParameter {
    key: "tau",
    meaning: "idle-memory tax: 0 divides by shares only, 1 by use",
    unit: "share of idle memory",
    default: "\"dynamic\"",
    range: "\"dynamic\", or 0 to 1",
};
const IN_USE: &str = "they want what they use plus the reserve";

const MEB: &[PolicyParameter] = &[
    INTERVAL,
    RESERVE,
    BELIEVED,
    PolicyParameter {
        key: "meb.step",
        meaning: "step between the sizes considered; smaller changes are not made",
        unit: "size",
        default: "\"1MiB\"",
        range: "4KiB to 1GiB, whole pages",
    },
    PolicyParameter {
        key: "meb.shrink_max",
        meaning: "most that a guest shrinks in a decision, unless the budget requires more",
        unit: "part of what it holds",
        default: "0.1",
        range: "0.001 to 1",
    },
    PolicyParameter {
        key: "meb.grow_max",
        meaning: "most that a guest grows in a decision, or one step if that is more",
        unit: "part of what it holds",
        default: "0.3",
        range: "0.001 to 10",
    },
    PolicyParameter {
        key: "meb.weighting",
        meaning: "weight of a guest's misses, and of its part of memory that no guest demands",
        unit: "word",
        default: "\"shares\"",
        range: "\"shares\" or \"equal\"",
    },
];

/// Keys of probing, which runs under every policy; an epoch is one reading, once a second.
const TWS: &[PolicyParameter] = &[
    INTERVAL,
    RESERVE,
    BELIEVED,
    PolicyParameter {
        key: "tws.fast",
        meaning: "memory taken away in an epoch before the guest first reads any back",
        unit: "part of Committed_AS",
        default: "0.05",
        range: "0.001 to 0.5",
    },
    PolicyParameter {
        key: "tws.slow",
        meaning: "memory taken away in an epoch after that",
        unit: "part of Committed_AS",
        default: "0.01",
        range: "0.0001 to 0.5, not above tws.fast",
    },
    PolicyParameter {
        key: "tws.cool_down_epochs",
        meaning: "epochs without reading back before memory is taken away again",
        unit: "epochs",
        default: "8",
        range: "1 to 3600",
    },
    PolicyParameter {
        key: "tws.change",
        meaning: "probing restarts when Committed_AS changes by more than this and tws.change_min",
        unit: "part of Committed_AS",
        default: "0.02",
        range: "0 to 1",
    },
    PolicyParameter {
        key: "tws.change_min",
        meaning: "amount that such a change must also exceed",
        unit: "size",
        default: "\"4MiB\"",
        range: "any size",
    },
];

/// Keys of the six policies of flexmemd. An empty default means: as the paper evaluates the policy.
const FLEXMEMD: &[PolicyParameter] = &[
    INTERVAL,
    RESERVE,
    BELIEVED,
    PolicyParameter {
        key: "flexmemd.period",
        meaning: "time for which rent is paid; a periodic policy decides at its end, but an \
                  auction that sold at a price waits until the balloons have moved what was sold",
        unit: "span of time",
        default: "\"1s\"",
        range: "100ms to 1h",
    },
    PolicyParameter {
        key: "flexmemd.tax_per_second",
        meaning: "part of every credit balance that is collected and redistributed each second",
        unit: "part of a balance",
        default: "0.05",
        range: "0 to 1",
    },
    PolicyParameter {
        key: "flexmemd.swaps_per_second",
        meaning: "a guest that swaps more than this, in plus out, wants more memory",
        unit: "pages a second",
        default: "90",
        range: "any number",
    },
    PolicyParameter {
        key: "flexmemd.free_min",
        meaning: "a guest with less free memory than this wants more",
        unit: "size",
        default: "\"100MiB\"",
        range: "any size",
    },
    PolicyParameter {
        key: "flexmemd.gib",
        meaning: "size that counts as a GiB in the part of its memory that a guest should have \
                  free; that part is larger for small guests, so use less for scaled-down guests",
        unit: "size",
        default: "\"1GiB\"",
        range: "1MiB to 1TiB",
    },
    PolicyParameter {
        key: "flexmemd.round",
        meaning: "relative size of what each guest may receive in a round of round-robin",
        unit: "word",
        default: "\"equal\"",
        range: "\"equal\" or \"by-floor\"",
    },
    PolicyParameter {
        key: "flexmemd.frequency",
        meaning: "when the algorithm runs",
        unit: "word",
        default: "",
        range: "\"once\", \"immediate\" or \"periodic\"",
    },
    PolicyParameter {
        key: "flexmemd.price",
        meaning: "price of memory while the wants do not fit",
        unit: "word",
        default: "",
        range: "\"none\", \"fixed\", \"proportional\", \"custom\" or \"market\"",
    },
    PolicyParameter {
        key: "flexmemd.price_per_kib",
        meaning: "fixed price, or the proportional price of a guest that rents everything",
        unit: "credits per KiB and period",
        default: "",
        range: "0 to 1048576",
    },
    PolicyParameter {
        key: "flexmemd.tariff",
        meaning: "custom price as steps { from, per_kib }; from is the part of rentable memory \
                  rented",
        unit: "table of steps",
        default: "",
        range: "1 to 16 steps, with rising parts and no falling price",
    },
    PolicyParameter {
        key: "flexmemd.demand",
        meaning: "source of demand: requests (explicit) or statistics (implicit)",
        unit: "word",
        default: "",
        range: "\"ignored\", \"explicit\" or \"implicit\"",
    },
];

/// Keys of the program, and of the policy that decides while it does not answer.
const EXTERNAL: &[PolicyParameter] = &[
    INTERVAL,
    RESERVE,
    BELIEVED,
    TAU,
    PolicyParameter {
        key: "external.program",
        meaning: "the program that decides: an absolute path; it is started without a shell",
        unit: "path",
        default: "",
        range: "an executable file",
    },
    PolicyParameter {
        key: "external.args",
        meaning: "its arguments",
        unit: "list of texts",
        default: "[]",
        range: "at most 64",
    },
    PolicyParameter {
        key: "external.deadline",
        meaning: "longest wait for its answer to one decision",
        unit: "span of time",
        default: "",
        range: "10ms to half a tick",
    },
    PolicyParameter {
        key: "external.user",
        meaning: "the user it runs as, with that user's group alone; takes root",
        unit: "user's name",
        default: "",
        range: "a user of this host",
    },
];

const REQUESTS: &[PolicyInput] =
    &[PolicyInput { input: Input::Requests, fallback: "they keep what they rent" }];
const STATISTICS: &[PolicyInput] = &[
    PolicyInput { input: Input::Free, fallback: "they keep what they have" },
    PolicyInput { input: Input::SwapRate, fallback: "they never give memory back" },
];

/// Every policy that can be chosen by name, in the order of [`PolicyName::ALL`].
pub const ENTRIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: PolicyName::Static,
        rule: "Every guest gets its share of the budget, whatever it uses.",
        shortage: "The same: use and demand are ignored.",
        source: "Global §3.2, with a tax of 0; the baseline for all others",
        parameters: &[INTERVAL, RESERVE, BELIEVED],
        needs: &[],
    },
    PolicyEntry {
        name: PolicyName::SelfBalloon,
        rule: "Every guest gets what its kernel has committed to processes (Committed_AS) plus a \
               reserve.",
        shortage: "Guests that want less than their part by shares get it; the others divide the \
                   rest by shares.",
        source: "Xen's self-ballooning, as described in TWS §2",
        parameters: &[INTERVAL, RESERVE, BELIEVED],
        needs: &[PolicyInput { input: Input::Committed, fallback: IN_USE }],
    },
    PolicyEntry {
        name: PolicyName::SelfScheduling,
        rule: "Every guest gets what it uses plus a reserve.",
        shortage: "Decides like global until all fits again with a margin of a twentieth.",
        source: "Global §3",
        parameters: &[INTERVAL, RESERVE, BELIEVED, TAU],
        needs: &[],
    },
    PolicyEntry {
        name: PolicyName::Global,
        rule: "Divides the whole budget by shares, and taxes idle memory as much as the neediest \
               guest requires.",
        shortage: "The tax is full: every guest gets what it uses, less its part of the shortage.",
        source: "Global §3.1–3.4",
        parameters: &[INTERVAL, RESERVE, BELIEVED, TAU],
        needs: &[],
    },
    PolicyEntry {
        name: PolicyName::Meb,
        rule: "Every guest gets its demand and a part of the rest; at most a tenth less or three \
               tenths more in a decision.",
        shortage: "Memory goes where it avoids most misses, by the guests' miss curves and shares. \
                   A guest keeps what it has unless moving it saves an eighth more misses than it \
                   costs.",
        source: "MEB §4, Algorithm 1",
        parameters: MEB,
        needs: &[PolicyInput {
            input: Input::MissCurve,
            fallback: "their misses are assumed to fall to zero at their demand",
        }],
    },
    PolicyEntry {
        name: PolicyName::Tws,
        rule: "Every guest gets its working set, found by taking memory away until it reads some \
               back.",
        shortage: "Guests that want less than their part by shares get it; the others divide the \
                   rest by shares.",
        source: "TWS §2",
        parameters: TWS,
        needs: &[PolicyInput { input: Input::Probed, fallback: IN_USE }],
    },
    PolicyEntry {
        name: PolicyName::Proportional,
        rule: "Every guest gets its floor; the rest of the budget is divided by floor and shares.",
        shortage: "The same: use and demand are ignored.",
        source: "flexmemd §4.1",
        parameters: FLEXMEMD,
        needs: &[],
    },
    PolicyEntry {
        name: PolicyName::Fcfs,
        rule: "Grants requests at once while there is memory; guests keep what they have.",
        shortage: "Every guest pays for what it rents, at a price that rises with it. What it \
                   cannot pay for goes to guests that request it and can.",
        source: "flexmemd §4.2",
        parameters: FLEXMEMD,
        needs: REQUESTS,
    },
    PolicyEntry {
        name: PolicyName::DemandProportional,
        rule: "Grants requests at once while there is memory.",
        shortage: "Guests that rent most for their weight give memory up, until the one that \
                   requests it rents as much as they do.",
        source: "flexmemd §4.3",
        parameters: FLEXMEMD,
        needs: REQUESTS,
    },
    PolicyEntry {
        name: PolicyName::DirectAssign,
        rule: "Every guest gets what its free memory and its swapping call for.",
        shortage: "The guests with most credits are served first, at the highest price that sells \
                   everything. Guests that already rent memory count as having a quarter more \
                   credits.",
        source: "flexmemd §4.4",
        parameters: FLEXMEMD,
        needs: STATISTICS,
    },
    PolicyEntry {
        name: PolicyName::Auction,
        rule: "Every guest gets what its free memory and its swapping call for.",
        shortage: "The highest bids are served first. A guest keeps what it rents until another \
                   bids a quarter more, and a sale holds until the balloons have moved what was \
                   sold: two guests that both want everything have it in turn.",
        source: "flexmemd §4.5",
        parameters: FLEXMEMD,
        needs: STATISTICS,
    },
    PolicyEntry {
        name: PolicyName::RoundRobin,
        rule: "Every guest gets what its free memory and its swapping call for.",
        shortage: "The auction's price, served in rounds: guests with equal credits get equal \
                   memory.",
        source: "flexmemd §4.6",
        parameters: FLEXMEMD,
        needs: STATISTICS,
    },
    PolicyEntry {
        name: PolicyName::External,
        rule: "A program of yours gets each decision as a line of JSON and answers with targets.",
        shortage: "As the program answers; while it is late, dead or wrong, global decides.",
        source: "ours; the protocol is in docs/policies.md",
        parameters: EXTERNAL,
        needs: &[],
    },
];

/// The description of a policy; `None` if it cannot be chosen by name.
pub fn entry(name: PolicyName) -> Option<&'static PolicyEntry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

impl PolicyEntry {
    /// A note for each input that is missing for some guests of `problem`.
    pub fn missing(&self, problem: &Problem) -> impl Iterator<Item = Note> {
        self.needs.iter().filter_map(|need| {
            let lacks = |contender: &&Contender| !is_known(need.input, contender);
            let guests = problem.contenders().iter().filter(lacks).count();
            let fallback = Cow::Borrowed(need.fallback);
            (guests > 0).then_some(Note::MissingInput { what: need.input, guests, fallback })
        })
    }
}

/// Whether `input` is known for a guest.
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
    fn every_policy_is_described_in_order() {
        let names: Vec<PolicyName> = ENTRIES.iter().map(|entry| entry.name).collect();
        assert_eq!(names, PolicyName::ALL);
        for found in ENTRIES {
            assert_eq!(entry(found.name), Some(found));
            assert!(found.parameters.contains(&INTERVAL), "{}", found.name);
        }
        assert_eq!(entry(PolicyName::Custom("rival")), None);
    }
}
