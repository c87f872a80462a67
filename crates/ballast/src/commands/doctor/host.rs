//! Judges a host's kernel and its settings.
//!
//! Limits: pure. Some severities depend on Ballast's configuration.

use ballast_config::{Config, SourceChoice};
use ballast_daemon::track::{SourceFinding, TrackingDiagnosis};
use ballast_host::{Fact, HostFacts, MemInfo, SwapArea, SwapKind};
use ballast_model::{Bytes, Pressure};
use ballast_reclaim::{CgroupVersion, ReclaimError, SwapUsage};

use super::finding::{Area, Check, Finding, Severity};
use super::probe::MemoryCgroups;

/// The oldest kernels with `process_madvise`, and with everything that paging guests out needs.
const ADVICE_SINCE: (u64, u64) = (5, 10);
const RECLAIM_SINCE: (u64, u64) = (5, 19);
/// From this share of waiting time on, in hundredths of a percent, tasks suffer: the share that
/// wakes the daemon (`ballast_host::PressureTrigger`).
const STALL_BASIS_POINTS: u32 = 1_000;

const RESTART_PSI: &str =
    "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&psi=1 /' /etc/default/grub && update-grub && reboot";
const RESTART_UNIFIED: &str = "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&systemd.unified_cgroup_hierarchy=1 /' \
     /etc/default/grub && update-grub && reboot";

const DAMON: Check = Area::Host
    .check("damon", "DAMON finds working sets of guests whose QEMU has no library preloaded.");
const MGLRU: Check = Area::Host.check(
    "mglru",
    "Page generations show the working sets of guests if the library and DAMON do not work.",
);

/// The command that adds a swap file of that name.
fn add_swap(file: &str) -> String {
    format!(
        "fallocate -l 8G {file} && chmod 600 {file} && mkswap {file} && swapon {file}    # on ZFS or \
         Btrfs a partition instead; list it in /etc/fstab"
    )
}

/// The findings about a host.
pub(super) fn judge(
    facts: &HostFacts,
    cgroups: &Result<Option<MemoryCgroups>, String>,
    tracking: &TrackingDiagnosis,
    config: &Config,
) -> Vec<Finding> {
    vec![
        kernel(facts),
        memory(&facts.memory, config),
        pressure(&facts.pressure),
        swap(facts, config),
        zswap(facts),
        swappiness(facts, config),
        overcommit(facts),
        numa(facts),
        huge_pages(facts),
        merging(facts, config),
        userfaultfd(facts, config),
        source_finding(&DAMON, &tracking.damon, SourceChoice::Damon, config),
        source_finding(&MGLRU, &tracking.mglru, SourceChoice::Mglru, config),
        cgroups_finding(cgroups, config),
    ]
}

fn kernel(facts: &HostFacts) -> Finding {
    const WHY: &str = "Paging guests out needs process_madvise (Linux 5.10), or memory.reclaim of \
        cgroups (5.19); DAMON needs 5.19 too.";
    let check = Area::Host.check("kernel", WHY);
    match &facts.kernel {
        Err(error) => check.unreadable(error),
        Ok(None) => check.warning("its version is not known"),
        Ok(Some(kernel)) => {
            let severity = match kernel.number {
                number if number < ADVICE_SINCE => Severity::Warning,
                number if number < RECLAIM_SINCE => Severity::Note,
                _ => Severity::Ok,
            };
            check.found(severity, format!("Linux {}", kernel.release))
        }
    }
}

fn memory(memory: &Fact<MemInfo>, config: &Config) -> Finding {
    const WHY: &str = "Guests are granted only what the host has beyond its reserve.";
    const USERS: &str = "ps -eo rss,pid,comm --sort=-rss | head";
    let check = Area::Host.check("memory", WHY);
    let guard = &config.settings.guard;
    let reserve = guard.host_reserve;
    let info = match memory {
        Err(error) => return check.unreadable(error),
        Ok(None) => return check.problem("/proc/meminfo is missing"),
        Ok(Some(info)) => info,
    };
    let MemInfo { total, available, .. } = *info;
    let Some(available) = available else {
        let found = format!("{total} in all; the kernel does not say how much is available");
        return check.problem(found);
    };
    let found = format!("{total} in all, {available} available, {reserve} kept for the host");
    if reserve >= total {
        return check.problem(found).remedy(change(config, "host", "reserve"));
    }
    if available < reserve {
        return check.warning(found).remedy(USERS);
    }
    match guard.budget {
        Some(budget) if budget > total.saturating_sub(reserve) => {
            let found = format!("{found}; the budget of {budget} for guests is more than it has");
            check.warning(found).remedy(change(config, "host", "budget"))
        }
        _ => check.ok(found),
    }
}

/// The command that opens the configuration, with a comment that names the key and its table.
fn change(config: &Config, table: &str, key: &str) -> String {
    format!("$EDITOR {}    # {key} under [{table}]", config.path.display())
}

fn pressure(pressure: &Fact<Pressure>) -> Finding {
    const WHY: &str = "Pressure shows when tasks wait for memory: the daemon then acts at once \
        instead of at its next tick.";
    let check = Area::Host.check("pressure", WHY);
    match pressure {
        Err(error) => check.unreadable(error),
        Ok(None) => {
            check.warning("this kernel does not report it (PSI is off)").remedy(RESTART_PSI)
        }
        Ok(Some(pressure)) => {
            let some = pressure.some_basis_points;
            let found =
                format!("some task waited {}.{:02} % of the last 10 s", some / 100, some % 100);
            match some >= STALL_BASIS_POINTS {
                true => check.warning(found).remedy("ballast status"),
                false => check.ok(found),
            }
        }
    }
}

fn swap(facts: &HostFacts, config: &Config) -> Finding {
    const WHY: &str = "Memory that a guest does not give back can only be paged out to swap; \
        without swap, a host that is short of memory kills a process.";
    let check = Area::Host.check("swap", WHY);
    let areas = match &facts.swaps {
        Err(error) => return check.unreadable(error),
        Ok(areas) => areas.as_deref().unwrap_or_default(),
    };
    let total: Bytes = areas.iter().map(|area| area.size).sum();
    let used: Bytes = areas.iter().map(|area| area.used).sum();
    let usage = SwapUsage { total, free: total.saturating_sub(used), cached: Bytes::ZERO };
    let list: Vec<String> = areas.iter().map(area_text).collect();
    let list = list.join(", ");
    match config.swap_bounds().room(&usage) {
        Err(ReclaimError::NoSwap) => {
            check.warning("none: no guest can be paged out").remedy(add_swap("/swapfile"))
        }
        // Another name, as the usual file may be one of the full ones.
        Err(_) => check
            .warning(format!("{list}: too full to page guests out to"))
            .remedy(add_swap("/swapfile-more")),
        Ok(room) => {
            let use_text = match config.paging {
                Some(_) => format!("{room} more of guests may be paged out"),
                None => "no guest is paged out, as [mechanisms.paging] is off".to_owned(),
            };
            match areas.iter().all(|area| area.kind == SwapKind::Zram) {
                true => check.note(format!(
                    "{list}: {use_text}; it stays in memory, compressed, so the host gains only \
                         what that saves"
                )),
                false => check.ok(format!("{list}: {use_text}")),
            }
        }
    }
}

fn area_text(area: &SwapArea) -> String {
    let free = area.size.saturating_sub(area.used);
    format!("{} {} of {}, {free} free", area.kind.as_str(), area.name, area.size)
}

fn zswap(facts: &HostFacts) -> Finding {
    const WHY: &str = "With zswap, memory that is paged out first stays in memory, compressed: the \
        host gains less, and later.";
    let check = Area::Host.check("zswap", WHY);
    match &facts.zswap {
        Err(error) => check.unreadable(error),
        Ok(Some(true)) => check.note("on").remedy("echo N > /sys/module/zswap/parameters/enabled"),
        Ok(Some(false)) => check.ok("off"),
        Ok(None) => check.ok("not in this kernel"),
    }
}

fn swappiness(facts: &HostFacts, config: &Config) -> Finding {
    const WHY: &str = "At 0 the kernel hardly swaps, so a cgroup that is to shrink is throttled \
        instead of paged out.";
    let check = Area::Host.check("swappiness", WHY);
    match &facts.swappiness {
        Err(error) => check.unreadable(error),
        Ok(None) => check.note("not known: no vm.swappiness"),
        Ok(Some(0)) => {
            let matters = config.paging.is_some() || config.containers.is_some();
            let severity = if matters { Severity::Warning } else { Severity::Note };
            check.found(severity, "vm.swappiness is 0").remedy("sysctl -w vm.swappiness=60")
        }
        Ok(Some(value)) => check.ok(format!("vm.swappiness is {value}")),
    }
}

fn overcommit(facts: &HostFacts) -> Finding {
    const WHY: &str = "Guests' boot memory together may exceed the host's only if the kernel \
        promises more than it has.";
    let check = Area::Host.check("overcommit", WHY);
    match &facts.overcommit {
        Err(error) => check.unreadable(error),
        Ok(None) => check.note("vm.overcommit_memory is not known: no such file"),
        Ok(Some(0)) => check.ok("vm.overcommit_memory is 0: within reason"),
        Ok(Some(1)) => check.ok("vm.overcommit_memory is 1: always"),
        Ok(Some(_)) => check
            .warning("vm.overcommit_memory is 2: never, so a guest may fail to start")
            .remedy("sysctl -w vm.overcommit_memory=0"),
    }
}

fn numa(facts: &HostFacts) -> Finding {
    const WHY: &str = "A guest whose memory is bound to NUMA nodes can grow only there. Ballast sees \
        cpusets, but not QEMU's `host-nodes`: with these, ceilings have to fit the nodes.";
    let check = Area::Host.check("numa", WHY);
    match &facts.memory_nodes {
        Err(error) => check.unreadable(error),
        Ok(None | Some(0 | 1)) => check.ok("one node has memory"),
        Ok(Some(nodes)) => check.note(format!("{nodes} nodes have memory, counted as one")),
    }
}

fn huge_pages(facts: &HostFacts) -> Finding {
    const WHY: &str = "In huge pages DAMON sees touches 2 MiB at a time, so working sets are upper \
        bounds; without huge pages guests run slower. QEMU asks for them, so `madvise` acts as \
        `always`.";
    let check = Area::Host.check("huge-pages", WHY);
    let (private, shared) = match (&facts.huge_pages, &facts.shared_huge_pages) {
        (Err(error), _) | (_, Err(error)) => return check.unreadable(error),
        (Ok(None), _) => return check.ok("not in this kernel"),
        (Ok(Some(private)), Ok(shared)) => (*private, shared.unwrap_or("never")),
    };
    let found = format!("{private}; in shared memory {shared}");
    match (private, shared) {
        ("never", "never" | "deny") => check.ok(found),
        _ => check.note(found).remedy("echo never > /sys/kernel/mm/transparent_hugepage/enabled"),
    }
}

fn merging(facts: &HostFacts, config: &Config) -> Finding {
    const WHY: &str = "Merged pages (KSM) are split again when guests write to them: the host may \
        then need more memory than guests were granted.";
    let check = Area::Host.check("ksm", WHY);
    let merging = match &facts.merging {
        Err(error) => return check.unreadable(error),
        Ok(None) if config.tunes_merging => {
            let found = "not in this kernel, so [mechanisms.ksm] tunes nothing".to_owned();
            return check.warning(found).remedy(change(config, "mechanisms.ksm", "enabled"));
        }
        Ok(None) => return check.ok("not in this kernel"),
        Ok(Some(merging)) => merging,
    };
    let saved = merging.saved;
    let is_off = !merging.knobs.is_running && saved == Bytes::ZERO;
    let found = match merging.knobs.is_running {
        true => format!("merges pages, saves {saved} now"),
        false if is_off => "off".to_owned(),
        false => format!("stopped, and what it merged saves {saved}"),
    };
    match (&facts.merging_owner, config.tunes_merging) {
        (Some((pid, owner)), true) => {
            let found =
                format!("{found}; {owner} (process {pid}) tunes it, so [mechanisms.ksm] does not");
            check.warning(found).remedy(format!("systemctl disable --now {owner}"))
        }
        (Some((pid, owner)), false) => {
            check.note(format!("{found}; {owner} (process {pid}) tunes it"))
        }
        (None, true) => check.ok(format!("{found}; tuned by [mechanisms.ksm]")),
        (None, false) if is_off => check.ok(found),
        (None, false) => check.note(found).remedy("echo 2 > /sys/kernel/mm/ksm/run"),
    }
}

/// The severity if a source of working sets does not work: a note, as there are others, unless the
/// configuration has chosen this one.
fn unless_chosen(config: &Config, source: SourceChoice) -> Severity {
    match &config.tracking {
        Some(tracking) if tracking.source == source => Severity::Problem,
        _ => Severity::Note,
    }
}

fn userfaultfd(facts: &HostFacts, config: &Config) -> Finding {
    const WHY: &str = "The library in QEMU tracks a guest's pages with userfaultfd: the daemon \
        passes it the device, or else any process must be permitted to use userfaultfd.";
    let check = Area::Host.check("userfaultfd", WHY);
    let is_open = match &facts.open_userfaultfd {
        Err(error) => return check.unreadable(error),
        Ok(is_open) => *is_open,
    };
    let lacking = unless_chosen(config, SourceChoice::Library);
    match (facts.userfaultfd_device, is_open) {
        (Some(true), _) => check.ok("/dev/userfaultfd can be opened"),
        (_, Some(true)) => check.ok("any process may use it"),
        (Some(false), _) => check
            .found(lacking, "/dev/userfaultfd cannot be opened by this user")
            .remedy("sudo ballast doctor host"),
        (None, Some(false)) => check
            .found(lacking, "no /dev/userfaultfd, and only privileged processes may use it")
            .remedy("sysctl -w vm.unprivileged_userfaultfd=1"),
        (None, None) => check.found(lacking, "not in this kernel"),
    }
}

/// The finding about a source that the kernel has.
fn source_finding(
    check: &Check,
    source: &SourceFinding,
    choice: SourceChoice,
    config: &Config,
) -> Finding {
    let severity = if source.works { Severity::Ok } else { unless_chosen(config, choice) };
    Finding { remedy: source.remedy.clone(), ..check.found(severity, source.note.clone()) }
}

fn cgroups_finding(cgroups: &Result<Option<MemoryCgroups>, String>, config: &Config) -> Finding {
    const WHY: &str = "Ballast needs version 2 with the memory controller to balance containers, \
        and to fence and page out guests; version 1 kills what it cannot reclaim.";
    let check = Area::Host.check("cgroups", WHY);
    let lacking = if config.containers.is_some() { Severity::Problem } else { Severity::Note };
    match cgroups {
        Err(why) => check.warning(why.clone()).remedy("cat /proc/self/mountinfo"),
        Ok(None) => check
            .found(lacking, "none with a memory controller is mounted")
            .remedy("mount -t cgroup2 none /sys/fs/cgroup"),
        Ok(Some(MemoryCgroups { version: CgroupVersion::One, point, .. })) => check
            .found(lacking, format!("version 1, in {}", point.display()))
            .remedy(RESTART_UNIFIED),
        Ok(Some(MemoryCgroups { point, is_delegated: false, .. })) => {
            let place = point.display();
            let found = format!("version 2 in {place}; its cgroups have no memory controller");
            check
                .found(lacking.max(Severity::Warning), found)
                .remedy(format!("echo +memory > {place}/cgroup.subtree_control"))
        }
        Ok(Some(MemoryCgroups { point, .. })) => {
            let found = format!("version 2 in {}, with the memory controller", point.display());
            check.ok(found)
        }
    }
}
