//! Programs packed into guests, with their libraries.
//!
//! Idea: a dynamically linked Debian program runs in any guest that has its loader, and its
//! libraries on the loader's path; `ldd` lists them. A program that is not installed is unpacked
//! into the cache from its package and the missing packages it depends on.
//! Limits: data files of a program are not packed; redis, memcached, sqlite3, stress-ng and
//! sysbench need none, and PostgreSQL has an image of its own (see [`crate::postgresql`]). `ldd`
//! runs the program's loader, so it is only used on Debian's own programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Cache, LabError, debian, tool};

/// Library folder on the loader's path in every Debian release on this architecture.
const LIBRARY_FOLDER: &str = "lib/x86_64-linux-gnu";

/// A program that can be packed, its package, and the programs packed with it.
struct PackableProgram {
    program: &'static str,
    package: &'static str,
    companions: &'static [&'static str],
}

const PACKABLE_PROGRAMS: [PackableProgram; 6] = [
    PackableProgram {
        program: "redis-server",
        package: "redis-server",
        companions: &["redis-cli", "redis-benchmark"],
    },
    PackableProgram { program: "memcached", package: "memcached", companions: &[] },
    PackableProgram { program: "sqlite3", package: "sqlite3", companions: &[] },
    PackableProgram { program: "stress-ng", package: "stress-ng", companions: &[] },
    PackableProgram { program: "sysbench", package: "sysbench", companions: &[] },
    PackableProgram { program: "busybox", package: "busybox-static", companions: &[] },
];

/// Files of the host for a guest: path in the guest (relative to its root) to file on the host.
pub(crate) type FileMap = BTreeMap<PathBuf, PathBuf>;

/// The files that `program` needs in a guest: itself and its companions in `bin`, its libraries,
/// its loader.
///
/// # Errors
/// [`LabError::ProgramUnavailable`] when it is neither installed nor in a package.
pub(crate) fn files(program: &str, cache: &Cache, say: &dyn Fn(&str)) -> Result<FileMap, LabError> {
    let known = PACKABLE_PROGRAMS.iter().find(|known| known.program == program);
    let companions = known.map_or(&[][..], |known| known.companions);
    let mut map = FileMap::new();
    for name in std::iter::once(&program).chain(companions) {
        let (file, library_folders) = locate(name, known, cache, say)?;
        map.extend(libraries(&file, &library_folders)?);
        map.insert(Path::new("bin").join(name), file);
    }
    Ok(map)
}

/// The host's static busybox, else that of its package.
pub(crate) fn busybox(cache: &Cache, say: &dyn Fn(&str)) -> Result<PathBuf, LabError> {
    if let Some(installed) = tool::find("busybox")
        && is_static(&installed)?
    {
        return Ok(installed);
    }
    let root = unpacked("busybox-static", cache, say)?;
    in_root(&root, "busybox").ok_or_else(|| LabError::ProgramUnavailable {
        program: "busybox".to_owned(),
        why: "install it with `apt-get install busybox-static`".to_owned(),
    })
}

/// Whether a program needs no libraries.
pub(crate) fn is_static(program: &Path) -> Result<bool, LabError> {
    Ok(libraries(program, &[])?.is_empty())
}

/// The file of a program, and the unpacked folders that contain its libraries.
fn locate(
    name: &str,
    known: Option<&PackableProgram>,
    cache: &Cache,
    say: &dyn Fn(&str),
) -> Result<(PathBuf, Vec<PathBuf>), LabError> {
    let canonical = |path: &Path| path.canonicalize().map_err(LabError::io("find", path));
    if let Some(installed) = tool::find(name) {
        return Ok((canonical(&installed)?, Vec::new()));
    }
    let unavailable = |why: String| LabError::ProgramUnavailable { program: name.to_owned(), why };
    let Some(known) = known else {
        let list: Vec<_> = PACKABLE_PROGRAMS.iter().map(|known| known.program).collect();
        return Err(unavailable(format!(
            "it is not installed: install its package with apt-get; packages are known for {}",
            list.join(", ")
        )));
    };
    let root = unpacked(known.package, cache, say)?;
    let file = in_root(&root, name).ok_or_else(|| {
        unavailable(format!("install it with `apt-get install {}`", known.package))
    })?;
    Ok((canonical(&file)?, library_folders(&root)))
}

/// The cache entry with `package` and its dependencies that the host does not have.
pub(crate) fn unpacked(
    package: &str,
    cache: &Cache,
    say: &dyn Fn(&str),
) -> Result<PathBuf, LabError> {
    cache.entry(&format!("program/{package}"), |folder| {
        say(&format!("fetching {package}"));
        debian::unpack_packages(&debian::missing_packages(package)?, folder)
    })
}

fn in_root(root: &Path, program: &str) -> Option<PathBuf> {
    ["usr/bin", "bin", "usr/sbin", "sbin"]
        .iter()
        .map(|folder| root.join(folder).join(program))
        .find(|file| file.is_file())
}

/// Every folder below `root` that contains a shared library; packages are not deep.
pub(crate) fn library_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if entry.file_name().to_string_lossy().contains(".so") {
                folders.insert(folder.clone());
            }
        }
    }
    folders.into_iter().collect()
}

/// The libraries of the file `program` and its loader, those of `folders` before the host's; a
/// static program has none.
pub(crate) fn libraries(program: &Path, folders: &[PathBuf]) -> Result<FileMap, LabError> {
    let ldd = tool::require("ldd", "libc-bin")?;
    let mut command = Command::new(ldd);
    command.arg(program).env("LC_ALL", "C");
    if let Ok(path) = std::env::join_paths(folders)
        && !folders.is_empty()
    {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().map_err(LabError::io("examine", program))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    parse_ldd(&text)
        .map_err(|why| LabError::ProgramUnavailable { program: program.display().to_string(), why })
}

/// Parses the output of `ldd`.
fn parse_ldd(text: &str) -> Result<FileMap, String> {
    let mut map = FileMap::new();
    if text.contains("not a dynamic executable") || text.contains("statically linked") {
        return Ok(map);
    }
    for line in text.lines().map(str::trim) {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        if path.starts_with("not found") {
            return Err(format!("`{line}`: install the package of that library"));
        }
        let Some(path) = path.split_whitespace().next().filter(|path| path.starts_with('/')) else {
            continue;
        };
        let target = match line.split_once(" => ") {
            // Under the name that the loader requests, in the folder that is on every loader's
            // path.
            Some((name, _)) => Path::new(LIBRARY_FOLDER).join(name),
            None => PathBuf::from(path.trim_start_matches('/')),
        };
        map.insert(target, PathBuf::from(path));
    }
    if map.is_empty() {
        return Err(format!("unexpected output of ldd: {}", tool::tail(text, 200).trim()));
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_placed_on_the_loaders_path() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibz.so.1 => /cache/x/usr/lib/libz.so.1 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let map = parse_ldd(text).unwrap();
        let pairs: Vec<_> =
            map.iter().map(|(to, from)| (to.to_str().unwrap(), from.to_str().unwrap())).collect();
        assert_eq!(
            pairs,
            [
                ("lib/x86_64-linux-gnu/libz.so.1", "/cache/x/usr/lib/libz.so.1"),
                ("lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
            ]
        );
    }

    #[test]
    fn missing_library_is_named() {
        let error = parse_ldd("\tlibx.so.3 => not found\n").unwrap_err();
        assert!(error.contains("libx.so.3"), "{error}");
        assert!(parse_ldd("").is_err());
    }

    #[test]
    fn static_programs_need_no_libraries() {
        assert_eq!(parse_ldd("\tnot a dynamic executable\n"), Ok(FileMap::new()));
        assert_eq!(parse_ldd("\tstatically linked\n"), Ok(FileMap::new()));
    }

    #[test]
    fn unknown_program_is_refused_with_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let error = files("no-such-program", &cache, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("apt-get"), "{error}");
    }

    #[test]
    fn packed_program_includes_its_loader() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let map = files("ls", &cache, &|_| {}).unwrap();
        assert!(map.contains_key(Path::new("bin/ls")));
        assert!(map.keys().any(|path| path.to_string_lossy().contains("ld-linux")), "{map:?}");
    }
}
