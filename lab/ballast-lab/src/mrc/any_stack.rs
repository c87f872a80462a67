//! An exact stack of any kind: the layers above need the same from all.

use ballast_mrc::{Avl, EngineName, Exact, List, Stack};

/// The stack of an exact engine; of any other, that of `exact`.
pub(super) fn any_stack(engine: EngineName) -> Box<dyn Stack> {
    match engine {
        EngineName::List => Box::new(List::new()),
        EngineName::Avl => Box::new(Avl::new()),
        _ => Box::new(Exact::new()),
    }
}
