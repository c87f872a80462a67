//! Apt, with the host's configuration or the lab's own.
//!
//! Idea: packages of another suite come from the mirror that the host's own sources name. A
//! configuration file on top of the host's gives apt one source and the lab's own folders for its
//! state. The host's proxies and credentials stay in effect; nothing on the host changes.
//! Limits: suites of Debian's main archive, signed by the keys in [`KEYRING`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kernel_choice::Suite;
use crate::{LabError, tool};

/// Remedy for a package that apt cannot fetch.
const REMEDY: &str = "is there a network, and do the package lists exist? Run `apt-get update` as root \
                      and try again";
/// Debian's signing keys, and the package that contains them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const KEYRING_PACKAGE: &str = "debian-archive-keyring";

/// Apt with one configuration.
pub(crate) struct Apt {
    /// A configuration file that apt reads after the host's.
    config: Option<PathBuf>,
    remedy: String,
}

impl Apt {
    /// Apt with the host's configuration and package lists.
    pub(crate) fn of_host() -> Apt {
        Apt { config: None, remedy: REMEDY.to_owned() }
    }

    /// Apt with `suite` as its only source; fetches the package lists into `folder`, which is
    /// empty.
    ///
    /// # Errors
    /// When the host's sources name no Debian mirror, or the mirror is unreachable or does not have
    /// the suite.
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
        let write = |name: &str, text: String| -> Result<_, LabError> {
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

    /// Runs a program of apt in `folder` and returns its output.
    ///
    /// # Errors
    /// When the program is missing or fails.
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

    /// The error for output that cannot be parsed.
    pub(crate) fn unexpected_output(
        &self,
        command: &str,
        status: &str,
        output: String,
    ) -> LabError {
        LabError::ToolFailed {
            command: command.to_owned(),
            status: status.to_owned(),
            output,
            remedy: self.remedy.clone(),
        }
    }
}

/// The Debian mirror that the host's package lists came from.
fn mirror(suite: &Suite) -> Result<String, LabError> {
    // Asks apt, because sources are written in two formats and in many files.
    let arguments = [
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Label: Debian",
    ];
    let text = Apt::of_host().run("apt-get", &arguments, Path::new("/"))?;
    first_mirror(&text).ok_or_else(|| LabError::MirrorUnknown(suite.as_str().to_owned()))
}

fn first_mirror(text: &str) -> Option<String> {
    // It must be one word of a line of our sources file.
    let is_word = |line: &&str| !line.is_empty() && !line.contains(char::is_whitespace);
    text.lines().map(str::trim).find(is_word).map(str::to_owned)
}

fn source(mirror: &str, suite: &Suite) -> String {
    format!("deb [signed-by={KEYRING}] {mirror} {} main\n", suite.as_str())
}

/// The differences to the host's configuration. Hooks of the host on updated lists are cleared;
/// preferences and the default release refer to suites that this configuration does not have.
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
    fn source_is_the_hosts_mirror_with_another_suite() {
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
    fn apt_writes_only_below_its_own_folder() {
        let text = configuration(Path::new("/c"));
        for place in ["Dir::State ", "Dir::Cache ", "Dir::Etc::sourcelist "] {
            assert!(text.contains(&format!("{place}\"/c/")), "{place}: {text}");
        }
    }

    #[test]
    fn failure_includes_the_remedy_of_its_configuration() {
        let apt = Apt { config: None, remedy: "do something".to_owned() };
        let error = apt.run("apt-get", &["no-such-command"], Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("do something"), "{error}");
        let error =
            apt.unexpected_output("apt-cache depends", "nothing", String::new()).to_string();
        assert!(error.contains("`apt-cache depends` failed (nothing)"), "{error}");
    }
}
