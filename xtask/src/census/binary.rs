//! Which packages the program that runs on hosts links, and how large it is.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::tidy::Tree;

/// Packages that only programs for pictures and progress bars need.
const FOR_THE_LAB: [&str; 3] = ["plotters", "maud", "indicatif"];
/// The feature by which a crate offers fixtures.
const TESTING: &str = "testing";

/// The packages that `ballast` links, one per line: `name v1.2.3 (path) features`.
pub(super) fn linked(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "ballast", "-e", "normal", "--prefix", "none", "--no-dedupe"])
        .args(["-f", "{p} {f}"])
        .current_dir(root)
        .output()
        .context("cannot start cargo tree")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8(output.stdout).context("cargo tree prints no text")?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    Ok(lines)
}

/// Those of the linked packages that are not for hosts, or whose feature for tests is on.
pub(super) fn unwanted(tree: &Tree, linked: &[String]) -> Vec<String> {
    let of_lab = tree.packages.iter().filter(|package| package.dir.starts_with("lab/"));
    let names: Vec<&str> = of_lab.map(|package| package.name.as_str()).chain(FOR_THE_LAB).collect();
    let is_unwanted = |line: &&String| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let features = line.rsplit(' ').next().unwrap_or_default();
        let is_ours = name.starts_with("ballast");
        names.contains(&name) || is_ours && features.split(',').any(|feature| feature == TESTING)
    };
    linked.iter().filter(is_unwanted).cloned().collect()
}

/// Size in bytes of the program as installed (profile `dist`, which strips it); `None`: it is not
/// built.
pub(super) fn size(root: &Path) -> Option<u64> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    fs::metadata(target.join("dist/ballast")).ok().map(|found| found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_and_its_pictures_are_unwanted() {
        let mut tree = Tree::default().with_package("ballast-sim", &[]);
        tree.packages[0].dir = "lab/sim".into();
        let linked = [
            "ballast-model v0.1.0 (/x/crates/model) serde",
            "ballast-model v0.1.0 (/x/crates/model) serde,testing",
            "ballast-sim v0.1.0 (/x/lab/sim) ",
            "plotters v0.3.7 svg_backend",
            "tokio v1.0.0 testing",
        ]
        .map(str::to_owned);
        assert_eq!(unwanted(&tree, &linked), linked[1..4]);
    }
}
