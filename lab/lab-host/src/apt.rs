//! Apt, with the host's configuration or with one of ours.
//!
//! Idea: packages of another suite come from the mirror that the host's own sources name, by a
//! configuration file given to apt on top of the host's: one source, and folders of ours for its state. What
//! is there of proxies and credentials stays in force; nothing of the host's changes.
//! Limits: suites of Debian's main archive, signed by the keys in [`KEYRING`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kernel_choice::Suite;
use crate::{LabError, tool};

/// What to do when apt cannot fetch a package.
const REMEDY: &str = "is there a network, and are the package lists there? Run `apt-get update` as root \
                      and try again";
/// The keys Debian signs with, and the package that brings them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const KEYRING_PACKAGE: &str = "debian-archive-keyring";

/// Apt under one configuration.
pub(crate) struct Apt {
    /// Read after the host's.
    config: Option<PathBuf>,
    remedy: String,
}

impl Apt {
    /// With the host's configuration and package lists.
    pub(crate) fn of_host() -> Apt {
        Apt { config: None, remedy: REMEDY.to_owned() }
    }

    /// With nothing but `suite`, whose package lists are fetched into `folder`, which is empty.
    ///
    /// # Errors
    /// When the host's sources name no mirror of Debian, or that cannot be reached or has no such suite.
    pub(crate) fn of_suite(suite: &Suite, folder: &Path) -> Result<Apt, LabError> {
        let mirror = mirror(suite)?;
        if !Path::new(KEYRING).is_file() {
            return Err(LabError::ToolMissing {
                program: KEYRING.to_owned(),
                package: KEYRING_PACKAGE.to_owned(),
            });
        }
        for made in ["state/lists/partial", "cache/archives/partial"] {
            let made = folder.join(made);
            fs::create_dir_all(&made).map_err(LabError::io("create", &made))?;
        }
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(LabError::io("write", &path))?;
            Ok(path)
        };
        write("sources.list", source(&mirror, suite))?;
        let apt = Apt {
            config: Some(write("apt.conf", configuration(folder))?),
            remedy: format!(
                "is there a network, and does {mirror} have the suite `{}`? Choose another kernel \
                 (`default`: that of this host's own sources)",
                suite.as_str()
            ),
        };
        apt.run("apt-get", &["update"], folder)?;
        Ok(apt)
    }

    /// What `program` of apt's prints, run in `folder`.
    ///
    /// # Errors
    /// When it is missing or fails.
    pub(crate) fn run(
        &self,
        program: &str,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<String, LabError> {
        let mut command = Command::new(tool::require(program, "apt")?);
        if let Some(config) = &self.config {
            command.arg("-c").arg(config);
        }
        tool::run(command.args(arguments).current_dir(folder), &self.remedy)
    }

    /// The error of an answer that makes no sense.
    pub(crate) fn senseless(&self, command: &str, status: &str, output: String) -> LabError {
        LabError::ToolFailed {
            command: command.to_owned(),
            status: status.to_owned(),
            output,
            remedy: self.remedy.clone(),
        }
    }
}

/// The mirror of Debian's main archive that the host's package lists came from.
fn mirror(suite: &Suite) -> Result<String, LabError> {
    // As apt says itself: sources are written in two formats, in many files.
    let arguments = [
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Label: Debian",
    ];
    let text = Apt::of_host().run("apt-get", &arguments, Path::new("/"))?;
    first_mirror(&text).ok_or_else(|| LabError::MirrorUnknown { suite: suite.as_str().to_owned() })
}

fn first_mirror(text: &str) -> Option<String> {
    // It becomes a word of a line of ours.
    let is_word = |line: &&str| !line.is_empty() && !line.contains(char::is_whitespace);
    text.lines().map(str::trim).find(is_word).map(str::to_owned)
}

fn source(mirror: &str, suite: &Suite) -> String {
    format!("deb [signed-by={KEYRING}] {mirror} {} main\n", suite.as_str())
}

/// What is different from the host's configuration. Lists are cleared of what the host does when its own
/// lists change; preferences and a default release are about suites that are not there.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::State \"{folder}/state\";\n\
         Dir::State::status \"/dev/null\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         APT::Default-Release \"\";\n\
         Acquire::Languages \"none\";\n\
         APT::Update::Error-Mode \"any\";\n\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelChoice;

    #[test]
    fn the_source_is_the_host_s_mirror_with_another_suite() {
        let mirror = first_mirror("\n http://mirror.test/debian/ \nhttp://other.test/\n").unwrap();
        assert_eq!(first_mirror("\n"), None);
        assert_eq!(first_mirror("http://mirror.test/ x"), None);
        let Ok(KernelChoice::Suite(suite)) = "trixie".parse() else { panic!("a suite") };
        assert_eq!(
            source(&mirror, &suite),
            format!("deb [signed-by={KEYRING}] http://mirror.test/debian/ trixie main\n")
        );
    }

    #[test]
    fn nothing_of_the_host_s_is_written_to() {
        let text = configuration(Path::new("/c"));
        for place in ["Dir::State ", "Dir::Cache ", "Dir::Etc::sourcelist "] {
            assert!(text.contains(&format!("{place}\"/c/")), "{place}: {text}");
        }
    }

    #[test]
    fn a_failure_is_told_with_the_remedy_of_its_configuration() {
        let apt = Apt { config: None, remedy: "do something".to_owned() };
        let error = apt.run("apt-get", &["no-such-command"], Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("do something"), "{error}");
        let error = apt.senseless("apt-cache depends", "nothing", String::new()).to_string();
        assert!(error.contains("`apt-cache depends` failed (nothing)"), "{error}");
    }
}
