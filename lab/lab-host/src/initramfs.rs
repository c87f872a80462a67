//! The initramfs of a guest.
//!
//! Idea: the kernel unpacks one archive into memory and starts `/init`, which is `lab-guest`. The
//! archive contains it, busybox, the modules with their load order, and the requested programs. It
//! is written without tools of the host, equal inputs give equal bytes, and the cache keeps it
//! under a key of its inputs.
//! Limits: the archive is not compressed: under emulation, copying is faster than decompressing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use ballast_lab_guest::protocol::{AGENT_PATH, MODULE_LIST_PATH};
use cpio::newc::{Builder, ModeFileType};

use crate::artifact::Artifact;
use crate::debian::Kernel;
use crate::programs::FileMap;
use crate::{Cache, LabError, modules, programs};

/// The program that becomes `/init`.
pub(crate) const LAB_GUEST: Artifact =
    Artifact { variable: "BALLAST_LAB_GUEST", built: "x86_64-unknown-linux-gnu/release/lab-guest" };
/// The guest's agent.
pub const AGENT: Artifact =
    Artifact { variable: "BALLAST_AGENT", built: "x86_64-unknown-linux-gnu/release/ballast-agent" };
/// Most archives kept; each build of `lab-guest` adds one of 2 to 60 MB.
const ARCHIVES_MAX: usize = 8;
/// Folders that `/init` uses as mount points or writes to.
const EMPTY_FOLDERS: [&str; 7] = ["dev", "etc", "mnt", "proc", "root", "sys", "tmp"];
/// Name of the archive inside its cache entry.
const ARCHIVE_FILE: &str = "initramfs.cpio";

/// Returns the archive for `kernel` with the programs `with`, the agent if requested, and the
/// modules `more` in addition to those of every guest, from the cache or created now.
///
/// # Errors
/// When `lab-guest` or the agent is not built, or a program cannot be packed.
pub fn initramfs(
    cache: &Cache,
    kernel: &Kernel,
    with: &BTreeSet<String>,
    agent: bool,
    more: &[&str],
    say: &dyn Fn(&str),
) -> Result<PathBuf, LabError> {
    let lab_guest = LAB_GUEST.find().map_err(LabError::LabGuestMissing)?;
    let init = fs::read(&lab_guest).map_err(LabError::io("read", &lab_guest))?;
    if !programs::is_static(&lab_guest)? {
        return Err(LabError::LabGuestDynamic(lab_guest));
    }
    let agent = if agent { Some(find_agent()?) } else { None };
    let agent_bytes = match &agent {
        Some(agent) => fs::read(agent).map_err(LabError::io("read", agent))?,
        None => Vec::new(),
    };
    let name =
        format!("initramfs/{}-{:016x}", kernel.version, key(&init, &agent_bytes, with, more));
    let mut files = FileMap::new();
    if !cache.root().join(&name).is_dir() {
        // Outside of `entry`, because these create cache entries of their own.
        files.insert(PathBuf::from("bin/busybox"), programs::busybox(cache, say)?);
        let agent = agent.map(|agent| (PathBuf::from(AGENT_PATH.trim_start_matches('/')), agent));
        files.extend(agent);
        for program in with {
            files.extend(programs::files(program, cache, say)?);
        }
    }
    let folder = cache.entry(&name, |folder| {
        say("creating the guests' initramfs");
        for old in cache.entries("initramfs").iter().skip(ARCHIVES_MAX - 1) {
            let _ = fs::remove_dir_all(old);
        }
        let path = folder.join(ARCHIVE_FILE);
        let file = File::create(&path).map_err(LabError::io("create", &path))?;
        let mut archive = Archive::new(BufWriter::new(file), path);
        pack(&mut archive, kernel, more, &init, &files)?;
        archive.finish()
    })?;
    Ok(folder.join(ARCHIVE_FILE))
}

fn find_agent() -> Result<PathBuf, LabError> {
    let agent = AGENT.find().map_err(LabError::AgentMissing)?;
    if programs::is_static(&agent)? { Ok(agent) } else { Err(LabError::AgentDynamic(agent)) }
}

/// A key of an archive's inputs; `agent` is empty if there is none. Not cryptographic: the inputs
/// are our own.
fn key(init: &[u8], agent: &[u8], with: &BTreeSet<String>, more: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), init, agent, with, more).hash(&mut hasher);
    hasher.finish()
}

fn pack<W: Write>(
    archive: &mut Archive<W>,
    kernel: &Kernel,
    more: &[&str],
    init: &[u8],
    files: &FileMap,
) -> Result<(), LabError> {
    for folder in EMPTY_FOLDERS {
        archive.folder(Path::new(folder))?;
    }
    archive.file(Path::new("init"), init)?;
    archive.link(Path::new("bin/sh"), "busybox")?;
    let mut order = String::new();
    for module in modules::load_order(kernel, more)? {
        let target = Path::new("lib/modules").join(&kernel.version).join(&module);
        archive.copy(&target, &kernel.modules.join(&module))?;
        order.push_str(&format!("/{}\n", target.display()));
    }
    archive.file(Path::new(MODULE_LIST_PATH.trim_start_matches('/')), order.as_bytes())?;
    for (target, source) in files {
        archive.copy(target, source)?;
    }
    Ok(())
}

/// An archive in cpio's `newc` format, which the kernel reads.
struct Archive<W: Write> {
    out: W,
    path: PathBuf,
    folders: BTreeSet<PathBuf>,
    entries: u32,
}

impl<W: Write> Archive<W> {
    fn new(out: W, path: PathBuf) -> Self {
        Archive { out, path, folders: BTreeSet::new(), entries: 0 }
    }

    /// Adds a folder and its parents, each once.
    fn folder(&mut self, path: &Path) -> Result<(), LabError> {
        if path.as_os_str().is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        self.parents(path)?;
        self.folders.insert(path.to_owned());
        self.entry(path, ModeFileType::Directory, 0o755, &[])
    }

    fn parents(&mut self, path: &Path) -> Result<(), LabError> {
        path.parent().map_or(Ok(()), |parent| self.folder(parent))
    }

    fn file(&mut self, path: &Path, contents: &[u8]) -> Result<(), LabError> {
        self.parents(path)?;
        self.entry(path, ModeFileType::Regular, 0o755, contents)
    }

    fn copy(&mut self, path: &Path, source: &Path) -> Result<(), LabError> {
        let contents = fs::read(source).map_err(LabError::io("read", source))?;
        self.file(path, &contents)
    }

    fn link(&mut self, path: &Path, to: &str) -> Result<(), LabError> {
        self.parents(path)?;
        self.entry(path, ModeFileType::Symlink, 0o777, to.as_bytes())
    }

    fn entry(
        &mut self,
        path: &Path,
        kind: ModeFileType,
        mode: u32,
        contents: &[u8],
    ) -> Result<(), LabError> {
        let size = u32::try_from(contents.len()).map_err(|_| {
            LabError::Invalid(format!("{} is over 4 GiB: too large for a guest", path.display()))
        })?;
        self.entries += 1;
        // A distinct inode number for each: entries of one number are links to one file.
        let builder = Builder::new(&path.to_string_lossy())
            .ino(self.entries)
            .mode(mode)
            .set_mode_file_type(kind);
        let written = || LabError::io("write", &self.path);
        let mut entry = builder.write(&mut self.out, size);
        entry.write_all(contents).map_err(written())?;
        entry.finish().map_err(written())?;
        Ok(())
    }

    fn finish(self) -> Result<(), LabError> {
        let mut out = cpio::newc::trailer(self.out).map_err(LabError::io("write", &self.path))?;
        out.flush().map_err(LabError::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;

    fn names(mut bytes: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            let reader = Reader::new(bytes).unwrap();
            if reader.entry().is_trailer() {
                return names;
            }
            names.push(reader.entry().name().to_owned());
            bytes = reader.finish().unwrap();
        }
    }

    #[test]
    fn folders_come_once_and_before_their_contents() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes, PathBuf::from("test"));
        archive.file(Path::new("a/b/one"), b"1").unwrap();
        archive.file(Path::new("a/b/two"), b"22").unwrap();
        archive.link(Path::new("a/sh"), "b/one").unwrap();
        archive.finish().unwrap();
        assert_eq!(names(&bytes), ["a", "a/b", "a/b/one", "a/b/two", "a/sh"]);
    }

    #[test]
    fn key_depends_on_the_program_and_the_list() {
        let none = BTreeSet::new();
        let some = BTreeSet::from(["sqlite3".to_owned()]);
        assert_ne!(key(b"a", b"", &none, &[]), key(b"b", b"", &none, &[]));
        assert_ne!(key(b"a", b"", &none, &[]), key(b"a", b"b", &none, &[]));
        assert_ne!(key(b"a", b"", &none, &[]), key(b"a", b"", &some, &[]));
        assert_ne!(key(b"a", b"", &none, &[]), key(b"a", b"", &none, &["kvm_amd"]));
        assert_eq!(key(b"a", b"b", &some, &[]), key(b"a", b"b", &some, &[]));
    }
}
