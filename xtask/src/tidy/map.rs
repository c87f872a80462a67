//! Every crate is on the map: `docs/ARCHITECTURE.md` names the folder of each package.

use super::{Finding, Tree};

const MAP: &str = "docs/ARCHITECTURE.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.files.get(MAP) else {
        return vec![Finding::new(MAP, "the map of the workspace is missing")];
    };
    let named = |dir: &str| map.split(is_no_path).any(|word| word == dir);
    let missing = tree.packages.iter().filter(|package| !named(&package.dir));
    missing
        .map(|package| Finding::new(MAP, format!("does not say what `{}` is", package.dir)))
        .collect()
}

fn is_no_path(c: char) -> bool {
    !c.is_alphanumeric() && !matches!(c, '/' | '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_off_the_map_are_found() {
        for (map, found) in [
            ("| `crates/lab-host` | guests |", false),
            ("| `crates/lab-host-guest` | a longer name |", true),
            ("", true),
        ] {
            let tree = Tree::of([(MAP, map)]).with_package("ballast-lab-host", &[]);
            assert_eq!(!check(&tree).is_empty(), found, "{map}");
        }
        assert_eq!(check(&Tree::default()).len(), 1);
    }
}
