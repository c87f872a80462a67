//! Collects into maps and sets.

/// Adds `items` to a map or a set one by one. `collect` sorts them all first, for which the program
/// has some kilobytes of code for each type; that is worth it only for all guests in every tick.
pub(crate) fn gathered<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut gathered = C::default();
    gathered.extend(items);
    gathered
}
