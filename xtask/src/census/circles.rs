//! Files that import each other in a circle.
//!
//! Idea: a file imports another if one of its paths (in `use`, an expression or a type) leads to an
//! item of that file. A path through a module that only re-exports (`pub use`) leads on to the file
//! with the item. `mod x;` is no import. Circles are the strongly connected components of this
//! graph.
//! Source: Tarjan's algorithm, as petgraph has it.
//! Limits: it does not follow names that macros make, methods of traits, and glob imports of
//! another file's items; modules under `#[cfg(test)]` do not count.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

use super::lines::is_test;
use crate::tidy::Tree;

/// Most re-exports through which a path is followed.
const HOPS_MAX: usize = 8;

/// Every circle of files, each sorted.
pub(super) fn find(tree: &Tree) -> Vec<Vec<String>> {
    let mut circles = Vec::new();
    for package in &tree.packages {
        for root in roots(tree, &package.dir) {
            circles.extend(Crate::read(tree, &root).circles());
        }
    }
    circles.sort();
    circles.dedup();
    circles
}

/// The root files of a package's crates.
fn roots(tree: &Tree, dir: &str) -> Vec<String> {
    let bins = format!("{dir}/src/bin/");
    let is_root = |path: &str| {
        let bin = path.strip_prefix(&bins).map(|rest| rest.split('/').collect::<Vec<_>>());
        path == format!("{dir}/src/lib.rs")
            || path == format!("{dir}/src/main.rs")
            || matches!(bin.as_deref(), Some([_] | [_, "main.rs"]))
    };
    tree.rust_files().map(|(path, _)| path.to_owned()).filter(|path| is_root(path)).collect()
}

/// The segments of a path, from the crate's root.
type Path = Vec<String>;

/// A module: its file, and the names it re-exports.
#[derive(Default)]
struct Module {
    file: usize,
    reexports: BTreeMap<String, Path>,
}

/// One crate: its modules, and all paths in its files.
#[derive(Default)]
struct Crate {
    files: Vec<String>,
    modules: BTreeMap<Path, Module>,
    /// File, module, and path as written.
    paths: Vec<(usize, Path, Path)>,
}

impl Crate {
    fn read(tree: &Tree, root: &str) -> Crate {
        let mut read = Crate::default();
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        read.read_file(tree, root, folder, Vec::new());
        read
    }

    /// Reads the file at `path`, with submodules in `folder`, as the module `module`.
    fn read_file(&mut self, tree: &Tree, path: &str, folder: &str, module: Path) {
        let Some(text) = tree.files.get(path).filter(|_| !is_test(path)) else { return };
        // A file that is not Rust is reported by the compiler.
        let Ok(parsed) = syn::parse_file(text) else { return };
        let file = self.files.len();
        self.files.push(path.to_owned());
        self.read_items(tree, &parsed.items, file, folder, module);
    }

    fn read_items(&mut self, tree: &Tree, items: &[Item], file: usize, folder: &str, module: Path) {
        self.modules.insert(module.clone(), Module { file, ..Module::default() });
        for item in items {
            match item {
                Item::Mod(inner) if is_for_tests(&inner.attrs) => {}
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let mut below = module.clone();
                    below.push(name.clone());
                    let inside = format!("{folder}/{name}");
                    match &inner.content {
                        Some((_, items)) => self.read_items(tree, items, file, &inside, below),
                        None => {
                            for path in [format!("{inside}.rs"), format!("{inside}/mod.rs")] {
                                self.read_file(tree, &path, &inside, below.clone());
                            }
                        }
                    }
                }
                Item::Use(used) => {
                    let mut found = Vec::new();
                    flatten(&used.tree, &mut Vec::new(), &mut found);
                    for (path, name) in found {
                        if let Some(this) = self.modules.get_mut(&module) {
                            this.reexports.insert(name, path.clone());
                        }
                        // A re-export passes a name on and is no import.
                        if matches!(used.vis, syn::Visibility::Inherited) {
                            self.paths.push((file, module.clone(), path));
                        }
                    }
                }
                item => {
                    let mut seen = Paths::default();
                    seen.visit_item(item);
                    let paths = seen.0.into_iter().map(|path| (file, module.clone(), path));
                    self.paths.extend(paths);
                }
            }
        }
    }

    fn circles(&self) -> Vec<Vec<String>> {
        let mut graph = DiGraphMap::<usize, ()>::new();
        for (from, module, path) in &self.paths {
            if let Some(to) = self.file_of(module, path, HOPS_MAX)
                && to != *from
            {
                graph.add_edge(*from, to, ());
            }
        }
        let components = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
        let named = components.map(|files| {
            let names: BTreeSet<&str> =
                files.iter().map(|file| self.files[*file].as_str()).collect();
            names.into_iter().map(str::to_owned).collect()
        });
        named.collect()
    }

    /// The file of the item to which `path` leads from `module`; `None`: it is of another crate.
    fn file_of(&self, module: &Path, path: &Path, hops: usize) -> Option<usize> {
        let mut here = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => module.clone(),
            // In the 2018 edition a path may begin with a module or a name of this module.
            first if self.is_module(module, first) => module.clone(),
            _ => return None,
        };
        let mut rest = path.iter().peekable();
        while let Some(word) = rest.next_if(|it| matches!(it.as_str(), "crate" | "self" | "super"))
        {
            if word == "super" {
                here.pop();
            }
        }
        while let Some(name) = rest.next_if(|name| self.is_module(&here, name)) {
            here.push(name.clone());
        }
        let found = self.modules.get(&here)?;
        match rest.next().and_then(|name| found.reexports.get(name)) {
            Some(elsewhere) if hops > 0 => {
                self.file_of(&here, elsewhere, hops - 1).or(Some(found.file))
            }
            _ => Some(found.file),
        }
    }

    fn is_module(&self, module: &Path, name: &str) -> bool {
        let mut below = module.clone();
        below.push(name.to_owned());
        self.modules.contains_key(&below)
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Meta>().is_ok_and(|meta| {
                let syn::Meta::List(list) = &meta else { return meta.path().is_ident("test") };
                list.path.is_ident("any") && list.tokens.to_string().contains("test")
            })
    })
}

/// The paths of a `use`, with the name that each gets here.
fn flatten(tree: &UseTree, before: &mut Path, found: &mut Vec<(Path, String)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) => {
            let mut path = before.clone();
            path.push(name.ident.to_string());
            found.push((path, name.ident.to_string()));
        }
        UseTree::Rename(name) => {
            let mut path = before.clone();
            path.push(name.ident.to_string());
            found.push((path, name.rename.to_string()));
        }
        UseTree::Glob(_) => found.push((before.clone(), "*".to_owned())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, before, found);
            }
        }
    }
}

/// Collects paths of two segments or more.
#[derive(Default)]
struct Paths(Vec<Path>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    /// `pub(in crate::a)` is no import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles<const N: usize>(files: [(&str, &str); N]) -> Vec<Vec<String>> {
        find(&Tree::of(files).with_package("ballast-a", &[]))
    }

    const LIB: &str = "mod one;\nmod two;\n";

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let found = circles([
            ("crates/a/src/lib.rs", LIB),
            ("crates/a/src/one.rs", "use crate::two::Two; pub struct One;"),
            ("crates/a/src/two.rs", "pub struct Two(super::one::One);"),
        ]);
        assert_eq!(found, [["crates/a/src/one.rs", "crates/a/src/two.rs"]]);
    }

    #[test]
    fn one_direction_is_no_circle() {
        let found = circles([
            ("crates/a/src/lib.rs", LIB),
            ("crates/a/src/one.rs", "use crate::two::Two; pub struct One;"),
            ("crates/a/src/two.rs", "pub struct Two;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_reexport_leads_to_the_file_that_has_the_item() {
        let found = circles([
            ("crates/a/src/lib.rs", "mod one;\nmod two;\npub use one::One;\npub use two::Two;"),
            ("crates/a/src/one.rs", "use crate::Two; pub struct One;"),
            ("crates/a/src/two.rs", "use crate::One; pub struct Two;"),
        ]);
        assert_eq!(found, [["crates/a/src/one.rs", "crates/a/src/two.rs"]]);
    }

    #[test]
    fn a_parent_that_uses_its_child_back_is_a_circle() {
        let found = circles([
            ("crates/a/src/lib.rs", "mod one;\nuse one::One;\npub struct Lib(One);"),
            ("crates/a/src/one.rs", "use super::Lib; pub struct One;"),
        ]);
        assert_eq!(found, [["crates/a/src/lib.rs", "crates/a/src/one.rs"]]);
    }

    #[test]
    fn tests_make_no_circle() {
        let found = circles([
            ("crates/a/src/lib.rs", LIB),
            ("crates/a/src/one.rs", "use crate::two::Two;\n#[cfg(test)]\nmod tests { }"),
            ("crates/a/src/two.rs", "pub struct Two;\n#[cfg(test)]\nmod tests { use crate::one; }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
