//! The memory cgroup of one guest: its figures, and reclaim by amount.
//!
//! Limits: as in the module above; figures are whole numbers or `max`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ballast_model::Bytes;

use super::find::{CgroupVersion, parse_mountinfo, parse_own_groups};
use super::squeeze::Squeeze;
use crate::Refusal;
use crate::line::{decimal, malformed};

/// Most that [`MemoryCgroup::reclaim`] asks for at once: bounds how long it takes.
pub const RECLAIM_BYTES_MAX: Bytes = Bytes::mib(64);

/// What has `memory.reclaim`.
pub(crate) const RECLAIM_NEEDS: &str = "version 2 of Linux 5.19 or later";

/// What version 1 writes for no limit, rounded down to a page of any size: the largest multiple of 64 KiB.
const UNLIMITED: u64 = i64::MAX as u64 & !0xffff;

/// The group of one guest's process, which is in it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCgroup {
    pub(super) root: PathBuf,
    folder: PathBuf,
    version: CgroupVersion,
}

/// What reclaim by amount did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// What was asked for.
    pub asked: Bytes,
    /// Memory counted in the group before, what it has in swap not among it.
    pub usage_before: Bytes,
    /// And after.
    pub usage_after: Bytes,
    /// Whether the kernel says that it took as much as was asked for.
    pub is_complete: bool,
}

impl MemoryCgroup {
    /// The group of process `pid`. All files are looked for below `root`, which is `/` on every ordinary host.
    /// Of which process the number is, the caller makes sure ([`Vmm::is_alive`](crate::Vmm::is_alive) afterwards).
    ///
    /// # Errors
    /// [`Refusal::NoCgroup`], [`Refusal::SharedCgroup`], [`Refusal::Gone`] or [`Refusal::Unreadable`].
    pub fn find(root: &Path, pid: u32) -> Result<MemoryCgroup, Refusal> {
        let own_path = root.join(format!("proc/{pid}/cgroup"));
        let own = fs::read(&own_path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Refusal::Gone { pid },
            _ => Refusal::unreadable(&own_path, error),
        })?;
        let own = parse_own_groups(&own).map_err(|why| Refusal::unreadable(&own_path, why))?;
        let mounts_path = root.join("proc/self/mountinfo");
        let mounts =
            fs::read(&mounts_path).map_err(|error| Refusal::unreadable(&mounts_path, error))?;
        let mounts =
            parse_mountinfo(&mounts).map_err(|why| Refusal::unreadable(&mounts_path, why))?;
        // A controller is in one hierarchy only: where version 1 has it, version 2 has not.
        let groups = [(CgroupVersion::One, own.memory), (CgroupVersion::Two, own.unified)];
        let mut why =
            "no hierarchy with a memory controller is mounted, expected one of version 1 or 2";
        for (version, group) in groups {
            let Some(group) = group else { continue };
            for mount in mounts.iter().filter(|mount| mount.version == version) {
                let Ok(inside) = group.strip_prefix(&mount.root) else { continue };
                // `..` stands for groups outside of what is mounted.
                if inside.iter().any(|part| part == "..") {
                    continue;
                }
                let point = below(root, &mount.point);
                let Some(folder) = counting(&point, inside, version) else {
                    if version == CgroupVersion::One || point.join("cgroup.controllers").exists() {
                        why = "it is in no group with a memory controller, expected one below the root group";
                    }
                    continue;
                };
                let group = MemoryCgroup { root: root.to_owned(), folder, version };
                return group.alone(pid);
            }
        }
        Err(Refusal::NoCgroup { pid, why })
    }

    /// Its version.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Memory counted in it; what it has in swap is not, but for the copies that wait there to be given away.
    ///
    /// # Errors
    /// [`Refusal::Unreadable`].
    pub fn usage(&self) -> Result<Bytes, Refusal> {
        let name = match self.version {
            CgroupVersion::One => "memory.usage_in_bytes",
            CgroupVersion::Two => "memory.current",
        };
        let usage = self.amount(name)?;
        usage
            .ok_or_else(|| Refusal::unreadable(&self.folder.join(name), "`max`: expected a number"))
    }

    /// The bound that a [`Squeeze`] sets, as it is now; `None` for none.
    ///
    /// # Errors
    /// [`Refusal::Unreadable`].
    pub fn limit(&self) -> Result<Option<Bytes>, Refusal> {
        self.amount(self.limit_name())
    }

    /// Asks the kernel to take `amount` from the group, at most [`RECLAIM_BYTES_MAX`]. Version 2 only.
    ///
    /// # Errors
    /// [`Refusal::CgroupLacks`], [`Refusal::Cgroup`] or [`Refusal::Unreadable`].
    pub fn reclaim(&self, amount: Bytes) -> Result<Reclaimed, Refusal> {
        let asked = amount.min(RECLAIM_BYTES_MAX).page_floor();
        let usage_before = self.usage()?;
        self.has("memory.reclaim", RECLAIM_NEEDS)?;
        let is_complete = match self.write("memory.reclaim", &asked.get().to_string()) {
            Ok(()) => true,
            // It took less.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                return Err(self.refused("memory.reclaim", asked.get().to_string(), error));
            }
        };
        Ok(Reclaimed { asked, usage_before, usage_after: self.usage()?, is_complete })
    }

    /// Begins to lower its bound, which stays as it is until the first step.
    ///
    /// # Errors
    /// [`Refusal::Unreadable`].
    pub fn squeeze(self) -> Result<Squeeze, Refusal> {
        Squeeze::new(self)
    }

    /// Refuses where it lacks a file.
    pub(crate) fn has(&self, name: &str, needs: &'static str) -> Result<(), Refusal> {
        let path = self.folder.join(name);
        if path.exists() { Ok(()) } else { Err(Refusal::CgroupLacks { path, needs }) }
    }

    pub(crate) fn limit_name(&self) -> &'static str {
        match self.version {
            CgroupVersion::One => "memory.limit_in_bytes",
            CgroupVersion::Two => "memory.high",
        }
    }

    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
    }

    pub(super) fn refused(&self, name: &str, text: String, error: io::Error) -> Refusal {
        Refusal::Cgroup { path: self.folder.join(name), text, why: error.to_string() }
    }

    fn amount(&self, name: &str) -> Result<Option<Bytes>, Refusal> {
        let path = self.folder.join(name);
        let text = fs::read(&path).map_err(|error| Refusal::unreadable(&path, error))?;
        parse_amount(&text).map_err(|why| Refusal::unreadable(&path, why))
    }

    /// Refuses where it has other processes than `pid`.
    fn alone(self, pid: u32) -> Result<MemoryCgroup, Refusal> {
        let path = self.folder.join("cgroup.procs");
        let text = fs::read_to_string(&path).map_err(|error| Refusal::unreadable(&path, error))?;
        let others = text.lines().filter(|line| *line != pid.to_string()).count();
        match others {
            0 => Ok(self),
            others => Err(Refusal::SharedCgroup { path: self.folder, pid, others }),
        }
    }
}

/// The folder that counts the memory of group `inside` of the hierarchy at `point`, other than the root group, whose
/// memory is the whole host's.
fn counting(point: &Path, inside: &Path, version: CgroupVersion) -> Option<PathBuf> {
    let name = match version {
        CgroupVersion::One => "memory.usage_in_bytes",
        CgroupVersion::Two => "memory.current",
    };
    // Threads of a guest may be in groups below the one that has its memory.
    let folders = inside.ancestors().filter(|inside| *inside != Path::new(""));
    let mut paths = folders.map(|inside| point.join(inside));
    paths.find(|folder| folder.join(name).exists())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Understands the text of a file with one amount, as `memory.current`, `memory.high` or `memory.limit_in_bytes`;
/// `None` for no limit.
///
/// # Errors
/// What was found.
pub fn parse_amount(text: &[u8]) -> Result<Option<Bytes>, String> {
    let word = text.trim_ascii();
    if word == b"max" {
        return Ok(None);
    }
    let amount = decimal(word).ok_or_else(|| malformed(1, word, "a number of bytes, or `max`"))?;
    Ok((amount < UNLIMITED).then_some(Bytes::new(amount)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_as_both_versions_write_them() {
        for (text, amount) in [
            ("4096\n", Some(Bytes::pages(1))),
            ("0", Some(Bytes::ZERO)),
            ("max\n", None),
            ("9223372036854771712\n", None),
        ] {
            assert_eq!(parse_amount(text.as_bytes()), Ok(amount), "{text}");
        }
        for text in ["", "-1", "maximum", "1 2", "1M"] {
            let why = parse_amount(text.as_bytes()).unwrap_err();
            assert!(why.contains("expected a number of bytes, or `max`"), "{why}");
        }
    }

    proptest! {
        #[test]
        fn amounts_are_read_or_refused(text: Vec<u8>, amount in 0..UNLIMITED) {
            let _ = parse_amount(&text);
            let written = format!("{amount}\n");
            prop_assert_eq!(parse_amount(written.as_bytes()), Ok(Some(Bytes::new(amount))));
        }
    }
}
