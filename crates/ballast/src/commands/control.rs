//! `ballast mode`, `ballast pause` and `ballast resume`: whether plans are carried out.

use ballast_api::{ModeReply, SetMode};
use ballast_model::Mode;

use ballast_report::Output;

use super::{Connection, message};

/// How to reach the daemon, and how to print its answer.
#[derive(Clone, Debug, clap::Args)]
pub struct OrderArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// Show or set the mode: balance, or only observe.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast mode
  ballast mode observe && ballast status
  ballast mode balance
  ballast mode --json | jq -r .mode

In mode observe, Ballast observes, decides, records and reports, but moves no memory: guests keep
their targets. A mode that is set here survives restarts of the daemon and of the host; it holds
until `mode` in the configuration file changes.")]
pub struct ModeArgs {
    /// The mode to set; without it, print the mode in force
    #[arg(value_name = "balance|observe")]
    mode: Option<Mode>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// Prints the mode, or sets it and prints the daemon's answer.
///
/// # Errors
/// The daemon does not answer or refuses, or standard output cannot be written.
pub async fn mode(args: ModeArgs) -> anyhow::Result<()> {
    let client = args.connection.client()?;
    let Some(mode) = args.mode else {
        return args.output.print(&client.mode().await?, |reply, _| render_mode(reply));
    };
    let reply = client.set_mode(&SetMode { mode: mode.to_string() }).await?;
    args.output.print(&reply, message)
}

/// The mode as text.
pub(super) fn render_mode(reply: &ModeReply) -> String {
    let ModeReply { mode, configured, .. } = reply;
    match mode == configured {
        true => format!("{mode}, as configured\n"),
        false => format!("{mode}, set while the daemon ran; configured is {configured}\n"),
    }
}

/// Pauses the daemon and prints its answer.
///
/// # Errors
/// The daemon does not answer or refuses, or standard output cannot be written.
pub async fn pause(args: OrderArgs) -> anyhow::Result<()> {
    let reply = args.connection.client()?.pause().await?;
    args.output.print(&reply, message)
}

/// Resumes the daemon and prints its answer.
///
/// # Errors
/// The daemon does not answer or refuses, or standard output cannot be written.
pub async fn resume(args: OrderArgs) -> anyhow::Result<()> {
    let reply = args.connection.client()?.resume().await?;
    args.output.print(&reply, message)
}
