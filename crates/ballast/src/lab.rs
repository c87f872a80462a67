//! Hands commands to other programs: the lab's to `ballast-lab`, the fleet's to `ballast-fleet`.
//!
//! Idea: code that not every host needs is in separate programs. `ballast` knows only the names of
//! their commands, and replaces itself with the program (`exec`).

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};

/// The program with the lab's commands.
const LAB: &str = "ballast-lab";
/// The program with the fleet's commands.
const FLEET: &str = "ballast-fleet";

/// Arguments passed on to another program, which parses them.
#[derive(Clone, Debug, clap::Args)]
pub struct ProgramArguments {
    /// As that program takes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

impl ProgramArguments {
    /// Executes `ballast-lab` with the command `name` in place of this process; returns only on
    /// failure.
    ///
    /// # Errors
    /// `ballast-lab` is not installed, or cannot be executed.
    pub fn exec_lab(self, name: &str) -> anyhow::Result<()> {
        let mut command = lab_program(name)?;
        command.arg(name);
        self.execute(command)
    }

    /// Executes `ballast-fleet` in place of this process; returns only on failure.
    ///
    /// # Errors
    /// `ballast-fleet` is not installed, or cannot be executed.
    pub fn exec_fleet(self) -> anyhow::Result<()> {
        self.execute(program(FLEET, "fleet")?)
    }

    fn execute(self, mut command: Command) -> anyhow::Result<()> {
        // The program's usage and errors then show the name that the user typed.
        let error = command.arg0("ballast").args(self.arguments).exec();
        Err(error).with_context(|| format!("cannot execute {}", command.get_program().display()))
    }
}

/// `ballast-lab` for the command `name`: the one in this program's folder, else the first on PATH.
///
/// # Errors
/// It is in neither place.
pub fn lab_program(name: &str) -> anyhow::Result<Command> {
    program(LAB, name)
}

fn program(program: &str, name: &str) -> anyhow::Result<Command> {
    let executable = env::current_exe().ok();
    let folder = executable.as_deref().and_then(Path::parent);
    program_in(folder, &env::var_os("PATH").unwrap_or_default(), program, name)
}

/// `program` for the command `name`: the one in `folder`, else the first on `path`.
fn program_in(
    folder: Option<&Path>,
    path: &OsStr,
    program: &str,
    name: &str,
) -> anyhow::Result<Command> {
    let folders = folder.map(Path::to_owned).into_iter().chain(env::split_paths(path));
    let found = find(folders, OsStr::new(program));
    found.map(Command::new).ok_or_else(|| {
        // The fleet's program comes with the daemon.
        let package = if program == FLEET { "ballast" } else { program };
        let place = folder.map_or(String::new(), |folder| format!("in {} nor ", folder.display()));
        anyhow!(
            "`ballast {name}` needs the program {program}, which is neither {place}on PATH: install \
             the package {package}, or build it with `make build`"
        )
    })
}

/// The first file called `name` in `folders`.
fn find(folders: impl IntoIterator<Item = PathBuf>, name: &OsStr) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_with_the_program_wins() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["a", "b", "c"].map(|name| folder.path().join(name));
        for (index, folder) in folders.iter().enumerate() {
            std::fs::create_dir(folder).unwrap();
            if index > 0 {
                std::fs::write(folder.join("x"), "").unwrap();
            }
        }
        assert_eq!(find(folders.clone(), OsStr::new("x")), Some(folders[1].join("x")));
        assert_eq!(find(folders, OsStr::new("y")), None);
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let found =
            |program: &str| program_in(Some(folder.path()), OsStr::new(""), program, "demo");
        let missing = |program: &str| found(program).unwrap_err().to_string();
        for (program, package) in [(LAB, "ballast-lab"), (FLEET, "ballast")] {
            let why = missing(program);
            assert!(why.contains(&format!("`ballast demo` needs the program {program},")), "{why}");
            assert!(why.contains(&format!("install the package {package}, or build it")), "{why}");
        }
        std::fs::write(folder.path().join(LAB), "").unwrap();
        let program = folder.path().join(LAB);
        assert_eq!(found(LAB).unwrap().get_program(), program.as_os_str());
    }
}
