//! Which other program on the host moves balloons.
//!
//! Idea: such programs are recognized by their names. A name counts only for a service of the host,
//! because any process can take any name. Command lines are read only of services, because a
//! process can delay a reader of its command line.
//! Cost: one small file per process, two or three for a few. Limits: it only labels what other
//! evidence has shown.

use std::path::Path;

use ballast_model::BalloonOwner;

use crate::rights::services;

/// The first such program found in `proc` that is not the process `own`.
pub fn balloon_owner(proc: &Path, own: u32) -> Option<BalloonOwner> {
    services(proc, owner).find(|(pid, _)| *pid != own).map(|(_, owner)| owner)
}

/// All such programs found in `proc`, by ascending PID.
pub fn balloon_owners(proc: &Path) -> Vec<(u32, BalloonOwner)> {
    let mut found: Vec<_> = services(proc, owner).collect();
    found.sort_unstable_by_key(|(pid, _)| *pid);
    found
}

/// The program with that process name. `arguments` reads its command line; it is called only where
/// the name does not suffice.
fn owner(name: &str, arguments: &dyn Fn() -> Vec<u8>) -> Option<BalloonOwner> {
    let named = |word: &str| match word {
        "momd" | "mom" | "mom-vdsm" | "vdsmd" => Some(BalloonOwner::Mom),
        "pvestatd" => Some(BalloonOwner::Pvestatd),
        "squeezed" => Some(BalloonOwner::Squeezed),
        "qmemman" | "qmemmand" => Some(BalloonOwner::Qmemman),
        _ => None,
    };
    let is_script = name.starts_with("python") || name.starts_with("perl");
    if !is_script && name != "ballast" {
        return named(name);
    }
    let arguments = arguments();
    let mut words =
        arguments.split(|&byte| byte == 0).filter_map(|it| std::str::from_utf8(it).ok());
    match is_script {
        true => words.find_map(|word| named(word.rsplit('/').next()?)),
        false => words.any(|word| word == "daemon").then_some(BalloonOwner::Ballast),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn owners_are_known_by_name_and_script() {
        let proc = tempfile::tempdir().unwrap();
        let found = |own| balloon_owner(proc.path(), own);
        let add = |pid: &str, name: &str, arguments: &str| {
            let folder = proc.path().join(pid);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("cmdline"), arguments).unwrap();
            fs::write(folder.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
        };
        add("10", "ballast", "/usr/bin/ballast\0status\0");
        add("11", "bash", "bash\0vdsmd\0");
        add("self", "pvestatd", "pvestatd\0");
        assert_eq!(found(1), None);
        add("12", "ballast", "ballast\0daemon\0");
        assert_eq!((found(12), found(1)), (None, Some(BalloonOwner::Ballast)));
        add("9", "pvestatd", "");
        let all = [(9, BalloonOwner::Pvestatd), (12, BalloonOwner::Ballast)];
        assert_eq!(balloon_owners(proc.path()), all);
        fs::remove_dir_all(proc.path().join("9")).unwrap();
        for (name, arguments, expected) in [
            ("python3", "/usr/bin/python3\0/usr/share/vdsm/vdsmd\0", Some(BalloonOwner::Mom)),
            ("python3.11", "python3\0other\0", None),
            ("pvestatd", "", Some(BalloonOwner::Pvestatd)),
        ] {
            add("12", name, arguments);
            assert_eq!(found(1), expected, "{name}");
        }
    }

    #[test]
    fn another_users_process_owns_no_balloon_by_its_name() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("12");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), "pvestatd\n").unwrap();
        assert!(balloon_owners(proc.path()).is_empty(), "nothing is known of its user");
        for (users, count) in [("4000000000\t0\t0\t0", 0), ("0\t0\t0\t0", 1)] {
            fs::write(folder.join("status"), format!("Uid:\t{users}\n")).unwrap();
            assert_eq!(balloon_owners(proc.path()).len(), count, "{users}");
        }
    }

    #[test]
    fn no_other_users_command_line_is_waited_for() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("12");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), "python3\n").unwrap();
        fs::write(folder.join("status"), "Uid:\t4000000000\t0\t0\t0\n").unwrap();
        // Nobody writes to it: whoever opens it waits forever.
        mkfifoat(CWD, folder.join("cmdline"), Mode::RUSR | Mode::WUSR).unwrap();
        let (sender, found) = mpsc::channel();
        let path = proc.path().to_owned();
        std::thread::spawn(move || sender.send(balloon_owner(&path, 1)));
        assert_eq!(found.recv_timeout(Duration::from_secs(10)), Ok(None));
    }
}
