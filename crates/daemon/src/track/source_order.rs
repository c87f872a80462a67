//! Which sources may watch a guest, and when one that fails is given up for the next.
//!
//! Idea: the thread of a tracked guest and the diagnosis both decide here, so the diagnosis names
//! the source that the daemon takes.
//! Limits: pure. Whether a failure lasts is the source's own judgement
//! ([`SourceError::is_lasting`](super::source::SourceError::is_lasting)).

use ballast_config::SourceChoice;

/// A source of working sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceKind {
    /// The library in the guest's hypervisor.
    Library,
    /// The kernel's DAMON.
    Damon,
    /// The generations of its cgroup's pages.
    Mglru,
    /// The kernel's referenced bits.
    Referenced,
}

impl SourceKind {
    /// All of them, the best first.
    const ALL: [SourceKind; 4] =
        [SourceKind::Library, SourceKind::Damon, SourceKind::Mglru, SourceKind::Referenced];

    /// Stable word for machines.
    pub(super) const fn code(self) -> &'static str {
        match self {
            SourceKind::Library => "library",
            SourceKind::Damon => "damon",
            SourceKind::Mglru => "mglru",
            SourceKind::Referenced => "referenced",
        }
    }
}

/// The order of the sources under given settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceOrder {
    /// The configured source.
    pub(super) choice: SourceChoice,
    /// Whether referenced bits may be used.
    pub(super) allows_bits: bool,
}

impl SourceOrder {
    /// The sources that may watch a guest, the best first.
    pub(super) fn sources(self) -> impl Iterator<Item = SourceKind> {
        SourceKind::ALL.into_iter().filter(move |source| self.may_be(*source))
    }

    /// Whether `source`, which fails, is given up for the next one; otherwise it is waited for.
    /// `is_lasting`: it cannot work as long as the hypervisor lives.
    pub(super) fn gives_up(self, source: SourceKind, is_lasting: bool) -> bool {
        match source {
            SourceKind::Library => {
                is_lasting && (self.may_be(SourceKind::Damon) || self.allows_bits)
            }
            // Another program may free DAMON soon, or the guest may get a cgroup of its own, but
            // the bits are available now.
            SourceKind::Damon | SourceKind::Mglru => is_lasting || self.allows_bits,
            // There is no other.
            SourceKind::Referenced => false,
        }
    }

    fn may_be(self, source: SourceKind) -> bool {
        let is_chosen =
            |choice: SourceChoice| self.choice == SourceChoice::Auto || self.choice == choice;
        match source {
            SourceKind::Library => is_chosen(SourceChoice::Library),
            SourceKind::Damon => is_chosen(SourceChoice::Damon),
            SourceKind::Mglru => is_chosen(SourceChoice::Mglru),
            SourceKind::Referenced => self.allows_bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(choice: SourceChoice, allows_bits: bool) -> SourceOrder {
        SourceOrder { choice, allows_bits }
    }

    #[test]
    fn only_configured_sources_may_be_used() {
        let codes = |choice, allows_bits| {
            let sources = order(choice, allows_bits).sources();
            sources.map(SourceKind::code).collect::<Vec<_>>()
        };
        assert_eq!(codes(SourceChoice::Auto, false), ["library", "damon", "mglru"]);
        assert_eq!(codes(SourceChoice::Auto, true), ["library", "damon", "mglru", "referenced"]);
        assert_eq!(codes(SourceChoice::Library, true), ["library", "referenced"]);
        assert_eq!(codes(SourceChoice::Damon, false), ["damon"]);
        assert_eq!(codes(SourceChoice::Mglru, false), ["mglru"]);
    }

    #[test]
    fn damon_and_generations_are_waited_for_unless_failures_last() {
        let [auto, allows_bits] =
            [false, true].map(|allows_bits| order(SourceChoice::Auto, allows_bits));
        for source in [SourceKind::Damon, SourceKind::Mglru] {
            assert!(auto.gives_up(source, true));
            assert!(!auto.gives_up(source, false));
            assert!(allows_bits.gives_up(source, false), "the bits are available now");
        }
    }

    #[test]
    fn the_library_alone_is_never_given_up() {
        assert!(order(SourceChoice::Auto, false).gives_up(SourceKind::Library, true));
        assert!(!order(SourceChoice::Auto, true).gives_up(SourceKind::Library, false));
        assert!(order(SourceChoice::Library, true).gives_up(SourceKind::Library, true));
        assert!(!order(SourceChoice::Library, false).gives_up(SourceKind::Library, true));
    }
}
