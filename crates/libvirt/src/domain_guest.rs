//! One domain as a guest: what is known of it, and its readings.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_backend::{GenerationGate, GuestReading, StatsAge};
use ballast_model::{
    Bytes, DiskReads, GuestChange, GuestId, GuestSample, GuestStats, LinkState, Measured, RunState,
    Timestamp,
};
use rustix::fs::{Mode, OFlags, open};
use tokio::time::Instant;

use crate::call::{BalloonStats, DomainStats};
use crate::domain::Domain;
use crate::domain_xml::DomainFacts;
use crate::virtio_mem::{VirtioMem, total_hotplug};

/// How long a balloon may need to reach a target.
const ORDER_TIME: Duration = Duration::from_secs(30);

/// How much of a command line is looked at: a process can make it as long as all that it has
/// mapped.
const COMMAND_LINE_BYTES_MAX: u64 = 1 << 20;

/// Longest PID file accepted: a number has ten digits.
const PID_FILE_BYTES_MAX: u64 = 32;

/// What is known of a domain.
#[derive(Debug)]
pub(crate) struct DomainGuest {
    pub(crate) domain: Domain,
    pub(crate) facts: Option<DomainFacts>,
    /// When its XML was read, and whether it is to be read again.
    pub(crate) facts_at: Timestamp,
    pub(crate) wants_facts: bool,
    pub(crate) gate: GenerationGate,
    /// Its hypervisor's process, once it is found.
    pub(crate) pid: Option<u32>,
    /// When the last order was sent, and its target in KiB.
    ordered: Option<(Instant, u64)>,
    /// The settings in its metadata.
    pub(crate) settings: Option<Arc<GuestChange>>,
    /// The problems of its settings, as last reported.
    pub(crate) complaints: Vec<String>,
    /// Libvirt's last figures, and when they were queried.
    latest: Option<(DomainStats, Timestamp)>,
    /// Current memory by its hypervisor, without virtio-mem, in KiB, and when it was queried.
    current_memory: Option<(u64, Timestamp)>,
    /// The last report of its balloon.
    balloon: BalloonStats,
    stats_age: StatsAge,
    /// What it has read from its disks, and when that was queried.
    disk_reads: Option<(DiskReads, Timestamp)>,
}

impl DomainGuest {
    pub(crate) fn new(domain: Domain) -> Self {
        DomainGuest {
            domain,
            facts: None,
            facts_at: Timestamp::ZERO,
            wants_facts: true,
            gate: GenerationGate::default(),
            pid: None,
            ordered: None,
            settings: None,
            complaints: Vec::new(),
            latest: None,
            current_memory: None,
            balloon: BalloonStats::default(),
            stats_age: StatsAge::default(),
            disk_reads: None,
        }
    }

    /// Whether its balloon may still be on its way to a target.
    pub(crate) fn was_ordered_lately(&self) -> bool {
        self.ordered.is_some_and(|(at, _)| at.elapsed() < ORDER_TIME)
    }

    /// Records that an order to hold `kib` was sent.
    pub(crate) fn order_was_sent(&mut self, kib: u64) {
        self.ordered = Some((Instant::now(), kib));
    }

    /// Whether the hypervisor has to be queried for the current memory. Libvirt's own figure is
    /// from an event that QEMU sends at most once a second, so it may be outdated until it shows
    /// the target, too.
    pub(crate) fn is_moving(&self) -> bool {
        let Some((_, target)) = self.ordered.filter(|_| self.was_ordered_lately()) else {
            return false;
        };
        let by_libvirt = self.latest.as_ref().and_then(|(stats, _)| stats.current);
        let by_hypervisor = self.current_memory.map(|(kib, _)| kib + self.plugged_kib());
        by_hypervisor != Some(target) || by_libvirt != Some(target)
    }

    /// Its virtio-mem devices.
    pub(crate) fn virtio_mem(&self) -> &[VirtioMem] {
        self.facts.as_ref().map_or(&[], |facts| &facts.virtio_mem)
    }

    /// Whether it has a balloon, as far as is known.
    pub(crate) fn has_balloon(&self) -> bool {
        self.facts.as_ref().is_none_or(|facts| facts.capabilities.balloon != Some(false))
    }

    /// Boot memory: libvirt's maximum, which includes all that can be plugged in, less the devices.
    pub(crate) fn boot_memory(&self) -> Option<Bytes> {
        let devices: Bytes = self.virtio_mem().iter().map(|it| it.size).sum();
        let maximum = Bytes::kib(self.latest.as_ref()?.0.maximum?);
        Some(maximum.saturating_sub(devices).page_floor())
    }

    /// Memory plugged into its virtio-mem devices, in KiB.
    fn plugged_kib(&self) -> u64 {
        self.virtio_mem().iter().map(|it| it.current.get() >> 10).sum()
    }

    /// Takes in the hypervisor's figure of the current memory, queried at `asked_at`.
    pub(crate) fn observe_current_memory(&mut self, kib: u64, asked_at: Timestamp) {
        self.current_memory = Some((kib, asked_at));
    }

    /// Takes in what it has read from its disks, queried at `asked_at`, unless a later query was
    /// answered before.
    pub(crate) fn observe_disk_reads(&mut self, reads: DiskReads, asked_at: Timestamp) {
        if self.disk_reads.is_none_or(|(_, last)| asked_at >= last) {
            self.disk_reads = Some((reads, asked_at));
        }
    }

    /// The current memory in KiB, and when it was queried: the later of both figures. If both were
    /// queried at once, the hypervisor's counts.
    fn allocation(&self) -> Option<(u64, Timestamp)> {
        let by_libvirt = self.latest.as_ref().and_then(|(stats, at)| Some((stats.current?, *at)));
        let by_hypervisor = self.current_memory.map(|(kib, at)| (kib + self.plugged_kib(), at));
        match (by_libvirt, by_hypervisor) {
            (Some(libvirt), Some(hypervisor)) if libvirt.1 > hypervisor.1 => Some(libvirt),
            (libvirt, hypervisor) => hypervisor.or(libvirt),
        }
    }

    /// Takes in libvirt's figures, queried at `asked_at` and received at `now`.
    pub(crate) fn observe(
        &mut self,
        stats: DomainStats,
        asked_at: Timestamp,
        now: Timestamp,
        wall: SystemTime,
    ) {
        let before = self.latest.as_ref().map(|(stats, _)| stats);
        // A device was added or removed, so the known devices are outdated.
        let has_other_devices =
            before.is_some_and(|it| it.maximum.is_some() && it.maximum != stats.maximum);
        // Or memory moves: only the XML says how much of it is plugged.
        let has_virtio_mem = !self.virtio_mem().is_empty();
        let moves = self.is_moving() || before.is_some_and(|it| it.current != stats.current);
        self.wants_facts |= has_other_devices || has_virtio_mem && moves;
        // If its hypervisor is busy, the answer has no report: the last report still counts, and
        // ages.
        if let Some(stamp) = stats.balloon.last_update {
            let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            self.stats_age.observe(stamp, asked_at, now, wall);
            self.balloon = stats.balloon;
        }
        self.latest = Some((stats, asked_at));
    }

    /// The guest's reading at `now`.
    pub(crate) fn reading(&self, id: &GuestId, link: LinkState, now: Timestamp) -> GuestReading {
        let mut sample = GuestSample::unknown(id.clone(), link);
        sample.allocation = self.allocation().map(|(kib, at)| Measured {
            value: Bytes::kib(kib).page_floor(),
            age: now.saturating_since(at),
        });
        if let Some((stats, _)) = &self.latest {
            sample.run_state = stats.state.map(run_state);
            sample.boot_memory = self.boot_memory();
            let value = guest_stats(&self.balloon);
            sample.stats = self.stats_age.age(now).map(|age| Measured { value, age });
        }
        sample.disk_reads =
            self.disk_reads.map(|(value, at)| Measured { value, age: now.saturating_since(at) });
        sample.hotplug = total_hotplug(self.virtio_mem());
        sample.pinned = self.facts.as_ref().and_then(|it| it.pinned);
        sample.capabilities = self.facts.as_ref().map(|it| it.capabilities).unwrap_or_default();
        let settings = self.settings.clone();
        GuestReading { sample, pid: self.pid, listens_at: None, has_answered: true, settings }
    }

    /// Looks for its hypervisor's process in libvirt's PID files. `folder` is the folder of
    /// libvirt's socket; `proc` is `/proc`.
    pub(crate) fn find_process(&mut self, folder: &Path, proc: &Path) {
        let uuid = self.domain.uuid_text();
        for folder in ["qemu", "qemu/run"].map(|it| folder.join(it)) {
            let file = folder.join(format!("{}.pid", self.domain.name));
            let Some(pid) = pid_in(&file) else { continue };
            // A stale file names a process that has ended, or a PID that another process has by
            // now.
            let path = proc.join(format!("{pid}/cmdline"));
            let command_line = read_start(&path, COMMAND_LINE_BYTES_MAX).unwrap_or_default();
            if command_line.split(|&byte| byte == 0).any(|it| it == uuid.as_bytes()) {
                self.pid = Some(pid);
                return;
            }
        }
    }
}

/// The number in a PID file; `None` if there is none. No pipe is waited for and no link followed: a
/// session's libvirt has its files in a folder of its user's.
fn pid_in(path: &Path) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::File::from(open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(PID_FILE_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    if text.len() as u64 > PID_FILE_BYTES_MAX {
        return None;
    }
    text.trim().parse().ok()
}

/// The first bytes of a file, `bytes_max` at most.
fn read_start(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The run state for a `virDomainState`.
fn run_state(state: i32) -> RunState {
    match state {
        1 | 2 => RunState::Running,
        3 => RunState::Paused,
        4 | 5 => RunState::Shutdown,
        6 => RunState::Panicked,
        7 => RunState::Other("suspended".to_owned()),
        other => RunState::Other(format!("state {other}")),
    }
}

fn guest_stats(balloon: &BalloonStats) -> GuestStats {
    let bytes = |kib: Option<u64>| kib.map(Bytes::kib);
    GuestStats {
        total: bytes(balloon.available),
        free: bytes(balloon.unused),
        available: bytes(balloon.usable),
        disk_caches: bytes(balloon.disk_caches),
        swap_in: bytes(balloon.swap_in),
        swap_out: bytes(balloon.swap_out),
        major_faults: balloon.major_faults,
        minor_faults: balloon.minor_faults,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> Domain {
        let uuid =
            [0x64, 0x54, 0xf4, 0x21, 0xa9, 0x5b, 0x47, 0x91, 0xa8, 0xe9, 0xdd, 0x35, 1, 2, 3, 4];
        Domain { name: "web".to_owned(), uuid, id: 3 }
    }

    #[test]
    fn a_pid_counts_if_its_process_has_the_uuid() {
        let (sockets, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = sockets.path().join("qemu/run");
        fs::create_dir_all(&run).unwrap();
        fs::create_dir_all(proc.path().join("77")).unwrap();
        let mut guest = DomainGuest::new(domain());
        let mut found = |pid: &str, command_line: &str| {
            fs::write(run.join("web.pid"), pid).unwrap();
            fs::write(proc.path().join("77/cmdline"), command_line).unwrap();
            guest.find_process(sockets.path(), proc.path());
            guest.pid
        };
        let qemu = "qemu\0-uuid\x006454f421-a95b-4791-a8e9-dd3501020304\0-m\x001024\0";
        assert_eq!(found("77", "cat\0"), None, "another process");
        assert_eq!(found("78", qemu), None, "none");
        assert_eq!(found("-1", qemu), None, "no PID");
        assert_eq!(found("77\n", qemu), Some(77));
    }

    #[test]
    fn a_pid_file_is_short_and_no_link_or_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.pid");
        let put = |text: &str| fs::write(&path, text).unwrap();
        assert_eq!(pid_in(&path), None, "none is there");
        put("77\n");
        assert_eq!(pid_in(&path), Some(77));
        put(&format!("77{}", " ".repeat(30)));
        assert_eq!(pid_in(&path), Some(77), "as long as may be");
        put(&format!("77{}", " ".repeat(31)));
        assert_eq!(pid_in(&path), None, "longer");
        put("77");
        let link = folder.path().join("link.pid");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(pid_in(&link), None);
        // Nobody writes to it: whoever waits for a writer waits forever.
        let pipe = folder.path().join("pipe.pid");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(pid_in(&pipe), None);
    }

    #[test]
    fn only_a_bounded_part_of_a_command_line_is_read() {
        let proc = tempfile::tempdir().unwrap();
        let path = proc.path().join("cmdline");
        // All of it would be more than any test machine has.
        fs::File::create(&path).unwrap().set_len(1 << 42).unwrap();
        let read = read_start(&path, COMMAND_LINE_BYTES_MAX).unwrap();
        assert_eq!(read.len() as u64, COMMAND_LINE_BYTES_MAX);
    }

    /// Libvirt's figures of a domain that holds `current` KiB.
    fn stats_of(current: u64) -> DomainStats {
        DomainStats {
            domain: domain(),
            state: Some(1),
            current: Some(current),
            maximum: Some(2 << 10),
            balloon: BalloonStats::default(),
            disk_reads: None,
        }
    }

    #[test]
    fn disk_reads_are_as_old_as_their_call() {
        let mut guest = DomainGuest::new(domain());
        let at = Timestamp::from_millis;
        let id: GuestId = "web".parse().unwrap();
        let read = |guest: &DomainGuest, now: u64| {
            guest.reading(&id, LinkState::Up, at(now)).sample.disk_reads
        };
        assert_eq!(read(&guest, 500), None);
        let value = DiskReads { read: Bytes::kib(8), requests: 2, ..DiskReads::default() };
        guest.observe_disk_reads(value, at(1000));
        let age = Duration::from_millis(6000);
        assert_eq!(read(&guest, 7000), Some(Measured { value, age }));
        guest.observe(stats_of(1000), at(8000), at(8000), SystemTime::now());
        let age = Duration::from_millis(7500);
        assert_eq!(read(&guest, 8500), Some(Measured { value, age }), "it stays, and ages");
    }

    #[test]
    fn a_moving_guest_holds_what_its_hypervisor_says() {
        let mut guest = DomainGuest::new(domain());
        let at = Timestamp::from_millis;
        let id: GuestId = "web".parse().unwrap();
        let held = |guest: &DomainGuest| {
            let sample = guest.reading(&id, LinkState::Up, at(2000)).sample;
            sample.allocation.map(|it| it.value.get() >> 10)
        };
        guest.observe(stats_of(1000), at(1000), at(1000), SystemTime::now());
        assert!(!guest.is_moving(), "nobody ordered anything");
        guest.order_was_sent(600);
        assert!(guest.is_moving());
        guest.observe_current_memory(800, at(1100));
        assert_eq!(held(&guest), Some(800));
        // Libvirt's figure, queried in the same sample, is the older one.
        guest.observe(stats_of(1000), at(1200), at(1200), SystemTime::now());
        guest.observe_current_memory(600, at(1200));
        assert_eq!(held(&guest), Some(600));
        assert!(guest.is_moving(), "libvirt does not say so yet");
        guest.observe(stats_of(600), at(1300), at(1300), SystemTime::now());
        assert!(!guest.is_moving());
        guest.observe(stats_of(640), at(1400), at(1400), SystemTime::now());
        assert_eq!(held(&guest), Some(640), "it took some back");
    }

    #[test]
    fn figures_are_in_kib_and_age() {
        let mut guest = DomainGuest::new(domain());
        let balloon = BalloonStats {
            available: Some(1000),
            unused: Some(100),
            usable: Some(300),
            last_update: Some(50),
            ..BalloonStats::default()
        };
        let stats = DomainStats { balloon, ..stats_of(1 << 10) };
        let wall = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(52);
        let asked_at = Timestamp::from_millis(1000);
        guest.observe(stats.clone(), asked_at, asked_at, wall);
        let id: GuestId = "web".parse().unwrap();
        let now = Timestamp::from_millis(1500);
        let sample = guest.reading(&id, LinkState::Up, now).sample;
        let half = std::time::Duration::from_millis(500);
        assert_eq!(sample.allocation, Some(Measured { value: Bytes::mib(1), age: half }));
        assert_eq!(sample.boot_memory, Some(Bytes::mib(2)));
        assert_eq!(sample.run_state, Some(RunState::Running));
        let seen = sample.stats.unwrap();
        assert_eq!(seen.age, std::time::Duration::from_millis(2500));
        let sizes = (seen.value.total, seen.value.free, seen.value.available);
        let kib = |kib| Some(Bytes::kib(kib));
        assert_eq!(sizes, (kib(1000), kib(100), kib(300)), "not mixed up");
        // The hypervisor is busy.
        let busy = DomainStats { balloon: BalloonStats::default(), ..stats.clone() };
        let later = Timestamp::from_millis(3500);
        guest.observe(busy, later, later, wall);
        let sample = guest.reading(&id, LinkState::Up, later).sample;
        assert_eq!(sample.allocation, Some(Measured::fresh(Bytes::mib(1))));
        let kept = sample.stats.unwrap();
        assert_eq!((kept.value, kept.age), (seen.value, std::time::Duration::from_millis(4500)));
        // Something was plugged in: the XML is read again.
        guest.wants_facts = false;
        guest.observe(stats.clone(), now, now, wall);
        assert!(!guest.wants_facts);
        guest.observe(DomainStats { maximum: Some(4 << 10), ..stats }, now, now, wall);
        assert!(guest.wants_facts);
    }
}
