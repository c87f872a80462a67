//! The disk of an outer machine: a file system with the files that a host needs.
//!
//! Idea: `mke2fs -d` makes a file system from a folder without root. The cache keeps it under a key
//! of its files' names, sizes and times. QEMU opens it read-only and writes to an unnamed overlay,
//! so one image serves many machines.
//! Limits: files are hard-linked instead of copied only if source and cache are on one file system.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use ballast_model::Bytes;

use crate::programs::FileMap;
use crate::{Cache, LabError, tool};

/// The greatest number of images kept; each build of Ballast adds one of 300 MB.
pub(crate) const IMAGES_MAX: usize = 2;
/// Size of the file system; its sparse file occupies only what is used.
const SIZE: Bytes = Bytes::gib(16);
/// The image inside its cache entry.
const IMAGE_FILE: &str = "host.ext4";
/// Mount points and folders that the machine writes to.
const EMPTY_FOLDERS: [&str; 9] =
    ["bin", "cache", "dev", "etc", "proc", "root", "run", "sys", "tmp"];

/// Returns the image with `files`, from the cache or created now.
///
/// # Errors
/// A file cannot be read, or e2fsprogs is missing.
pub(super) fn image(
    cache: &Cache,
    files: &FileMap,
    say: &dyn Fn(&str),
) -> Result<PathBuf, LabError> {
    let folder = cache.entry(&format!("nested/{:016x}", key(files)?), |folder| {
        say("creating the outer machine's disk");
        for old in cache.entries("nested").iter().skip(IMAGES_MAX - 1) {
            let _ = fs::remove_dir_all(old);
        }
        let stage = folder.join("stage");
        fill(&stage, files)?;
        make(&stage, &folder.join(IMAGE_FILE))?;
        fs::remove_dir_all(&stage).map_err(LabError::io("remove", stage))
    })?;
    Ok(folder.join(IMAGE_FILE))
}

/// A key of the image's files. Not cryptographic: the files are our own.
fn key(files: &FileMap) -> Result<u64, LabError> {
    let mut hasher = DefaultHasher::new();
    for (target, source) in files {
        let about = fs::metadata(source).map_err(LabError::io("examine", source))?;
        let changed = about.modified().map_err(LabError::io("examine", source))?;
        (target, source, about.len(), changed).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn fill(stage: &Path, files: &FileMap) -> Result<(), LabError> {
    for folder in EMPTY_FOLDERS {
        let folder = stage.join(folder);
        fs::create_dir_all(&folder).map_err(LabError::io("create", &folder))?;
    }
    for (target, source) in files {
        let target = stage.join(target);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(LabError::io("create", parent))?;
        }
        // A link to a link would point nowhere in the machine.
        let source = source.canonicalize().map_err(LabError::io("find", source))?;
        if fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target).map_err(LabError::io("copy", &source))?;
        }
    }
    Ok(())
}

fn make(stage: &Path, path: &Path) -> Result<(), LabError> {
    let mke2fs = tool::require("mke2fs", "e2fsprogs")?;
    let mut command = Command::new(mke2fs);
    // Without a journal, because everything written is discarded at the end.
    command.args(["-q", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-N", "65536", "-d"]);
    command.arg(stage).arg(path).arg(format!("{}k", SIZE.get() / 1024));
    tool::run(&mut command, "is there half a gigabyte free in the cache's folder?").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_make_another_image() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        fs::write(&file, "one").unwrap();
        let files = FileMap::from([("bin/program".into(), file.clone())]);
        let before = key(&files).unwrap();
        assert_eq!(key(&files).unwrap(), before);
        fs::write(&file, "three").unwrap();
        assert_ne!(key(&files).unwrap(), before);
    }

    #[test]
    fn the_stage_has_files_and_what_links_point_to() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let stage = folder.path().join("stage");
        fill(&stage, &FileMap::from([("usr/bin/it".into(), link)])).unwrap();
        let staged = stage.join("usr/bin/it");
        assert!(fs::symlink_metadata(&staged).unwrap().is_file());
        assert_eq!(fs::read_to_string(staged).unwrap(), "text");
        assert!(stage.join("proc").is_dir());
    }
}
