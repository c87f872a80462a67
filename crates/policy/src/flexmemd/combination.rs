//! The valid combinations of frequency, price, demand and algorithm.
//!
//! Idea: flexmemd §4 composes a policy of these four and supports 16 combinations, without listing
//! them. Here an invalid combination is refused with a reason. [`Combination::all`] has the valid
//! ones, and a test fixes the list.

use std::fmt;

use super::pricing::Pricing;

/// When the algorithm runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frequency {
    /// Once, and again only when guests come or go or the operator changes something.
    Once,
    /// At every request.
    Immediate,
    /// At the end of every period, for all requests that came in it.
    Periodic,
}

/// The source of a guest's demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DemandInput {
    /// None.
    Ignored,
    /// Its requests.
    Explicit,
    /// Its statistics.
    Implicit,
}

/// How memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// By weight alone.
    Proportional,
    /// Requests in order of arrival.
    Fcfs,
    /// Max-min fair among the wants.
    DemandProportional,
    /// The guest with most credits first, at the price that sells everything.
    DirectAssign,
    /// The highest bid first.
    Auction,
    /// The price of the auction, served in rounds.
    RoundRobin,
}

/// Defines `ALL`, `as_str` and `Display` of each enum from one list of words.
macro_rules! words {
    ($($type:ident { $($variant:ident => $word:literal),+ $(,)? })+) => {$(
        impl $type {
            /// All values, in the order of display.
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
    DemandInput { Ignored => "ignored", Explicit => "explicit", Implicit => "implicit" }
    Algorithm {
        Proportional => "proportional", Fcfs => "fcfs",
        DemandProportional => "demand-proportional", DirectAssign => "direct-assign",
        Auction => "auction", RoundRobin => "round-robin",
    }
}

/// The four parts of a policy of flexmemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Combination {
    /// How memory is divided.
    pub algorithm: Algorithm,
    /// When the algorithm runs.
    pub frequency: Frequency,
    /// How the price is set.
    pub pricing: Pricing,
    /// Source of demand.
    pub demand: DemandInput,
}

impl Combination {
    /// The combination that the paper evaluates for `algorithm`.
    pub const fn evaluated(algorithm: Algorithm) -> Combination {
        let (frequency, pricing, demand) = match algorithm {
            Algorithm::Proportional => (Frequency::Once, Pricing::None, DemandInput::Ignored),
            Algorithm::Fcfs => (Frequency::Immediate, Pricing::Proportional, DemandInput::Explicit),
            Algorithm::DemandProportional => {
                (Frequency::Immediate, Pricing::None, DemandInput::Explicit)
            }
            Algorithm::DirectAssign | Algorithm::Auction | Algorithm::RoundRobin => {
                (Frequency::Periodic, Pricing::Market, DemandInput::Implicit)
            }
        };
        Combination { algorithm, frequency, pricing, demand }
    }

    /// Every valid combination, by algorithm.
    pub fn all() -> impl Iterator<Item = Combination> {
        Algorithm::ALL.iter().flat_map(|&algorithm| {
            Frequency::ALL.iter().flat_map(move |&frequency| {
                Pricing::ALL.iter().flat_map(move |&pricing| {
                    DemandInput::ALL.iter().filter_map(move |&demand| {
                        let it = Combination { algorithm, frequency, pricing, demand };
                        it.validate().is_ok().then_some(it)
                    })
                })
            })
        })
    }

    /// Checks that the combination is valid.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn validate(self) -> Result<(), CombinationError> {
        match self.objection() {
            Some(why) => Err(CombinationError { combination: self, why }),
            None => Ok(()),
        }
    }

    fn objection(self) -> Option<&'static str> {
        use {Algorithm as A, DemandInput as D, Frequency as F, Pricing as P};
        let Combination { algorithm, frequency, pricing, demand } = self;
        match algorithm {
            A::Proportional if frequency != F::Once => {
                Some("its input does not change over time: frequency must be once")
            }
            A::Proportional if pricing != P::None => {
                Some("it gives each guest its part whatever it pays: price must be none")
            }
            A::Proportional if demand != D::Ignored => {
                Some("it does not use demand: demand must be ignored")
            }
            A::Proportional => None,
            _ if frequency == F::Once => {
                Some("it would never react to changed demand: use immediate or periodic")
            }
            _ if demand == D::Ignored => {
                Some("it divides by demand: demand must be explicit or implicit")
            }
            _ if frequency == F::Immediate && demand == D::Implicit => {
                Some("statistics are not events to answer at once: use periodic")
            }
            A::Fcfs if demand == D::Implicit => {
                Some("statistics have no order of arrival: demand must be explicit")
            }
            A::Fcfs if pricing == P::Market => Some(
                "it grants requests one by one and finds no price: use fixed, proportional, \
                 custom or none",
            ),
            A::DemandProportional if pricing != P::None => {
                Some("its rule is fair without payment: price must be none")
            }
            A::DirectAssign | A::Auction | A::RoundRobin if pricing != P::Market => {
                Some("it finds the price itself: price must be market")
            }
            _ => None,
        }
    }

    /// A description, for `ballast policy list`.
    pub const fn meaning(self) -> &'static str {
        use {Algorithm as A, DemandInput as D, Frequency as F, Pricing as P};
        match (self.algorithm, self.frequency, self.pricing, self.demand) {
            (A::Proportional, ..) => "divides memory by weight, whatever guests want",
            (A::Fcfs, F::Immediate, P::None, _) => "grants requests at once while there is memory",
            (A::Fcfs, F::Immediate, P::Fixed, _) => {
                "grants requests at once while there is memory, at one price for all"
            }
            (A::Fcfs, F::Immediate, P::Proportional, _) => {
                "grants requests at once while there is memory, at a price that rises with the rent"
            }
            (A::Fcfs, F::Immediate, ..) => {
                "grants requests at once while there is memory, at a price from a table"
            }
            (A::Fcfs, _, P::None, _) => "grants the requests of a period in order of arrival",
            (A::Fcfs, _, P::Fixed, _) => {
                "grants the requests of a period in order of arrival, at one price for all"
            }
            (A::Fcfs, _, P::Proportional, _) => {
                "grants the requests of a period in order of arrival, at a price that rises with \
                 the rent"
            }
            (A::Fcfs, ..) => {
                "grants the requests of a period in order of arrival, at a price from a table"
            }
            (A::DemandProportional, F::Immediate, ..) => {
                "grants a request at once, if necessary from guests that rent most for their weight"
            }
            (A::DemandProportional, _, _, D::Explicit) => {
                "grants the requests of a period together, if necessary from guests that rent most"
            }
            (A::DemandProportional, ..) => {
                "gives what statistics call for; if that does not fit, equally for weight"
            }
            (A::DirectAssign, F::Immediate, ..) => {
                "sells all at the highest possible price at every request, most credits first"
            }
            (A::DirectAssign, _, _, D::Explicit) => {
                "sells all at the highest possible price for the requests of a period, most \
                 credits first"
            }
            (A::DirectAssign, ..) => {
                "sells all at the highest possible price for wants from statistics, most credits \
                 first"
            }
            (A::Auction, F::Immediate, ..) => "an auction at every request, highest bid first",
            (A::Auction, _, _, D::Explicit) => {
                "an auction for the requests of a period, highest bid first"
            }
            (A::Auction, ..) => "an auction for wants from statistics, highest bid first",
            (A::RoundRobin, F::Immediate, ..) => "an auction at every request, served in rounds",
            (A::RoundRobin, _, _, D::Explicit) => {
                "an auction for the requests of a period, served in rounds"
            }
            (A::RoundRobin, ..) => "an auction for wants from statistics, served in rounds",
        }
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Combination { algorithm, frequency, pricing, demand } = self;
        write!(f, "{algorithm}, {frequency}, price {pricing}, demand {demand}")
    }
}

/// An invalid combination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy `{}` ({combination}): {why}", combination.algorithm)]
pub struct CombinationError {
    /// The combination.
    pub combination: Combination,
    /// Why it is refused, and what to use instead.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The paper supports 16 without listing them; these are ours.
    #[test]
    fn the_list_of_valid_combinations_is_fixed() {
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
    fn evaluated_combinations_are_valid_and_meanings_are_unique() {
        for &algorithm in Algorithm::ALL {
            assert_eq!(Combination::evaluated(algorithm).validate(), Ok(()));
        }
        let meanings: BTreeSet<&str> = Combination::all().map(Combination::meaning).collect();
        assert_eq!(meanings.len(), Combination::all().count());
    }

    #[test]
    fn invalid_combinations_are_refused_with_a_reason() {
        let refused = |algorithm, frequency, pricing, demand| {
            let it = Combination { algorithm, frequency, pricing, demand };
            it.validate().unwrap_err().to_string()
        };
        use {Algorithm as A, DemandInput as D, Frequency as F, Pricing as P};
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
            (refused(A::DemandProportional, F::Periodic, P::Fixed, D::Explicit), "without payment"),
        ] {
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(
            refused(A::Auction, F::Once, P::Market, D::Implicit),
            "policy `auction` (auction, once, price market, demand implicit): it would never react \
             to changed demand: use immediate or periodic"
        );
    }
}
