//! Finds the cgroup of a process.
//!
//! Idea: `/proc/PID/cgroup` names the cgroup in each hierarchy; `/proc/self/mountinfo` says where
//! each hierarchy is mounted, and which part of it.
//!
//! Source: cgroups(7), proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::line::{malformed, numbered, unescape, word};

/// Version of the cgroup interface; the versions have different files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// The memory controller has its own hierarchy.
    One,
    /// All controllers share one hierarchy.
    Two,
}

/// A mounted hierarchy that may have a memory controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// The hierarchy's version.
    pub version: CgroupVersion,
    /// The cgroup that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
}

/// The cgroups of a process, as paths within their hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessCgroups {
    /// In the version 1 hierarchy with the memory controller.
    pub memory: Option<PathBuf>,
    /// In the version 2 hierarchy.
    pub unified: Option<PathBuf>,
}

/// Parses the text of `/proc/PID/cgroup`.
///
/// # Errors
/// A line is malformed; the error names it.
pub fn parse_proc_cgroup(text: &[u8]) -> Result<ProcessCgroups, String> {
    const EXPECTED: &str = "`NUMBER:CONTROLLERS:/PATH`, as in /proc/PID/cgroup";
    let mut groups = ProcessCgroups::default();
    for (at, line) in numbered(text) {
        let mut fields = line.splitn(3, |&b| b == b':');
        let (number, controllers, group) = match [(); 3].map(|()| fields.next()) {
            [Some(number), Some(controllers), Some(group)] if group.starts_with(b"/") => {
                (number, controllers, group)
            }
            _ => return Err(malformed(at, line, EXPECTED)),
        };
        if number == b"0" && controllers.is_empty() {
            groups.unified = Some(path(group));
        } else if controllers.split(|&b| b == b',').any(|name| name == b"memory") {
            groups.memory = Some(path(group));
        }
    }
    Ok(groups)
}

/// Parses the text of `/proc/self/mountinfo`; returns the mounts that may have a memory controller.
///
/// # Errors
/// A line is malformed; the error names it.
pub fn parse_mountinfo(text: &[u8]) -> Result<Vec<CgroupMount>, String> {
    const EXPECTED: &str = "`ID PARENT MAJOR:MINOR ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS`, \
                            as in /proc/PID/mountinfo";
    let mut mounts = Vec::new();
    for (at, line) in numbered(text) {
        let mount = mount(line).ok_or_else(|| malformed(at, line, EXPECTED))?;
        mounts.extend(mount);
    }
    Ok(mounts)
}

/// `None` for a malformed line, `Some(None)` for a mount of another kind.
fn mount(line: &[u8]) -> Option<Option<CgroupMount>> {
    let mut rest = line;
    let [_id, _parent, _device, root, point, _options] = [(); 6].map(|()| word(&mut rest));
    while word(&mut rest) != b"-" {
        if rest.is_empty() {
            return None;
        }
    }
    let [kind, _source, options] = [(); 3].map(|()| word(&mut rest));
    // `root` is not checked: it may lie above this process's cgroup namespace (`/..`), and other
    // kinds of mounts have other roots.
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
    fn cgroups_of_both_versions_are_parsed() {
        let text = b"9:name=systemd:/\n4:cpu,memory:/vm/a:b\n0::/unit\n";
        let expected =
            ProcessCgroups { memory: Some("/vm/a:b".into()), unified: Some("/unit".into()) };
        assert_eq!(parse_proc_cgroup(text), Ok(expected));
        assert_eq!(parse_proc_cgroup(b""), Ok(ProcessCgroups::default()));
        let only = parse_proc_cgroup(b"3:memoryx:/a\n0::/\n").unwrap();
        assert_eq!((only.memory, only.unified), (None, Some("/".into())));
        for line in ["4:memory", "4", "0::unit", "4:memory:"] {
            let why = parse_proc_cgroup(format!("0::/\n{line}\n").as_bytes()).unwrap_err();
            assert!(why.starts_with(&format!("line 2: `{line}`: expected")), "{why}");
        }
    }

    #[test]
    fn mounts_of_both_versions_are_parsed() {
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

    /// A naive parser on the standard library, for well-formed lines.
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
        fn mounts_agree_with_a_naive_parser(
            root in "/[a-z]{0,5}", point in "/[a-z]{1,5}", more in "( shared:[0-9])?( master:1)?",
            kind in "cgroup2?|proc", options in "rw(,cpu)?(,memory)?(,memoryx)?",
        ) {
            let line = format!("1 2 0:3 {root} {point} rw{more} - {kind} source {options}");
            let mounts = parse_mountinfo(line.as_bytes()).unwrap();
            let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
            let parsed = mounts.first().map(|mount| (text(&mount.root), text(&mount.point)));
            prop_assert_eq!(parsed, naive(&line));
        }

        #[test]
        fn garbage_never_panics(text: Vec<u8>, line in "[a-z0-9:/ ,\n\\\\-]{0,60}") {
            let _ = (parse_proc_cgroup(&text), parse_mountinfo(&text));
            let _ = (parse_proc_cgroup(line.as_bytes()), parse_mountinfo(line.as_bytes()));
        }
    }
}
