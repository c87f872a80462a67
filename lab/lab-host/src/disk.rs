//! The guests' disks: unnamed files with the speed of a kind of drive.
//!
//! Idea: a disk is a sparse file without a name (`O_TMPFILE`, or unlinked at once where the file
//! system lacks that). QEMU inherits it open, so nothing is left behind however the processes end.
//! QEMU's throttling limits its speed, so that thrashing costs a guest as much as on such a drive,
//! and the same on every host.
//! Limits: throttling limits rates and adds no latency; a host drive slower than the chosen speed
//! determines the speed.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::str::FromStr;

use ballast_model::Bytes;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use tempfile::{NamedTempFile, TempPath};

use crate::{Cache, LabError};

/// Space that must stay free on the host's drive beside the guests' disks.
const SPACE_RESERVE: Bytes = Bytes::mib(256);
/// Smallest disk: large enough for a swap area.
const SIZE_MIN: Bytes = Bytes::mib(1);

/// The speed of a disk. A swapping guest sends one request at a time, because a page fault waits
/// for it. Written as a name, or as a table of [`Limits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speed {
    /// `host`: the speed of the host's own drive.
    #[default]
    Host,
    /// `nvme`: 50,000 requests and 2 GB a second; a 20 µs read of a fast NVMe drive.
    Nvme,
    /// `ssd`: 10,000 requests and 500 MB a second; a 100 µs read, and the limit of the SATA bus.
    Ssd,
    /// `hdd`: 120 requests and 150 MB a second; a seek and half a turn at 7,200/min take 8 ms.
    Hdd,
    /// Custom limits.
    Limits(Limits),
}

/// Limits on a disk's rates, for reads and writes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Requests per second; at least 1.
    pub iops: u64,
    /// Bytes per second; at least one page.
    pub bytes_per_second: u64,
}

impl Speed {
    /// Every named speed, fastest first.
    pub const NAMED: [Speed; 4] = [Speed::Host, Speed::Nvme, Speed::Ssd, Speed::Hdd];

    /// Its name in files and on the command line; `None` for custom limits.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Speed::Host => Some("host"),
            Speed::Nvme => Some("nvme"),
            Speed::Ssd => Some("ssd"),
            Speed::Hdd => Some("hdd"),
            Speed::Limits(_) => None,
        }
    }

    /// Its limits; `None` for `host`.
    pub const fn limits(self) -> Option<Limits> {
        let (iops, bytes_per_second) = match self {
            Speed::Host => return None,
            Speed::Nvme => (50_000, 2_000_000_000),
            Speed::Ssd => (10_000, 500_000_000),
            Speed::Hdd => (120, 150_000_000),
            Speed::Limits(limits) => return Some(limits),
        };
        Some(Limits { iops, bytes_per_second })
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.limits()) {
            (None, Some(Limits { iops, bytes_per_second })) => {
                write!(f, "{iops} iops, {bytes_per_second} B/s")
            }
            (name, _) => f.pad(name.unwrap_or_default()),
        }
    }
}

impl FromStr for Speed {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Speed, LabError> {
        Speed::NAMED.into_iter().find(|speed| speed.name() == Some(text)).ok_or_else(|| {
            LabError::Invalid(format!("`{text}` is not a speed: expected host, nvme, ssd or hdd"))
        })
    }
}

impl Serialize for Speed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, self.name()) {
            (Speed::Limits(limits), _) => limits.serialize(serializer),
            (_, name) => serializer.serialize_str(name.unwrap_or_default()),
        }
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Speed, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Speed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("host, nvme, ssd, hdd, or a table with iops and bytes_per_second")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Speed, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Speed, A::Error> {
                let table = de::value::MapAccessDeserializer::new(map);
                Limits::deserialize(table).map(Speed::Limits)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A disk of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// Its capacity; the sparse file grows to at most this.
    pub size: Bytes,
    /// Its speed.
    #[serde(default)]
    pub speed: Speed,
}

impl DiskSpec {
    /// Checks its values.
    ///
    /// # Errors
    /// Names the figure that is out of range.
    pub fn validate(&self) -> Result<(), LabError> {
        if self.size < SIZE_MIN {
            return Err(LabError::Invalid(format!(
                "a disk of {} is too small: at least {SIZE_MIN}",
                self.size
            )));
        }
        match self.speed.limits() {
            Some(Limits { iops: 0, .. }) => {
                Err(LabError::Invalid("iops must be at least 1".to_owned()))
            }
            Some(Limits { bytes_per_second, .. }) if bytes_per_second < 4096 => Err(
                LabError::Invalid("bytes_per_second must be at least 4096, one page".to_owned()),
            ),
            _ => Ok(()),
        }
    }
}

/// A disk's open file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    pub(crate) file: File,
    /// Its name, which is removed when this is dropped; most disks have none.
    pub(crate) name: Option<TempPath>,
    /// Whether the file system supports bypassing the host's page cache, so that a guest's swap is
    /// not also cached in the host's memory.
    pub(crate) direct: bool,
}

/// Creates a disk's file in the cache's file system, empty or as a copy of `image`; if it
/// `is_named`, the file has a name for now.
pub(crate) fn create(
    cache: &Cache,
    spec: &DiskSpec,
    image: Option<&Path>,
    is_named: bool,
) -> Result<DiskFile, LabError> {
    spec.validate()?;
    let folder = cache.root();
    let (mut file, name) = match is_named {
        true => NamedTempFile::new_in(folder)
            .map(|file| file.into_parts())
            .map(|(file, name)| (file, Some(name))),
        false => tempfile::tempfile_in(folder).map(|file| (file, None)),
    }
    .map_err(LabError::io("create a disk in", folder))?;
    if let Some(image) = image {
        let mut from = File::open(image).map_err(LabError::io("read", image))?;
        io::copy(&mut from, &mut file).map_err(LabError::io("copy", image))?;
    }
    file.set_len(spec.size.get()).map_err(LabError::io("create a disk in", folder))?;
    let direct =
        fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT)).is_ok();
    Ok(DiskFile { file, name, direct })
}

/// Checks that `folder`'s file system has room for disks of `wanted` bytes in total.
pub(crate) fn ensure_space(folder: &Path, wanted: Bytes) -> Result<(), LabError> {
    let stat =
        rustix::fs::statvfs(folder).map_err(|e| LabError::io("examine", folder)(e.into()))?;
    let free = Bytes::new(stat.f_bavail.saturating_mul(stat.f_frsize));
    if wanted > Bytes::ZERO && free < wanted.saturating_add(SPACE_RESERVE) {
        return Err(LabError::DiskSpace { folder: folder.to_owned(), free, wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn disk_is_sparse_and_unnamed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let spec = DiskSpec { size: Bytes::gib(1), speed: Speed::Host };
        let disk = create(&cache, &spec, None, false).unwrap();
        let metadata = disk.file.metadata().unwrap();
        assert_eq!(metadata.len(), 1 << 30);
        assert!(metadata.blocks() < 100, "{} blocks", metadata.blocks());
        assert_eq!(metadata.nlink(), 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn disk_starts_as_a_copy_of_its_image() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, [7; 8192]).unwrap();
        let spec = DiskSpec { size: Bytes::mib(1), speed: Speed::Host };
        let disk = create(&cache, &spec, Some(&image), false).unwrap();
        assert_eq!(disk.file.metadata().unwrap().len(), 1 << 20);
        // With direct I/O only whole blocks could be read.
        fcntl_setfl(&disk.file, OFlags::RDWR).unwrap();
        let mut bytes = [0; 8193];
        disk.file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes[8191], bytes[8192]), (7, 0));
    }

    #[test]
    fn disks_larger_than_the_drive_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = ensure_space(folder.path(), Bytes::new(1 << 60)).unwrap_err().to_string();
        assert!(error.contains("BALLAST_CACHE") && error.contains("free"), "{error}");
        assert!(ensure_space(folder.path(), Bytes::ZERO).is_ok());
    }

    #[test]
    fn invalid_disks_are_refused() {
        let limits = |iops, bytes_per_second| Speed::Limits(Limits { iops, bytes_per_second });
        for (size, speed) in [
            (Bytes::kib(4), Speed::Host),
            (Bytes::gib(1), limits(0, 1 << 20)),
            (Bytes::gib(1), limits(1, 4095)),
        ] {
            assert!(DiskSpec { size, speed }.validate().is_err(), "{size} {speed:?}");
        }
    }

    #[test]
    fn speeds_are_ordered_in_both_limits() {
        for pair in Speed::NAMED[1..].windows(2) {
            let (faster, slower) = (pair[0].limits().unwrap(), pair[1].limits().unwrap());
            assert!(faster.iops > slower.iops);
            assert!(faster.bytes_per_second > slower.bytes_per_second);
        }
    }

    #[test]
    fn speeds_round_trip() {
        let own = Speed::Limits(Limits { iops: 7, bytes_per_second: 8192 });
        for speed in Speed::NAMED.into_iter().chain([own]) {
            let text = serde_json::to_string(&speed).unwrap();
            assert_eq!(serde_json::from_str::<Speed>(&text).unwrap(), speed, "{text}");
        }
        let error = serde_json::from_str::<Speed>("\"tape\"").unwrap_err().to_string();
        assert!(error.contains("nvme, ssd or hdd"), "{error}");
    }
}
