//! Judges a host's kernel and its settings.
//!
//! Limits: pure. Some severities depend on Ballast's configuration.

use ballast_config::{Config, SourceChoice};
use ballast_daemon::track::{SourceFinding, TrackingDiagnosis};
use ballast_host::{Fact, HostFacts, MemInfo, SwapArea, SwapKind};
use ballast_model::{Bytes, Pressure};
use ballast_reclaim::{CgroupVersion, ReclaimError, SwapUsage};

use super::finding::{Area, Finding, Severity};
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

/// The command that adds a swap file of that name.
fn add_swap(file: &str) -> String {
    format!("fallocate -l 8G {file} && chmod 600 {file} && mkswap {file} && swapon {file}")
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
        huge_pages(facts),
        merging(facts, config),
        userfaultfd(facts, config),
        damon_finding(&tracking.damon, config),
        mglru_finding(&tracking.mglru, config),
        cgroups_finding(cgroups, config),
    ]
}

fn kernel(facts: &HostFacts) -> Finding {
    const WHY: &str = "Paging guests out needs process_madvise (Linux 5.10), or memory.reclaim of \
        cgroups (5.19); DAMON needs 5.19 too.";
    let finding =
        |severity, found: String| Finding::new(Area::Host, "kernel", WHY, severity, found);
    match &facts.kernel {
        Err(error) => Finding::unreadable(Area::Host, "kernel", WHY, error),
        Ok(None) => finding(Severity::Warning, "its version is not known".to_owned()),
        Ok(Some(kernel)) => {
            let severity = match kernel.number {
                number if number < ADVICE_SINCE => Severity::Warning,
                number if number < RECLAIM_SINCE => Severity::Note,
                _ => Severity::Ok,
            };
            finding(severity, format!("Linux {}", kernel.release))
        }
    }
}

fn memory(memory: &Fact<MemInfo>, config: &Config) -> Finding {
    const WHY: &str = "Guests are granted only what the host has beyond its reserve.";
    const USERS: &str = "ps -eo rss,pid,comm --sort=-rss | head";
    let finding =
        |severity, found: String| Finding::new(Area::Host, "memory", WHY, severity, found);
    let guard = &config.settings.guard;
    let reserve = guard.host_reserve;
    let info = match memory {
        Err(error) => return Finding::unreadable(Area::Host, "memory", WHY, error),
        Ok(None) => return finding(Severity::Problem, "/proc/meminfo is missing".to_owned()),
        Ok(Some(info)) => info,
    };
    let MemInfo { total, available, .. } = *info;
    let Some(available) = available else {
        let found = format!("{total} in all; the kernel does not say how much is available");
        return finding(Severity::Problem, found);
    };
    let found = format!("{total} in all, {available} available, {reserve} kept for the host");
    if reserve >= total {
        return finding(Severity::Problem, found).remedy(change(config, "host", "reserve"));
    }
    if available < reserve {
        return finding(Severity::Warning, found).remedy(USERS);
    }
    match guard.budget {
        Some(budget) if budget > total.saturating_sub(reserve) => {
            let found = format!("{found}; the budget of {budget} for guests is more than it has");
            finding(Severity::Warning, found).remedy(change(config, "host", "budget"))
        }
        _ => finding(Severity::Ok, found),
    }
}

/// The command that opens the configuration, with a comment that names the key and its table.
fn change(config: &Config, table: &str, key: &str) -> String {
    format!("$EDITOR {}    # {key} under [{table}]", config.path.display())
}

fn pressure(pressure: &Fact<Pressure>) -> Finding {
    const WHY: &str = "Pressure shows when tasks wait for memory: the daemon then acts at once \
        instead of at its next tick.";
    let finding =
        |severity, found: String| Finding::new(Area::Host, "pressure", WHY, severity, found);
    match pressure {
        Err(error) => Finding::unreadable(Area::Host, "pressure", WHY, error),
        Ok(None) => {
            finding(Severity::Warning, "this kernel does not report it (PSI is off)".to_owned())
                .remedy(RESTART_PSI)
        }
        Ok(Some(pressure)) => {
            let some = pressure.some_basis_points;
            let found =
                format!("some task waited {}.{:02} % of the last 10 s", some / 100, some % 100);
            match some >= STALL_BASIS_POINTS {
                true => finding(Severity::Warning, found).remedy("ballast status"),
                false => finding(Severity::Ok, found),
            }
        }
    }
}

fn swap(facts: &HostFacts, config: &Config) -> Finding {
    const WHY: &str = "Memory that a guest does not give back can only be paged out to swap; \
        without swap, a host that is short of memory kills a process.";
    let finding = |severity, found: String| Finding::new(Area::Host, "swap", WHY, severity, found);
    let areas = match &facts.swaps {
        Err(error) => return Finding::unreadable(Area::Host, "swap", WHY, error),
        Ok(areas) => areas.as_deref().unwrap_or_default(),
    };
    let total: Bytes = areas.iter().map(|area| area.size).sum();
    let used: Bytes = areas.iter().map(|area| area.used).sum();
    let usage = SwapUsage { total, free: total.saturating_sub(used), cached: Bytes::ZERO };
    let list: Vec<String> = areas.iter().map(area_text).collect();
    let list = list.join(", ");
    match config.swap_bounds().room(&usage) {
        Err(ReclaimError::NoSwap) => {
            finding(Severity::Warning, "none: no guest can be paged out".to_owned())
                .remedy(add_swap("/swapfile"))
        }
        // Another name, as the usual file may be one of the full ones.
        Err(_) => finding(Severity::Warning, format!("{list}: too full to page guests out to"))
            .remedy(add_swap("/swapfile-more")),
        Ok(room) => {
            let use_text = match config.paging {
                Some(_) => format!("{room} more of guests may be paged out"),
                None => "no guest is paged out, as [mechanisms.paging] is off".to_owned(),
            };
            match areas.iter().all(|area| area.kind == SwapKind::Zram) {
                true => finding(
                    Severity::Note,
                    format!(
                        "{list}: {use_text}; it stays in memory, compressed, so the host gains only \
                         what that saves"
                    ),
                ),
                false => finding(Severity::Ok, format!("{list}: {use_text}")),
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
    let finding = |severity, found: &str| Finding::new(Area::Host, "zswap", WHY, severity, found);
    match &facts.zswap {
        Err(error) => Finding::unreadable(Area::Host, "zswap", WHY, error),
        Ok(Some(true)) => {
            finding(Severity::Note, "on").remedy("echo N > /sys/module/zswap/parameters/enabled")
        }
        Ok(Some(false)) => finding(Severity::Ok, "off"),
        Ok(None) => finding(Severity::Ok, "not in this kernel"),
    }
}

fn swappiness(facts: &HostFacts, config: &Config) -> Finding {
    const WHY: &str = "At 0 the kernel hardly swaps, so a cgroup that is to shrink is throttled \
        instead of paged out.";
    let finding =
        |severity, found: String| Finding::new(Area::Host, "swappiness", WHY, severity, found);
    match &facts.swappiness {
        Err(error) => Finding::unreadable(Area::Host, "swappiness", WHY, error),
        Ok(None) => finding(Severity::Note, "not known: no vm.swappiness".to_owned()),
        Ok(Some(0)) => {
            let matters = config.paging.is_some() || config.containers.is_some();
            let severity = if matters { Severity::Warning } else { Severity::Note };
            finding(severity, "vm.swappiness is 0".to_owned()).remedy("sysctl -w vm.swappiness=60")
        }
        Ok(Some(value)) => finding(Severity::Ok, format!("vm.swappiness is {value}")),
    }
}

fn overcommit(facts: &HostFacts) -> Finding {
    const WHY: &str = "Guests' boot memory together may exceed the host's only if the kernel \
        promises more than it has.";
    let finding = |severity, found: &str| {
        let found = format!("vm.overcommit_memory is {found}");
        Finding::new(Area::Host, "overcommit", WHY, severity, found)
    };
    match &facts.overcommit {
        Err(error) => Finding::unreadable(Area::Host, "overcommit", WHY, error),
        Ok(None) => finding(Severity::Note, "not known: no such file"),
        Ok(Some(0)) => finding(Severity::Ok, "0: within reason"),
        Ok(Some(1)) => finding(Severity::Ok, "1: always"),
        Ok(Some(_)) => finding(Severity::Warning, "2: never, so a guest may fail to start")
            .remedy("sysctl -w vm.overcommit_memory=0"),
    }
}

fn huge_pages(facts: &HostFacts) -> Finding {
    const WHY: &str = "In huge pages DAMON sees touches 2 MiB at a time, so working sets are upper \
        bounds; without huge pages guests run slower. QEMU asks for them, so `madvise` acts as \
        `always`.";
    let finding =
        |severity, found: String| Finding::new(Area::Host, "huge-pages", WHY, severity, found);
    let (private, shared) = match (&facts.huge_pages, &facts.shared_huge_pages) {
        (Err(error), _) | (_, Err(error)) => {
            return Finding::unreadable(Area::Host, "huge-pages", WHY, error);
        }
        (Ok(None), _) => return finding(Severity::Ok, "not in this kernel".to_owned()),
        (Ok(Some(private)), Ok(shared)) => (*private, shared.unwrap_or("never")),
    };
    let found = format!("{private}; in shared memory {shared}");
    match (private, shared) {
        ("never", "never" | "deny") => finding(Severity::Ok, found),
        _ => finding(Severity::Note, found)
            .remedy("echo never > /sys/kernel/mm/transparent_hugepage/enabled"),
    }
}

fn merging(facts: &HostFacts, config: &Config) -> Finding {
    const WHY: &str = "Merged pages (KSM) are split again when guests write to them: the host may \
        then need more memory than guests were granted.";
    let finding = |severity, found: String| Finding::new(Area::Host, "ksm", WHY, severity, found);
    let merging = match &facts.merging {
        Err(error) => return Finding::unreadable(Area::Host, "ksm", WHY, error),
        Ok(None) if config.tunes_merging => {
            let found = "not in this kernel, so [mechanisms.ksm] tunes nothing".to_owned();
            return finding(Severity::Warning, found).remedy(change(
                config,
                "mechanisms.ksm",
                "enabled",
            ));
        }
        Ok(None) => return finding(Severity::Ok, "not in this kernel".to_owned()),
        Ok(Some(merging)) => merging,
    };
    let saved = merging.saved;
    let found = match (merging.knobs.is_running, saved) {
        (true, saved) => format!("merges pages, saves {saved} now"),
        (false, Bytes::ZERO) => "off".to_owned(),
        (false, saved) => format!("stopped, and what it merged saves {saved}"),
    };
    match (&facts.merging_owner, config.tunes_merging) {
        (Some((pid, owner)), true) => {
            let found =
                format!("{found}; {owner} (process {pid}) tunes it, so [mechanisms.ksm] does not");
            finding(Severity::Warning, found).remedy(format!("systemctl disable --now {owner}"))
        }
        (Some((pid, owner)), false) => {
            finding(Severity::Note, format!("{found}; {owner} (process {pid}) tunes it"))
        }
        (None, true) => finding(Severity::Ok, format!("{found}; tuned by [mechanisms.ksm]")),
        (None, false) if found == "off" => finding(Severity::Ok, found),
        (None, false) => finding(Severity::Note, found).remedy("echo 2 > /sys/kernel/mm/ksm/run"),
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
    let finding =
        |severity, found: &str| Finding::new(Area::Host, "userfaultfd", WHY, severity, found);
    let is_open = match &facts.open_userfaultfd {
        Err(error) => return Finding::unreadable(Area::Host, "userfaultfd", WHY, error),
        Ok(is_open) => *is_open,
    };
    let lacking = unless_chosen(config, SourceChoice::Library);
    match (facts.userfaultfd_device, is_open) {
        (Some(true), _) => finding(Severity::Ok, "/dev/userfaultfd can be opened"),
        (_, Some(true)) => finding(Severity::Ok, "any process may use it"),
        (Some(false), _) => finding(lacking, "/dev/userfaultfd cannot be opened by this user")
            .remedy("sudo ballast doctor host"),
        (None, Some(false)) => {
            finding(lacking, "no /dev/userfaultfd, and only privileged processes may use it")
                .remedy("sysctl -w vm.unprivileged_userfaultfd=1")
        }
        (None, None) => finding(lacking, "not in this kernel"),
    }
}

fn damon_finding(damon: &SourceFinding, config: &Config) -> Finding {
    const WHY: &str = "DAMON finds working sets of guests whose QEMU has no library preloaded.";
    let severity = match damon.works {
        true => Severity::Ok,
        false => unless_chosen(config, SourceChoice::Damon),
    };
    let finding = Finding::new(Area::Host, "damon", WHY, severity, damon.note.clone());
    Finding { remedy: damon.remedy.clone(), ..finding }
}

fn mglru_finding(mglru: &SourceFinding, config: &Config) -> Finding {
    const WHY: &str = "Page generations show the working sets of guests if the library and DAMON \
        do not work.";
    let severity = match mglru.works {
        true => Severity::Ok,
        false => unless_chosen(config, SourceChoice::Mglru),
    };
    let finding = Finding::new(Area::Host, "mglru", WHY, severity, mglru.note.clone());
    Finding { remedy: mglru.remedy.clone(), ..finding }
}

fn cgroups_finding(cgroups: &Result<Option<MemoryCgroups>, String>, config: &Config) -> Finding {
    const WHY: &str = "Ballast needs version 2 with the memory controller to balance containers, \
        and to fence and page out guests; version 1 kills what it cannot reclaim.";
    let finding =
        |severity, found: String| Finding::new(Area::Host, "cgroups", WHY, severity, found);
    let lacking = if config.containers.is_some() { Severity::Problem } else { Severity::Note };
    match cgroups {
        Err(why) => finding(Severity::Warning, why.clone()).remedy("cat /proc/self/mountinfo"),
        Ok(None) => finding(lacking, "none with a memory controller is mounted".to_owned())
            .remedy("mount -t cgroup2 none /sys/fs/cgroup"),
        Ok(Some(MemoryCgroups { version: CgroupVersion::One, point, .. })) => {
            finding(lacking, format!("version 1, in {}", point.display())).remedy(RESTART_UNIFIED)
        }
        Ok(Some(MemoryCgroups { point, is_delegated: false, .. })) => {
            let place = point.display();
            let found = format!("version 2 in {place}; its cgroups have no memory controller");
            finding(lacking.max(Severity::Warning), found)
                .remedy(format!("echo +memory > {place}/cgroup.subtree_control"))
        }
        Ok(Some(MemoryCgroups { point, .. })) => {
            let found = format!("version 2 in {}, with the memory controller", point.display());
            finding(Severity::Ok, found)
        }
    }
}
