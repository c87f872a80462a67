//! `ballast lab listen`: starts an empty QEMU in a run, for a guest of another run.
//!
//! Idea: two runs stand for two hosts; a member of a fleet starts this program when a guest is
//! about to come (`[qemu] start` in `fleet.toml`).

use std::path::PathBuf;

use ballast_model::GuestId;
use ballast_report::print;

/// Start an empty QEMU in a run for a guest of another run.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  ballast lab listen b1 --run fleet-3-b

The new QEMU has the command line and the disks of the guest's present QEMU, and waits with
`-incoming defer -S`. In fleet.toml:
  start = [\"/usr/bin/ballast-lab\", \"lab\", \"listen\", \"{guest}\", \"--run\", \"fleet-3-b\"]")]
pub struct Args {
    /// The guest's name; exactly one other run has the guest
    guest: GuestId,
    /// Name of the run that the guest moves into
    #[arg(long, value_name = "NAME")]
    run: String,
    /// Folder of runs [default: this user's]
    #[arg(long, value_name = "FOLDER")]
    runs: Option<PathBuf>,
}

/// Starts the QEMU and prints where it listens.
///
/// # Errors
/// The errors of [`ballast_lab_host::listen`].
pub fn run(args: Args) -> anyhow::Result<()> {
    let base = args.runs.map_or_else(ballast_lab_host::runs_folder, Ok)?;
    let record = ballast_lab_host::listen(&base, &args.run, &args.guest)?;
    let pid = record.process.pid;
    print(&format!("guest {} can move into run {} (process {pid})\n", args.guest, args.run))
}
