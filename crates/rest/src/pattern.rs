//! Finds the sockets that the configuration names, and the names of their guests.
//!
//! Idea: a path in which a `*` stands for any text within a part. The text that the last `*` stands
//! for is the guest's name: `/srv/jailer/firecracker/*/root/run/firecracker.socket` names each
//! guest by its folder, `/run/cloud-hypervisor/*.sock` by its file. Without a `*`, the guest's name
//! is that of the file, without its ending.
//! Cost: a listing of each folder in which a part with a `*` is looked up. Limits: [`MATCHES_MAX`]
//! sockets per pattern.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::call::shown;

/// Most sockets that match one pattern.
const MATCHES_MAX: usize = 10_000;

/// Most parts of a pattern.
const PARTS_MAX: usize = 32;

/// Endings of sockets' names that are not part of a guest's name.
const ENDINGS: [&str; 2] = [".sock", ".socket"];

/// An absolute path of sockets, in which `*` stands for any text within a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPattern {
    parts: Vec<String>,
}

/// Why a text is not a [`SocketPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no sockets: expected an absolute path in which `*` stands for the guest's name, \
     such as `{example}`", example = SocketPattern::EXAMPLE
)]
pub struct SocketPatternError(String);

/// A socket found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundSocket {
    /// Its path.
    pub path: PathBuf,
    /// The name for its guest; it may not be a valid one.
    pub name: String,
    /// Distinguishes it from a later socket at the same path.
    pub inode: u64,
}

impl fmt::Display for SocketPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.parts.join("/"))
    }
}

impl FromStr for SocketPattern {
    type Err = SocketPatternError;

    fn from_str(text: &str) -> Result<SocketPattern, SocketPatternError> {
        let parts: Vec<String> =
            text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let is_plain = |part: &String| part != "." && part != ".." && !part.contains('\0');
        let is_valid = text.starts_with('/')
            && !text.ends_with('/')
            && (1..=PARTS_MAX).contains(&parts.len())
            && parts.iter().all(is_plain);
        match is_valid {
            true => Ok(SocketPattern { parts }),
            false => Err(SocketPatternError(shown(text))),
        }
    }
}

impl SocketPattern {
    const EXAMPLE: &'static str = "/run/cloud-hypervisor/*.sock";

    /// The sockets that match it, sorted by path.
    pub fn sockets(&self) -> Vec<FoundSocket> {
        // Each path, and the text that the last `*` stands for in it.
        let mut places = vec![(PathBuf::from("/"), None)];
        for part in &self.parts {
            let mut next = Vec::new();
            for (place, name) in places {
                match part.contains('*') {
                    true => next.extend(matching(&place, part)),
                    false => next.push((place.join(part), name)),
                }
            }
            next.truncate(MATCHES_MAX);
            places = next;
        }
        let mut found = Vec::new();
        for (path, name) in places {
            // Connecting checks whose links lead there.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if metadata.file_type().is_socket() {
                let name = name.unwrap_or_else(|| file_name(&path));
                found.push(FoundSocket { path, name, inode: metadata.ino() });
            }
        }
        found.sort_unstable();
        found
    }
}

/// The entries of `folder` that match `part`, each with the text that the last `*` stands for.
fn matching(folder: &Path, part: &str) -> Vec<(PathBuf, Option<String>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let file_name = entry.file_name();
        if let Some(name) = file_name.to_str().and_then(|name| last_star(name, part)) {
            found.push((entry.path(), Some(name.to_owned())));
        }
    }
    found
}

/// The text that the last `*` of `part` stands for in `name`, where each earlier `*` stands for as
/// little as possible. `None` if `name` does not match `part`.
fn last_star<'a>(name: &'a str, part: &str) -> Option<&'a str> {
    let (before, after) = part.rsplit_once('*')?;
    let mut rest = name.strip_suffix(after)?;
    let mut texts = before.split('*');
    rest = rest.strip_prefix(texts.next().unwrap_or_default())?;
    for text in texts {
        rest = &rest[rest.find(text)? + text.len()..];
    }
    Some(rest)
}

/// A file's name without its ending.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let short = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    short.unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn guests_are_called_as_what_the_star_stands_for() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["web/root", "db/root", "ch"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let listen = |name: &str| UnixListener::bind(root.path().join(name)).unwrap();
        let _sockets = ["web/root/api.socket", "db/root/api.socket", "ch/vm-1.sock"].map(listen);
        fs::write(root.path().join("ch/vm-2.sock"), "no socket").unwrap();
        let names = |pattern: &str| -> Vec<String> {
            let pattern = format!("{}/{pattern}", root.path().display());
            let pattern: SocketPattern = pattern.parse().unwrap();
            pattern.sockets().into_iter().map(|it| it.name).collect()
        };
        assert_eq!(names("*/root/api.socket"), ["db", "web"]);
        assert_eq!(names("ch/*.sock"), ["vm-1"]);
        assert_eq!(names("ch/vm-*.sock"), ["1"]);
        assert_eq!(names("ch/vm-1.sock"), ["vm-1"]);
        assert_eq!(names("nobody/*"), [""; 0]);
    }

    #[test]
    fn what_is_no_absolute_path_is_refused() {
        for text in ["", "/", "a/*.sock", "/a/../b", "/run/"] {
            let error = text.parse::<SocketPattern>().unwrap_err().to_string();
            assert!(error.contains("expected an absolute path"), "{error}");
        }
        let pattern: SocketPattern = "/run//a/*.sock".parse().unwrap();
        assert_eq!(pattern.to_string(), "/run/a/*.sock");
    }

    #[test]
    fn the_last_star_stands_for_the_name() {
        for (name, part, expected) in [
            ("web.sock", "*.sock", Some("web")),
            ("web", "*", Some("web")),
            ("a-b-c", "*-*", Some("b-c")),
            ("vm-7.api", "vm-*.api", Some("7")),
            ("ab", "ab*ab", None),
            ("web.sock", "*.socket", None),
        ] {
            assert_eq!(last_star(name, part), expected, "{name} {part}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String, name: String) {
            let _ = (text.parse::<SocketPattern>(), last_star(&name, &text));
        }
    }
}
