//! Debian packages, unpacked into the cache without installing them.
//!
//! Idea: guests run Debian's own kernel and programs; `apt-get download` and `dpkg -x` unpack them
//! into the cache without root and without changing the host. The kernel may come from another
//! suite than the host's ([`KernelChoice`]).
//! Limits: maintainer scripts do not run, so alternatives and configuration are missing. A cached
//! kernel is never updated.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::Apt;
use crate::{Cache, KernelChoice, LabError, tool};

/// The package that always depends on the newest cloud kernel.
const CLOUD_METAPACKAGE: &str = "linux-image-cloud-amd64";
/// The metapackage of the newest kernel for physical machines, which can also run as Xen's dom0.
const MACHINE_METAPACKAGE: &str = "linux-image-amd64";
/// Prefix of the names of kernel packages, before their versions.
const IMAGE_PREFIX: &str = "linux-image-";
/// Subfolder for apt's lists of another suite while its kernel is fetched.
const LISTS_FOLDER: &str = "apt";

/// A Debian kernel, unpacked in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its version, such as `6.1.0-56-cloud-amd64`.
    pub version: String,
    /// The compressed kernel that QEMU boots.
    pub image: PathBuf,
    /// The folder of its modules, with `modules.dep`.
    pub modules: PathBuf,
}

impl Kernel {
    /// Returns the cached kernel, fetching it first if needed (about 30 MB; 70 MB for the kernel
    /// for physical machines). `say` gets a line before each slow step.
    ///
    /// # Errors
    /// When apt, dpkg or kmod is missing, or the package cannot be fetched.
    pub fn fetch(
        cache: &Cache,
        choice: &KernelChoice,
        say: &dyn Fn(&str),
    ) -> Result<Kernel, LabError> {
        let folder = match choice {
            KernelChoice::Default => of_host(cache, "kernel", CLOUD_METAPACKAGE, say)?,
            KernelChoice::Dom0 => of_host(cache, "kernel-of-dom0", MACHINE_METAPACKAGE, say)?,
            KernelChoice::Suite(suite) => {
                cache.entry(&format!("kernel-of-suite/{}", suite.as_str()), |folder| {
                    let lists = folder.join(LISTS_FOLDER);
                    say(&format!("looking up the kernel of {}", suite.as_str()));
                    let apt = Apt::of_suite(suite, &lists)?;
                    let package = newest_kernel_package(&apt, CLOUD_METAPACKAGE)?;
                    unpack_kernel(&apt, &package, folder, say)?;
                    fs::remove_dir_all(&lists).map_err(LabError::io("remove", &lists))
                })?
            }
        };
        Kernel::in_folder(&folder)
    }

    /// The kernel unpacked in `folder`.
    fn in_folder(folder: &Path) -> Result<Kernel, LabError> {
        let incomplete = |what: &str| LabError::KernelIncomplete {
            folder: folder.to_owned(),
            what: what.to_owned(),
        };
        let modules = folder.join("lib/modules");
        let version = fs::read_dir(&modules)
            .map_err(LabError::io("read", &modules))?
            .flatten()
            .next()
            .and_then(|entry| entry.file_name().into_string().ok())
            .ok_or_else(|| incomplete("lib/modules"))?;
        let modules = modules.join(&version);
        // In newer packages a script copies it to `/boot`.
        let images =
            [folder.join("boot").join(format!("vmlinuz-{version}")), modules.join("vmlinuz")];
        let image = images.into_iter().find(|image| image.is_file());
        let kernel =
            Kernel { image: image.ok_or_else(|| incomplete("boot/vmlinuz"))?, modules, version };
        if !kernel.modules.join("modules.dep").is_file() {
            return Err(incomplete("modules.dep"));
        }
        Ok(kernel)
    }
}

/// The folder of the newest kernel of the host's sources in the cache's `group`; if there is none,
/// of the kernel that `metapackage` depends on.
fn of_host(
    cache: &Cache,
    group: &str,
    metapackage: &str,
    say: &dyn Fn(&str),
) -> Result<PathBuf, LabError> {
    if let Some(folder) = cache.entries(group).into_iter().next() {
        return Ok(folder);
    }
    let apt = Apt::of_host();
    let package = newest_kernel_package(&apt, metapackage)?;
    cache.entry(&format!("{group}/{package}"), |folder| unpack_kernel(&apt, &package, folder, say))
}

/// The versioned package that `metapackage` depends on.
fn newest_kernel_package(apt: &Apt, metapackage: &str) -> Result<String, LabError> {
    let text = apt.run("apt-cache", &["depends", metapackage], Path::new("/"))?;
    parse_depends(&text).ok_or_else(|| {
        let command = format!("apt-cache depends {metapackage}");
        apt.unexpected_output(&command, "no dependency on a kernel", text)
    })
}

fn parse_depends(text: &str) -> Option<String> {
    depends(text).find(|package| package.starts_with(IMAGE_PREFIX)).map(str::to_owned)
}

/// The dependencies in the output of `apt-cache depends`.
fn depends(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "))
}

/// The kernel's dependencies of the same version, from `text`: newer Debian releases have image and
/// modules in separate packages.
fn parts(text: &str, version: &str) -> Vec<String> {
    let end = format!("-{version}");
    depends(text).filter(|package| package.ends_with(&end)).map(str::to_owned).collect()
}

/// Fetches the kernel `package` and prepares it in `folder`.
fn unpack_kernel(
    apt: &Apt,
    package: &str,
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<(), LabError> {
    say(&format!("fetching {package}"));
    let version = package.trim_start_matches(IMAGE_PREFIX);
    let text = apt.run("apt-cache", &["depends", package], Path::new("/"))?;
    let mut packages = parts(&text, version);
    packages.push(package.to_owned());
    unpack(apt, &packages, folder)?;
    // Newer packages rely on `/lib` being a link into `/usr`.
    let lib = folder.join("lib");
    if !lib.exists() {
        symlink("usr/lib", &lib).map_err(LabError::io("create", &lib))?;
    }
    let depmod = tool::require("depmod", "kmod")?;
    tool::run(
        Command::new(depmod).arg("-b").arg(folder).arg(version),
        "the kernel package may be damaged: try again",
    )?;
    Kernel::in_folder(folder).map(drop)
}

/// Downloads `packages` from the host's sources and unpacks them into `folder`.
///
/// # Errors
/// When apt or dpkg is missing or fails.
pub(crate) fn unpack_packages(packages: &[String], folder: &Path) -> Result<(), LabError> {
    unpack(&Apt::of_host(), packages, folder)
}

fn unpack(apt: &Apt, packages: &[String], folder: &Path) -> Result<(), LabError> {
    let dpkg = tool::require("dpkg", "dpkg")?;
    let archives = tempfile::tempdir().map_err(LabError::io("create", std::env::temp_dir()))?;
    let arguments: Vec<&str> =
        std::iter::once("download").chain(packages.iter().map(String::as_str)).collect();
    apt.run("apt-get", &arguments, archives.path())?;
    let listing =
        fs::read_dir(archives.path()).map_err(LabError::io("read", archives.path()))?.flatten();
    for archive in listing {
        tool::run(
            Command::new(&dpkg).arg("-x").arg(archive.path()).arg(folder),
            "the package may be damaged or the disk full: free some space and try again",
        )?;
    }
    Ok(())
}

/// The packages that installing `package` would add to this host, including itself.
///
/// # Errors
/// When apt is missing or does not know the package.
pub(crate) fn missing_packages(package: &str) -> Result<Vec<String>, LabError> {
    let arguments = ["install", "--simulate", "--no-install-recommends", package];
    let text = Apt::of_host().run("apt-get", &arguments, Path::new("/"))?;
    let mut packages = parse_simulation(&text);
    if !packages.iter().any(|name| name == package) {
        packages.push(package.to_owned());
    }
    Ok(packages)
}

fn parse_simulation(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versioned_kernel_package_is_found_among_dependencies() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(parse_depends(text).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(parse_depends("linux-image-cloud-amd64\n  Depends: other\n"), None);
    }

    #[test]
    fn kernel_parts_are_packages_of_its_version() {
        let text = "linux-image-7.2-amd64\n |Depends: dracut\n  Depends: linux-base\n  \
                    Depends: linux-binary-7.2-amd64\n  Depends: linux-modules-7.2-amd64\n  \
                    Suggests: linux-doc-7.2-amd64\n";
        assert_eq!(parts(text, "7.2-amd64"), ["linux-binary-7.2-amd64", "linux-modules-7.2-amd64"]);
        assert_eq!(parts("linux-image-6.1-amd64\n  Depends: kmod\n", "6.1-amd64"), [""; 0]);
    }

    #[test]
    fn simulated_installation_lists_missing_packages() {
        let text = "Reading package lists...\nInst liblzf1 (3.6-3 Debian:12 [amd64])\n\
                    Inst redis-tools (5:7.0.15 Debian:12 [amd64])\nConf liblzf1 (3.6-3)\n";
        assert_eq!(parse_simulation(text), ["liblzf1", "redis-tools"]);
    }

    #[test]
    fn kernel_without_image_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("lib/modules/6.1")).unwrap();
        let error = Kernel::in_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("boot/vmlinuz") && error.contains("remove the folder"), "{error}");
    }
}
