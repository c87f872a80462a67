//! Which combinations of frequency, price, demand and algorithm make sense.
//!
//! Idea: flexmemd §4 composes a policy of these four and supports 16 combinations, without saying
//! which. Here a combination is refused for a reason, and what is not refused is
//! [`Combination::all`], which a test pins.

use std::fmt;

use super::price::PriceRule;

/// When the algorithm runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frequency {
    /// Once, and again only when guests come or go or the operator changes something.
    Once,
    /// At every request.
    Immediate,
    /// At the end of every period, with everything that came since.
    Periodic,
}

/// How the price is set; what of [`PriceRule`] a combination is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pricing {
    /// There are no credits.
    None,
    /// The same for everybody.
    Fixed,
    /// In proportion to what one rents already.
    Proportional,
    /// By the operator's table.
    Custom,
    /// Found by the algorithm itself: the paper's custom price of its last three.
    Market,
}

impl From<&PriceRule> for Pricing {
    fn from(rule: &PriceRule) -> Pricing {
        match rule {
            PriceRule::None => Pricing::None,
            PriceRule::Fixed(_) => Pricing::Fixed,
            PriceRule::Proportional(_) => Pricing::Proportional,
            PriceRule::Custom(_) => Pricing::Custom,
            PriceRule::Market => Pricing::Market,
        }
    }
}

/// Where a guest's demand is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// Nowhere.
    Ignored,
    /// From what it asks for.
    Explicit,
    /// From its statistics.
    Implicit,
}

/// How memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// By weight alone.
    Proportional,
    /// In order of arrival.
    Fcfs,
    /// Max-min fair among what is wanted.
    DemandProportional,
    /// The richest first, at the price that sells everything.
    DirectAssign,
    /// The highest bid first.
    Auction,
    /// The highest bid first, in rounds.
    RoundRobin,
}

/// Defines the words of each enum once, for `ALL`, `as_str` and `Display`.
macro_rules! words {
    ($($type:ident { $($variant:ident => $word:literal),+ $(,)? })+) => {$(
        impl $type {
            /// All there are, in the order in which they are listed to people.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// The word in configuration and on the command line.
            pub const fn as_str(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    )+};
}

words! {
    Frequency { Once => "once", Immediate => "immediate", Periodic => "periodic" }
    Pricing {
        None => "none", Fixed => "fixed", Proportional => "proportional", Custom => "custom",
        Market => "market",
    }
    Demand { Ignored => "ignored", Explicit => "explicit", Implicit => "implicit" }
    Algorithm {
        Proportional => "proportional", Fcfs => "fcfs",
        DemandProportional => "demand-proportional", DirectAssign => "direct-assign",
        Auction => "auction", RoundRobin => "round-robin",
    }
}

/// One policy of flexmemd, in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Combination {
    /// How memory is divided.
    pub algorithm: Algorithm,
    /// When.
    pub frequency: Frequency,
    /// At what price.
    pub pricing: Pricing,
    /// By which demand.
    pub demand: Demand,
}

impl Combination {
    /// The one the paper evaluates an algorithm with.
    pub const fn evaluated(algorithm: Algorithm) -> Combination {
        let (frequency, pricing, demand) = match algorithm {
            Algorithm::Proportional => (Frequency::Once, Pricing::None, Demand::Ignored),
            Algorithm::Fcfs => (Frequency::Immediate, Pricing::Proportional, Demand::Explicit),
            Algorithm::DemandProportional => {
                (Frequency::Immediate, Pricing::None, Demand::Explicit)
            }
            Algorithm::DirectAssign | Algorithm::Auction | Algorithm::RoundRobin => {
                (Frequency::Periodic, Pricing::Market, Demand::Implicit)
            }
        };
        Combination { algorithm, frequency, pricing, demand }
    }

    /// Every combination that makes sense, by algorithm.
    pub fn all() -> impl Iterator<Item = Combination> {
        Algorithm::ALL.iter().flat_map(|&algorithm| {
            Frequency::ALL.iter().flat_map(move |&frequency| {
                Pricing::ALL.iter().flat_map(move |&pricing| {
                    Demand::ALL.iter().filter_map(move |&demand| {
                        let it = Combination { algorithm, frequency, pricing, demand };
                        it.validate().is_ok().then_some(it)
                    })
                })
            })
        })
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// Says why it does not.
    pub fn validate(self) -> Result<(), CombinationError> {
        match self.nonsense() {
            Some(why) => Err(CombinationError { combination: self, why }),
            None => Ok(()),
        }
    }

    fn nonsense(self) -> Option<&'static str> {
        use {Algorithm as A, Demand as D, Frequency as F, Pricing as P};
        let Combination { algorithm, frequency, pricing, demand } = self;
        match algorithm {
            A::Proportional if frequency != F::Once => {
                Some("it looks at nothing that changes in between: frequency must be once")
            }
            A::Proportional if pricing != P::None => {
                Some("everybody has its part whatever it pays: price must be none")
            }
            A::Proportional if demand != D::Ignored => {
                Some("it divides without looking at demand: demand must be ignored")
            }
            A::Proportional => None,
            _ if frequency == F::Once => {
                Some("demand changes, and once would never answer: use immediate or periodic")
            }
            _ if demand == D::Ignored => {
                Some("it divides by demand: demand must be explicit or implicit")
            }
            _ if frequency == F::Immediate && demand == D::Implicit => {
                Some("statistics are no events that could be answered at once: use periodic")
            }
            A::Fcfs if demand == D::Implicit => {
                Some("statistics have no order of arrival: demand must be explicit")
            }
            A::Fcfs if pricing == P::Market => Some(
                "it takes requests one by one and finds no price: use fixed, proportional, custom or none",
            ),
            A::DemandProportional if pricing != P::None => {
                Some("its fairness is in the rule itself and nobody pays: price must be none")
            }
            A::DirectAssign | A::Auction | A::RoundRobin if pricing != P::Market => {
                Some("finding the price is what it does: price must be market")
            }
            _ => None,
        }
    }

    /// What it means, for `ballast policy list`.
    pub const fn meaning(self) -> &'static str {
        use {Algorithm as A, Demand as D, Frequency as F, Pricing as P};
        match (self.algorithm, self.frequency, self.pricing, self.demand) {
            (A::Proportional, ..) => "memory by weight, whatever anybody wants",
            (A::Fcfs, F::Immediate, P::None, _) => {
                "requests are granted at once while there is memory"
            }
            (A::Fcfs, F::Immediate, P::Fixed, _) => {
                "requests are granted at once while there is memory, at one price for all"
            }
            (A::Fcfs, F::Immediate, P::Proportional, _) => {
                "requests are granted at once while there is memory; who rents more pays more for it"
            }
            (A::Fcfs, F::Immediate, ..) => {
                "requests are granted at once while there is memory, at the price of a table"
            }
            (A::Fcfs, _, P::None, _) => "the requests of a period are granted in order of arrival",
            (A::Fcfs, _, P::Fixed, _) => {
                "the requests of a period are granted in order of arrival, at one price for all"
            }
            (A::Fcfs, _, P::Proportional, _) => {
                "the requests of a period are granted in order of arrival; who rents more pays more for it"
            }
            (A::Fcfs, ..) => {
                "the requests of a period are granted in order of arrival, at the price of a table"
            }
            (A::DemandProportional, F::Immediate, ..) => {
                "a request is granted at once, from those that rent most for their weight if need be"
            }
            (A::DemandProportional, _, _, D::Explicit) => {
                "the requests of a period are granted together, from those that rent most if need be"
            }
            (A::DemandProportional, ..) => {
                "what statistics call for, and when it does not fit, equally for everybody's weight"
            }
            (A::DirectAssign, F::Immediate, ..) => {
                "at every request the richest are served first, at the highest price that sells all"
            }
            (A::DirectAssign, _, _, D::Explicit) => {
                "what was asked for in a period, the richest first, at the highest price that sells all"
            }
            (A::DirectAssign, ..) => {
                "what statistics call for, the richest first, at the highest price that sells all"
            }
            (A::Auction, F::Immediate, ..) => "at every request an auction, the highest bid first",
            (A::Auction, _, _, D::Explicit) => {
                "an auction of what was asked for in a period, the highest bid first"
            }
            (A::Auction, ..) => "an auction of what statistics call for, the highest bid first",
            (A::RoundRobin, F::Immediate, ..) => "at every request an auction, served in rounds",
            (A::RoundRobin, _, _, D::Explicit) => {
                "an auction of what was asked for in a period, served in rounds"
            }
            (A::RoundRobin, ..) => "an auction of what statistics call for, served in rounds",
        }
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Combination { algorithm, frequency, pricing, demand } = self;
        write!(f, "{algorithm}, {frequency}, price {pricing}, demand {demand}")
    }
}

/// A combination that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy `{}` ({combination}): {why}", combination.algorithm)]
pub struct CombinationError {
    /// What was asked for.
    pub combination: Combination,
    /// Why it is refused, and what to write instead.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The paper has 16 without naming them; these are ours.
    #[test]
    fn the_list_is_pinned() {
        let listed: Vec<String> = Combination::all().map(|it| it.to_string()).collect();
        let expected = [
            "proportional, once, price none, demand ignored",
            "fcfs, immediate, price none, demand explicit",
            "fcfs, immediate, price fixed, demand explicit",
            "fcfs, immediate, price proportional, demand explicit",
            "fcfs, immediate, price custom, demand explicit",
            "fcfs, periodic, price none, demand explicit",
            "fcfs, periodic, price fixed, demand explicit",
            "fcfs, periodic, price proportional, demand explicit",
            "fcfs, periodic, price custom, demand explicit",
            "demand-proportional, immediate, price none, demand explicit",
            "demand-proportional, periodic, price none, demand explicit",
            "demand-proportional, periodic, price none, demand implicit",
            "direct-assign, immediate, price market, demand explicit",
            "direct-assign, periodic, price market, demand explicit",
            "direct-assign, periodic, price market, demand implicit",
            "auction, immediate, price market, demand explicit",
            "auction, periodic, price market, demand explicit",
            "auction, periodic, price market, demand implicit",
            "round-robin, immediate, price market, demand explicit",
            "round-robin, periodic, price market, demand explicit",
            "round-robin, periodic, price market, demand implicit",
        ];
        assert_eq!(listed, expected);
    }

    #[test]
    fn what_the_paper_evaluates_makes_sense_and_no_two_mean_the_same() {
        for &algorithm in Algorithm::ALL {
            assert_eq!(Combination::evaluated(algorithm).validate(), Ok(()));
        }
        let meanings: BTreeSet<&str> = Combination::all().map(Combination::meaning).collect();
        assert_eq!(meanings.len(), Combination::all().count());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        let refused = |algorithm, frequency, pricing, demand| {
            let it = Combination { algorithm, frequency, pricing, demand };
            it.validate().unwrap_err().to_string()
        };
        use {Algorithm as A, Demand as D, Frequency as F, Pricing as P};
        for (error, word) in [
            (refused(A::Proportional, F::Periodic, P::None, D::Ignored), "must be once"),
            (refused(A::Proportional, F::Once, P::Fixed, D::Ignored), "price must be none"),
            (refused(A::Proportional, F::Once, P::None, D::Implicit), "must be ignored"),
            (refused(A::Auction, F::Once, P::Market, D::Implicit), "immediate or periodic"),
            (refused(A::Auction, F::Periodic, P::Market, D::Ignored), "explicit or implicit"),
            (refused(A::Auction, F::Immediate, P::Market, D::Implicit), "use periodic"),
            (refused(A::Auction, F::Periodic, P::Fixed, D::Implicit), "must be market"),
            (refused(A::Fcfs, F::Periodic, P::Fixed, D::Implicit), "order of arrival"),
            (refused(A::Fcfs, F::Periodic, P::Market, D::Explicit), "finds no price"),
            (refused(A::DemandProportional, F::Periodic, P::Fixed, D::Explicit), "nobody pays"),
        ] {
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(
            refused(A::Auction, F::Once, P::Market, D::Implicit),
            "policy `auction` (auction, once, price market, demand implicit): demand changes, and \
             once would never answer: use immediate or periodic"
        );
    }
}
