//! Makes an exact stack of any kind; the layers above use all of them in the same way.

use ballast_mrc::{Avl, EngineName, Exact, List, Stack};

/// The stack of an exact engine; for any other engine, that of `exact`.
pub(super) fn any_stack(engine: EngineName) -> Box<dyn Stack> {
    match engine {
        EngineName::List => Box::new(List::new()),
        EngineName::Avl => Box::new(Avl::new()),
        _ => Box::new(Exact::new()),
    }
}
