//! `ballast pause` and `ballast resume`: stop and restart acting.

use ballast_api::CommandReply;

use ballast_report::Output;

use super::Connection;

/// Stop acting: guests keep their targets; observing, deciding and recording go on.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  ballast pause && ballast plan --dry-run && ballast resume")]
pub struct PauseArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// Act again after `ballast pause`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  ballast resume")]
pub struct ResumeArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// Pauses the daemon and prints its answer.
///
/// # Errors
/// The daemon does not answer or refuses, or standard output cannot be written.
pub async fn pause(args: PauseArgs) -> anyhow::Result<()> {
    let reply = args.connection.client()?.pause().await?;
    args.output.print(&reply, render)
}

/// Resumes the daemon and prints its answer.
///
/// # Errors
/// The daemon does not answer or refuses, or standard output cannot be written.
pub async fn resume(args: ResumeArgs) -> anyhow::Result<()> {
    let reply = args.connection.client()?.resume().await?;
    args.output.print(&reply, render)
}

fn render(reply: &CommandReply, _width: Option<u16>) -> String {
    format!("{}\n", reply.message)
}
