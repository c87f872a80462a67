//! Real micro virtual machines under QEMU.
//!
//! Idea: a [`Run`] is a few guests that boot a Debian cloud kernel with one static program,
//! `lab-guest`, which runs workloads and reports every second. Nothing is installed on the host,
//! and nothing is left behind however a run ends. Begin with [`Run`].
//!
//! ```no_run
//! # fn main() -> Result<(), ballast_lab_host::LabError> {
//! use ballast_lab_host::{DiskSpec, GuestSpec, Run, RunOptions, Speed};
//! use ballast_model::Bytes;
//! let mut guest = GuestSpec::new("a".parse().expect("a name"), Bytes::gib(1));
//! guest.swap = Some(DiskSpec { size: Bytes::gib(1), speed: Speed::Ssd });
//! let options = RunOptions::new("demo".parse().expect("a name"), vec![guest]);
//! let run = Run::start(&options, &|line| eprintln!("{line}"))?;
//! println!("{}", run.guest("a")?.qmp_socket().display());
//! # Ok(())
//! # }
//! ```
//!
//! The program that starts a run must call [`reaper_main`] if its first argument is
//! [`REAPER_COMMAND`], and [`supervisor_main`] if it is [`SUPERVISOR_COMMAND`].
//!
//! Limits: x86-64 Linux hosts with Debian's apt. The lab does not balloon: others do, over the
//! guests' QMP sockets.

mod accel;
mod apt;
mod artifact;
mod cache;
mod channel;
mod console;
mod control;
mod cpu_limit;
mod debian;
mod disk;
mod error;
mod guest;
mod host_swap;
mod hotplug;
mod hypervisor;
mod initramfs;
mod intermittent;
mod kernel_choice;
mod libvirt;
mod libvirt_place;
mod listener;
mod modules;
mod nested;
mod postgresql;
mod process;
mod programs;
mod qemu;
mod reaper;
mod run;
mod run_folder;
mod scenario;
mod scenario_fleet;
mod scenario_guest;
mod scenario_settings;
mod scenario_variant;
mod spawn;
mod supervisor;
mod symptoms;
mod tool;
mod tracker;
mod truth;
mod xen_spec;
mod xl;

pub use accel::{Accel, AccelChoice};
pub use artifact::{Artifact, ArtifactMissing};
pub use cache::Cache;
pub use channel::{Event, ExecOutput, Subscription};
pub use console::write_console;
pub use control::{Answer, Request, ask};
pub use debian::Kernel;
pub use disk::{DiskSpec, Limits, Speed};
pub use error::LabError;
pub use guest::Guest;
pub use hotplug::{Hotplug, HotplugKind};
pub use initramfs::{AGENT, initramfs};
pub use intermittent::Intermittent;
pub use kernel_choice::{KernelChoice, Suite};
pub use libvirt::Manager;
pub use listener::listen;
pub use nested::{
    DOM0_MEMORY, NESTED_VARIABLE, Nested, NestedOptions, is_inside_xen, with_one_retry,
};
pub use process::ProcessId;
pub use qemu::{Balloon, GuestSpec};
pub use reaper::{Helper, REAPER_COMMAND, SUPERVISOR_COMMAND, reaper_main};
pub use run::{GUESTS_MAX, Run, RunOptions};
pub use run_folder::{GuestRecord, GuestState, RunFolder, runs_folder};
pub use scenario::{Host, Scenario};
pub use scenario_fleet::{ADVISE, FleetHost, MOVE, ScenarioFleet};
pub use scenario_guest::{ScenarioGuest, ScenarioWorkload};
pub use scenario_settings::{DemandSignal, Settings, Transfer};
pub use scenario_variant::{BEST, BY_HAND, Variant, VariantKind};
pub use supervisor::{GuestStatus, RunStatus, down, list_runs, supervisor_main, up};
pub use tracker::{TRACK_LIBRARY, is_tracking_permitted};
pub use truth::{Truth, TruthRow};
pub use xen_spec::XenSpec;
pub use xl::{domain_memory, xl};
