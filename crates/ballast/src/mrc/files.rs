//! Files a command writes at its end.
//!
//! Idea: that they can be written is found out at the beginning, and what stood there before stays
//! until the new is whole.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};

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
pub(crate) struct Destination {
    path: PathBuf,
    /// The new file beside the old; `None`: a device or pipe, which is written directly.
    file: Option<NamedTempFile>,
}

impl Destination {
    /// Makes sure that `path` can be written.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                let is_folder = metadata.is_dir();
                anyhow::ensure!(!is_folder, "cannot write {}: it is a folder", path.display());
                None
            }
            _ => Some(beside(path).with_context(|| cannot(path))?),
        };
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes all of `text`.
    ///
    /// # Errors
    /// It cannot be written; what stood there before is still there.
    pub(crate) fn write(self, text: &str) -> anyhow::Result<()> {
        let Self { path, file } = self;
        let written = match file {
            None => fs::write(&path, text),
            Some(mut file) => file
                .write_all(text.as_bytes())
                .and_then(|()| file.persist(&path).map(drop).map_err(|error| error.error)),
        };
        written.with_context(|| cannot(&path))
    }
}

fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    // As any new file: the umask takes off what others may not.
    let everybody = fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().permissions(everybody).tempfile_in(folder.unwrap_or(Path::new(".")))
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_until_the_new_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        fs::write(&path, "old").unwrap();
        drop(Destination::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        Destination::open(&path).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        for path in ["/nonexistent/plot.svg", "/"] {
            let error = Destination::open(Path::new(path)).err().expect(path);
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
