//! Merging of equal pages (KSM): reads and sets `/sys/kernel/mm/ksm`, and reads
//! `/proc/<pid>/ksm_merging_pages`, the part of one process.
//!
//! Idea: [`MergingControl`] restores the settings that it found when it ends. It never unmerges
//! (`run` = 2), which may need more memory than there is.
//!
//! Cost: six small files for a reading, one for a process. Source: Linux,
//! Documentation/admin-guide/mm/ksm.rst. Limits: pages of 4 KiB, as everywhere here; a killed
//! process restores nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_model::{Bytes, MergingKnobs, PageMerging};
use rustix::io::Errno;

use crate::error::ReadError;
use crate::file::read_fact;
use crate::line::number;
use crate::rights::services;

/// The usual folder.
pub const KSM: &str = "/sys/kernel/mm/ksm";

/// The settings and results of merging, from the files in `folder`; `None`: this kernel has no
/// merging.
///
/// # Errors
/// A file cannot be read, or holds no number.
pub fn read_merging(folder: &Path) -> Result<Option<PageMerging>, ReadError> {
    let figure = |name: &str| read_fact(folder.join(name), parse_number);
    let Some(run) = figure("run")? else { return Ok(None) };
    let known = (
        figure("pages_shared")?,
        figure("pages_sharing")?,
        figure("full_scans")?,
        figure("pages_to_scan")?,
        figure("sleep_millisecs")?,
    );
    let (Some(shared), Some(sharing), Some(full_scans), Some(pages_to_scan), Some(sleep)) = known
    else {
        return Ok(None);
    };
    // `run` = 2 stops merging and unmerges everything.
    let knobs =
        MergingKnobs { is_running: run == 1, pages_to_scan, sleep: Duration::from_millis(sleep) };
    Ok(Some(PageMerging { knobs, shared: pages(shared), saved: pages(sharing), full_scans }))
}

/// How much memory of process `pid` is merged; `None`: the process has ended, or the kernel is
/// older than 6.1 and does not say.
///
/// # Errors
/// The file cannot be read, or holds no number.
pub fn read_merged(proc: &Path, pid: u32) -> Result<Option<Bytes>, ReadError> {
    match read_fact(proc.join(pid.to_string()).join("ksm_merging_pages"), parse_number) {
        Err(error) if error.is(Errno::SRCH) => Ok(None),
        read => Ok(read?.map(pages)),
    }
}

fn pages(count: u64) -> Bytes {
    Bytes::new(count.saturating_mul(Bytes::pages(1).get()))
}

/// Parses a file of one number; `path` is for error messages.
///
/// # Errors
/// It holds something else.
pub fn parse_number(path: &Path, text: &[u8]) -> Result<u64, ReadError> {
    let found = number(text.trim_ascii());
    found.ok_or_else(|| ReadError::malformed(path, 1, text, "a whole number"))
}

/// The first program in `proc` that also tunes merging: its PID and name. A name counts only for
/// services of the host: any process can take such a name.
pub fn merging_owner(proc: &Path) -> Option<(u32, &'static str)> {
    let mut tuners = services(proc, |name, arguments| match name {
        "ksmtuned" => Some("ksmtuned"),
        "momd" | "mom" | "mom-vdsm" => Some("mom"),
        "vdsmd" => Some("vdsm"),
        // Scripts whose interpreter gives the process its name.
        _ if matches!(name, "bash" | "sh") || name.starts_with("python") => {
            let arguments = arguments();
            let words = arguments.split(|&byte| byte == 0);
            let mut names = words.filter_map(|word| word.rsplit(|&byte| byte == b'/').next());
            names.find_map(|word| match word {
                b"ksmtuned" => Some("ksmtuned"),
                b"momd" => Some("mom"),
                b"vdsmd" => Some("vdsm"),
                _ => None,
            })
        }
        _ => None,
    });
    tuners.next()
}

/// The settings that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OriginalSettings {
    run: u64,
    pages_to_scan: u64,
    sleep_ms: u64,
}

/// Sets how the kernel searches for equal pages, and restores what it found.
#[derive(Debug)]
pub struct MergingControl {
    folder: PathBuf,
    /// The settings before the first change; `None`: nothing was set yet.
    original: Option<OriginalSettings>,
}

impl MergingControl {
    /// A control that has set nothing yet; `folder` is [`KSM`], or a test's folder.
    pub fn new(folder: &Path) -> MergingControl {
        MergingControl { folder: folder.to_owned(), original: None }
    }

    /// Sets `knobs`. The first call notes the settings that it found.
    ///
    /// # Errors
    /// The kernel has no such files, or they cannot be read or written; the text names the file.
    pub fn set(&mut self, knobs: MergingKnobs) -> Result<(), String> {
        if self.original.is_none() {
            self.original = Some(self.find()?);
        }
        let sleep_ms = u64::try_from(knobs.sleep.as_millis()).unwrap_or(u64::MAX);
        self.write("pages_to_scan", knobs.pages_to_scan)?;
        self.write("sleep_millisecs", sleep_ms)?;
        self.write("run", u64::from(knobs.is_running))
    }

    /// Restores the settings that were found, if any were changed.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn restore(&mut self) -> Result<(), String> {
        let Some(original) = self.original.take() else { return Ok(()) };
        // Not back to 2, which would unmerge everything again.
        let run = u64::from(original.run == 1);
        self.write("run", run)?;
        self.write("pages_to_scan", original.pages_to_scan)?;
        self.write("sleep_millisecs", original.sleep_ms)
    }

    /// Leaves the settings as they are now, because another program owns them.
    pub fn give_up(&mut self) {
        self.original = None;
    }

    fn find(&self) -> Result<OriginalSettings, String> {
        let figure = |name: &str| {
            let found = read_fact(self.folder.join(name), parse_number)
                .map_err(|error| error.to_string())?;
            found.ok_or_else(|| {
                format!("{}: the kernel has no merging of pages (KSM)", self.folder.display())
            })
        };
        Ok(OriginalSettings {
            run: figure("run")?,
            pages_to_scan: figure("pages_to_scan")?,
            sleep_ms: figure("sleep_millisecs")?,
        })
    }

    fn write(&self, name: &str, value: u64) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, value.to_string()).map_err(|error| {
            format!(
                "cannot write {}: {error} (systemd: `ReadWritePaths=-{KSM}` in the unit)",
                path.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(run: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in [
            ("run", run),
            ("pages_shared", 10),
            ("pages_sharing", 256),
            ("full_scans", 3),
            ("pages_to_scan", 100),
            ("sleep_millisecs", 20),
        ] {
            fs::write(folder.path().join(name), format!("{value}\n")).unwrap();
        }
        folder
    }

    fn knobs(is_running: bool, pages_to_scan: u64, sleep_ms: u64) -> MergingKnobs {
        MergingKnobs { is_running, pages_to_scan, sleep: Duration::from_millis(sleep_ms) }
    }

    #[test]
    fn figures_are_what_the_files_say() {
        let folder = folder(1);
        let merging = read_merging(folder.path()).unwrap().unwrap();
        assert_eq!(merging.knobs, knobs(true, 100, 20));
        assert_eq!((merging.shared, merging.saved), (Bytes::kib(40), Bytes::mib(1)));
        assert_eq!(merging.full_scans, 3);
        fs::write(folder.path().join("full_scans"), "many\n").unwrap();
        let error = read_merging(folder.path()).unwrap_err().to_string();
        assert!(error.contains("full_scans") && error.contains("whole number"), "{error}");
        fs::remove_file(folder.path().join("run")).unwrap();
        assert_eq!(read_merging(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_process_says_how_much_of_it_is_merged() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(read_merged(proc.path(), 7).unwrap(), None);
        fs::create_dir(proc.path().join("7")).unwrap();
        fs::write(proc.path().join("7/ksm_merging_pages"), "512\n").unwrap();
        assert_eq!(read_merged(proc.path(), 7).unwrap(), Some(Bytes::mib(2)));
        fs::write(proc.path().join("7/ksm_merging_pages"), "-1\n").unwrap();
        assert!(read_merged(proc.path(), 7).is_err());
    }

    #[test]
    fn what_was_found_is_restored() {
        for (run, restored) in [(0, 0), (1, 1), (2, 0)] {
            let folder = folder(run);
            let mut control = MergingControl::new(folder.path());
            control.restore().unwrap();
            control.set(knobs(true, 364, 10)).unwrap();
            control.set(knobs(true, 664, 10)).unwrap();
            let set = read_merging(folder.path()).unwrap().unwrap().knobs;
            assert_eq!(set, knobs(true, 664, 10));
            control.restore().unwrap();
            let left = read_merging(folder.path()).unwrap().unwrap().knobs;
            assert_eq!(left, knobs(restored == 1, 100, 20), "{run}");
        }
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        let empty = tempfile::tempdir().unwrap();
        let error = MergingControl::new(empty.path()).set(knobs(true, 1, 1)).unwrap_err();
        assert!(error.contains("no merging of pages"), "{error}");
        let folder = folder(0);
        let mut control = MergingControl::new(folder.path());
        control.set(knobs(true, 100, 20)).unwrap();
        fs::remove_dir_all(folder.path()).unwrap();
        let error = control.set(knobs(true, 100, 20)).unwrap_err();
        assert!(error.contains("pages_to_scan") && error.contains("ReadWritePaths"), "{error}");
    }

    #[test]
    fn owners_are_known_by_name_script_and_user() {
        let proc = tempfile::tempdir().unwrap();
        let add = |pid: &str, name: &str, arguments: &str| {
            let folder = proc.path().join(pid);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("cmdline"), arguments).unwrap();
            fs::write(folder.join("status"), "Uid:\t36\t36\t36\t36\n").unwrap();
        };
        add("1", "ksmd", "");
        add("2", "bash", "bash\0/root/notes\0");
        assert_eq!(merging_owner(proc.path()), None);
        for (name, arguments, expected) in [
            ("ksmtuned", "", "ksmtuned"),
            ("bash", "/bin/bash\0/usr/sbin/ksmtuned\0", "ksmtuned"),
            ("python3", "python3\0/usr/sbin/momd\0", "mom"),
            ("python3.11", "python3.11\0/usr/sbin/momd\0", "mom"),
            ("vdsmd", "", "vdsm"),
        ] {
            add("3", name, arguments);
            assert_eq!(merging_owner(proc.path()), Some((3, expected)), "{name}");
        }
        fs::write(proc.path().join("3/status"), "Uid:\t4000000000\t0\t0\t0\n").unwrap();
        assert_eq!(merging_owner(proc.path()), None, "another user's");
    }
}
