//! Which cgroup a process is in, and where that is to be found.
//!
//! Idea: `/proc/PID/cgroup` names the group in each hierarchy, `/proc/self/mountinfo` says where the hierarchy is
//! mounted, and which part of it.
//!
//! Source: cgroups(7), proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::line::{malformed, numbered, unescape, word};

/// A version of cgroups; they differ in their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy for the memory controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// Where a hierarchy that may have a memory controller is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// Its version.
    pub version: CgroupVersion,
    /// The part of the hierarchy that is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
}

/// The groups a process is in, as paths within their hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnGroups {
    /// In that of version 1 with the memory controller.
    pub memory: Option<PathBuf>,
    /// In that of version 2.
    pub unified: Option<PathBuf>,
}

/// Understands the text of `/proc/PID/cgroup`.
///
/// # Errors
/// What is wrong with which line.
pub fn parse_own_groups(text: &[u8]) -> Result<OwnGroups, String> {
    const EXPECTED: &str = "`NUMBER:CONTROLLERS:/PATH`, as in /proc/PID/cgroup";
    let mut groups = OwnGroups::default();
    for (at, line) in numbered(text) {
        let mut fields = line.splitn(3, |&b| b == b':');
        let (Some(number), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err(malformed(at, line, EXPECTED));
        };
        if !group.starts_with(b"/") {
            return Err(malformed(at, line, EXPECTED));
        }
        if number == b"0" && controllers.is_empty() {
            groups.unified = Some(path(group));
        } else if controllers.split(|&b| b == b',').any(|name| name == b"memory") {
            groups.memory = Some(path(group));
        }
    }
    Ok(groups)
}

/// Understands the text of `/proc/self/mountinfo`: the mounts of hierarchies that may have a memory controller.
///
/// # Errors
/// What is wrong with which line.
pub fn parse_mountinfo(text: &[u8]) -> Result<Vec<CgroupMount>, String> {
    const EXPECTED: &str = "`ID PARENT MAJOR:MINOR ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS`, as in /proc/PID/mountinfo";
    let mut mounts = Vec::new();
    for (at, line) in numbered(text) {
        let mount = mount(line).ok_or_else(|| malformed(at, line, EXPECTED))?;
        mounts.extend(mount);
    }
    Ok(mounts)
}

/// `None` for no line of a mount, `Some(None)` for another mount.
fn mount(line: &[u8]) -> Option<Option<CgroupMount>> {
    let mut rest = line;
    let [_id, _parent, _device, root, point, _options] = [(); 6].map(|()| word(&mut rest));
    while word(&mut rest) != b"-" {
        if rest.is_empty() {
            return None;
        }
    }
    let [kind, _source, options] = [(); 3].map(|()| word(&mut rest));
    // A hierarchy's root may lie above what this process sees (`/..`); other kinds of mounts have other roots.
    if !point.starts_with(b"/") || kind.is_empty() {
        return None;
    }
    let version = match kind {
        b"cgroup2" => CgroupVersion::Two,
        b"cgroup" if options.split(|&b| b == b',').any(|it| it == b"memory") => CgroupVersion::One,
        _ => return Some(None),
    };
    Some(Some(CgroupMount { version, root: path(&unescape(root)), point: path(&unescape(point)) }))
}

fn path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn groups_of_both_versions() {
        let text = b"9:name=systemd:/\n4:cpu,memory:/vm/a:b\n0::/unit\n";
        let expected = OwnGroups { memory: Some("/vm/a:b".into()), unified: Some("/unit".into()) };
        assert_eq!(parse_own_groups(text), Ok(expected));
        assert_eq!(parse_own_groups(b""), Ok(OwnGroups::default()));
        let only = parse_own_groups(b"3:memoryx:/a\n0::/\n").unwrap();
        assert_eq!((only.memory, only.unified), (None, Some("/".into())));
        for line in ["4:memory", "4", "0::unit", "4:memory:"] {
            let why = parse_own_groups(format!("0::/\n{line}\n").as_bytes()).unwrap_err();
            assert!(why.starts_with(&format!("line 2: `{line}`: expected")), "{why}");
        }
    }

    #[test]
    fn mounts_of_both_versions() {
        let text = br"22 27 0:21 / /proc rw,relatime - proc proc rw
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:1 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
41 31 0:38 /a\040b /mnt/uni\040fied rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";
        let expected = [
            CgroupMount {
                version: CgroupVersion::One,
                root: "/".into(),
                point: "/sys/fs/cgroup/memory".into(),
            },
            CgroupMount {
                version: CgroupVersion::Two,
                root: "/a b".into(),
                point: "/mnt/uni fied".into(),
            },
        ];
        assert_eq!(parse_mountinfo(text).unwrap(), expected);
        for line in ["rubbish", "1 2 3 / /x rw", "1 2 3 / /x rw -", "1 2 3 / x rw - cgroup2 a b"] {
            let why = parse_mountinfo(line.as_bytes()).unwrap_err();
            assert!(why.starts_with("line 1: "), "{why}");
        }
    }

    /// By the standard library's words, and without a thought for what is malformed.
    fn naive(line: &str) -> Option<(String, String)> {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split_whitespace().collect();
        let after: Vec<&str> = after.split_whitespace().collect();
        let has = after.get(2)?.split(',').any(|option| option == "memory");
        let is_one = after[0] == "cgroup" && has;
        (is_one || after[0] == "cgroup2").then(|| (before[3].to_owned(), before[4].to_owned()))
    }

    proptest! {
        #[test]
        fn mounts_are_as_a_naive_reader_reads_them(
            root in "/[a-z]{0,5}", point in "/[a-z]{1,5}", more in "( shared:[0-9])?( master:1)?",
            kind in "cgroup2?|proc", options in "rw(,cpu)?(,memory)?(,memoryx)?",
        ) {
            let line = format!("1 2 0:3 {root} {point} rw{more} - {kind} source {options}");
            let seen = parse_mountinfo(line.as_bytes()).unwrap();
            let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
            let seen = seen.first().map(|mount| (text(&mount.root), text(&mount.point)));
            prop_assert_eq!(seen, naive(&line));
        }

        #[test]
        fn rubbish_is_refused_and_no_more(text: Vec<u8>, line in "[a-z0-9:/ ,\n\\\\-]{0,60}") {
            let _ = (parse_own_groups(&text), parse_mountinfo(&text));
            let _ = (parse_own_groups(line.as_bytes()), parse_mountinfo(line.as_bytes()));
        }
    }
}
