//! Programs of the host for the guests, with the libraries they need.
//!
//! Idea: a dynamic Debian program runs in any guest that has its loader and its libraries at the
//! places where the loader looks; `ldd` names them. A program that is not installed is unpacked from
//! its package, with the packages that are missing beside it, into the cache.
//! Limits: data files of a program are not packed; those to begin with (redis, memcached, sqlite3, stress-ng,
//! sysbench) need none, and PostgreSQL has an image of its own (see [`crate::postgresql`]). `ldd` runs the
//! program's loader: only Debian's own programs are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Cache, LabError, debian, tool};

/// Where the loader of every Debian release looks for libraries on this architecture.
const LIBRARY_FOLDER: &str = "lib/x86_64-linux-gnu";

/// A program that can be packed, its package, and what is packed with it.
struct Known {
    program: &'static str,
    package: &'static str,
    companions: &'static [&'static str],
}

const KNOWN: [Known; 6] = [
    Known {
        program: "redis-server",
        package: "redis-server",
        companions: &["redis-cli", "redis-benchmark"],
    },
    Known { program: "memcached", package: "memcached", companions: &[] },
    Known { program: "sqlite3", package: "sqlite3", companions: &[] },
    Known { program: "stress-ng", package: "stress-ng", companions: &[] },
    Known { program: "sysbench", package: "sysbench", companions: &[] },
    Known { program: "busybox", package: "busybox-static", companions: &[] },
];

/// Files of the host for a guest: path in the guest (relative to its root) to file on the host.
pub(crate) type FileMap = BTreeMap<PathBuf, PathBuf>;

/// The files that `program` needs in a guest: itself and its companions in `bin`, its libraries, its
/// loader.
///
/// # Errors
/// [`LabError::ProgramUnavailable`] when it is not installed and no package brings it.
pub(crate) fn files(program: &str, cache: &Cache, say: &dyn Fn(&str)) -> Result<FileMap, LabError> {
    let known = KNOWN.iter().find(|known| known.program == program);
    let companions = known.map_or(&[][..], |known| known.companions);
    let mut map = FileMap::new();
    for name in std::iter::once(&program).chain(companions) {
        let (file, library_folders) = locate(name, known, cache, say)?;
        map.extend(libraries(&file, &library_folders)?);
        map.insert(Path::new("bin").join(name), file);
    }
    Ok(map)
}

/// The static busybox of the host, else that of its package.
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

/// The libraries of the file `program` and its loader, those of `folders` before the host's.
pub(crate) fn libraries(program: &Path, folders: &[PathBuf]) -> Result<FileMap, LabError> {
    match libraries_of(program, folders)? {
        Libraries::Needed(map) => Ok(map),
        Libraries::Static => Ok(FileMap::new()),
    }
}

/// Whether a program needs no libraries.
pub(crate) fn is_static(program: &Path) -> Result<bool, LabError> {
    Ok(matches!(libraries_of(program, &[])?, Libraries::Static))
}

/// The file of a program and the folders outside of the host's own in which its libraries are.
fn locate(
    name: &str,
    known: Option<&Known>,
    cache: &Cache,
    say: &dyn Fn(&str),
) -> Result<(PathBuf, Vec<PathBuf>), LabError> {
    let canonical = |path: &Path| path.canonicalize().map_err(LabError::io("find", path));
    if let Some(installed) = tool::find(name) {
        return Ok((canonical(&installed)?, Vec::new()));
    }
    let unavailable = |why: String| LabError::ProgramUnavailable { program: name.to_owned(), why };
    let Some(known) = known else {
        let list: Vec<_> = KNOWN.iter().map(|known| known.program).collect();
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

/// The cache entry with `package` and whatever it needs beyond this host's packages.
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

/// Every folder below `root` that holds a shared library. Depth is bounded by the packages' own.
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

/// What a program needs beyond the kernel.
#[derive(Debug, PartialEq, Eq)]
enum Libraries {
    Static,
    Needed(FileMap),
}

fn libraries_of(program: &Path, folders: &[PathBuf]) -> Result<Libraries, LabError> {
    let ldd = tool::require("ldd", "libc-bin")?;
    let mut command = Command::new(ldd);
    command.arg(program).env("LC_ALL", "C");
    if let Ok(path) = std::env::join_paths(folders)
        && !folders.is_empty()
    {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().map_err(LabError::io("examine", program))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    parse_ldd(&said)
        .map_err(|why| LabError::ProgramUnavailable { program: program.display().to_string(), why })
}

/// Reads `ldd`'s output; the error says what is wrong in words.
fn parse_ldd(text: &str) -> Result<Libraries, String> {
    if text.contains("not a dynamic executable") || text.contains("statically linked") {
        return Ok(Libraries::Static);
    }
    let mut map = FileMap::new();
    for line in text.lines().map(str::trim) {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        if path.starts_with("not found") {
            return Err(format!("`{line}`: install the package of that library"));
        }
        let Some(path) = path.split_whitespace().next().filter(|path| path.starts_with('/')) else {
            continue;
        };
        let target = match line.split_once(" => ") {
            // By its name as the loader asks for it, in the one folder where every loader looks.
            Some((name, _)) => Path::new(LIBRARY_FOLDER).join(name),
            None => PathBuf::from(path.trim_start_matches('/')),
        };
        map.insert(target, PathBuf::from(path));
    }
    if map.is_empty() {
        return Err(format!("ldd says: {}", tool::tail(text, 200).trim()));
    }
    Ok(Libraries::Needed(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_go_where_the_loader_looks() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibz.so.1 => /cache/x/usr/lib/libz.so.1 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let Ok(Libraries::Needed(map)) = parse_ldd(text) else { panic!("not read") };
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
    fn a_library_that_is_not_there_is_named() {
        let error = parse_ldd("\tlibx.so.3 => not found\n").unwrap_err();
        assert!(error.contains("libx.so.3"), "{error}");
        assert!(parse_ldd("").is_err());
    }

    #[test]
    fn static_programs_need_nothing() {
        assert_eq!(parse_ldd("\tnot a dynamic executable\n"), Ok(Libraries::Static));
        assert_eq!(parse_ldd("\tstatically linked\n"), Ok(Libraries::Static));
    }

    #[test]
    fn an_unknown_program_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let error = files("no-such-program", &cache, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("apt-get"), "{error}");
    }

    #[test]
    fn a_program_of_the_host_comes_with_its_loader() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let map = files("ls", &cache, &|_| {}).unwrap();
        assert!(map.contains_key(Path::new("bin/ls")));
        assert!(map.keys().any(|path| path.to_string_lossy().contains("ld-linux")), "{map:?}");
    }
}
