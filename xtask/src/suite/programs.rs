//! The test programs of the workspace, built and listed with one call of cargo.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use cargo_metadata::{Message, MetadataCommand, TargetKind};

/// Name of the integration test programs that start real guests.
const WITH_GUESTS: &str = "real";

/// A test program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    package: String,
    target: String,
    pub(super) path: PathBuf,
    /// Its package's folder, the working directory of its tests.
    pub(super) folder: PathBuf,
}

impl Program {
    /// The names of its package and target, as `package::target`.
    pub(super) fn name(&self) -> String {
        format!("{}::{}", self.package, self.target)
    }

    pub(super) fn has_guests(&self) -> bool {
        self.target == WITH_GUESTS
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds all test programs with one call: separate calls would select different features and
/// recompile everything. For packages with integration tests, cargo also builds their programs. The
/// fleet's program has no integration tests, as there are already as many as the census allows;
/// tests of other packages start it.
pub(super) fn build(more: &[String]) -> anyhow::Result<Vec<Program>> {
    let mut child = cargo()
        .args(["build", "--workspace", "--tests", "--bin", "ballast-fleet"])
        .arg("--message-format=json-render-diagnostics")
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .context("run cargo build --tests")?;
    let messages = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut programs = Vec::new();
    for message in Message::parse_stream(messages) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let Some(path) = artifact.executable.filter(|_| artifact.profile.test) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
        let is_library =
            artifact.target.kind.iter().any(|kind| {
                matches!(kind, TargetKind::Lib | TargetKind::RLib | TargetKind::CDyLib)
            });
        programs.push(Program {
            package: artifact.package_id.repr.clone(),
            target: if is_library { "lib".to_owned() } else { artifact.target.name },
            path: path.into(),
            folder: folder.into(),
        });
    }
    if !child.wait()?.success() {
        bail!("cargo could not build the tests");
    }
    let metadata = MetadataCommand::new().no_deps().exec().context("run cargo metadata")?;
    for program in &mut programs {
        let package = metadata.packages.iter().find(|it| it.id.repr == program.package);
        program.package = package
            .context("cargo metadata does not list the package of a test program")?
            .name
            .to_string();
    }
    Ok(programs)
}

/// Cargo's target folder.
pub(super) fn target_folder() -> anyhow::Result<PathBuf> {
    let metadata = MetadataCommand::new().no_deps().exec().context("run cargo metadata")?;
    Ok(metadata.target_directory.into())
}

/// Lists the tests of a program.
pub(super) fn tests(program: &Program) -> anyhow::Result<Vec<String>> {
    let output = Command::new(&program.path)
        .args(["--list", "--format", "terse"])
        .output()
        .with_context(|| format!("list the tests of {}", program.path.display()))?;
    if !output.status.success() {
        bail!("{} cannot list its tests: {}", program.path.display(), output.status);
    }
    let listed = String::from_utf8(output.stdout).context("names of tests are not UTF-8")?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
