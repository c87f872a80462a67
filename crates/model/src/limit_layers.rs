//! Where each limit of a guest comes from.
//!
//! Idea: there are four layers, and the one nearest to the operator's hand counts: first `ballast
//! set`, then the configuration file, then the settings that live with the guest, then the limits
//! that it brought from another host. A limit in no layer has its default. Cost: O(1).

use crate::GuestChange;

/// The layer that sets a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitSource {
    /// No layer: it is the default, or the file's `[defaults]`.
    #[default]
    Default,
    /// The limits that the guest brought from another host.
    Carried,
    /// The settings that live with the guest.
    Metadata,
    /// The configuration file.
    File,
    /// `ballast set`.
    Set,
}

impl LimitSource {
    /// Stable word for machines and people.
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitSource::Default => "default",
            LimitSource::Carried => "carried",
            LimitSource::Metadata => "metadata",
            LimitSource::File => "file",
            LimitSource::Set => "set",
        }
    }
}

/// The layer that sets each limit of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitSources {
    /// Of the floor.
    pub floor: LimitSource,
    /// Of the ceiling.
    pub ceiling: LimitSource,
    /// Of the shares.
    pub shares: LimitSource,
    /// Of the priority.
    pub priority: LimitSource,
    /// Of the objective.
    pub miss_rate_max: LimitSource,
    /// Whether it is managed.
    pub managed: LimitSource,
    /// Whether it is taken over.
    pub take_over: LimitSource,
}

/// The content of each layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitLayers {
    /// The limits that the guest brought from another host.
    pub carried: GuestChange,
    /// The settings that live with the guest.
    pub metadata: GuestChange,
    /// The configuration file.
    pub file: GuestChange,
    /// `ballast set`.
    pub set: GuestChange,
}

impl LimitLayers {
    /// The changes that count.
    pub fn change(&self) -> GuestChange {
        self.set.layered_over(&self.file).layered_over(&self.metadata).layered_over(&self.carried)
    }

    /// Where these come from.
    pub fn sources(&self) -> LimitSources {
        let of = |is_set: fn(&GuestChange) -> bool| {
            if is_set(&self.set) {
                LimitSource::Set
            } else if is_set(&self.file) {
                LimitSource::File
            } else if is_set(&self.metadata) {
                LimitSource::Metadata
            } else if is_set(&self.carried) {
                LimitSource::Carried
            } else {
                LimitSource::Default
            }
        };
        LimitSources {
            floor: of(|it| it.floor.is_some()),
            ceiling: of(|it| it.ceiling.is_some()),
            shares: of(|it| it.shares.is_some()),
            priority: of(|it| it.priority.is_some()),
            miss_rate_max: of(|it| it.miss_rate_max.is_some()),
            managed: of(|it| it.managed.is_some()),
            take_over: of(|it| it.take_over.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    #[test]
    fn the_layer_nearest_to_the_operator_counts() {
        let floor = |mib| GuestChange { floor: Some(Bytes::mib(mib)), ..GuestChange::default() };
        let mut layers = LimitLayers {
            carried: GuestChange { priority: Some(4), managed: Some(true), ..floor(4) },
            metadata: GuestChange { shares: Some(7), managed: Some(false), ..floor(1) },
            file: GuestChange { shares: Some(8), ..floor(2) },
            set: floor(3),
        };
        let change = layers.change();
        assert_eq!((change.floor, change.shares), (Some(Bytes::mib(3)), Some(8)));
        assert_eq!((change.managed, change.priority), (Some(false), Some(4)));
        assert_eq!(change.take_over, None);
        let expected = LimitSources {
            floor: LimitSource::Set,
            shares: LimitSource::File,
            priority: LimitSource::Carried,
            managed: LimitSource::Metadata,
            ..LimitSources::default()
        };
        assert_eq!(layers.sources(), expected);
        layers.set = layers.set.without(&floor(9));
        assert_eq!(layers.change().floor, Some(Bytes::mib(2)));
    }
}
