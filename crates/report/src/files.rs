//! Files a command writes at its end.
//!
//! Idea: that they can be written is found out at the beginning, and a file that stood there before
//! stays until the new is whole.
//! Limits: what is reached by a link is written in place, and so not whole at once. Outputs are told
//! apart by their names without links: two names of one file (hard links) are two.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use tempfile::NamedTempFile;

/// A plot that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Where.
    pub(crate) path: PathBuf,
    /// Whether it is a page, or else SVG.
    pub(crate) is_page: bool,
}

impl FromStr for Picture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        let extension = path.extension().map(|it| it.to_string_lossy().to_lowercase());
        match extension.as_deref() {
            Some("svg") => Ok(Self { path, is_page: false }),
            Some("html" | "htm") => Ok(Self { path, is_page: true }),
            _ => Err("expected a name that ends in .svg or .html".to_owned()),
        }
    }
}

/// Where something will be written.
#[derive(Debug)]
pub(crate) struct Destination {
    path: PathBuf,
    /// How the file there is replaced; `None`: what is there is no file of its own (a link, a device,
    /// a pipe) and is written through.
    replaced: Option<Replaced>,
}

/// A file, new or in the place of an old one.
#[derive(Debug)]
struct Replaced {
    /// Those of the old one.
    permissions: Option<Permissions>,
}

impl Destination {
    /// Makes sure that `path` can be written.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let replaced = probe(path).with_context(|| cannot(path))?;
        Ok(Self { path: path.to_owned(), replaced })
    }

    /// Writes all of `text`.
    ///
    /// # Errors
    /// It cannot be written; a file that stood there before is still there.
    pub(crate) fn write(self, text: &str) -> anyhow::Result<()> {
        let mut stream = self.stream()?;
        stream.write(|out| out.write_all(text.as_bytes()))?;
        stream.finish()
    }

    /// Begins to write, for what is not to be held in memory as a whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn stream(self) -> anyhow::Result<Stream> {
        let Self { path, replaced } = self;
        let out = match replaced {
            None => fs::File::create(&path).map(|file| Out::Through(BufWriter::new(file))),
            Some(replaced) => replaced.begin(&path).map(|file| Out::Apart(BufWriter::new(file))),
        };
        Ok(Stream { out: out.with_context(|| cannot(&path))?, path })
    }
}

impl Replaced {
    fn begin(self, path: &Path) -> io::Result<NamedTempFile> {
        // As any new file: the umask takes off what others may not.
        let everybody = Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().permissions(everybody).tempfile_in(folder_of(path))?;
        if let Some(permissions) = self.permissions {
            file.as_file().set_permissions(permissions)?;
        }
        Ok(file)
    }
}

/// A destination that is being written. Dropped before [`Stream::finish`], nothing is left of it where
/// it would have replaced a file.
#[derive(Debug)]
pub(crate) struct Stream {
    path: PathBuf,
    out: Out,
}

#[derive(Debug)]
enum Out {
    /// Into what is there.
    Through(BufWriter<fs::File>),
    /// Beside it, to take its place.
    Apart(BufWriter<NamedTempFile>),
}

impl Stream {
    /// Writes what `write` does, buffered.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = match &mut self.out {
            Out::Through(out) => write(out),
            Out::Apart(out) => write(out),
        };
        written.with_context(|| cannot(&self.path))
    }

    /// Writes what is left, and puts the new file in its place.
    ///
    /// # Errors
    /// It cannot be written; a file that stood there before is still there.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let path = &self.path;
        let finished = match self.out {
            Out::Through(mut out) => out.flush(),
            Out::Apart(out) => out
                .into_inner()
                .map_err(IntoInnerError::into_error)
                .and_then(|file| file.persist(path).map(drop).map_err(|error| error.error)),
        };
        finished.with_context(|| cannot(path))
    }
}

/// Finds out whether `path` can be written, and how; nothing is left of it.
fn probe(path: &Path) -> io::Result<Option<Replaced>> {
    let permissions = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
        Ok(metadata) if metadata.is_symlink() => return probe_link(path).map(|()| None),
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // To open a pipe would wait for its reader.
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // It has no name that could stay behind.
    tempfile::tempfile_in(folder_of(path))?;
    Ok(Some(Replaced { permissions }))
}

fn probe_link(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if metadata.is_file() => {
            fs::OpenOptions::new().append(true).open(path).map(drop)
        }
        Ok(_) => Ok(()),
        // It leads to a file that writing will make.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = folder_of(path).join(fs::read_link(path)?);
            tempfile::tempfile_in(folder_of(&file)).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// Refuses outputs that would write over what is read, or over each other.
///
/// # Errors
/// One of `outputs` is one of `inputs`, or another of them.
pub(crate) fn ensure_apart(outputs: &[&Path], inputs: &[PathBuf]) -> anyhow::Result<()> {
    let read: Vec<PathBuf> = inputs.iter().filter_map(|path| file_at(path)).collect();
    let mut written: Vec<PathBuf> = Vec::new();
    for path in outputs {
        let Some(file) = file_at(path) else { continue };
        anyhow::ensure!(!read.contains(&file), "{}: it is read too", cannot(path));
        anyhow::ensure!(!written.contains(&file), "{}: it is named twice", cannot(path));
        written.push(file);
    }
    Ok(())
}

/// The one name of a file, which need not be there; `None` of a device or pipe, where writing destroys
/// nothing.
fn file_at(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(metadata) => metadata.is_file().then(|| fs::canonicalize(path).ok())?,
        Err(_) => Some(fs::canonicalize(folder_of(path)).ok()?.join(path.file_name()?)),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_was_there_stays_until_the_new_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let entries = || fs::read_dir(folder.path()).unwrap().count();
        let destination = Destination::open(&path).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), entries()), ("old", 1));
        destination.write("new").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), entries()), ("new", 1));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_not_finished_leaves_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.csv");
        fs::write(&path, "old").unwrap();
        let mut stream = Destination::open(&path).unwrap().stream().unwrap();
        stream.write(|out| writeln!(out, "a,b")).unwrap();
        drop(stream);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let mut stream = Destination::open(&path).unwrap().stream().unwrap();
        stream.write(|out| writeln!(out, "a,b")).unwrap();
        stream.write(|out| writeln!(out, "1,2")).unwrap();
        stream.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a,b\n1,2\n");
    }

    #[test]
    fn links_stay_and_what_they_lead_to_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old.csv"), "old").unwrap();
        for (link, file) in [("a.csv", "old.csv"), ("b.csv", "new.csv")] {
            symlink(file, at(link)).unwrap();
            Destination::open(&at(link)).unwrap().write("text").unwrap();
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(at(file)).unwrap(), "text");
        }
        symlink("absent/c.csv", at("c.csv")).unwrap();
        symlink(".", at("d.csv")).unwrap();
        for link in ["c.csv", "d.csv"] {
            assert!(Destination::open(&at(link)).is_err(), "{link}");
        }
    }

    #[test]
    fn outputs_are_neither_read_nor_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.csv"), "").unwrap();
        symlink("a.csv", at("link.csv")).unwrap();
        let refused = |outputs: &[&Path]| {
            ensure_apart(outputs, &[at("a.csv"), PathBuf::from("-")]).err().map(|it| it.to_string())
        };
        let (link, new) = (at("link.csv"), at("new.svg"));
        let told = format!("cannot write {}: it is read too", link.display());
        assert_eq!(refused(&[&new, &link]), Some(told));
        let again = folder.path().join("./new.svg");
        let told = format!("cannot write {}: it is named twice", again.display());
        assert_eq!(refused(&[&new, &again]), Some(told));
        assert_eq!(refused(&[&new, &at("b.csv")]), None);
        assert_eq!(refused(&[Path::new("/dev/null"), Path::new("/dev/null")]), None);
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        for path in ["/nonexistent/plot.svg", "/"] {
            let error = Destination::open(Path::new(path)).expect_err(path);
            assert!(format!("{error:#}").contains(path), "{error:#}");
        }
        Destination::open(Path::new("/dev/null")).unwrap().write("gone").unwrap();
    }

    #[test]
    fn plots_are_told_apart_by_their_names() {
        let page = |name: &str| name.parse::<Picture>().map(|picture| picture.is_page);
        assert_eq!((page("a.svg"), page("b/c.HTML")), (Ok(false), Ok(true)));
        assert!(page("a.png").is_err() && page("svg").is_err());
    }
}
