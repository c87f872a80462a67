//! Builds the commit into the program, so that its results name the program that made them.
//!
//! Idea: `BALLAST_COMMIT` is set for this crate alone. It is above all others, so a commit rebuilds
//! nothing else. The name ends in `-dirty` if a source differs from the commit; a change of any
//! source runs this script again, and rebuilds this crate anyway.
//! Limits: without git there is no commit.

use std::path::Path;
use std::process::{Command, Output};

/// Everything that the program is built from.
const SOURCES: [&str; 5] =
    ["../../Cargo.lock", "../../Cargo.toml", "../../crates", "../../lab", "../../lib"];

fn main() {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    for name in ["HEAD", "logs/HEAD"] {
        // A worktree has them elsewhere. A path that is not there would run this in every build.
        let path = git(&["rev-parse", "--git-path", name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let Some(commit) = git(&["describe", "--always", "--abbrev=12"]) else { return };
    let differs = git(&[&["diff", "--quiet", "HEAD", "--"][..], &SOURCES].concat()).is_none();
    let dirty = if differs { "-dirty" } else { "" };
    println!("cargo::rustc-env=BALLAST_COMMIT={commit}{dirty}");
}

/// What git prints; `None`: it fails, or is not there.
fn git(arguments: &[&str]) -> Option<String> {
    let Output { status, stdout, .. } = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(stdout).ok().filter(|_| status.success())?;
    Some(text.trim().to_owned())
}
