//! Contents of the packages: every file is there, and the programs that read them accept them.
//!
//! Idea: `scripts/package` puts the files of the packages into folders; here empty files stand in
//! for what is built. Limits: `tests/real/packages.rs` tests that the packages install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{ballast, run};

/// The files that are built, by their paths in the target folder.
const BUILT: [&str; 24] = [
    "dist/ballast",
    "dist/ballast-fleet",
    "dist/ballast-lab",
    "dist/track-subject",
    "dist/libballast_track.so",
    "dist/libballast_lab_truth.so",
    "x86_64-unknown-linux-gnu/dist/ballast-agent",
    "x86_64-unknown-linux-gnu/dist/lab-guest",
    "packages/pages/ballast.1",
    "packages/pages/ballast-status.1",
    "packages/pages/ballast.bash",
    "packages/pages/ballast.fish",
    "packages/pages/_ballast",
    "packages/pages/ballast-fleet.1",
    "packages/pages/ballast-fleet-run.1",
    "packages/pages/ballast-fleet.bash",
    "packages/pages/ballast-fleet.fish",
    "packages/pages/_ballast-fleet",
    "packages/pages/ballast-lab.1",
    "packages/pages/ballast-lab-run.1",
    "packages/pages/ballast-lab.bash",
    "packages/pages/ballast-lab.fish",
    "packages/pages/_ballast-lab",
    "packages/pages/ballast-lab-demo.1",
];

/// A folder with the files of the packages.
fn staged() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    for name in BUILT {
        let path = target.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/package");
    let output = Command::new(script)
        .arg("stage")
        .arg(folder.path().join("root"))
        .env("CARGO_TARGET_DIR", &target)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

/// A file of a package.
fn file(folder: &tempfile::TempDir, package: &str, path: &str) -> PathBuf {
    folder.path().join("root").join(package).join(path)
}

#[test]
fn packages_have_their_files_and_units_that_systemd_understands() {
    let folder = staged();
    for (package, program) in
        [("ballast", "ballast"), ("ballast", "ballast-fleet"), ("ballast-agent", "ballast-agent")]
    {
        let unit = format!("usr/lib/systemd/system/{program}.service");
        let text = fs::read_to_string(file(&folder, package, &unit)).unwrap();
        let started = format!("/usr/bin/{program}");
        assert!(text.contains(&format!("ExecStart={started}")));
        assert!(file(&folder, package, &started[1..]).exists());
        let copy = folder.path().join(format!("{program}.service"));
        fs::write(&copy, text.replace(&started, "/bin/true")).unwrap();
        let mut verify = Command::new("systemd-analyze");
        match verify.args(["verify", "--man=no"]).arg(&copy).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let is_own = |line: &&str| line.contains(&format!("{program}.service"));
                let own: Vec<&str> = said.lines().filter(is_own).collect();
                assert!(output.status.success() && own.is_empty(), "{own:?}");
            }
            Err(error) => println!("SKIPPED: systemd-analyze: {error}: run scripts/setup"),
        }
    }
}

#[test]
fn alerts_and_dashboard_are_in_the_package() {
    let folder = staged();
    for path in ["prometheus/ballast.rules.yml", "grafana/ballast.json"] {
        let packed = fs::read(file(&folder, "ballast", &format!("usr/share/ballast/{path}")));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        assert_eq!(packed.unwrap(), fs::read(root.join(path)).unwrap(), "{path}");
    }
}

#[test]
fn the_packaged_configuration_observes_and_needs_no_edit() {
    let folder = staged();
    let config = file(&folder, "ballast", "etc/ballast/ballast.toml");
    let mut check = ballast(&["daemon", "--check", "--json", "--config"]);
    let done = run(check.arg(&config));
    assert_eq!(done.status, Some(0), "{}", done.err);
    let said: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(said["mode"], "observe");
    let config = ballast_config::load(&config).unwrap();
    assert!(config.libvirt.is_some() && config.containers.is_some(), "all guests are found");
    assert_eq!(config.proxmox_folder, Some("/etc/pve/qemu-server".into()));
    let text = fs::read_to_string(&config.path).unwrap();
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let all = ballast_config::parse(&uncommented, &config.path).unwrap();
    assert!(all.xen.is_some() && all.cloud_hypervisor.is_some() && all.metrics.is_some());
    let groups = fs::read_to_string(file(&folder, "ballast", "usr/lib/sysusers.d/ballast.conf"));
    let made = format!("g {} -", config.group.unwrap());
    assert!(groups.unwrap().lines().any(|line| line == made));
}

#[test]
fn boot_makes_the_folders_that_the_unit_makes() {
    let folder = staged();
    let read = |path| fs::read_to_string(file(&folder, "ballast", path)).unwrap();
    let unit = read("usr/lib/systemd/system/ballast.service");
    let install = unit.lines().find(|line| line.starts_with("ExecStartPre=")).unwrap();
    let (how, folders) = install.split_once(" -d -o root -g kvm -m 2770 ").unwrap();
    assert_eq!(how, "ExecStartPre=+/usr/bin/install");
    let at_boot = read("usr/lib/tmpfiles.d/ballast.conf");
    let same: Vec<String> =
        folders.split(' ').map(|folder| format!("d {folder} 2770 root kvm")).collect();
    let made: Vec<&str> = at_boot.lines().filter(|line| line.contains("2770")).collect();
    assert_eq!(made, same);
}
