//! The limits of all guests, from all three layers.
//!
//! Idea: there are three layers ([`LimitLayers`]): settings that live with a guest, the
//! configuration, and `ballast set`. Settings that live with a guest were written by whoever
//! defined it, and may not fit the rest. Then their bounds are left out, with a warning, and the
//! rest of them counts.
//! Cost: O(n) when something changes, O(n²) with a budget and floors that live with guests.
//! Limits: one entry per guest that is in any layer.

use std::collections::{BTreeMap, BTreeSet};

use ballast_control::Settings;
use ballast_model::{Bytes, GuestChange, GuestId, GuestLimits, LimitLayers, LimitTable};

/// All layers of all guests.
#[derive(Clone, Debug)]
pub(super) struct LimitBook {
    /// The configuration.
    table: LimitTable,
    budget: Option<Bytes>,
    /// Settings that live with guests, as far as they count.
    metadata: BTreeMap<GuestId, GuestChange>,
    set: BTreeMap<GuestId, GuestChange>,
}

impl LimitBook {
    pub(super) fn new(settings: &Settings) -> LimitBook {
        LimitBook {
            table: settings.limits.clone(),
            budget: settings.guard.budget,
            metadata: BTreeMap::new(),
            set: BTreeMap::new(),
        }
    }

    /// The layers of a guest.
    pub(super) fn layers(&self, id: &GuestId) -> LimitLayers {
        let of = |all: &BTreeMap<GuestId, GuestChange>| all.get(id).cloned().unwrap_or_default();
        LimitLayers {
            metadata: of(&self.metadata),
            file: of(&self.table.given),
            set: of(&self.set),
        }
    }

    /// The limits of a guest.
    pub(super) fn limits(&self, id: &GuestId) -> GuestLimits {
        let of_file = self.table.of(id);
        // Settings that can only be made in the file are taken from its table.
        let (swap, fence) = (of_file.swap, of_file.fence);
        let base = match self.table.given.contains_key(id) {
            true => GuestLimits { swap, fence, ..self.table.default.clone() },
            false => of_file.clone(),
        };
        self.layers(id).change().apply(&base)
    }

    /// The limits of every guest that is in a layer.
    pub(super) fn all(&self) -> BTreeMap<GuestId, GuestLimits> {
        let mut ids: BTreeSet<&GuestId> = self.table.named.keys().collect();
        ids.extend(self.metadata.keys().chain(self.set.keys()));
        ids.into_iter().map(|id| (id.clone(), self.limits(id))).collect()
    }

    /// Whether the configuration or `ballast set` names the guest.
    pub(super) fn is_named(&self, id: &GuestId) -> bool {
        self.table.named.contains_key(id) || self.set.contains_key(id)
    }

    /// The guests that `ballast set` names, sorted by name.
    pub(super) fn set_guests(&self) -> impl Iterator<Item = &GuestId> {
        self.set.keys()
    }

    /// Number of guests that the configuration or `ballast set` names.
    pub(super) fn named(&self) -> usize {
        let only_set = self.set.keys().filter(|id| !self.table.named.contains_key(*id)).count();
        self.table.named.len() + only_set
    }

    /// Takes in a new configuration. Limits from `ballast set` are forgotten.
    pub(super) fn reload(&mut self, settings: &Settings) -> Vec<String> {
        let metadata = std::mem::take(&mut self.metadata);
        *self = LimitBook::new(settings);
        self.replace_metadata(metadata)
    }

    /// Takes in the settings that live with all guests now. Returns complaints about those that do
    /// not count.
    pub(super) fn replace_metadata(
        &mut self,
        metadata: BTreeMap<GuestId, GuestChange>,
    ) -> Vec<String> {
        let mut complaints = Vec::new();
        self.metadata.clear();
        let mut all = self.all();
        for (id, change) in metadata {
            self.metadata.insert(id.clone(), change);
            if let Err(why) = self.limits(&id).validate() {
                complaints.push(format!("{id}: floor and ceiling that live with it: {why}"));
                self.leave_out(&id, |it| (it.floor, it.ceiling) = (None, None));
            }
            all.insert(id.clone(), self.limits(&id));
            let has_floor = self.metadata.get(&id).is_some_and(|it| it.floor.is_some());
            let fits = ballast_config::floors_fit(self.budget, &all);
            if let (true, Err(why)) = (has_floor, fits) {
                complaints.push(format!("{id}: the floor that lives with it: {why}"));
                self.leave_out(&id, |it| it.floor = None);
                all.insert(id.clone(), self.limits(&id));
            }
        }
        complaints
    }

    fn leave_out(&mut self, id: &GuestId, leave_out: impl Fn(&mut GuestChange)) {
        if let Some(change) = self.metadata.get_mut(id) {
            leave_out(change);
        }
    }

    /// Changes limits of a guest, as `ballast set` does.
    ///
    /// # Errors
    /// The change does not fit the rest; the book must not be used any more.
    pub(super) fn set(&mut self, id: &GuestId, change: &GuestChange) -> Result<(), String> {
        match change.over(&self.layers(id).set) {
            nothing if nothing.is_empty() => self.set.remove(id),
            set => self.set.insert(id.clone(), set),
        };
        self.check(id)
    }

    /// Changes settings that live with the guest from now on. Returns all settings that live with
    /// it.
    ///
    /// # Errors
    /// As [`LimitBook::set`].
    pub(super) fn set_metadata(
        &mut self,
        id: &GuestId,
        change: &GuestChange,
    ) -> Result<GuestChange, String> {
        let LimitLayers { metadata, file, set } = self.layers(id);
        let kept = change.over(&metadata);
        self.metadata.insert(id.clone(), kept.clone());
        // Until the file is read again, it must not hide what was just set.
        let hidden = change.without(&change.without(&file));
        match hidden.over(&set.without(change)) {
            nothing if nothing.is_empty() => self.set.remove(id),
            set => self.set.insert(id.clone(), set),
        };
        self.check(id)?;
        Ok(kept)
    }

    fn check(&self, id: &GuestId) -> Result<(), String> {
        self.limits(id).validate().map_err(|why| format!("{id}: {why}"))?;
        ballast_config::floors_fit(self.budget, &self.all())
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{LimitSource, PolicyName};

    use super::*;

    fn id(name: &str) -> GuestId {
        name.parse().unwrap()
    }

    fn floor(mib: u64) -> GuestChange {
        GuestChange { floor: Some(Bytes::mib(mib)), ..GuestChange::default() }
    }

    /// A configuration with a budget of 1 GiB that gives guest `web` 8 shares and a fence.
    fn book() -> LimitBook {
        let mut settings = Settings::new(PolicyName::Static);
        settings.guard.budget = Some(Bytes::gib(1));
        let given = GuestChange { shares: Some(8), ..GuestChange::default() };
        let limits = GuestLimits { fence: true, ..given.apply(&GuestLimits::default()) };
        settings.limits.named.insert(id("web"), limits);
        settings.limits.given.insert(id("web"), given);
        LimitBook::new(&settings)
    }

    #[test]
    fn a_configuration_counts_before_what_lives_with_guests() {
        let mut book = book();
        let metadata = GuestChange { shares: Some(3), ..floor(200) };
        let all = [(id("web"), metadata.clone()), (id("db"), metadata)];
        assert_eq!(book.replace_metadata(all.into()), Vec::<String>::new());
        let (web, db) = (book.limits(&id("web")), book.limits(&id("db")));
        assert_eq!((web.floor, web.shares, web.fence), (Some(Bytes::mib(200)), 8, true));
        assert_eq!((db.floor, db.shares, db.fence), (Some(Bytes::mib(200)), 3, false));
        book.replace_metadata(BTreeMap::new());
        assert_eq!((book.limits(&id("web")).floor, book.all().len()), (None, 1));
    }

    #[test]
    fn a_ceiling_that_is_unset_hides_nothing() {
        let mut book = book();
        let ceiling =
            |mib| GuestChange { ceiling: Some(Bytes::mib(mib)), ..GuestChange::default() };
        let unset = GuestChange { ceiling_unset: true, ..GuestChange::default() };
        let of = |book: &LimitBook| book.limits(&id("db")).ceiling;
        for mib in [700, 800] {
            book.set(&id("db"), &ceiling(300)).unwrap();
            book.replace_metadata([(id("db"), ceiling(mib))].into());
            assert_eq!(of(&book), Some(Bytes::mib(300)));
            book.set(&id("db"), &unset).unwrap();
            assert_eq!(of(&book), Some(Bytes::mib(mib)));
        }
        assert!(!book.is_named(&id("db")), "nothing is left of it");
        book.set(&id("db"), &ceiling(300)).unwrap();
        assert_eq!(book.set_metadata(&id("db"), &unset), Ok(GuestChange::default()));
        assert_eq!((of(&book), book.layers(&id("db"))), (None, LimitLayers::default()));
    }

    #[test]
    fn what_does_not_fit_is_left_out_alone() {
        let mut book = book();
        let crossed = GuestChange { ceiling: Some(Bytes::mib(100)), shares: Some(3), ..floor(200) };
        let all = [(id("a"), crossed), (id("b"), floor(600)), (id("c"), floor(600))];
        let complaints = book.replace_metadata(all.into());
        assert!(complaints[0].contains("a: floor and ceiling"), "{complaints:?}");
        assert!(complaints[1].contains("c: the floor that lives with it"), "{complaints:?}");
        let floors = ["a", "b", "c"].map(|it| book.limits(&id(it)).floor);
        assert_eq!(floors, [None, Some(Bytes::mib(600)), None]);
        assert_eq!(book.limits(&id("a")).shares, 3, "the rest counts");
    }

    #[test]
    fn what_is_kept_lives_with_the_guest() {
        let mut book = book();
        book.set(&id("web"), &floor(100)).unwrap();
        book.replace_metadata([(id("web"), GuestChange { priority: Some(2), ..floor(50) })].into());
        let change = GuestChange { shares: Some(9), ..floor(300) };
        let kept = book.set_metadata(&id("web"), &change).unwrap();
        let expected = GuestChange { priority: Some(2), ..change };
        assert_eq!(kept, expected);
        let sources = book.layers(&id("web")).sources();
        // The file sets the shares, and counts again when it is read again.
        assert_eq!((sources.floor, sources.shares), (LimitSource::Metadata, LimitSource::Set));
        assert!(book.set_metadata(&id("web"), &floor(2000)).unwrap_err().contains("budget"));
    }
}
