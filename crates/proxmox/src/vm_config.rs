//! The configuration of one virtual machine: `VMID.conf`.
//!
//! Idea: lines `key: value` before the first `[section]` are the present configuration; sections
//! are snapshots, changes that wait for the next start, and the like. As in Proxmox VE, the last of
//! several lines with one key counts, and other lines are ignored, whatever they contain. If a line
//! that matters here cannot be read, the whole file is refused: a part of the bounds would be wrong
//! bounds.
//! Source: `parse_vm_config` of Proxmox VE's `qemu-server`, and its manual, qm.conf(5).
//! Limits: one MiB of text, the most that Proxmox's file system keeps in a file. While a change of
//! `memory` waits for the next start, the old value counts.

use std::fmt;
use std::path::{Path, PathBuf};

use ballast_model::{Bytes, GuestChange, GuestId};

use crate::monitors::monitors;
use crate::vm_tags;

/// Largest text that is read, in bytes.
pub(crate) const TEXT_MAX: usize = 1 << 20;

/// Memory of a virtual machine whose configuration has no `memory`.
const MEMORY_DEFAULT_MIB: u64 = 512;

/// Least memory that Proxmox VE accepts.
const MEMORY_MIN_MIB: u64 = 16;

/// Most characters of a text that are shown.
const SHOWN_MAX: usize = 400;

/// The configuration of one virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Its number, unique in a cluster.
    pub vmid: u32,
    /// Its name, which need not be unique.
    pub name: Option<GuestId>,
    /// Its settings: `balloon` as floor, `memory` as ceiling, and `shares`. Its tags take
    /// precedence.
    pub settings: GuestChange,
    /// The QMP sockets in its `args`, besides Proxmox's own.
    pub monitors: Vec<PathBuf>,
    /// Whether Proxmox VE moves its balloon (`pvestatd`): `balloon` is set and `shares` is not 0.
    pub is_moved_by_proxmox: bool,
}

/// Why a configuration cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct VmConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// The mistake, and what was expected. It may repeat text of a user who may edit the guest, so
    /// it is printable and of limited length.
    pub what: String,
}

impl VmConfigError {
    pub(crate) fn new(path: &Path, line: Option<usize>, what: &str) -> VmConfigError {
        let mut shown = String::new();
        for c in what.chars().take(SHOWN_MAX) {
            match c {
                ' '..='~' => shown.push(c),
                _ => shown.extend(c.escape_default()),
            }
        }
        VmConfigError { path: path.to_owned(), line, what: shown }
    }
}

impl fmt::Display for VmConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.what)
    }
}

/// A value and its line.
type ConfigLine<'a> = Option<(usize, &'a str)>;

/// The lines that matter here.
#[derive(Debug, Default)]
struct ConfigLines<'a> {
    name: ConfigLine<'a>,
    memory: ConfigLine<'a>,
    balloon: ConfigLine<'a>,
    shares: ConfigLine<'a>,
    tags: ConfigLine<'a>,
    args: ConfigLine<'a>,
}

impl<'a> ConfigLines<'a> {
    fn of(text: &'a str) -> ConfigLines<'a> {
        let mut lines = ConfigLines::default();
        let main = text.lines().take_while(|line| !line.starts_with('['));
        for (line, text) in main.enumerate() {
            let Some((key, value)) = text.split_once(':') else { continue };
            let place = match key {
                "name" => &mut lines.name,
                "memory" => &mut lines.memory,
                "balloon" => &mut lines.balloon,
                "shares" => &mut lines.shares,
                "tags" => &mut lines.tags,
                "args" => &mut lines.args,
                _ => continue,
            };
            *place = Some((line + 1, value.trim()));
        }
        lines
    }
}

/// Reads `text` as the configuration at `path`, whose name is the VMID.
///
/// # Errors
/// The first mistake in a line that matters here, with its place.
pub fn read_vm(text: &str, path: &Path) -> Result<VmConfig, VmConfigError> {
    let error = |what: &str| VmConfigError::new(path, None, what);
    if text.len() > TEXT_MAX {
        return Err(error(&format!("has {} bytes: expected at most {TEXT_MAX}", text.len())));
    }
    let vmid =
        vmid(path).ok_or_else(|| error("is not named after a VMID: expected as in 101.conf"))?;
    let lines = ConfigLines::of(text);
    let at = |line: ConfigLine<'_>| {
        let line = line.map(|it| it.0);
        move |what: String| VmConfigError::new(path, line, &what)
    };

    let name = match lines.name {
        Some((_, name)) => {
            Some(name.parse::<GuestId>().map_err(|e| at(lines.name)(e.to_string()))?)
        }
        None => None,
    };
    let memory = memory_mib(lines.memory).map_err(at(lines.memory))?;
    let balloon = whole("balloon", lines.balloon, 0, memory).map_err(at(lines.balloon))?;
    let shares = whole("shares", lines.shares, 0, 50_000).map_err(at(lines.shares))?;
    let tags = lines.tags.map_or("", |it| it.1);
    let tags = vm_tags::settings(tags).map_err(at(lines.tags))?;
    let args = lines.args.map_or("", |it| it.1);
    let monitors = monitors(args)
        .ok_or_else(|| at(lines.args)("args has a quote that is not closed".to_owned()))?;

    // Zero is no setting here: `balloon: 0` removes the balloon, and `shares: 0` stops Proxmox VE's
    // own ballooning.
    let floor = balloon.filter(|&mib| mib > 0);
    let settings = GuestChange {
        floor: tags.floor.or(floor.map(Bytes::mib)),
        ceiling: tags.ceiling.or(Some(Bytes::mib(memory))),
        shares: tags.shares.or(shares.filter(|&it| it > 0).map(|it| it as u32)),
        ..tags
    };
    if let Err(why) = settings.apply(&Default::default()).validate() {
        return Err(at(lines.tags)(why.to_string()));
    }
    let is_moved_by_proxmox = floor.is_some() && shares != Some(0);
    Ok(VmConfig { vmid, name, settings, monitors, is_moved_by_proxmox })
}

/// The VMID that a file is named after.
pub(crate) fn vmid(path: &Path) -> Option<u32> {
    let digits = path.file_name()?.to_str()?.strip_suffix(".conf")?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Reads `2048`, or `current=2048` and possibly further parts.
fn memory_mib(line: ConfigLine<'_>) -> Result<u64, String> {
    let current = line.map(|(line, text)| {
        let mut parts = text.split(',');
        let named = parts.clone().find_map(|part| part.trim().strip_prefix("current="));
        (line, named.or(parts.next()).unwrap_or("").trim())
    });
    // No machine has more memory, and this many MiB still fit 64 bits of bytes.
    let memory = whole("memory", current, MEMORY_MIN_MIB, 1 << 40)?;
    Ok(memory.unwrap_or(MEMORY_DEFAULT_MIB))
}

/// Reads a whole number from `least` to `most`.
fn whole(key: &str, line: ConfigLine<'_>, least: u64, most: u64) -> Result<Option<u64>, String> {
    let Some((_, text)) = line else { return Ok(None) };
    let digits = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let unit = if key == "shares" { "" } else { " of MiB" };
    let in_range = digits.filter(|number| (least..=most).contains(number));
    let expected = || format!("{key}: `{text}`: expected a whole number{unit}, {least} to {most}");
    in_range.map(Some).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<VmConfig, VmConfigError> {
        read_vm(text, Path::new("/etc/pve/qemu-server/101.conf"))
    }

    /// A file as Proxmox VE 9 writes it, with a pending change and a snapshot.
    const WHOLE: &str = "#A web server%3A memory%3A 1\n\
        args: -chardev socket,id=ballast,path=/run/ballast/qmp/web-1.sock,server=on,wait=off -mon chardev=ballast,mode=control\n\
        balloon: 1024\n\
        boot: order=scsi0;net0\n\
        memory: 4096\n\
        name: web-1\n\
        net0: virtio=BC:24:11:00:00:01,bridge=vmbr0\n\
        parent: before\n\
        shares: 0\n\
        tags: ballast-priority-2;ballast-shares-2000;web\n\
        \n\
        [PENDING]\n\
        memory: 8192\n\
        \n\
        [before]\n\
        balloon: 16\n\
        memory: 32\n\
        name: other\n\
        tags: ballast-flor\n";

    #[test]
    fn a_whole_configuration_is_read_without_its_sections() {
        let config = read(WHOLE).unwrap();
        let expected = VmConfig {
            vmid: 101,
            name: Some("web-1".parse().unwrap()),
            settings: GuestChange {
                floor: Some(Bytes::gib(1)),
                ceiling: Some(Bytes::gib(4)),
                shares: Some(2000),
                priority: Some(2),
                ..GuestChange::default()
            },
            monitors: vec!["/run/ballast/qmp/web-1.sock".into()],
            is_moved_by_proxmox: false,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn memory_balloon_and_shares_become_bounds() {
        let bounds = |text: &str| {
            let VmConfig { settings, is_moved_by_proxmox, .. } = read(text).unwrap();
            let mib = |size: Option<Bytes>| size.map(|it| it.get() >> 20);
            (mib(settings.floor), mib(settings.ceiling), settings.shares, is_moved_by_proxmox)
        };
        for (text, expected) in [
            ("", (None, Some(512), None, false)),
            ("memory: 2048", (None, Some(2048), None, false)),
            ("memory: current=2048", (None, Some(2048), None, false)),
            ("memory: later=1,current=2048", (None, Some(2048), None, false)),
            ("memory: 2048,later=1", (None, Some(2048), None, false)),
            ("memory: 1024\nmemory: 2048", (None, Some(2048), None, false)),
            ("balloon: 256", (Some(256), Some(512), None, true)),
            ("balloon: 256\nshares: 2000", (Some(256), Some(512), Some(2000), true)),
            ("balloon: 256\nshares: 0", (Some(256), Some(512), None, false)),
            ("balloon: 0\nshares: 2000", (None, Some(512), Some(2000), false)),
            ("balloon: 256\ntags: ballast-floor-128mib", (Some(128), Some(512), None, true)),
            ("tags: ballast-ceiling-256mib", (None, Some(256), None, false)),
        ] {
            assert_eq!(bounds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_mistake_names_file_line_and_what_was_expected() {
        for (text, told) in [
            ("\nmemory: 2GiB", "101.conf:2: memory: `2GiB`: expected a whole number of MiB"),
            ("memory: current=", "101.conf:1: memory: ``"),
            ("memory: 8", "16 to"),
            ("memory: 99999999999999999999", "16 to"),
            ("memory: 512\nballoon: 1024", "101.conf:2: balloon: `1024`"),
            ("balloon: -1", "101.conf:1: balloon: `-1`"),
            ("shares: 50001", "101.conf:1: shares: `50001`: expected a whole number, 0 to 50000"),
            ("name: a b", "101.conf:1: `a b` is not a guest name"),
            ("#\ntags: web;ballast-x", "101.conf:2: `ballast-x` is no setting"),
            ("tags: ballast-floor-1gib", "101.conf:1: floor 1GiB is above ceiling 512MiB"),
            ("tags: ballast-shares-0", "101.conf:1: shares 0 is out of range"),
            ("args: -smbios 'x", "101.conf:1: args has a quote"),
            ("memory: \u{1b}[31m\u{202e}", "\\u{1b}[31m\\u{202e}"),
        ] {
            let why = read(text).unwrap_err().to_string();
            assert!(why.contains(told) && !why.contains(char::is_control), "{text}: {why}");
        }
        let long = "#".repeat(TEXT_MAX + 1);
        assert!(read(&long).unwrap_err().to_string().contains("101.conf: has 1048577 bytes"));
        for path in ["web.conf", "+1.conf", "101", ".conf", "99999999999.conf"] {
            let why = read_vm("", Path::new(path)).unwrap_err().to_string();
            assert!(why.contains(path) && why.contains("as in 101.conf"), "{why}");
        }
    }

    #[test]
    fn the_guide_is_read_as_it_says() {
        let guide = include_str!("../../../docs/proxmox.md");
        let args = guide.split("--args '").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
        let quoted = guide.split('`').filter(|word| word.starts_with("ballast-"));
        let tags: Vec<&str> = quoted.collect();
        assert_eq!(tags.len(), 6, "{tags:?}");
        let text = format!("args: {args}\nmemory: 4096\ntags: {}", tags.join(";"));
        let vm = read(&text).unwrap();
        assert_eq!(vm.monitors, [Path::new("/run/ballast/qmp/web-1.sock")]);
        assert_eq!(vm.settings.floor, Some(Bytes::gib(1)));
        assert_eq!((vm.settings.priority, vm.settings.managed), (Some(2), Some(false)));
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_or_keeps_its_bounds(
            text in "((memory|balloon|shares|tags|name|args|x)?: ?[a-z0-9=;,'\\[ -]{0,24}\n){0,6}",
        ) {
            if let Ok(config) = read(&text) {
                prop_assert!(config.settings.apply(&Default::default()).validate().is_ok());
                prop_assert!(config.settings.ceiling >= Some(Bytes::mib(16)) || text.contains("ballast-"));
            }
        }

        #[test]
        fn what_was_written_is_read_among_other_lines(
            memory in 16u64..1 << 20,
            part in 0u64..=100,
            shares in 0u64..=50_000,
            other in "([a-z]{3}[0-9]: [ -~]{0,20}\n|#[ -~]{0,20}\n){0,3}",
            section in "\\[[a-z]{2,9}\\]\n(memory: [0-9x]{0,5}\n|tags: ballast-x\n){0,3}",
        ) {
            let balloon = memory * part / 100;
            let text = format!("{other}balloon: {balloon}\n{other}memory: {memory}\nshares: {shares}\n");
            let config = read(&text).unwrap();
            prop_assert_eq!(config.settings.ceiling, Some(Bytes::mib(memory)));
            prop_assert_eq!(config.settings.floor, (balloon > 0).then_some(Bytes::mib(balloon)));
            prop_assert_eq!(config.is_moved_by_proxmox, balloon > 0 && shares > 0);
            prop_assert_eq!(read(&format!("{text}{section}")), Ok(config));
        }
    }
}
