//! The data disk image with PostgreSQL: its server, a cluster and a table.
//!
//! Idea: they are too large for the memory of a small guest and take too long to create in an
//! emulated one. The host therefore creates them once, in some ten seconds, with its own programs
//! or those of Debian's package, and each guest starts with a copy of the image as its data disk.
//! [`ballast_lab_guest::postgresql`] defines the contents.
//! Limits: some 500 MB in the cache, and temporarily as much in the folder of temporary files.
//! `initdb` and the server refuse to run as root, so root creates the cluster as an unprivileged
//! user. The image is recreated only when its cache entry is removed or [`RECIPE`] changes.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ballast_lab_guest::postgresql::{CLUSTER, LIBRARIES, ROWS, SERVER, TABLE, USER};
use ballast_lab_guest::workload::Program;
use ballast_model::Bytes;

use crate::{Cache, LabError, programs, tool};

/// Size of the image, and smallest data disk that can contain it.
pub(crate) const IMAGE_SIZE: Bytes = Bytes::mib(640);
/// Version of the image; raise it when this file changes, so that no older image is used.
const RECIPE: u32 = 1;
/// The image inside its cache entry.
const IMAGE_FILE: &str = "data.ext2";
/// Debian's package, which depends on the package of the newest version.
const PACKAGE: &str = "postgresql";
/// Where Debian installs it, one folder per version. The server locates its other files relative to
/// itself.
const PROGRAMS_FOLDER: &str = "usr/lib/postgresql";
const SHARE_FOLDER: &str = "usr/share/postgresql";
/// Libraries that it loads while a cluster is created; the workload needs no others.
const LOADED: [&str; 2] = ["dict_snowball.so", "plpgsql.so"];
/// An unprivileged user id.
const NOBODY: u32 = 65534;
/// Most files on the image; a cluster has about 1,000.
const INODES: &str = "4096";

/// The cluster's settings. Single rows are read, nothing is written, and the disk is discarded
/// afterwards; guests have neither `/dev/shm` nor time zones.
const SETTINGS: &str = "
listen_addresses = ''
max_connections = 10
autovacuum = off
fsync = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_wal_size = 2MB
min_wal_size = 2MB
jit = off
dynamic_shared_memory_type = sysv
log_min_messages = fatal
timezone = 'GMT'
log_timezone = 'GMT'
";

/// Remedy when creating the cluster fails.
const REMEDY: &str = "is there a gigabyte free in the folder of temporary files (TMPDIR)?";

/// Whether PostgreSQL is among a guest's programs.
pub(crate) fn is_in(programs: &BTreeSet<String>) -> bool {
    programs.contains(Program::Postgresql.packed())
}

/// Returns the image, from the cache or created now.
///
/// # Errors
/// When PostgreSQL is neither installed nor in a package, or the cluster cannot be created.
pub(crate) fn image(cache: &Cache, say: &dyn Fn(&str)) -> Result<PathBuf, LabError> {
    let name = format!("{PACKAGE}/{RECIPE}-{ROWS}");
    if !cache.root().join(&name).is_dir() {
        // Outside of `entry`, because this creates a cache entry of its own.
        let installation = Installation::find(cache, say)?;
        cache.entry(&name, |folder| {
            say("creating the guests' PostgreSQL image");
            make(&installation, &folder.join(IMAGE_FILE))
        })?;
    }
    Ok(cache.root().join(name).join(IMAGE_FILE))
}

/// A Debian installation of PostgreSQL, on the host or unpacked.
struct Installation {
    root: PathBuf,
    version: String,
}

impl Installation {
    fn find(cache: &Cache, say: &dyn Fn(&str)) -> Result<Installation, LabError> {
        if let Some(installed) = Installation::below(Path::new("/")) {
            return Ok(installed);
        }
        let root = programs::unpacked(PACKAGE, cache, say)?;
        Installation::below(&root).ok_or_else(|| LabError::ProgramUnavailable {
            program: PACKAGE.to_owned(),
            why: format!("install it with `apt-get install {PACKAGE}`"),
        })
    }

    /// The newest version below `root`.
    fn below(root: &Path) -> Option<Installation> {
        let versions = fs::read_dir(root.join(PROGRAMS_FOLDER)).ok()?.flatten();
        let names = versions.filter_map(|entry| entry.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.parse::<u32>().ok());
        let mut found: Vec<_> = numbers
            .map(|number| Installation { root: root.to_owned(), version: number.to_string() })
            .filter(|it| it.program("initdb").is_file() && it.share().is_dir())
            .collect();
        found.sort_by_key(|it| it.version.parse::<u32>().ok());
        found.pop()
    }

    fn programs(&self) -> PathBuf {
        self.root.join(PROGRAMS_FOLDER).join(&self.version)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs().join("bin").join(name)
    }

    fn share(&self) -> PathBuf {
        self.root.join(SHARE_FOLDER).join(&self.version)
    }

    /// Copies the files that a guest needs to `root`, as an installation there.
    fn copy_to(&self, root: &Path) -> Result<Installation, LabError> {
        let copy = Installation { root: root.to_owned(), version: self.version.clone() };
        for name in ["postgres", "initdb"] {
            copy_file(&self.program(name), &copy.program(name))?;
        }
        for name in LOADED {
            let of = |it: &Installation| it.programs().join("lib").join(name);
            copy_file(&of(self), &of(&copy))?;
        }
        copy_folder(&self.share(), &copy.share())?;
        let libraries = programs::library_folders(&self.root.join("usr/lib/x86_64-linux-gnu"));
        for (target, file) in programs::libraries(&self.program("postgres"), &libraries)? {
            copy_file(&file, &root.join(target))?;
        }
        let server = copy.program("postgres");
        let server = server.strip_prefix(root).unwrap_or(&server);
        symlink(server, root.join(SERVER)).map_err(LabError::io("create", root.join(SERVER)))?;
        Ok(copy)
    }

    /// A command of one of its programs, run by an unprivileged user.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.program(program));
        command.env("LD_LIBRARY_PATH", self.root.join(LIBRARIES)).env("TZ", "GMT");
        if let Some(user) = other_user() {
            command.uid(user).gid(user);
        }
        command
    }
}

/// The user who creates the cluster; `None`: this user.
fn other_user() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

/// Creates the image of `installation` at `path`.
fn make(installation: &Installation, path: &Path) -> Result<(), LabError> {
    let stage = tempfile::tempdir().map_err(LabError::io("create", std::env::temp_dir()))?;
    let stage = stage.path();
    let changed = || LabError::io("change", stage);
    // The user who creates the cluster must be able to enter the folder.
    fs::set_permissions(stage, Permissions::from_mode(0o755)).map_err(changed())?;
    let installation = installation.copy_to(stage)?;
    for folder in [CLUSTER, "lost+found"] {
        let folder = stage.join(folder);
        fs::create_dir_all(&folder).map_err(LabError::io("create", &folder))?;
    }
    let cluster = stage.join(CLUSTER);
    if let Some(user) = other_user() {
        chown(&cluster, Some(user), Some(user)).map_err(changed())?;
    }
    fill(&installation, &cluster)?;
    let mke2fs = tool::require("mke2fs", "e2fsprogs")?;
    let mut command = Command::new(mke2fs);
    // Like the guest's own file system: without a journal, with blocks of a page.
    command.args(["-q", "-t", "ext2", "-m", "0", "-b", "4096", "-N", INODES, "-d"]);
    command.arg(stage).arg(path).arg(format!("{}k", IMAGE_SIZE.get() / 1024));
    tool::run(&mut command, "is there half a gigabyte free in the cache's folder?").map(drop)
}

/// Creates the cluster and its table.
fn fill(installation: &Installation, cluster: &Path) -> Result<(), LabError> {
    let mut initdb = installation.command("initdb");
    initdb.arg("-D").arg(cluster).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale"]);
    // Small segments of the log, because nothing is written to it.
    initdb.args(["--no-sync", "--wal-segsize=1"]);
    tool::run(&mut initdb, REMEDY)?;
    let settings = cluster.join("postgresql.conf");
    let append = |text: &str| -> std::io::Result<()> {
        let mut old = fs::read_to_string(&settings)?;
        old.push_str(text);
        fs::write(&settings, old)
    };
    append(SETTINGS).map_err(LabError::io("write", &settings))?;
    let questions = tempfile::NamedTempFile::new()
        .map_err(LabError::io("create a file in", std::env::temp_dir()))?;
    fs::write(questions.path(), table()).map_err(LabError::io("write", questions.path()))?;
    let open = File::open(questions.path()).map_err(LabError::io("read", questions.path()))?;
    // Single-user mode, without a server: one statement per line.
    let mut alone = installation.command("postgres");
    alone.args(["--single", "-D"]).arg(cluster).args(["-c", "exit_on_error=on"]);
    alone.args(["-c", "maintenance_work_mem=128MB", USER]);
    tool::run_with(&mut alone, Stdio::from(open), REMEDY).map(drop)
}

/// The statements that create the table as `pgbench -i` does. Its rows are frozen, so that reading
/// never writes to it.
fn table() -> String {
    format!(
        "CREATE TABLE {TABLE} AS SELECT aid, (aid - 1) / 100000 + 1 AS bid, 0 AS abalance, \
         ''::char(84) AS filler FROM generate_series(1, {ROWS}) aid\n\
         ALTER TABLE {TABLE} ADD PRIMARY KEY (aid)\n\
         VACUUM (FREEZE, ANALYZE) {TABLE}\n"
    )
}

fn copy_file(from: &Path, to: &Path) -> Result<(), LabError> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(LabError::io("create", folder))?;
    }
    fs::copy(from, to).map(drop).map_err(LabError::io("copy", from))
}

/// Copies a folder recursively; packages are not deep.
fn copy_folder(from: &Path, to: &Path) -> Result<(), LabError> {
    for entry in fs::read_dir(from).map_err(LabError::io("read", from))? {
        let entry = entry.map_err(LabError::io("read", from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        // Links point to files of the host's maintainer scripts, which a cluster does not need.
        match entry.file_type().map_err(LabError::io("examine", &from))? {
            kind if kind.is_dir() => copy_folder(&from, &to)?,
            kind if kind.is_file() => copy_file(&from, &to)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_complete_version_is_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(Installation::below(root).is_none());
        for (version, is_whole) in [("9", true), ("15", true), ("17", false), ("common", true)] {
            let bin = root.join(PROGRAMS_FOLDER).join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("initdb"), "").unwrap();
            if is_whole {
                fs::create_dir_all(root.join(SHARE_FOLDER).join(version)).unwrap();
            }
        }
        assert_eq!(Installation::below(root).unwrap().version, "15");
    }

    #[test]
    fn each_statement_is_one_line() {
        let text = table();
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains(&format!("generate_series(1, {ROWS})")), "{text}");
    }
}
