//! The census: figures of the workspace and their limits.
//!
//! Idea: everything is counted from the [`Tree`] and from the output of cargo and the linker; each
//! figure has a file of its own. `make test` runs the census, and fails if a limit is exceeded.
//! Limits: it counts lines and imports as written, and does not see what macros make.

mod binary;
mod circles;
mod lines;
mod tests_built;
mod type_names;

use std::path::Path;

use crate::tidy::Tree;
use type_names::REPEATED_MIN;

/// Largest share of the non-test lines in one crate, in per cent.
const SHARE_MAX_PERCENT: f64 = 10.0;
/// Most integration test programs of the workspace.
const TEST_PROGRAMS_MAX: usize = 25;
/// Largest stripped `ballast`, in bytes.
const BALLAST_BYTES_MAX: u64 = 10 << 20;
/// Most repeated names of types: a little more than there were when the limit was set.
const REPEATED_NAMES_MAX: usize = 60;
/// Number of repeated names that are printed.
const REPEATED_NAMES_PRINTED: usize = 8;

/// What is printed instead of a size.
const NOT_BUILT: &str = "not built: size not checked (cargo build --profile dist -p ballast)";

/// The figures.
#[derive(Debug)]
pub struct Census {
    /// Non-test lines of all crates, without blank lines and comments.
    pub lines_total: usize,
    /// The folder of each crate and its lines, the largest first.
    pub crates: Vec<(String, usize)>,
    /// Packages and features that `ballast` links but must not link.
    pub unwanted: Vec<String>,
    /// Number of packages it links.
    pub packages_linked: usize,
    /// Size in bytes of the stripped program, as installed; `None`: it was not built.
    pub ballast_bytes: Option<u64>,
    /// Integration test programs, by folder.
    pub test_programs: Vec<String>,
    /// Files that import each other in a circle.
    pub circles: Vec<Vec<String>>,
    /// Names of three types or more, with the number of types; the most frequent first.
    pub repeated_names: Vec<(String, usize)>,
}

impl Census {
    /// Counts the workspace of `tree`, whose root is `root`.
    ///
    /// # Errors
    /// If cargo cannot list the packages that `ballast` links.
    pub fn take(tree: &Tree, root: &Path) -> anyhow::Result<Census> {
        let crates = lines::by_crate(tree);
        let linked = binary::linked(root)?;
        Ok(Census {
            lines_total: crates.iter().map(|(_, lines)| lines).sum(),
            crates,
            unwanted: binary::unwanted(tree, &linked),
            packages_linked: linked.len(),
            ballast_bytes: binary::size(root),
            test_programs: tests_built::programs(tree),
            circles: circles::find(tree),
            repeated_names: type_names::repeated(tree),
        })
    }

    /// Every exceeded limit, as a sentence. In continuous integration (`is_ci`) a limit that could
    /// not be checked counts as exceeded.
    pub fn exceeded(&self, is_ci: bool) -> Vec<String> {
        let mut exceeded = Vec::new();
        for (folder, lines) in &self.crates {
            let share = self.share_percent(*lines);
            if share > SHARE_MAX_PERCENT {
                exceeded.push(format!(
                    "{folder} holds {share:.1} % of the non-test lines, at most {SHARE_MAX_PERCENT} %: split it"
                ));
            }
        }
        for name in &self.unwanted {
            exceeded.push(format!("ballast links {name}, which is for the lab"));
        }
        match self.ballast_bytes {
            Some(bytes) if bytes > BALLAST_BYTES_MAX => {
                exceeded.push(format!("ballast is {bytes} bytes, at most {BALLAST_BYTES_MAX}"));
            }
            None if is_ci => exceeded.push(format!("ballast is {NOT_BUILT}")),
            _ => {}
        }
        let programs = self.test_programs.len();
        if programs > TEST_PROGRAMS_MAX {
            exceeded.push(format!(
                "{programs} integration test programs, at most {TEST_PROGRAMS_MAX}: use one tests/it per crate"
            ));
        }
        for circle in &self.circles {
            exceeded.push(format!("files import each other in a circle: {}", circle.join(", ")));
        }
        if self.repeated_names.len() > REPEATED_NAMES_MAX {
            exceeded.push(format!(
                "{}: name the new one after what it belongs to",
                self.repeated_names_line()
            ));
        }
        exceeded
    }

    /// The figures, one per line.
    pub fn lines(&self) -> String {
        let mut out = format!("non-test lines          {}\n", self.lines_total);
        for (folder, lines) in &self.crates {
            out.push_str(&format!(
                "  {:>5.1} %  {lines:>6}  {folder}\n",
                self.share_percent(*lines)
            ));
        }
        let size = self.ballast_bytes.map_or(NOT_BUILT.to_owned(), |bytes| {
            let mib = bytes as f64 / f64::from(1 << 20);
            format!("{mib:.1} MiB, at most {} MiB", BALLAST_BYTES_MAX >> 20)
        });
        out.push_str(&format!(
            "largest share           at most {SHARE_MAX_PERCENT} %\n\
             ballast links           {} packages, {} of the lab\n\
             ballast, stripped       {size}\n\
             integration programs    {}, at most {TEST_PROGRAMS_MAX}\n\
             import circles          {}, at most 0\n\
             {}\n",
            self.packages_linked,
            self.unwanted.len(),
            self.test_programs.len(),
            self.circles.len(),
            self.repeated_names_line(),
        ));
        out
    }

    fn repeated_names_line(&self) -> String {
        let names = self.repeated_names.iter().take(REPEATED_NAMES_PRINTED);
        let largest: Vec<String> = names.map(|(name, count)| format!("{name} {count}")).collect();
        format!(
            "names of {REPEATED_MIN} types or more {}, at most {REPEATED_NAMES_MAX}; the largest: {}",
            self.repeated_names.len(),
            largest.join(", ")
        )
    }

    fn share_percent(&self, lines: usize) -> f64 {
        lines as f64 * 100.0 / self.lines_total.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census() -> Census {
        Census {
            lines_total: 100,
            crates: vec![("crates/a".into(), 10)],
            unwanted: Vec::new(),
            packages_linked: 1,
            ballast_bytes: Some(BALLAST_BYTES_MAX),
            test_programs: vec![String::new(); TEST_PROGRAMS_MAX],
            circles: Vec::new(),
            repeated_names: vec![(String::new(), REPEATED_MIN); REPEATED_NAMES_MAX],
        }
    }

    #[test]
    fn figures_at_their_limits_pass() {
        assert_eq!(census().exceeded(true), [""; 0]);
    }

    #[test]
    fn a_size_that_is_not_checked_fails_in_ci() {
        let census = Census { ballast_bytes: None, ..census() };
        assert!(census.lines().contains("ballast, stripped       not built: size not checked"));
        assert_eq!(census.exceeded(false), [""; 0]);
        assert_eq!(census.exceeded(true).len(), 1);
    }

    #[test]
    fn each_limit_is_enforced() {
        let over = [
            Census { crates: vec![("crates/a".into(), 11)], ..census() },
            Census { unwanted: vec!["plotters".into()], ..census() },
            Census { ballast_bytes: Some(BALLAST_BYTES_MAX + 1), ..census() },
            Census { test_programs: vec![String::new(); TEST_PROGRAMS_MAX + 1], ..census() },
            Census { circles: vec![vec!["a.rs".into(), "b.rs".into()]], ..census() },
            Census {
                repeated_names: vec![(String::new(), REPEATED_MIN); REPEATED_NAMES_MAX + 1],
                ..census()
            },
        ];
        for census in over {
            assert_eq!(census.exceeded(false).len(), 1, "{census:?}");
        }
    }
}
