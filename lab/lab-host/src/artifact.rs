//! Programs and libraries that the lab needs to be built.
//!
//! Idea: an environment variable names its path; else it is in the target folder of the running
//! program (built), or beside the program (installed). The target folder comes first because cargo
//! leaves outdated libraries of another profile beside a test.

use std::path::{Path, PathBuf};

/// A build product and where it is searched.
#[derive(Debug)]
pub struct Artifact {
    /// Environment variable that names its path.
    pub variable: &'static str,
    /// Its path below the target folder.
    pub built: &'static str,
}

/// A build product was not found.
#[derive(Debug, thiserror::Error)]
#[error("not built (looked for {looked_for}): run `make build`")]
pub struct ArtifactMissing {
    /// Where it was searched.
    pub looked_for: String,
}

impl Artifact {
    /// Returns its path.
    ///
    /// # Errors
    /// When it is not found.
    pub fn find(&self) -> Result<PathBuf, ArtifactMissing> {
        match (std::env::var_os(self.variable).map(PathBuf::from), std::env::current_exe()) {
            (Some(path), _) if path.is_file() => Ok(path),
            (Some(path), _) => Err(ArtifactMissing {
                looked_for: format!("{} ({})", path.display(), self.variable),
            }),
            (None, Ok(program)) => self.near(&program),
            (None, Err(_)) => Err(ArtifactMissing { looked_for: self.built.to_owned() }),
        }
    }

    fn near(&self, program: &Path) -> Result<PathBuf, ArtifactMissing> {
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
        Err(ArtifactMissing { looked_for })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn target_folder_is_searched_before_the_programs_folder() {
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
