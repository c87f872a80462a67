//! The workspace as data: files, packages and their dependencies.
//!
//! Limits: text files of at most [`FILE_BYTES_MAX`]; generated folders (`target`, `.git`) and the
//! corpora and findings of the fuzzer are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use cargo_metadata::MetadataCommand;

/// Largest file that is read, in bytes; larger ones are recorded data, not sources.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most files that a workspace may have; with more the walk has gone wrong.
const FILES_MAX: usize = 20_000;
/// Folders without sources, by path from the root.
const GENERATED: [&str; 5] = [".git", "target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

/// The folder of the fuzz targets, which use every crate and are not on the map.
const FUZZ: &str = "fuzz";

/// A workspace.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Text of every text file, by path from the root.
    pub files: BTreeMap<String, String>,
    /// Names under `[workspace.dependencies]`.
    pub workspace_dependencies: Vec<String>,
    /// The members, without the fuzz targets.
    pub packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its package name.
    pub name: String,
    /// Its folder, by path from the root.
    pub dir: String,
    /// The dependencies in its manifest.
    pub dependencies: Vec<Dependency>,
}

/// A dependency in a package's manifest.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// Package depended on.
    pub name: String,
    /// What it is needed for.
    pub kind: DependencyKind,
}

/// What a dependency is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyKind {
    /// The package itself.
    Normal,
    /// Its tests and benchmarks.
    Development,
    /// Its build script.
    Build,
}

impl Tree {
    /// Reads the workspace that the package in `package_dir` belongs to.
    ///
    /// # Errors
    ///
    /// If `cargo metadata` fails, or a file cannot be read.
    pub fn load(package_dir: &Path) -> anyhow::Result<Tree> {
        let metadata = MetadataCommand::new()
            .current_dir(package_dir)
            .no_deps()
            .exec()
            .context("cannot ask cargo for the workspace")?;
        let root = metadata.workspace_root.as_std_path();
        let mut tree = Tree::default();
        for package in &metadata.packages {
            let dir = package.manifest_path.parent().context("a manifest without a folder")?;
            let dir = dir.strip_prefix(&metadata.workspace_root)?.to_string();
            if dir == FUZZ {
                continue;
            }
            let dependencies = package.dependencies.iter().map(|dependency| Dependency {
                name: dependency.name.clone(),
                kind: match dependency.kind {
                    cargo_metadata::DependencyKind::Development => DependencyKind::Development,
                    cargo_metadata::DependencyKind::Build => DependencyKind::Build,
                    _ => DependencyKind::Normal,
                },
            });
            tree.packages.push(Package {
                name: package.name.to_string(),
                dir,
                dependencies: dependencies.collect(),
            });
        }
        tree.read_folder(root, "")?;
        tree.workspace_dependencies =
            tree.files.get("Cargo.toml").map_or_else(Vec::new, |text| dependency_names(text));
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> anyhow::Result<()> {
        let entries = fs::read_dir(root.join(folder))
            .with_context(|| format!("cannot list folder `{folder}` of the workspace"))?;
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !GENERATED.contains(&path.as_str()) {
                    self.read_folder(root, &path)?;
                }
            } else if kind.is_file() {
                if self.files.len() == FILES_MAX {
                    bail!("more than {FILES_MAX} files, the last in `{folder}`: what filled it?");
                }
                self.read_file(&entry, path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, entry: &fs::DirEntry, path: String) -> anyhow::Result<()> {
        // Other programs may be writing in the tree: a file that has just vanished is no finding.
        let Ok(metadata) = entry.metadata() else { return Ok(()) };
        if metadata.len() > FILE_BYTES_MAX {
            return Ok(());
        }
        match fs::read(entry.path()) {
            Ok(bytes) => {
                // A picture is in the tree, so that documents can refer to it, but has no text.
                self.files.insert(path, String::from_utf8(bytes).unwrap_or_default());
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot read `{path}`")),
        }
    }

    /// Every Rust source file: path and text.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&str, &str)> {
        let rust = self.files.iter().filter(|(path, _)| path.ends_with(".rs"));
        rust.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The Rust source files of one package.
    pub(crate) fn rust_files_of(&self, package: &Package) -> impl Iterator<Item = (&str, &str)> {
        let folder = format!("{}/", package.dir);
        self.rust_files().filter(move |(path, _)| path.starts_with(&folder))
    }
}

/// The keys under `[workspace.dependencies]`; no more of TOML is needed here.
fn dependency_names(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned()))
        .filter(|name| !name.starts_with('#'))
        .collect()
}

#[cfg(test)]
impl Tree {
    /// A tree of the given files.
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Tree {
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        Tree { files: files.into(), ..Tree::default() }
    }

    /// The same tree with a package in `crates/NAME` that depends on `dependencies`.
    pub(crate) fn with_package(
        mut self,
        name: &str,
        dependencies: &[(&str, DependencyKind)],
    ) -> Tree {
        let dependencies = dependencies
            .iter()
            .map(|&(name, kind)| Dependency { name: name.to_owned(), kind })
            .collect();
        let dir = format!("crates/{}", name.strip_prefix("ballast-").unwrap_or(name));
        self.packages.push(Package { name: name.to_owned(), dir, dependencies });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_under_workspace_dependencies_are_read() {
        let manifest = "[workspace]\na = 1\n[workspace.dependencies]\nserde = \"1\"\n\n# x = 1\n\
                        toml = { version = \"1\" }\n[profile.dev]\ndebug = 1\n";
        assert_eq!(dependency_names(manifest), ["serde", "toml"]);
    }
}
