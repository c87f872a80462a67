//! Tests of the example file, the defaults and every kind of mistake.

use std::collections::BTreeSet;
use std::path::Path;

use ballast_model::{Bytes, Mode, Tax};
use ballast_policy::TaxRule;
use ballast_policy::catalogue::ENTRIES;
use ballast_policy::flexmemd::{Frequency, PriceRule, Tariff, TariffStep};
use ballast_policy::meb::Weighting;
use ballast_toml_strict::Error;
use proptest::prelude::*;

use super::*;
use crate::paging::PagingWay;

fn read(text: &str) -> Result<Config, Error> {
    parse(text, Path::new("ballast.toml"))
}

/// Compared are the keys that are set in the example; those in comments are tested below.
#[test]
fn the_example_equals_the_defaults_plus_two_guests() {
    let example = include_str!("../../../docs/ballast.example.toml");
    let example = read(example).unwrap();
    let mut defaults = read("").unwrap();
    assert_eq!(example.settings.limits.named.len(), 2);
    defaults.settings.limits = example.settings.limits.clone();
    assert_eq!(example.settings, defaults.settings);
    assert_eq!(example.journal, defaults.journal);
    assert_eq!(example.tracking, defaults.tracking);
    assert_eq!(example.qmp_folders, defaults.qmp_folders);
    assert_eq!(example.qmp_timeout, defaults.qmp_timeout);
    assert_eq!((&example.libvirt, &defaults.libvirt), (&None, &None));
    assert_eq!((&example.xen, &defaults.xen), (&None, &None));
    assert_eq!(example.on_exit, defaults.on_exit);
    assert_eq!(example.page, defaults.page);
    assert_eq!(example.paging, defaults.paging);
}

#[test]
fn every_commented_key_of_the_example_is_valid() {
    let example = include_str!("../../../docs/ballast.example.toml");
    let uncommented: String = example
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && !rest.contains(": ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let config = read(&uncommented).unwrap_or_else(|e| panic!("{e}\n{uncommented}"));
    assert_eq!(config.settings.guard.budget, Some(Bytes::gib(12)));
    assert_eq!(config.settings.guard.step_down_max, Some(Bytes::mib(128)));
    assert_eq!(config.group.as_deref(), Some("ballast"));
    assert!(config.page.port.is_some_and(|port| port.reader_token_file.is_some()));
    assert_eq!(config.metrics.map(|it| it.to_string()).as_deref(), Some("127.0.0.1:9184"));
    assert_eq!(config.settings.limits.default.floor, Some(Bytes::mib(256)));
}

/// The indented blocks of a guide that begin with the name of a table.
fn toml_blocks(guide: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in guide.lines() {
        match line.strip_prefix("    ") {
            Some(line) => *blocks.last_mut().unwrap() += &format!("{line}\n"),
            None if line.is_empty() => {}
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| block.starts_with('['));
    blocks
}

#[test]
fn configurations_in_the_guides_are_valid() {
    for (name, guide, guests) in [
        ("proxmox", include_str!("../../../docs/proxmox.md"), 1),
        ("incus", include_str!("../../../docs/incus.md"), 1),
        ("vmspawn", include_str!("../../../docs/vmspawn.md"), 1),
        ("kubevirt", include_str!("../../../docs/kubevirt.md"), 0),
        ("containers", include_str!("../../../docs/containers.md"), 1),
        ("xen", include_str!("../../../docs/xen.md"), 1),
        ("cloud-hypervisor", include_str!("../../../docs/cloud-hypervisor.md"), 1),
        ("firecracker", include_str!("../../../docs/firecracker.md"), 1),
    ] {
        let blocks = toml_blocks(guide);
        assert!(!blocks.is_empty(), "{name}");
        let text = blocks.concat();
        let config = read(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        assert_eq!(config.settings.limits.named.len(), guests, "{name}");
        assert_eq!(config.libvirt.is_some(), name == "kubevirt");
        assert_eq!(config.xen.is_some(), name == "xen");
        assert_eq!(config.containers.is_some(), name == "containers");
        assert_eq!(config.cloud_hypervisor.is_some(), name == "cloud-hypervisor");
        assert_eq!(config.firecracker.is_some(), name == "firecracker");
        assert_eq!(config.proxmox_folder.is_some(), name == "proxmox");
        assert_eq!(config.settings.limits.default.managed, name != "kubevirt");
    }
}

#[test]
fn domains_of_libvirt_are_guests_where_it_is_enabled() {
    let libvirt = |text: &str| read(text).unwrap().libvirt;
    let found = libvirt("[libvirt]\nenabled = true\n[qmp]\nfolders = []").unwrap();
    assert_eq!(found.socket, Path::new("/run/libvirt/libvirt-sock"));
    assert_eq!(libvirt("[libvirt]\nsocket = \"/run/libvirt/virtqemud-sock\""), None);
}

#[test]
fn domains_of_xen_are_guests_where_it_is_enabled() {
    let xen = |text: &str| read(text).map(|config| config.xen);
    let found = xen("[xen]\nenabled = true\ndom0_floor = \"2GiB\"\n[qmp]\nfolders = []");
    let found = found.unwrap().unwrap();
    assert_eq!(found.socket, Path::new("/run/xenstored/socket"));
    assert_eq!((found.xl.as_path(), found.dom0_floor), (Path::new("xl"), Bytes::gib(2)));
    assert_eq!(xen("[xen]\nsocket = \"/x\"").unwrap(), None);
    for (table, why) in [
        ("enable = true", "unknown key `enable` in [xen]"),
        ("timeout = \"1h\"", "expected"),
        ("dom0_floor = \"lots\"", "dom0_floor"),
    ] {
        let error = xen(&format!("[xen]\n{table}")).unwrap_err().to_string();
        assert!(error.contains(why), "{table}: {error}");
    }
}

#[test]
fn cgroups_are_guests_where_they_are_named() {
    let containers = |text: &str| read(text).map(|config| config.containers);
    let named = "[qmp]\nfolders = []\n[containers]\nmemory = \"1GiB\"\ncgroups = [\"a.slice/*\"]";
    let found = containers(named).unwrap().unwrap();
    assert_eq!(found.cgroups, ["a.slice/*".parse().unwrap()]);
    assert_eq!((found.memory, found.probe), (Some(Bytes::gib(1)), true));
    assert_eq!(containers("[containers]\nprobe = false").unwrap(), None);
    let error = containers("[containers]\ncgroups = [\"../a\"]").unwrap_err().to_string();
    assert!(error.contains("containers.cgroups") && error.contains("systemd-cgls"), "{error}");
}

#[test]
fn sockets_of_rest_apis_are_guests_where_they_are_named() {
    let named = "[qmp]\nfolders = []\n[firecracker]\nsockets = [\"/srv/*/api.socket\"]";
    let config = read(named).unwrap();
    let found = config.firecracker.unwrap();
    assert_eq!(
        (found.sockets[0].to_string().as_str(), found.timeout.as_secs()),
        ("/srv/*/api.socket", 2)
    );
    assert_eq!((config.cloud_hypervisor, read("[firecracker]").unwrap().firecracker), (None, None));
    for (table, key) in
        [("cloud_hypervisor", "sockets = [\"a/*\"]"), ("firecracker", "timeout = \"1h\"")]
    {
        let error = read(&format!("[{table}]\n{key}")).unwrap_err().to_string();
        assert!(error.contains(table) && error.contains("expected"), "{error}");
    }
}

#[test]
fn machines_of_proxmox_are_read_where_a_folder_is_named() {
    let folder = |text: &str| read(text).unwrap().proxmox_folder;
    let found = folder("[proxmox]\nfolder = \"/etc/pve/qemu-server\"");
    assert_eq!(found.as_deref(), Some(Path::new("/etc/pve/qemu-server")));
    assert_eq!(folder(""), None);
}

#[test]
fn intermittent_tracking_has_its_configured_mode() {
    use ballast_estimate::phase::{IntermittentSettings, Threshold, ThresholdMode};
    let rest = |text: &str| {
        let config = read(&format!("[tracking]\nintermittent = {text}")).unwrap();
        config.tracking.unwrap().intermittent.map(|settings| settings.mode)
    };
    assert_eq!(rest("\"adaptive\""), Some(IntermittentSettings::default().mode));
    assert_eq!(rest("0.2"), Some(ThresholdMode::Fixed(Threshold::new(0.2).unwrap())));
    assert_eq!(rest("\"off\""), None);
    for (text, expected) in
        [("\"on\"", "\"adaptive\", \"off\""), ("1", "0.05 to 0.3"), ("true", "adaptive")]
    {
        let error = read(&format!("[tracking]\nintermittent = {text}")).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("tracking.intermittent"), "{error}");
    }
}

#[test]
fn a_hot_set_comes_with_watching_every_page() {
    let hot_set =
        |text: &str| read(&format!("[tracking]\n{text}")).unwrap().tracking.unwrap().hot_set;
    assert_eq!(["", "every = true"].map(hot_set), [false, true]);
    assert_eq!(["hot_set = true", "every = true\nhot_set = false"].map(hot_set), [true, false]);
}

#[test]
fn the_source_of_tracking_is_one_of_four() {
    let source = |text: &str| {
        let config = read(&format!("[tracking]\n{text}")).map_err(|error| error.to_string())?;
        Ok::<_, String>(config.tracking.unwrap().source)
    };
    for (text, expected) in [
        ("", SourceChoice::Auto),
        ("source = \"auto\"", SourceChoice::Auto),
        ("source = \"library\"", SourceChoice::Library),
        ("source = \"damon\"", SourceChoice::Damon),
        ("source = \"mglru\"", SourceChoice::Mglru),
    ] {
        assert_eq!(source(text), Ok(expected));
    }
    let error = source("source = \"magic\"").unwrap_err();
    assert!(error.contains("tracking.source") && error.contains("damon"), "{error}");
}

#[test]
fn a_guest_inherits_missing_keys_from_the_defaults() {
    let config = read(
        "[defaults]\nfloor = \"256MiB\"\nshares = 5\npriority = 3\nmiss_rate_max = 9\nfence = true\n\
         [guests.web]\nceiling = \"1GiB\"\nmanaged = false\n\
         [guests.db]\nmiss_rate_max = 0\nfence = false",
    )
    .unwrap();
    let web = &config.settings.limits.named[&"web".parse().unwrap()];
    assert_eq!(web.floor, Some(Bytes::mib(256)));
    assert_eq!(web.ceiling, Some(Bytes::gib(1)));
    assert_eq!((web.shares, web.managed), (5, false));
    assert_eq!((web.priority, web.miss_rate_max), (3, Some(9)));
    let db = &config.settings.limits.named[&"db".parse().unwrap()];
    assert_eq!((db.miss_rate_max, db.fence, web.fence), (None, false, true));
    assert!(!read("").unwrap().settings.limits.default.fence);
}

#[test]
fn errors_name_place_mistake_and_expected_value() {
    let cases: &[(&str, &[&str])] = &[
        ("[guests.web]\nflor = \"1GiB\"", &["ballast.toml:2:", "flor", "floor"]),
        ("mode = \"obsrve\"", &["ballast.toml:1:", "mode", "`obsrve`", "balance or observe"]),
        ("[daemon]\nmode = \"observe\"", &["ballast.toml:2:", "unknown", "mode"]),
        ("mode = 1", &["ballast.toml:1:", "1", "string"]),
        ("[gard]", &["ballast.toml:1:", "gard", "guard"]),
        ("[policy]\nname = \"globl\"", &["ballast.toml:2:", "globl", "the nearest is `global`"]),
        ("[policy]\nname = \"mom\"", &["ballast.toml:2:", "`mom` is not a policy"]),
        (
            "[host]\nbudget = \"1GiB\"\n[defaults]\nfloor = \"2GiB\"",
            &["ballast.toml:4:", "defaults.floor", "2GiB", "the budget of 1GiB"],
        ),
        ("[policy]\ntau = 1.5", &["ballast.toml:2:", "1.5", "0 to 1"]),
        ("[policy]\ntau = \"often\"", &["ballast.toml:2:", "often", "dynamic"]),
        (
            "[tracking]\nbudget_total = 0.0",
            &["ballast.toml:2:", "budget_total", "above 0 and at most 1"],
        ),
        ("[host]\nbudget = \"1GB\"", &["ballast.toml:2:", "1GB", "GiB"]),
        ("[host]\nbudget = -1", &["ballast.toml:2:", "-1", "negative"]),
        ("[host]\nbudget = 4096", &["ballast.toml:2:", "host.budget", "4KiB", "without a unit"]),
        ("[host]\nreserve = 512", &["ballast.toml:2:", "host.reserve", "512B", "512MiB"]),
        ("[defaults]\nfloor = 512", &["ballast.toml:2:", "defaults.floor", "without a unit"]),
        (
            "[guests.web]\nshares = 5\nceiling = \"512\"",
            &["ballast.toml:3:", "guests.web.ceiling", "512B"],
        ),
        ("[daemon]\ntick = \"1ms\"", &["ballast.toml:2:", "1ms", "100ms"]),
        ("[daemon]\ntick = 1", &["ballast.toml:2:", "1s"]),
        ("[daemon]\ntick = \"500000000000y\"", &["ballast.toml:2:", "100ms to 60s"]),
        ("[guard]\nstuck_retry = \"0s\"", &["ballast.toml:2:", "stuck_retry", "1s to 960s"]),
        // Twice as long could not be counted.
        ("[guard]\nstuck_retry = \"500000000000y\"", &["ballast.toml:2:", "1s to 960s"]),
        ("[journal]\nkeep_age = \"7s\"", &["ballast.toml:2:", "keep_age", "60s to 315360000s"]),
        ("[journal]\nkeep_age = \"11y\"", &["ballast.toml:2:", "60s to 315360000s"]),
        ("[daemon]\non_exit = \"forget\"", &["ballast.toml:2:", "forget", "keep"]),
        ("[qmp]\nfolders = []", &["ballast.toml:2:", "folder"]),
        (
            "[guests.a]\nfloor = \"2GiB\"\nceiling = \"1GiB\"",
            &["ballast.toml:", "guests.a", "floor 2GiB is above ceiling 1GiB"],
        ),
        ("[guests.a]\npriority = 256", &["guests.a", "256", "u8"]),
        ("[guests.a]\nprioriti = 1", &["prioriti", "priority"]),
        ("[guests.a]\nmiss_rate_max = -1", &["guests.a", "-1"]),
        ("[guests.a]\nshares = 0", &["guests.a", "shares 0", "1 to 1000000"]),
        ("[guests.\"a/b\"]", &["a/b", "guest name"]),
        (
            "[host]\nbudget = \"1GiB\"\n[guests.a]\nfloor = \"600MiB\"\n[guests.b]\nfloor = \"600MiB\"",
            &["ballast.toml:2:", "1.2GiB", "1GiB", "lower floors"],
        ),
        ("[metrics]\nlisten = \"9184\"", &["ballast.toml:2:", "`9184`", "127.0.0.1:9184"]),
        ("[events]\nrun = \"told\"", &["ballast.toml:2:", "events.run", "`told`", "absolute path"]),
        ("[events]\ntimeout = \"1h\"", &["ballast.toml:2:", "events.timeout", "300s"]),
        ("[host\n", &["ballast.toml:1:"]),
    ];
    for (text, needles) in cases {
        let message = read(text).unwrap_err().to_string();
        for needle in *needles {
            assert!(message.contains(needle), "{text}\n  gave: {message}\n  lacks: {needle}");
        }
    }
}

#[test]
fn the_file_says_whether_memory_is_moved() {
    let mode = |text: &str| read(text).unwrap().settings.mode;
    assert_eq!(mode(""), Mode::Balance);
    assert_eq!(mode("mode = \"balance\""), Mode::Balance);
    assert_eq!(mode("mode = \"observe\"\n[host]\nreserve = \"1GiB\""), Mode::Observe);
}

#[test]
fn floors_of_unmanaged_guests_do_not_count() {
    read("[host]\nbudget = \"1GiB\"\n[guests.a]\nfloor = \"2GiB\"\nmanaged = false").unwrap();
}

#[test]
fn a_fixed_tax_is_exact() {
    let config = read("[policy]\ntau = 0.75").unwrap();
    assert_eq!(config.settings.policy_settings.tax, TaxRule::Fixed(Tax::from_fraction(3 << 30)));
    let config = read("[policy]\ntau = 1").unwrap();
    assert_eq!(config.settings.policy_settings.tax, TaxRule::Fixed(Tax::ONE));
}

/// Every key of the catalogue is accepted, its default changes nothing, and the file has no other
/// keys; the error about an unknown key lists them all.
#[test]
fn policy_keys_equal_those_of_the_catalogue() {
    let mut known = BTreeSet::from(["name".to_owned()]);
    let parameters = ENTRIES.iter().flat_map(|entry| entry.parameters);
    for parameter in parameters {
        known.insert(parameter.key.to_owned());
        if !parameter.default.is_empty() {
            let config = read(&format!("[policy]\n{} = {}", parameter.key, parameter.default));
            let config = config.unwrap_or_else(|error| panic!("{}: {error}", parameter.key));
            assert_eq!(config.settings, read("").unwrap().settings, "{}", parameter.key);
        }
    }
    let keys_of = |table: &str| -> BTreeSet<String> {
        let message = read(&format!("[{table}]\nxxxxxxxxxxxx = 1")).unwrap_err().to_string();
        let (_, listed) = message.split_once("known keys are").unwrap();
        listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut read = keys_of("policy");
    for table in ["external", "flexmemd", "meb", "tws"] {
        assert!(read.remove(table));
        let keys = keys_of(&format!("policy.{table}"));
        read.extend(keys.iter().map(|key| format!("{table}.{key}")));
    }
    assert_eq!(read, known);
}

#[test]
fn valid_flexmemd_combinations_are_accepted_and_others_refused() {
    let config = read(
        "[policy]\nname = \"fcfs\"\n[policy.flexmemd]\nfrequency = \"periodic\"\nprice = \"custom\"\n\
         tariff = [{ from = 0.0, per_kib = 1 }, { from = 0.5, per_kib = 9 }]",
    );
    let choice = config.unwrap().settings.policy_settings.flexmemd.choice;
    assert_eq!(choice.frequency, Some(Frequency::Periodic));
    let steps =
        [(0, 1), (5000, 9)].map(|(from, per_kib)| TariffStep { from_basis_points: from, per_kib });
    assert_eq!(choice.price, Some(PriceRule::Custom(Tariff::new(&steps).unwrap())));
    let cases: &[(&str, &[&str])] = &[
        ("frequency = \"once\"", &["policy.flexmemd", "fcfs", "immediate or periodic"]),
        ("frequency = \"onec\"", &["ballast.toml:4:", "onec", "once"]),
        ("perod = \"1s\"", &["ballast.toml:4:", "perod", "period"]),
        ("period = \"1ms\"", &["ballast.toml:4:", "1ms", "100ms"]),
        ("tax_per_second = 5.0", &["ballast.toml:4:", "5", "0 to 1"]),
        ("tax_per_second = nan", &["ballast.toml:4:", "NaN", "0 to 1"]),
        ("gib = \"512KiB\"", &["ballast.toml:4:", "gib", "512KiB", "1MiB"]),
        ("price_per_kib = 3", &["ballast.toml:4:", "fixed"]),
        ("price = \"fixed\"\nprice_per_kib = 9999999", &["ballast.toml:5:", "1048576"]),
        ("price = \"custom\"", &["ballast.toml:4:", "custom"]),
        ("price = \"custom\"\ntariff = []", &["ballast.toml:5:", "0 steps"]),
        ("price = \"custom\"\ntariff = [{ from = 0.1, per_kib = 1 }]", &["at 1000 basis points"]),
    ];
    for (lines, needles) in cases {
        let text = format!("[policy]\nname = \"fcfs\"\n[policy.flexmemd]\n{lines}");
        let message = read(&text).unwrap_err().to_string();
        for needle in *needles {
            assert!(message.contains(needle), "{lines}\n  gave: {message}\n  lacks: {needle}");
        }
    }
}

#[test]
fn the_external_program_is_kept_exactly_or_refused() {
    let text = "[policy]\nname = \"external\"\n[policy.external]\nprogram = \"/opt/decide\"\n";
    let external = read(text).unwrap().external.unwrap();
    assert_eq!(external.program, Path::new("/opt/decide"));
    assert_eq!((external.args.len(), external.deadline.as_millis()), (0, 500));
    let more = format!("{text}args = [\"-v\", \"a b\"]\nuser = \"nobody\"\ndeadline = \"250ms\"");
    let external = read(&more).unwrap().external.unwrap();
    assert_eq!((external.args.join("|"), external.user), ("-v|a b".into(), Some("nobody".into())));
    assert_eq!(external.deadline.as_millis(), 250);
    // With a shorter tick the wait is shorter too.
    let fast = read(&format!("{text}[daemon]\ntick = \"200ms\"")).unwrap();
    assert_eq!(fast.external.unwrap().deadline.as_millis(), 100);
    assert_eq!(read("").unwrap().external, None);
    let named = |lines: &str| format!("[policy]\nname = \"external\"\n{lines}");
    let args = format!("[policy.external]\nargs = [{}]", "\"x\",".repeat(65));
    for (text, needles) in [
        (named(""), &["ballast.toml:2:", "needs a program", "[policy.external]"][..]),
        (named("[policy.external]\nprogram = \"decide\""), &["ballast.toml:4:", "absolute"]),
        (format!("{text}deadline = \"501ms\""), &["ballast.toml:5:", "501ms", "500ms"]),
        (format!("{text}deadline = \"1ms\""), &["ballast.toml:5:", "10ms"]),
        (format!("{text}programm = \"/x\""), &["programm", "program"]),
        (args, &["ballast.toml:2:", "65 arguments", "64"]),
    ] {
        let message = read(&text).unwrap_err().to_string();
        for needle in needles {
            assert!(message.contains(needle), "{text}\n  gave: {message}\n  lacks: {needle}");
        }
    }
}

#[test]
fn merging_is_tuned_only_if_asked_for() {
    assert!(!read("").unwrap().tunes_merging);
    assert!(read("[mechanisms.ksm]\nenabled = true").unwrap().tunes_merging);
}

#[test]
fn meb_and_tws_settings_are_kept_exactly() {
    let config = read(
        "[policy.meb]\nstep = \"8MiB\"\nshrink_max = 0.25\ngrow_max = 1\nweighting = \"equal\"\n\
         [policy.tws]\nfast = 0.1\nslow = 0.005\ncool_down_epochs = 4\nchange = 0\nchange_min = 0",
    );
    let settings = config.unwrap().settings;
    let meb = settings.policy_settings.meb;
    assert_eq!((meb.step, meb.weighting), (Bytes::mib(8), Weighting::Equal));
    assert_eq!((meb.shrink_basis_points, meb.grow_basis_points), (2_500, 10_000));
    let probing = settings.probing;
    assert_eq!((probing.fast_basis_points, probing.slow_basis_points), (1_000, 50));
    assert_eq!((probing.cool_down_epochs, probing.change_basis_points), (4, 0));
    assert_eq!(probing.change_min, Bytes::ZERO);
    let cases: &[(&str, &[&str])] = &[
        ("meb]\nstpe = \"1MiB\"", &["ballast.toml:2:", "stpe", "step"]),
        ("meb]\nstep = \"5000\"", &["ballast.toml:2:", "4KiB to 1GiB", "whole pages"]),
        ("meb]\nstep = 0", &["ballast.toml:2:", "0B", "4KiB to 1GiB"]),
        ("meb]\nshrink_max = 1.5", &["ballast.toml:2:", "1.5", "0.001 to 1"]),
        ("meb]\ngrow_max = nan", &["ballast.toml:2:", "NaN", "0.001 to 10"]),
        ("meb]\nweighting = \"share\"", &["ballast.toml:2:", "share", "shares"]),
        ("tws]\nfast = 0", &["ballast.toml:2:", "0.001 to 0.5"]),
        ("tws]\nfast = 0.01\nslow = 0.02", &["ballast.toml:3:", "0.02", "at most that of fast"]),
        ("tws]\ncool_down_epochs = 0", &["ballast.toml:2:", "1 to 3600"]),
        ("tws]\ncool_down = 9", &["ballast.toml:2:", "cool_down_epochs"]),
        ("tws]\nchange_min = -1", &["ballast.toml:2:", "-1"]),
    ];
    for (lines, needles) in cases {
        let message = read(&format!("[policy.{lines}")).unwrap_err().to_string();
        for needle in *needles {
            assert!(message.contains(needle), "{lines}\n  gave: {message}\n  lacks: {needle}");
        }
    }
}

#[test]
fn the_page_listens_on_loopback_addresses_with_a_token() {
    let page = |text: &str| read(&format!("[page]\n{text}")).unwrap().page;
    assert_eq!(read("").unwrap().page, PageSettings::default());
    assert_eq!(page("hosts = [\"ballast.example.org\"]").hosts, ["ballast.example.org"]);
    for listen in ["127.0.0.1:7117", "127.8.0.1:0", "[::1]:7117"] {
        let port = page(&format!("listen = {listen:?}\ntoken_file = \"/t\"")).port.unwrap();
        assert_eq!(port.listen.to_string(), listen);
        assert_eq!(port.token_file.as_deref(), Some(Path::new("/t")));
    }
    let looked_at = page("listen = \"[::1]:1\"\nreader_token_file = \"/r\"").port.unwrap();
    assert_eq!(looked_at.token_file, None);
}

#[test]
fn mistakes_about_the_page_name_the_remedy() {
    let token = "\ntoken_file = \"/t\"";
    let cases: &[(&str, &[&str])] = &[
        (&format!("listen = \"0.0.0.0:7117\"{token}"), &["ballast.toml:2:", "127.0.0.1:7117"]),
        (&format!("listen = \"[::]:80\"{token}"), &["a reverse proxy"]),
        (&format!("listen = \"192.0.2.7:80\"{token}"), &["`192.0.2.7:80`", "loopback"]),
        (&format!("listen = \"localhost:7117\"{token}"), &["such as 127.0.0.1:7117"]),
        (&format!("listen = \"127.0.0.1\"{token}"), &["an address with a port"]),
        ("listen = \"127.0.0.1:7117\"", &["page.listen", "`token_file` or `reader_token_file`"]),
        ("token_file = \"/t\"", &["page.token_file", "without `listen`"]),
        ("reader_token_file = \"/t\"", &["page.reader_token_file", "without `listen`"]),
        ("hosts = [\"https://a.example\"]", &["page.hosts", "without scheme and port"]),
        ("hosts = [\"\"]", &["not a host's name"]),
        ("prot = 1", &["prot"]),
    ];
    for (lines, needles) in cases {
        let message = read(&format!("[page]\n{lines}")).unwrap_err().to_string();
        for needle in *needles {
            assert!(message.contains(needle), "{lines}\n  gave: {message}\n  lacks: {needle}");
        }
    }
    let many = vec!["a.example"; 17];
    assert!(read(&format!("[page]\nhosts = {many:?}")).unwrap_err().to_string().contains("17"));
}

#[test]
fn the_paging_way_is_kept_exactly() {
    let way = |text: &str| read(text).unwrap().paging.unwrap().way;
    assert_eq!(way(""), PagingWay::Auto);
    for (word, expected) in
        [("auto", PagingWay::Auto), ("process", PagingWay::Process), ("cgroup", PagingWay::Cgroup)]
    {
        assert_eq!(way(&format!("[mechanisms.paging]\nway = \"{word}\"")), expected);
    }
    let message = read("[mechanisms.paging]\nway = \"group\"").unwrap_err().to_string();
    for needle in ["ballast.toml:2:", "mechanisms.paging.way", "\"group\"", "`cgroup`"] {
        assert!(message.contains(needle), "{message}");
    }
}

#[test]
fn the_error_about_a_missing_file_names_the_example() {
    let message = format!("{:#}", load(Path::new("no/such/ballast.toml")).unwrap_err());
    assert!(message.contains("no/such/ballast.toml") && message.contains("example"), "{message}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\[[a-z.]{0,8}\\]\n|[a-z_]{1,8} = [\"0-9a-zA-Z.\\-]{0,9}\n){0,8}") {
        let _ = read(&text);
    }
}
