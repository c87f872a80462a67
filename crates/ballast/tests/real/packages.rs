//! Packages are installed, upgraded, removed and purged, by the machine's dpkg, under a systemd of
//! the test's own.
//!
//! Idea: all that they write lies on top of the machine's files and disappears with the namespaces
//! of `support/systemd.sh`. A peer that speaks QMP stands in for the guest; its orders show what a
//! new daemon remembers. Limits: needs root, and packages that `make packages` built, in the folder
//! that [`FOLDER`] names, as in `make soak`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{guest, wait_for};
use crate::support::systemd::{self, property, property_of, systemctl};
use ballast_api::StatusReply;
use ballast_model::Bytes;
use ballast_qmp_testing::{Peer, PeerConfig};

/// The environment variable that names the folder with the packages.
pub(crate) const FOLDER: &str = "BALLAST_TEST_PACKAGES";
const CONFIG: &str = "/etc/ballast/ballast.toml";
const JOURNAL: &str = "/var/lib/ballast/journal.db";
const SOCKET: &str = "/run/ballast/ballast.sock";
/// The search path for the installed programs.
pub(crate) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
const GUEST: &str = "web";
/// The guest's ceiling, less than its boot memory.
const CEILING: Bytes = Bytes::mib(512);

#[test]
fn an_upgrade_keeps_targets_and_pause_and_purge_leaves_nothing() {
    let Some(package) = package("ballast_", ".deb") else { return };
    if !systemd::is_inside() {
        return systemd::run_again_to_install(
            "packages::an_upgrade_keeps_targets_and_pause_and_purge_leaves_nothing",
        );
    }
    run("dpkg", &["--install", package.to_str().unwrap()]);
    is_active_and_enabled("ballast.service");
    assert!(run("ballast", &["mode"]).contains("observe"), "it moves nothing by itself");
    let fleet = |name| property_of("ballast-fleet.service", name);
    assert_eq!(
        (fleet("ActiveState"), fleet("UnitFileState")),
        ("inactive".into(), "disabled".into())
    );
    assert_eq!(fs::metadata(SOCKET).unwrap().gid(), group("ballast"));

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let socket = format!("/run/ballast/qmp/{GUEST}.sock");
    let peer = Peer::spawn(socket.as_ref(), PeerConfig::default()).unwrap();
    wait_for("the guest", || guest(&status(), GUEST).map(drop));
    assert_eq!(peer.target(), PeerConfig::default().boot_memory);
    run("ballast", &["mode", "balance"]);
    let bound = format!("[guests.{GUEST}]\nceiling = \"{CEILING}\"\n");
    let edited = fs::read_to_string(CONFIG).unwrap() + &bound;
    fs::write(CONFIG, &edited).unwrap();
    systemctl(&["reload", "ballast.service"]);
    wait_for("its target", || (peer.target() == CEILING).then_some(()));
    run("ballast", &["pause"]);
    is_paused();
    let process = property("MainPID");

    run("dpkg", &["--install", newer(&package).to_str().unwrap()]);
    is_active_and_enabled("ballast.service");
    assert_ne!(property("MainPID"), process, "the new program runs");
    is_paused();
    run("ballast", &["resume"]);
    wait_for("the guest as it was", || {
        (guest(&status(), GUEST)?.target_bytes? == CEILING.get()).then_some(())
    });
    assert_eq!(peer.target(), CEILING);
    assert!(run("ballast", &["mode"]).contains("balance"));
    assert_eq!(fs::read_to_string(CONFIG).unwrap(), edited);

    run("dpkg", &["--remove", "ballast"]);
    assert_eq!(property("ActiveState"), "inactive");
    assert_eq!(peer.target(), CEILING, "guests are left as they are");
    assert_eq!(fs::read_to_string(CONFIG).unwrap(), edited);
    assert!(Path::new(JOURNAL).exists() && !Path::new("/usr/bin/ballast").exists());

    run("dpkg", &["--purge", "ballast"]);
    for folder in ["/etc/ballast", "/var/lib/ballast"] {
        assert!(!Path::new(folder).exists(), "{folder}");
    }
    systemctl(&["daemon-reload"]);
    assert_eq!(property("LoadState"), "not-found");
}

#[test]
fn the_agents_package_starts_it_and_it_needs_no_library() {
    let Some(package) = package("ballast-agent_", ".deb") else { return };
    if !systemd::is_inside() {
        return systemd::run_again_to_install(
            "packages::the_agents_package_starts_it_and_it_needs_no_library",
        );
    }
    run("dpkg", &["--install", package.to_str().unwrap()]);
    is_active_and_enabled("ballast-agent.service");
    assert_eq!(run("dpkg-query", &["-W", "-f=${Depends}", "ballast-agent"]), "");

    // Nothing else is there.
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    for folder in ["bin", "proc", "run"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::copy("/bin/busybox", at("bin/busybox")).unwrap();
    fs::copy("/usr/bin/ballast-agent", at("bin/ballast-agent")).unwrap();
    let line = "/bin/busybox mount -t proc proc /proc && /bin/ballast-agent --once; \
                status=$?; /bin/busybox umount /proc; exit $status";
    let root = root.path().to_str().unwrap();
    let said = run("chroot", &[root, "/bin/busybox", "sh", "-c", line]);
    let total = said.lines().find(|line| line.starts_with("total_bytes ")).unwrap();
    assert!(total.ends_with("iB"), "it reads this machine's memory: {total}");

    run("dpkg", &["--purge", "ballast-agent"]);
    let active = systemctl(&["show", "--property=ActiveState", "--value", "ballast-agent.service"]);
    assert_eq!(active.trim(), "inactive");
}

#[test]
fn rpm_installs_the_same_files_and_its_scripts_start_them() {
    let Some(package) = package("ballast-0", ".rpm") else { return };
    if let Err(error) = Command::new("rpm").arg("--version").stdout(Stdio::null()).status() {
        return println!("SKIPPED: rpm: {error}: run scripts/setup");
    }
    if !systemd::is_inside() {
        return systemd::run_again_to_install(
            "packages::rpm_installs_the_same_files_and_its_scripts_start_them",
        );
    }
    let package = package.to_str().unwrap();
    rpm(&["--install", "--nodeps", package]);
    assert_eq!(rpm(&["--verify", "--nodeps", "ballast"]), "", "what lies there is what was packed");
    assert_eq!(files_of_rpm(), files_of_deb());
    let unit = |name| systemctl(&["show", "--property", name, "--value", "ballast.service"]);
    assert_eq!((unit("ActiveState").trim(), unit("UnitFileState").trim()), ("inactive", "enabled"));
    systemctl(&["start", "ballast.service"]);
    assert!(run("ballast", &["mode"]).contains("observe"), "it moves nothing by itself");
    assert_eq!(fs::metadata(SOCKET).unwrap().gid(), group("ballast"));
    let edited = fs::read_to_string(CONFIG).unwrap() + "# mine\n";
    fs::write(CONFIG, &edited).unwrap();
    let process = property("MainPID");

    // As in an upgrade: first the scripts of the new package, then those of the old one.
    rpm(&["--upgrade", "--force", "--nodeps", package]);
    is_active_and_enabled("ballast.service");
    assert_ne!(property("MainPID"), process, "the new program runs");
    assert_eq!(fs::read_to_string(CONFIG).unwrap(), edited);

    rpm(&["--erase", "ballast"]);
    systemctl(&["daemon-reload"]);
    assert_eq!(property("LoadState"), "not-found");
    assert!(Path::new(JOURNAL).exists() && !Path::new("/usr/bin/ballast").exists());
    assert_eq!(fs::read_to_string(format!("{CONFIG}.rpmsave")).unwrap(), edited);
}

/// The output of rpm. Debian's rpm installs nothing without `--force-debian`, and would keep its
/// database in the home folder.
fn rpm(arguments: &[&str]) -> String {
    run("rpm", &[&["--force-debian", "--dbpath", "/var/lib/rpm"], arguments].concat())
}

/// Modes and names of the installed files, by `rpm`.
fn files_of_rpm() -> BTreeSet<String> {
    let listed =
        rpm(&["--query", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\\n]", "ballast"]);
    listed.lines().map(str::to_owned).collect()
}

/// The same of the Debian package, without the files that only Debian's policy requires, and with
/// the names of uncompressed files.
fn files_of_deb() -> BTreeSet<String> {
    let package = package("ballast_", ".deb").unwrap();
    let listed = run("dpkg-deb", &["--contents", package.to_str().unwrap()]);
    let mut files = BTreeSet::new();
    for line in listed.lines().filter(|line| !line.starts_with('d')) {
        let (mode, name) = (line.split_once(' ').unwrap().0, line.rsplit_once(" ./").unwrap().1);
        if !name.ends_with("/copyright") {
            files.insert(format!("{mode} /{}", name.trim_end_matches(".gz")));
        }
    }
    files
}

/// The package whose file name begins with `name` and ends with `end`. Prints that the test is
/// skipped and returns `None` if none was built.
pub(crate) fn package(name: &str, end: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        println!("SKIPPED: {FOLDER} names no folder of packages: run make soak");
        return None;
    };
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        file.starts_with(name) && file.ends_with(end)
    };
    let found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(is_it);
    Some(found.unwrap_or_else(|| panic!("no package {name}")))
}

/// The same package with a later version.
fn newer(package: &Path) -> PathBuf {
    let folder = std::env::temp_dir();
    let (tree, newer) = (folder.join("newer"), folder.join("newer.deb"));
    let paths = [package, &tree, &newer].map(|path| path.to_str().unwrap());
    run("dpkg-deb", &["--raw-extract", paths[0], paths[1]]);
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let version = lines.iter_mut().find(|line| line.starts_with("Version: ")).unwrap();
    version.push_str("+later");
    fs::write(control, lines.join("\n") + "\n").unwrap();
    run("dpkg-deb", &["--build", "-Znone", paths[1], paths[2]]);
    newer
}

/// The output of a program, which has to succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", PATH).env("DEBIAN_FRONTEND", "noninteractive");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{program} {}\n{said}{errors}", arguments.join(" "));
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    said
}

fn status() -> StatusReply {
    serde_json::from_str(&run("ballast", &["status", "--json"])).unwrap()
}

fn is_active_and_enabled(unit: &str) {
    let state = systemctl(&["show", "--property=ActiveState,UnitFileState", "--value", unit]);
    assert_eq!(state.split_whitespace().collect::<Vec<_>>(), ["active", "enabled"]);
}

/// Waits until the status says that Ballast is paused.
fn is_paused() {
    wait_for("the pause", || run("ballast", &["status"]).contains("paused").then_some(()));
}

/// The id of a group.
fn group(name: &str) -> u32 {
    let text = fs::read_to_string("/etc/group").unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}
