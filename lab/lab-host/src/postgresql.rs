//! PostgreSQL for the guests: its server, a cluster and a table, on an image of a data disk.
//!
//! Idea: together they are too large for the memory of a small guest and take too long to make in an emulated one.
//! So that the host makes them once, in some ten seconds and with the programs of its own or of Debian's package,
//! and each guest begins with a copy of the image as its data disk. What is on it and where both sides know from
//! [`ballast_lab_guest::postgresql`].
//! Limits: 420 MB in the cache, and as much for a while where temporary files are. `initdb` and the server refuse
//! to be root: root makes the cluster as somebody without privileges. The image is made anew only when its entry
//! in the cache is removed or [`RECIPE`] changes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ballast_lab_guest::postgresql::{CLUSTER, LIBRARIES, ROWS, SERVER, TABLE, USER};
use ballast_lab_guest::workload::Program;
use ballast_model::Bytes;

use crate::{Cache, GuestSpec, LabError, programs, tool};

/// Size of the image, and least size of a data disk that has it.
pub(crate) const IMAGE_SIZE: Bytes = Bytes::mib(512);
/// Number of what this file makes; to be changed with it, so that no older image is used.
const RECIPE: u32 = 1;
/// The image inside its cache entry.
const IMAGE_FILE: &str = "data.ext2";
/// Debian's package, which needs that of the newest version there is.
const PACKAGE: &str = "postgresql";
/// Where Debian has it, a folder for each version. The server finds its other files from where it is itself.
const PROGRAMS_FOLDER: &str = "usr/lib/postgresql";
const SHARE_FOLDER: &str = "usr/share/postgresql";
/// Libraries that it loads while a cluster is made; further ones only for what nobody here asks for.
const LOADED: [&str; 2] = ["dict_snowball.so", "plpgsql.so"];
/// Somebody without privileges.
const NOBODY: u32 = 65534;
/// Room on the image for as many files; a cluster has about 1,000.
const INODES: &str = "4096";

/// The cluster's settings. One row at a time is read, nothing is written, and the disk is thrown away; guests have
/// neither `/dev/shm` nor time zones.
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

/// What to do when making the cluster fails.
const REMEDY: &str =
    "is there a gigabyte free where temporary files are? TMPDIR says where that is";

/// Whether a guest has it.
pub(crate) fn is_in(guest: &GuestSpec) -> bool {
    guest.with.contains(Program::Postgresql.packed())
}

/// The image, from the cache or made now.
///
/// # Errors
/// When PostgreSQL is neither installed nor in a package, or the cluster cannot be made.
pub(crate) fn image(cache: &Cache, say: &dyn Fn(&str)) -> Result<PathBuf, LabError> {
    let name = format!("{PACKAGE}/{RECIPE}-{ROWS}");
    if !cache.root().join(&name).is_dir() {
        // Outside of `entry`: this makes an entry of its own.
        let installation = Installation::find(cache, say)?;
        cache.entry(&name, |folder| {
            say("making the guests' PostgreSQL");
            make(&installation, &folder.join(IMAGE_FILE))
        })?;
    }
    Ok(cache.root().join(name).join(IMAGE_FILE))
}

/// PostgreSQL as Debian installs it, on the host or unpacked.
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

    /// Copies what a guest needs of it to `root`, as an installation there.
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

    /// One of its programs, run by whom it does not refuse.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.program(program));
        command.env("LD_LIBRARY_PATH", self.root.join(LIBRARIES)).env("TZ", "GMT");
        if let Some(user) = other_user() {
            command.uid(user).gid(user);
        }
        command
    }
}

/// As whom the cluster is made; `None`: as this user.
fn other_user() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

/// Makes the image of `installation` at `path`.
fn make(installation: &Installation, path: &Path) -> Result<(), LabError> {
    let stage = tempfile::tempdir().map_err(LabError::io("create", std::env::temp_dir()))?;
    let stage = stage.path();
    let changed = || LabError::io("change", stage);
    // Whoever makes the cluster has to get there.
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
    // As the guest makes its own: without a journal, in blocks of a page.
    command.args(["-q", "-t", "ext2", "-m", "0", "-b", "4096", "-N", INODES, "-d"]);
    command.arg(stage).arg(path).arg(format!("{}k", IMAGE_SIZE.get() / 1024));
    tool::run(&mut command, "is there half a gigabyte free in the cache's folder?").map(drop)
}

/// Makes the cluster, and the table in it.
fn fill(installation: &Installation, cluster: &Path) -> Result<(), LabError> {
    let mut initdb = installation.command("initdb");
    initdb.arg("-D").arg(cluster).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale"]);
    // Small segments of the log: nothing is written to it.
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
    // Alone, without a server: a statement a line.
    let mut alone = installation.command("postgres");
    alone.args(["--single", "-D"]).arg(cluster).args(["-c", "exit_on_error=on"]);
    alone.args(["-c", "maintenance_work_mem=128MB", USER]);
    tool::run_with(&mut alone, Stdio::from(open), REMEDY).map(drop)
}

/// What makes the table as `pgbench -i` does. Frozen, so that reading never writes to it.
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

/// Copies a folder with all that is below it, as deep as packages are.
fn copy_folder(from: &Path, to: &Path) -> Result<(), LabError> {
    for entry in fs::read_dir(from).map_err(LabError::io("read", from))? {
        let entry = entry.map_err(LabError::io("read", from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        // Links lead to what the host's maintainer scripts made, which a cluster does without.
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
    fn the_newest_version_that_is_whole_is_taken() {
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
    fn a_statement_is_one_line() {
        let text = table();
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains(&format!("generate_series(1, {ROWS})")), "{text}");
    }
}
