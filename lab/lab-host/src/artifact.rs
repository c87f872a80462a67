//! What is built beside the program for the lab to use.
//!
//! Idea: an environment variable names it; else it lies in the target folder that the running program is in
//! (built), or beside the program (installed). In that order, as cargo leaves libraries of another profile,
//! and perhaps of yesterday, beside a test.

use std::path::{Path, PathBuf};

/// Something that is built, and where it is looked for.
#[derive(Debug)]
pub struct Artifact {
    /// Environment variable with its path.
    pub variable: &'static str,
    /// Where cargo puts it, below the target folder.
    pub built: &'static str,
}

/// It is nowhere.
#[derive(Debug, thiserror::Error)]
#[error("not built (looked for {looked_for}): run `make build`")]
pub struct Missing {
    /// Where it was looked for.
    pub looked_for: String,
}

impl Artifact {
    /// Its path.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(&self) -> Result<PathBuf, Missing> {
        match (std::env::var_os(self.variable).map(PathBuf::from), std::env::current_exe()) {
            (Some(path), _) if path.is_file() => Ok(path),
            (Some(path), _) => {
                Err(Missing { looked_for: format!("{} ({})", path.display(), self.variable) })
            }
            (None, Ok(program)) => self.near(&program),
            (None, Err(_)) => Err(Missing { looked_for: self.built.to_owned() }),
        }
    }

    fn near(&self, program: &Path) -> Result<PathBuf, Missing> {
        let name = Path::new(self.built).file_name().unwrap_or_default();
        let beside = program.with_file_name(name);
        let built = program.ancestors().skip(1).map(|folder| folder.join(self.built));
        let mut looked_for = self.built.to_owned();
        for path in built.chain(std::iter::once(beside)) {
            if path.is_file() {
                return Ok(path);
            }
            let target = path.display().to_string().strip_suffix(self.built).map(str::to_owned);
            if target.is_some_and(|folder| Path::new(&folder).ends_with("target")) {
                looked_for = path.display().to_string();
            }
        }
        Err(Missing { looked_for })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn it_is_found_in_the_target_folder_or_beside_the_program() {
        let thing = Artifact { variable: "BALLAST_NO_SUCH_VARIABLE", built: "some/release/thing" };
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let program = target.join("debug/deps/some-test");
        let built = target.join(thing.built);
        assert_eq!(thing.near(&program).unwrap_err().looked_for, built.display().to_string());
        let beside = program.with_file_name("thing");
        fs::create_dir_all(beside.parent().unwrap()).unwrap();
        fs::write(&beside, "x").unwrap();
        assert_eq!(thing.near(&program).unwrap(), beside);
        fs::create_dir_all(built.parent().unwrap()).unwrap();
        fs::write(&built, "x").unwrap();
        assert_eq!(thing.near(&program).unwrap(), built);
    }
}
