//! Finds the cgroups that are guests.
//!
//! Idea: the configuration names them by their paths in the hierarchy, as `systemd-cgls` shows
//! them; a `*` stands for any text within a part. The last part names the guest.
//! Cost: a listing of each folder in which a part with a `*` is looked up. Limits: [`MATCHES_MAX`]
//! cgroups per pattern.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most cgroups that match one pattern.
const MATCHES_MAX: usize = 4096;

/// Most parts of a pattern.
const PARTS_MAX: usize = 32;

/// A path in the hierarchy of cgroups, in which `*` stands for any text within a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupPattern {
    parts: Vec<String>,
}

/// Why a text is not a [`CgroupPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no cgroup below the root: expected a place as in `systemd-cgls`, such as \
     `system.slice/web.service` or `machine.slice/*`"
)]
pub struct CgroupPatternError(String);

impl fmt::Display for CgroupPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("/"))
    }
}

impl FromStr for CgroupPattern {
    type Err = CgroupPatternError;

    fn from_str(text: &str) -> Result<CgroupPattern, CgroupPatternError> {
        let parts: Vec<String> =
            text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let is_plain = |part: &String| part != "." && part != ".." && !part.contains('\0');
        let is_valid = (1..=PARTS_MAX).contains(&parts.len()) && parts.iter().all(is_plain);
        if is_valid {
            Ok(CgroupPattern { parts })
        } else {
            Err(CgroupPatternError(text.to_owned()))
        }
    }
}

impl CgroupPattern {
    /// The folders below `root` that match it, sorted.
    pub fn folders(&self, root: &Path) -> Vec<PathBuf> {
        let mut found = vec![root.to_owned()];
        for part in &self.parts {
            let mut next = Vec::new();
            for folder in found {
                if part.contains('*') {
                    next.extend(matching(&folder, part));
                } else if folder.join(part).is_dir() {
                    next.push(folder.join(part));
                }
            }
            next.truncate(MATCHES_MAX);
            found = next;
        }
        found.sort();
        found
    }
}

/// The folders right in `folder` whose names match `part`.
fn matching(folder: &Path, part: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && entry.file_name().to_str().is_some_and(|name| is_like(name, part)) {
            found.push(entry.path());
        }
    }
    found
}

/// Whether `name` is `part` with some text in place of each `*`.
fn is_like(name: &str, part: &str) -> bool {
    let mut texts = part.split('*');
    let Some(mut rest) = name.strip_prefix(texts.next().unwrap_or_default()) else { return false };
    let Some(last) = texts.next_back() else { return rest.is_empty() };
    for text in texts {
        let Some(at) = rest.find(text) else { return false };
        rest = &rest[at + text.len()..];
    }
    rest.ends_with(last)
}

/// The mount point of cgroups of version 2, from the text of `/proc/self/mountinfo`.
pub fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut words = place.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        (root == "/" && kind.split(' ').next() == Some("cgroup2")).then(|| point.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_name_folders() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a.slice/web-1.scope", "a.slice/web-2.scope", "a.slice/db.scope", "b.slice"]
        {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("a.slice/web-3.scope"), "no folder").unwrap();
        let names = |pattern: &str| -> Vec<String> {
            let pattern: CgroupPattern = pattern.parse().unwrap();
            let folders = pattern.folders(root.path());
            let shown = folders.iter().map(|it| it.strip_prefix(root.path()).unwrap());
            shown.map(|it| it.display().to_string()).collect()
        };
        assert_eq!(names("/b.slice/"), ["b.slice"]);
        assert_eq!(names("a.slice/web-*"), ["a.slice/web-1.scope", "a.slice/web-2.scope"]);
        assert_eq!(names("*/*b*.scope").len(), 3);
        assert_eq!(names("a.slice/nobody"), [""; 0]);
        for text in ["", "/", "a/../b", "."] {
            assert!(
                text.parse::<CgroupPattern>().unwrap_err().to_string().contains("machine.slice")
            );
        }
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (name, part, expected) in [
            ("web", "web", true),
            ("webs", "web", false),
            ("web", "*", true),
            ("web", "w*b", true),
            ("wb", "w*b", true),
            ("w", "w*w", false),
            ("a-b-c", "a*-*c", true),
            ("a-b-c", "*b*d", false),
        ] {
            assert_eq!(is_like(name, part), expected, "{name} {part}");
        }
    }

    #[test]
    fn the_mount_of_version_two_is_found() {
        let one = "25 18 0:22 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(cgroup2_mount(one), None);
        let both = format!("{one}30 18 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 c rw\n");
        assert_eq!(cgroup2_mount(&both), Some("/sys/fs/cgroup/unified".into()));
    }

    proptest! {
        #[test]
        fn a_name_is_like_itself_cut_anywhere(name in "[a-c*]{1,8}", at in 0..8usize) {
            let at = at.min(name.len());
            let pattern = format!("{}*{}", &name[..at], &name[at..]);
            prop_assert!(is_like(&name, &pattern));
            prop_assert!(is_like(&name, "*"));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = (text.parse::<CgroupPattern>(), cgroup2_mount(&text));
        }
    }
}
