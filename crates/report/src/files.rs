//! Output files, written when a command ends.
//!
//! Idea: a command checks at its start that it can write its outputs. An existing file is replaced
//! only when the new one is complete.
//! Limits: a file behind a symbolic link is written in place, so not atomically. Outputs are
//! compared by their resolved paths, so two hard links to one file count as two files.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use tempfile::NamedTempFile;

/// A plot to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is an HTML page; else SVG.
    pub is_page: bool,
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

/// A checked output path.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    /// How to replace the file; `None`: the path is a link, a device or a pipe and is written in
    /// place.
    replaced: Option<Replaced>,
}

/// A new file, or the replacement of an old one.
#[derive(Debug)]
struct Replaced {
    /// Permissions of the old file.
    permissions: Option<Permissions>,
}

impl Destination {
    /// Checks that `path` can be written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let replaced = probe(path).with_context(|| cannot(path))?;
        Ok(Self { path: path.to_owned(), replaced })
    }

    /// Writes all of `text`.
    ///
    /// # Errors
    /// The file cannot be written; an old file is unchanged.
    pub fn write(self, text: &str) -> anyhow::Result<()> {
        let mut stream = self.stream()?;
        stream.write(|out| out.write_all(text.as_bytes()))?;
        stream.finish()
    }

    /// Starts to write piece by piece, for output too large for memory.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn stream(self) -> anyhow::Result<Stream> {
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
        // Like any new file; the umask restricts it.
        let everybody = Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().permissions(everybody).tempfile_in(folder_of(path))?;
        if let Some(permissions) = self.permissions {
            file.as_file().set_permissions(permissions)?;
        }
        Ok(file)
    }
}

/// A destination being written. If dropped before [`Stream::finish`], a file to be replaced is
/// unchanged.
#[derive(Debug)]
pub struct Stream {
    path: PathBuf,
    out: Out,
}

#[derive(Debug)]
enum Out {
    /// In place.
    Through(BufWriter<fs::File>),
    /// Into a temporary file that replaces the old one.
    Apart(BufWriter<NamedTempFile>),
}

impl Stream {
    /// Runs `write` on a buffered writer.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = match &mut self.out {
            Out::Through(out) => write(out),
            Out::Apart(out) => write(out),
        };
        written.with_context(|| cannot(&self.path))
    }

    /// Flushes and moves the new file into place.
    ///
    /// # Errors
    /// The file cannot be written; an old file is unchanged.
    pub fn finish(self) -> anyhow::Result<()> {
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

/// Checks whether and how `path` can be written, without leaving a trace.
fn probe(path: &Path) -> io::Result<Option<Replaced>> {
    let permissions = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
        Ok(metadata) if metadata.is_symlink() => return probe_link(path).map(|()| None),
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // Opening a pipe would wait for its reader.
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // The file has no name, so nothing stays behind.
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
        // The target does not exist yet; writing creates it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = folder_of(path).join(fs::read_link(path)?);
            tempfile::tempfile_in(folder_of(&file)).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// Refuses outputs that would overwrite an input or each other.
///
/// # Errors
/// One of `outputs` is also an input or another output.
pub fn ensure_apart(outputs: &[&Path], inputs: &[PathBuf]) -> anyhow::Result<()> {
    let read: Vec<PathBuf> = inputs.iter().filter_map(|path| file_at(path)).collect();
    let mut written: Vec<PathBuf> = Vec::new();
    for path in outputs {
        let Some(file) = file_at(path) else { continue };
        anyhow::ensure!(!read.contains(&file), "{}: it is also an input", cannot(path));
        anyhow::ensure!(!written.contains(&file), "{}: it is given twice", cannot(path));
        written.push(file);
    }
    Ok(())
}

/// The resolved path of a file, which need not exist; `None` for a device or pipe, where nothing
/// can be overwritten.
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
    fn the_old_file_stays_until_the_new_is_complete() {
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
    fn an_unfinished_stream_leaves_the_old_file() {
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
    fn links_stay_and_their_targets_are_written() {
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
    fn an_output_must_not_be_an_input_or_another_output() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.csv"), "").unwrap();
        symlink("a.csv", at("link.csv")).unwrap();
        let refused = |outputs: &[&Path]| {
            ensure_apart(outputs, &[at("a.csv"), PathBuf::from("-")]).err().map(|it| it.to_string())
        };
        let (link, new) = (at("link.csv"), at("new.svg"));
        let expected = format!("cannot write {}: it is also an input", link.display());
        assert_eq!(refused(&[&new, &link]), Some(expected));
        let again = folder.path().join("./new.svg");
        let expected = format!("cannot write {}: it is given twice", again.display());
        assert_eq!(refused(&[&new, &again]), Some(expected));
        assert_eq!(refused(&[&new, &at("b.csv")]), None);
        assert_eq!(refused(&[Path::new("/dev/null"), Path::new("/dev/null")]), None);
    }

    #[test]
    fn opening_an_unwritable_destination_fails() {
        for path in ["/nonexistent/plot.svg", "/"] {
            let error = Destination::open(Path::new(path)).expect_err(path);
            assert!(format!("{error:#}").contains(path), "{error:#}");
        }
        Destination::open(Path::new("/dev/null")).unwrap().write("gone").unwrap();
    }

    #[test]
    fn the_file_extension_selects_svg_or_html() {
        let page = |name: &str| name.parse::<Picture>().map(|picture| picture.is_page);
        assert_eq!((page("a.svg"), page("b/c.HTML")), (Ok(false), Ok(true)));
        assert!(page("a.png").is_err() && page("svg").is_err());
    }
}
