//! The limits of all guests, from all four layers.
//!
//! Idea: there are four layers ([`LimitLayers`]): limits that a guest brought from another host,
//! settings that live with it, the configuration, and `ballast set`. The first two come from
//! outside this host's configuration, so their floors and ceilings may not fit the other limits.
//! Bounds that do not fit are left out, with a warning; the other settings of the layer count.
//! Cost: O(n) when something changes, O(n²) with a budget and floors that live with guests.
//! Limits: one entry per guest that is in any layer.

use std::collections::BTreeMap;

use ballast_control::Settings;
use ballast_model::{Bytes, GuestChange, GuestId, GuestLimits, LimitLayers, LimitTable};

use crate::gathered::gathered;

/// What one layer says of guests.
type Layer = BTreeMap<GuestId, GuestChange>;

/// All layers of all guests.
#[derive(Clone, Debug)]
pub(super) struct LimitBook {
    /// The configuration.
    table: LimitTable,
    budget: Option<Bytes>,
    /// Limits that guests brought from other hosts, as far as they count.
    carried: Layer,
    /// Settings that live with guests, as far as they count.
    metadata: Layer,
    set: Layer,
}

impl LimitBook {
    pub(super) fn new(settings: &Settings) -> LimitBook {
        LimitBook {
            table: settings.limits.clone(),
            budget: settings.guard.budget,
            carried: BTreeMap::new(),
            metadata: BTreeMap::new(),
            set: BTreeMap::new(),
        }
    }

    pub(super) fn layers(&self, id: &GuestId) -> LimitLayers {
        let of = |layer: &Layer| layer.get(id).cloned().unwrap_or_default();
        LimitLayers {
            carried: of(&self.carried),
            metadata: of(&self.metadata),
            file: of(&self.table.given),
            set: of(&self.set),
        }
    }

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
        let layers = [&self.carried, &self.metadata, &self.set];
        let ids = self.table.named.keys().chain(layers.into_iter().flat_map(|it| it.keys()));
        gathered(ids.map(|id| (id.clone(), self.limits(id))))
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

    /// Takes in a new configuration, and the limits that guests brought from other hosts. Limits
    /// from `ballast set` are forgotten.
    pub(super) fn reload(&mut self, settings: &Settings, carried: Layer) -> Vec<String> {
        let metadata = std::mem::take(&mut self.metadata);
        *self = LimitBook::new(settings);
        self.carried = carried;
        self.replace_metadata(metadata)
    }

    /// Takes in the settings that live with all guests now. Returns complaints about those that do
    /// not count.
    pub(super) fn replace_metadata(&mut self, metadata: Layer) -> Vec<String> {
        // Limits that were brought give way to these.
        let carried = std::mem::take(&mut self.carried);
        self.metadata.clear();
        let origin = ["that live with it", "that lives with it"];
        let mut complaints = self.fill(|book| &mut book.metadata, metadata, origin);
        complaints.extend(self.replace_carried(carried));
        complaints
    }

    /// Takes in the limits that the guests here brought from other hosts. Returns complaints about
    /// those that do not count.
    pub(super) fn replace_carried(&mut self, carried: Layer) -> Vec<String> {
        self.carried.clear();
        self.fill(|book| &mut book.carried, carried, ["that it brought"; 2])
    }

    /// Puts `changes` into an empty layer, without the bounds that do not fit the rest. Returns
    /// complaints about these. `origin`: where the bounds come from, as words after a plural and
    /// after a singular.
    fn fill(
        &mut self,
        layer: fn(&mut LimitBook) -> &mut Layer,
        changes: Layer,
        origin: [&str; 2],
    ) -> Vec<String> {
        let mut complaints = Vec::new();
        let [after_plural, after_singular] = origin;
        let mut all = self.all();
        for (id, change) in changes {
            let has_floor = change.floor.is_some();
            let without_floor = GuestChange { floor: None, ..change.clone() };
            let without_both = GuestChange { ceiling: None, ..without_floor.clone() };
            layer(self).insert(id.clone(), change);
            let is_valid = self.limits(&id).validate();
            if let Err(why) = &is_valid {
                complaints.push(format!("{id}: floor and ceiling {after_plural}: {why}"));
                layer(self).insert(id.clone(), without_both);
            }
            all.insert(id.clone(), self.limits(&id));
            let fits = ballast_config::floors_fit(self.budget, &all);
            if let (true, Ok(()), Err(why)) = (has_floor, is_valid, fits) {
                complaints.push(format!("{id}: the floor {after_singular}: {why}"));
                layer(self).insert(id.clone(), without_floor);
                all.insert(id.clone(), self.limits(&id));
            }
        }
        complaints
    }

    /// Takes in limits that a guest brings from another host. They count like those of `ballast
    /// set` as long as these do.
    ///
    /// # Errors
    /// As [`LimitBook::set`].
    pub(super) fn carry(&mut self, id: &GuestId, change: &GuestChange) -> Result<(), String> {
        self.carried.insert(id.clone(), change.clone());
        self.set(id, change)
    }

    /// Changes limits of a guest, as `ballast set` does.
    ///
    /// # Errors
    /// The change does not fit the rest; the book must not be used any more.
    pub(super) fn set(&mut self, id: &GuestId, change: &GuestChange) -> Result<(), String> {
        match change.layered_over(&self.layers(id).set) {
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
        let LimitLayers { metadata, file, set, .. } = self.layers(id);
        let kept = change.layered_over(&metadata);
        self.metadata.insert(id.clone(), kept.clone());
        // Until the file is read again, it must not hide what was just set.
        let hidden = common_fields(change, &file);
        match hidden.layered_over(&set.without(change)) {
            nothing if nothing.is_empty() => self.set.remove(id),
            set => self.set.insert(id.clone(), set),
        };
        self.check(id)?;
        Ok(kept)
    }

    /// The part of `change` that the configuration file hides, because it sets these fields too.
    pub(super) fn hidden_by_file(&self, id: &GuestId, change: &GuestChange) -> GuestChange {
        common_fields(change, &self.layers(id).file)
    }

    fn check(&self, id: &GuestId) -> Result<(), String> {
        self.limits(id).validate().map_err(|why| format!("{id}: {why}"))?;
        ballast_config::floors_fit(self.budget, &self.all())
    }
}

/// The part of `change` whose fields `other` sets or unsets too.
fn common_fields(change: &GuestChange, other: &GuestChange) -> GuestChange {
    change.without(&change.without(other))
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
    fn settings() -> Settings {
        let mut settings = Settings::new(PolicyName::Static);
        settings.guard.budget = Some(Bytes::gib(1));
        let given = GuestChange { shares: Some(8), ..GuestChange::default() };
        let limits = GuestLimits { fence: true, ..given.apply(&GuestLimits::default()) };
        settings.limits.named.insert(id("web"), limits);
        settings.limits.given.insert(id("web"), given);
        settings
    }

    fn book() -> LimitBook {
        LimitBook::new(&settings())
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
    fn what_was_brought_outlives_a_reload_and_gives_way() {
        let mut book = book();
        let brought = GuestChange { shares: Some(3), priority: Some(2), ..floor(600) };
        book.carry(&id("web"), &brought).unwrap();
        let of_web = |book: &LimitBook| {
            let web = book.limits(&id("web"));
            (web.floor.map_or(0, |floor| floor.get() >> 20), web.shares, web.priority)
        };
        assert_eq!(of_web(&book), (600, 3, 2));
        book.set(&id("web"), &GuestChange { priority: Some(5), ..floor(700) }).unwrap();
        let carried = Layer::from([(id("web"), brought)]);
        assert_eq!(book.reload(&settings(), carried.clone()), Vec::<String>::new());
        assert_eq!(of_web(&book), (600, 8, 2));
        assert_eq!(book.layers(&id("web")).sources().floor, LimitSource::Carried);
        // There is no room for both floors.
        let complaints = book.replace_metadata([(id("db"), floor(600))].into());
        assert!(complaints[0].contains("web: the floor that it brought"), "{complaints:?}");
        assert_eq!(of_web(&book), (0, 8, 2));
        assert_eq!(book.limits(&id("db")).floor, Some(Bytes::mib(600)));
        let low = GuestChange { ceiling: Some(Bytes::mib(500)), ..GuestChange::default() };
        assert_eq!(book.set_metadata(&id("web"), &low), Ok(low), "without what it brought");
        let complaints = book.replace_carried(carried);
        assert!(complaints[0].contains("web: floor and ceiling that it brought"), "{complaints:?}");
        assert_eq!(of_web(&book), (0, 8, 2));
        assert_eq!(book.replace_carried(Layer::new()), Vec::<String>::new());
        assert_eq!(of_web(&book), (0, 8, 0));
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
