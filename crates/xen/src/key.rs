//! Classifies paths of xenstore: a key of a domain, a part of one, a whole one, or none of these.
//!
//! Idea: events name paths of any kind, also those that guests make up. A path is one of the few
//! keys that are read, or stands for a whole domain or a part of one, or is ignored.
//! Source: Xen's `docs/misc/xenstore-paths.pandoc`; XAPI for `dynamic-*` and `meminfo_*`; flexmemd
//! §3.1.2 for `mem_stats`, `mem_req` and `static_min`.

use std::fmt;

use ballast_model::Bytes;
use ballast_xenstore::StorePath;

/// The path of all domains.
pub(crate) const DOMAINS: &str = "/local/domain";

/// The key in which a guest's agent reads answers to its requests, below the domain's path.
const ANSWER: &str = "data/mem_answer";

/// Largest size accepted of any key: 1 PiB.
const SIZE_MAX: Bytes = Bytes::gib(1 << 20);

/// A domain's number. Another domain may get it once the domain has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DomainId(pub(crate) u16);

impl DomainId {
    /// The control domain.
    pub(crate) const DOM0: DomainId = DomainId(0);

    /// Reads a number as xenstore has it: without a sign and without leading zeros.
    pub(crate) fn parse(text: &str) -> Option<DomainId> {
        let id = text.parse().ok().map(DomainId)?;
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DomainKey {
    /// The domain's name.
    Name,
    /// The path of its virtual machine: `/vm/UUID`.
    Vm,
    /// Its target without video memory, in KiB.
    Target,
    /// The most that it can ever hold, in KiB.
    StaticMax,
    /// Flexmemd's guaranteed minimum, KiB.
    StaticMin,
    /// XAPI's minimum, in KiB.
    DynamicMin,
    /// XAPI's maximum, in KiB.
    DynamicMax,
    /// Video memory, which is part of its size, in KiB.
    Videoram,
    /// Whether its kernel says that it has a balloon driver.
    FeatureBalloon,
    /// Its agent's statistics.
    MemStats,
    /// Its agent's last request.
    MemReq,
    /// XAPI's guest tools: free memory, KiB.
    MeminfoFree,
    /// XAPI's guest tools: total memory, KiB.
    MeminfoTotal,
}

impl DomainKey {
    /// All of them.
    pub(crate) const ALL: [DomainKey; 13] = [
        DomainKey::Name,
        DomainKey::Vm,
        DomainKey::Target,
        DomainKey::StaticMax,
        DomainKey::StaticMin,
        DomainKey::DynamicMin,
        DomainKey::DynamicMax,
        DomainKey::Videoram,
        DomainKey::FeatureBalloon,
        DomainKey::MemStats,
        DomainKey::MemReq,
        DomainKey::MeminfoFree,
        DomainKey::MeminfoTotal,
    ];

    /// Its path below the domain's.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            DomainKey::Name => "name",
            DomainKey::Vm => "vm",
            DomainKey::Target => "memory/target",
            DomainKey::StaticMax => "memory/static-max",
            DomainKey::StaticMin => "memory/static_min",
            DomainKey::DynamicMin => "memory/dynamic-min",
            DomainKey::DynamicMax => "memory/dynamic-max",
            DomainKey::Videoram => "memory/videoram",
            DomainKey::FeatureBalloon => "control/feature-balloon",
            DomainKey::MemStats => "data/mem_stats",
            DomainKey::MemReq => "data/mem_req",
            DomainKey::MeminfoFree => "data/meminfo_free",
            DomainKey::MeminfoTotal => "data/meminfo_total",
        }
    }

    /// The key's path for `domain`; never `None`.
    pub(crate) fn path(self, domain: DomainId) -> Option<StorePath> {
        format!("{DOMAINS}/{domain}/{}", self.suffix()).parse().ok()
    }
}

/// The path at which a domain's agent reads answers.
pub(crate) fn answer_path(domain: DomainId) -> Option<StorePath> {
    format!("{DOMAINS}/{domain}/{ANSWER}").parse().ok()
}

/// What a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// All domains.
    Domains,
    /// A domain.
    Domain(DomainId),
    /// A part of a domain with several keys. Guests own some of these parts.
    Part(DomainId),
    /// A key of a domain.
    Key(DomainId, DomainKey),
    /// Nothing that is read.
    Elsewhere,
}

impl PathKind {
    /// Classifies `path`.
    pub(crate) fn of(path: &str) -> PathKind {
        let Some(rest) = path.strip_prefix(DOMAINS) else { return PathKind::Elsewhere };
        if rest.is_empty() {
            return PathKind::Domains;
        }
        let Some(rest) = rest.strip_prefix('/') else { return PathKind::Elsewhere };
        let (id, key) = rest.split_once('/').unwrap_or((rest, ""));
        let Some(id) = DomainId::parse(id) else { return PathKind::Elsewhere };
        match key {
            "" => return PathKind::Domain(id),
            "memory" | "data" | "control" => return PathKind::Part(id),
            _ => {}
        }
        let key = DomainKey::ALL.into_iter().find(|it| it.suffix() == key);
        key.map_or(PathKind::Elsewhere, |key| PathKind::Key(id, key))
    }
}

/// Reads a size in KiB, as the toolstack and guests write it.
///
/// # Errors
/// The value is no such size; the text says what was found and what was expected.
pub fn parse_kib(value: &[u8]) -> Result<Bytes, String> {
    const EXPECTED: &str = "expected KiB, a number of at most 1 PiB";
    const SHOWN: usize = 24;
    let text = value.trim_ascii();
    let shown = || text[..text.len().min(SHOWN)].escape_ascii().to_string();
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(text).ok().filter(|_| is_number).and_then(|it| it.parse().ok());
    let number: u64 = number.ok_or_else(|| format!("`{}`: {EXPECTED}", shown()))?;
    match number.checked_mul(1024).map(Bytes::new).filter(|size| *size <= SIZE_MAX) {
        Some(size) => Ok(size),
        None => Err(format!("`{}`: {EXPECTED}", shown())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_classified() {
        let id = DomainId(7);
        for key in DomainKey::ALL {
            let path = key.path(id).unwrap();
            assert_eq!(PathKind::of(path.as_str()), PathKind::Key(id, key), "{path}");
        }
        for (path, kind) in [
            ("/local/domain", PathKind::Domains),
            ("/local/domain/7", PathKind::Domain(id)),
            ("/local/domain/7/memory", PathKind::Part(id)),
            ("/local/domain/7/data", PathKind::Part(id)),
            ("/local/domain/7/control", PathKind::Part(id)),
            ("/local/domain/7/data/mem_stats/x", PathKind::Elsewhere),
            ("/local/domain/07", PathKind::Elsewhere),
            ("/local/domain/+7", PathKind::Elsewhere),
            ("/local/domain/70000", PathKind::Elsewhere),
            ("/local/domains", PathKind::Elsewhere),
            ("/vm", PathKind::Elsewhere),
            ("", PathKind::Elsewhere),
        ] {
            assert_eq!(PathKind::of(path), kind, "{path}");
        }
    }

    #[test]
    fn sizes_are_numbers_of_kib() {
        assert_eq!(parse_kib(b"131072"), Ok(Bytes::mib(128)));
        assert_eq!(parse_kib(b" 4\n"), Ok(Bytes::kib(4)));
        for value in ["", "-1", "+1", "1.5", "12k", "99999999999999999999", "1099511627777"] {
            let error = parse_kib(value.as_bytes()).unwrap_err();
            assert!(error.contains("expected KiB"), "{value}: {error}");
        }
        let long = parse_kib(&[0xFF; 4096]).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }

    proptest! {
        #[test]
        fn any_path_and_size_is_read_or_refused(path in ".{0,60}", value: Vec<u8>) {
            let _ = PathKind::of(&path);
            let _ = parse_kib(&value);
        }
    }
}
