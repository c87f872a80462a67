//! A run: a group of guests that starts and ends together.
//!
//! Idea: everything a run has started ends with it: through `Drop` in every ordinary case (success,
//! error, panic), through the kernel and the reaper if the process is killed or interrupted.
//! Limits: [`GUESTS_MAX`] guests; one process owns a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_lab_guest::workload::Program;
use ballast_model::{Bytes, GuestId};
use serde::{Deserialize, Serialize};

use crate::accel::{self, Accel, AccelChoice};
use crate::cpu_limit::{self, CpuController};
use crate::debian::Kernel;
use crate::disk;
use crate::guest::{Guest, GuestStart};
use crate::host_swap;
use crate::initramfs::initramfs;
use crate::libvirt::{self, Libvirtd, Manager};
use crate::nested;
use crate::postgresql;
use crate::reaper::{Helper, Reaper};
use crate::run_folder::{RunFolder, runs_folder};
use crate::spawn::Spawner;
use crate::xl;
use crate::{Cache, GuestSpec, KernelChoice, LabError};

/// Most guests in a run.
pub const GUESTS_MAX: usize = 64;
/// Boot timeout: a base, and the same again per guest, because emulated guests share the cores.
/// Several times the measured time.
const BOOT_PATIENCE: Duration = Duration::from_secs(60);
const BOOT_PATIENCE_PER_GUEST: Duration = Duration::from_secs(15);
/// Memory of the trial guest for KVM.
const TRIAL_MEMORY: Bytes = Bytes::mib(256);

/// The specification of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOptions {
    /// Its name, unique among this user's runs.
    pub name: GuestId,
    /// Its guests, each with a name of its own.
    pub guests: Vec<GuestSpec>,
    /// Their accelerator.
    #[serde(default)]
    pub accel: AccelChoice,
    /// The kernel they boot.
    #[serde(default)]
    pub kernel: KernelChoice,
    /// Whether each guest's processor time is limited to its share, once all are ready.
    #[serde(default = "yes")]
    pub limit_cpu: bool,
    /// Swap added to the host during the run, which needs root; `None`: none.
    pub host_swap: Option<Bytes>,
    /// Who starts the guests; the lab itself by default.
    #[serde(default)]
    pub manager: Manager,
    /// The folder of runs; `None`: this user's.
    pub runs_folder: Option<PathBuf>,
    /// The cache folder; `None`: this user's.
    pub cache_folder: Option<PathBuf>,
    /// The program with the hidden commands; this program by default.
    #[serde(skip)]
    pub helper: Helper,
}

fn yes() -> bool {
    true
}

impl RunOptions {
    /// A run with default settings.
    pub fn new(name: GuestId, guests: Vec<GuestSpec>) -> Self {
        RunOptions {
            name,
            guests,
            accel: AccelChoice::Auto,
            kernel: KernelChoice::Default,
            limit_cpu: true,
            host_swap: None,
            manager: Manager::Qemu,
            runs_folder: None,
            cache_folder: None,
            helper: Helper::default(),
        }
    }

    /// The folder of runs: the one that is given, or this user's.
    pub(crate) fn runs_folder(&self) -> Result<PathBuf, LabError> {
        self.runs_folder.clone().map_or_else(runs_folder, Ok)
    }

    /// Checks the specification.
    ///
    /// # Errors
    /// A message with the guest that is invalid or duplicate.
    pub fn validate(&self) -> Result<(), LabError> {
        if self.guests.is_empty() || self.guests.len() > GUESTS_MAX {
            return Err(LabError::Invalid(format!(
                "{} guests: expected 1 to {GUESTS_MAX}",
                self.guests.len()
            )));
        }
        if let Some(Err(why)) = self.host_swap.map(host_swap::validate) {
            return Err(LabError::Invalid(why));
        }
        let mut names = BTreeSet::new();
        for guest in &self.guests {
            guest.validate()?;
            match self.manager {
                Manager::Qemu => {}
                Manager::Libvirt => libvirt::validate(guest)?,
                Manager::Xen => xl::validate(guest)?,
            }
            if !names.insert(&guest.id) {
                return Err(LabError::Invalid(format!(
                    "guest {} is defined twice: give each guest a unique name",
                    guest.id
                )));
            }
        }
        Ok(())
    }
}

/// Running guests.
pub struct Run {
    // Dropped in this order after `Drop::drop` has ended the guests.
    guests: BTreeMap<GuestId, Guest>,
    folder: RunFolder,
    accel: Accel,
    reaper: Reaper,
    libvirtd: Option<Libvirtd>,
    spawner: Spawner,
}

impl Run {
    /// Starts the guests and waits until all are ready. `say` receives progress messages.
    ///
    /// # Errors
    /// When a requirement is missing or a guest does not become ready; then nothing is left behind.
    pub fn start(options: &RunOptions, say: &dyn Fn(&str)) -> Result<Run, LabError> {
        options.validate()?;
        options.host_swap.map_or(Ok(()), host_swap::ensure_permitted)?;
        let is_xen = options.manager == Manager::Xen;
        if is_xen && !nested::is_inside_xen() {
            return Err(LabError::Invalid(
                "guests under Xen are in an outer machine only: put `nested --xen` before `run` \
                 instead of `lab`"
                    .to_owned(),
            ));
        }
        let cache = match &options.cache_folder {
            Some(folder) => Cache::at(folder)?,
            None => Cache::open()?,
        };
        let base = options.runs_folder()?;
        for stale in RunFolder::clean_stale(&base) {
            say(&format!("removed the remains of run {stale}"));
        }
        let kernel = Kernel::fetch(&cache, &options.kernel, say)?;
        let archive = |guest: &GuestSpec| {
            // PostgreSQL is on the data disk.
            let in_archive = |name: &&String| *name != Program::Postgresql.packed();
            let with = guest.with.iter().filter(in_archive).cloned().collect();
            let more = if is_xen { &xl::MODULES } else { nested::modules(guest) };
            initramfs(&cache, &kernel, &with, guest.agent, more, say)
        };
        let archives: Vec<PathBuf> =
            options.guests.iter().map(archive).collect::<Result<_, _>>()?;
        // Created before the trial, which must not create cache entries.
        let bare = initramfs(&cache, &kernel, &BTreeSet::new(), false, &[], say)?;
        let has_postgresql = options.guests.iter().any(|guest| postgresql::is_in(&guest.with));
        let image = has_postgresql.then(|| postgresql::image(&cache, say)).transpose()?;
        let context = BootContext {
            cache: &cache,
            base: &base,
            kernel: &kernel,
            postgresql: image.as_deref(),
            accel: Accel::Tcg,
        };
        let trial = |accel, patience| {
            let name: GuestId = format!("kvm-trial-{}", std::process::id()).parse()?;
            let options = RunOptions {
                guests: vec![GuestSpec::new(name.clone(), TRIAL_MEMORY)],
                name,
                limit_cpu: false,
                host_swap: None,
                manager: Manager::Qemu,
                ..options.clone()
            };
            let archives = std::slice::from_ref(&bare);
            let context = BootContext { accel, ..context };
            boot(&context, &options, archives, patience, &|_| {}).map(drop)
        };
        let accel = match is_xen {
            true => Accel::Xen,
            false => accel::choose(options.accel, &cache, &kernel, say, &trial)?,
        };
        let count = u32::try_from(options.guests.len()).unwrap_or(u32::MAX);
        let patience = BOOT_PATIENCE + BOOT_PATIENCE_PER_GUEST * count;
        boot(&BootContext { accel, ..context }, options, &archives, patience, say)
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.folder.name()
    }

    /// Its folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// The accelerator of its guests.
    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// Its guests, by name.
    pub fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.guests.values()
    }

    /// The guest of that name.
    ///
    /// # Errors
    /// [`LabError::NoGuest`], which lists the run's guests.
    pub fn guest(&self, name: &str) -> Result<&Guest, LabError> {
        self.guests.values().find(|guest| guest.id().as_str() == name).ok_or_else(|| {
            let have: Vec<_> = self.guests.keys().map(GuestId::as_str).collect();
            LabError::NoGuest { run: self.name(), guest: name.to_owned(), have: have.join(", ") }
        })
    }

    /// The output of a command of `virsh`.
    ///
    /// # Errors
    /// It fails, or the run's guests are not libvirt's.
    pub fn virsh(&self, arguments: &[&str]) -> Result<String, LabError> {
        self.libvirtd.as_ref().ok_or_else(no_libvirt)?.virsh(arguments)
    }

    /// Kills the run's libvirtd, calls `meanwhile`, and starts libvirtd again; the guests keep
    /// running.
    ///
    /// # Errors
    /// libvirtd does not start, or the run's guests are not libvirt's.
    pub fn restart_libvirtd(&mut self, meanwhile: impl FnOnce(&Run)) -> Result<(), LabError> {
        drop(self.libvirtd.take().ok_or_else(no_libvirt)?);
        meanwhile(self);
        self.libvirtd = Some(Libvirtd::start(&self.folder, &self.spawner)?);
        Ok(())
    }

    /// Kills the guests; waiters get an error.
    pub(crate) fn end(&self) {
        self.folder.end();
    }

    /// Ends the run, as dropping it does.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.end();
        self.guests.clear();
        self.reaper.finish();
    }
}

fn no_libvirt() -> LabError {
    LabError::Invalid("the lab itself started these guests".to_owned())
}

/// What all guests of a run have in common.
#[derive(Clone, Copy)]
struct BootContext<'a> {
    cache: &'a Cache,
    base: &'a Path,
    kernel: &'a Kernel,
    /// The image with PostgreSQL, if a guest needs it.
    postgresql: Option<&'a Path>,
    accel: Accel,
}

/// Starts the guests of `options`, each with its archive, and waits for them up to `patience`.
fn boot(
    context: &BootContext<'_>,
    options: &RunOptions,
    archives: &[PathBuf],
    patience: Duration,
    say: &dyn Fn(&str),
) -> Result<Run, LabError> {
    let disks: Bytes = options.guests.iter().map(GuestSpec::disk_total).sum();
    let wanted = disks.saturating_add(options.host_swap.unwrap_or_default());
    disk::ensure_space(context.cache.root(), wanted)?;
    let folder = RunFolder::create(context.base, &options.name)?;
    let reaper = Reaper::start(&options.helper, &folder).inspect_err(|_| folder.end())?;
    // From here on, dropping `run` ends everything.
    let mut run = Run {
        guests: BTreeMap::new(),
        folder,
        accel: context.accel,
        reaper,
        libvirtd: None,
        spawner: Spawner::start(),
    };
    if options.manager == Manager::Libvirt {
        run.libvirtd = Some(Libvirtd::start(&run.folder, &run.spawner)?);
    }
    if options.manager == Manager::Xen {
        run.folder.record_xen()?;
    }
    if let Some(size) = options.host_swap {
        host_swap::turn_on(context.cache, &run.folder.name(), size, |path| {
            run.folder.record_host_swap(path)
        })?;
        say(&format!("added {size} of host swap for this run"));
    }
    let began = Instant::now();
    for (spec, archive) in options.guests.iter().zip(archives) {
        let start = GuestStart {
            cache: context.cache,
            kernel: &context.kernel.image,
            initramfs: archive,
            data_image: context.postgresql.filter(|_| postgresql::is_in(&spec.with)),
            accel: context.accel,
            folder: &run.folder,
            spawner: &run.spawner,
            libvirtd: run.libvirtd.as_ref(),
            is_xen: options.manager == Manager::Xen,
        };
        let guest = start.start(spec)?;
        run.guests.insert(spec.id.clone(), guest);
    }
    for guest in run.guests.values() {
        guest.wait_ready(began + patience)?;
        let seconds = began.elapsed().as_secs_f64();
        say(&format!("guest {} ready after {seconds:.1} s", guest.id()));
    }
    // A Xen domain has no process here that could be limited.
    if options.limit_cpu && options.manager != Manager::Xen {
        limit_cpu(&run, say)?;
    }
    Ok(run)
}

/// Limits every guest's processor time, or reports why not.
fn limit_cpu(run: &Run, say: &dyn Fn(&str)) -> Result<(), LabError> {
    let Some(controller) = CpuController::find() else {
        say("processor time is not limited: no cgroup with a cpu controller");
        return Ok(());
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = cpu_limit::share_of_cores(cores, run.guests.len());
    let name = |guest: &Guest| format!("ballast-lab-{}-{}", guest.pid(), guest.id());
    let paths: Vec<_> = run.guests().map(|guest| controller.path_of(&name(guest))).collect();
    // Recorded first, so that the groups are found whatever happens next.
    run.folder.record_cgroups(&paths)?;
    for guest in run.guests() {
        let limited = controller
            .create(&name(guest), share)
            .and_then(|group| group.add(guest.record().process.pid.unsigned_abs()));
        if let Err(error) = limited {
            say(&format!("processor time is not limited: {error}"));
            return Ok(());
        }
    }
    say(&format!("processor time limited to {share:.2} cores per guest"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(name: &str) -> GuestSpec {
        GuestSpec::new(name.parse().unwrap(), Bytes::mib(256))
    }

    fn refused(guests: Vec<GuestSpec>) -> String {
        let options = RunOptions::new("r".parse().unwrap(), guests);
        options.validate().unwrap_err().to_string()
    }

    #[test]
    fn guests_of_a_run_need_unique_names() {
        assert!(refused(vec![]).contains("expected 1 to"));
        assert!(
            refused(vec![guest("a"), guest("b"), guest("a")]).contains("guest a is defined twice")
        );
    }
}
