//! Runs programs of the host.
//!
//! Idea: a missing program is reported with its Debian package, a failed one with the end of its
//! output.
//! Limits: output is kept in memory, so only for programs with little output.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::LabError;

/// QEMU's executable.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// The package that contains QEMU.
pub(crate) const QEMU_PACKAGE: &str = "qemu-system-x86";
/// Longest excerpt of a failed program's output, in bytes.
const OUTPUT_QUOTED_MAX: usize = 2000;

/// Folders of administrators' programs, which are not on every user's PATH.
const ADMIN_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Finds `program` on PATH, else among the administrators' programs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ADMIN_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Finds `program`, or names the package that contains it.
pub(crate) fn require(program: &str, package: &str) -> Result<PathBuf, LabError> {
    find(program).ok_or_else(|| LabError::ToolMissing {
        program: program.to_owned(),
        package: package.to_owned(),
    })
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// [`LabError::ToolFailed`] with the end of its output and `remedy`.
pub(crate) fn run(command: &mut Command, remedy: &str) -> Result<String, LabError> {
    run_with(command, Stdio::null(), remedy)
}

/// Like [`run`], with standard input.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn run_with(
    command: &mut Command,
    input: Stdio,
    remedy: &str,
) -> Result<String, LabError> {
    command.stdin(input).env("LC_ALL", "C");
    let name = format!("{command:?}").replace('"', "");
    let output =
        command.output().map_err(LabError::io("start", PathBuf::from(command.get_program())))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let text = format!("{}{stdout}", String::from_utf8_lossy(&output.stderr));
    Err(LabError::ToolFailed {
        command: name.chars().take(OUTPUT_QUOTED_MAX).collect(),
        status: output.status.to_string(),
        output: tail(&text, OUTPUT_QUOTED_MAX).trim().to_owned(),
        remedy: remedy.to_owned(),
    })
}

/// Gives a command no input, and writes all its output to `log`.
pub(crate) fn write_output_to(command: &mut Command, log: &Path) -> Result<(), LabError> {
    let output = File::create(log).map_err(LabError::io("create", log))?;
    let also = output.try_clone().map_err(LabError::io("create", log))?;
    command.stdin(Stdio::null()).stdout(output).stderr(also);
    Ok(())
}

/// The last `max` bytes of a text, starting at a character boundary.
pub(crate) fn tail(text: &str, max: usize) -> &str {
    let mut from = text.len().saturating_sub(max);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_named_with_its_package() {
        let error = require("no-such-program", "some-package").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("some-package"), "{error}");
    }

    #[test]
    fn failed_program_is_quoted_with_the_remedy() {
        let error = run(Command::new("ls").arg("/no/such/place"), "make the place").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("/no/such/place") && error.contains("make the place"), "{error}");
    }

    #[test]
    fn tails_start_at_character_boundaries() {
        assert_eq!(tail("aü", 1), "");
        assert_eq!(tail("aü", 2), "ü");
        assert_eq!(tail("abc", 9), "abc");
    }
}
