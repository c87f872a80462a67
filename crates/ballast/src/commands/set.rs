//! `ballast set`: change a guest's bounds or the policy while the daemon runs.

use ballast_api::{GuestChange, SetPolicy};
use ballast_model::{Bytes, GuestId, GuestLimits, PolicyName};
use clap::error::ErrorKind;

use ballast_report::Output;

use super::{Connection, message};

/// Change a guest's bounds, or the policy, while the daemon runs.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("bound").multiple(true)))]
#[command(after_help = "\
Examples:
  ballast set web-1 --floor 512MiB --ceiling 2GiB
  ballast set batch-7 --shares 250
  ballast set db --priority 10 --miss-rate-max 500
  ballast set db --managed=false
  ballast set web-1 --floor 512MiB --shares 2000 --persist
  ballast set web-1 --take-over
  ballast set web-1 --unset-ceiling
  ballast set --policy global

Changes last until the daemon restarts or reloads its configuration. With --persist they are also
written where the guest itself is defined (libvirt: the domain's metadata), and last there. What the
configuration file says of the guest takes precedence over what is written there.")]
pub struct Args {
    /// The guest's name, as in `ballast status`
    #[arg(value_name = "GUEST", required_unless_present = "policy", requires = "bound")]
    guest: Option<GuestId>,
    /// Guaranteed minimum, such as 512MiB
    #[arg(long, value_name = "SIZE", group = "bound", requires = "guest")]
    floor: Option<Bytes>,
    /// Largest allocation, such as 2GiB
    #[arg(long, value_name = "SIZE", group = "bound", requires = "guest")]
    ceiling: Option<Bytes>,
    /// Remove the ceiling that was set: the one of the configuration file or of the guest's own
    /// settings applies again
    #[arg(long, group = "bound", requires = "guest", conflicts_with = "ceiling")]
    unset_ceiling: bool,
    /// Weight in every division of memory, 1 to 1000000
    #[arg(
        long,
        value_name = "N",
        group = "bound",
        requires = "guest",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(GuestLimits::SHARES_MAX))
    )]
    shares: Option<u32>,
    /// Priority, 0 to 255; in a shortage, guests of lower priority give up memory first
    #[arg(long, value_name = "N", group = "bound", requires = "guest")]
    priority: Option<u8>,
    /// Most misses per second that policy meb allows the guest; 0 removes the objective
    #[arg(long, value_name = "N", group = "bound", requires = "guest")]
    miss_rate_max: Option<u64>,
    /// Whether Ballast may move the guest's memory at all
    #[arg(long, value_name = "true|false", group = "bound", requires = "guest")]
    managed: Option<bool>,
    /// Whether Ballast moves the guest's memory even if another program moves it too
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        group = "bound",
        requires = "guest"
    )]
    take_over: Option<bool>,
    /// Also write the change where the guest is defined, so that it moves with the guest
    #[arg(long, requires = "bound")]
    persist: bool,
    /// The policy to use, as in `ballast policy list`
    #[arg(long, value_name = "NAME", conflicts_with = "guest")]
    policy: Option<PolicyName>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// Sends the change to the daemon and prints its answer.
///
/// # Errors
/// The daemon does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if let (Some(floor), Some(ceiling)) = (args.floor, args.ceiling)
        && floor > ceiling
    {
        let text = format!("--floor {floor} is above --ceiling {ceiling}\n");
        return Err(clap::Error::raw(ErrorKind::ValueValidation, text).into());
    }
    let client = args.connection.client()?;
    let reply = match (&args.guest, args.policy) {
        (Some(guest), _) => {
            let change = GuestChange {
                floor: args.floor,
                ceiling: args.ceiling,
                ceiling_unset: args.unset_ceiling,
                shares: args.shares,
                priority: args.priority,
                miss_rate_max: args.miss_rate_max,
                managed: args.managed,
                take_over: args.take_over,
            };
            match args.persist {
                true => client.persist_guest(guest, &change).await?,
                false => client.set_guest(guest, &change).await?,
            }
        }
        (None, Some(policy)) => {
            client.set_policy(&SetPolicy { policy: policy.to_string() }).await?
        }
        (None, None) => {
            let text = "name a guest or a policy\n";
            return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, text).into());
        }
    };
    args.output.print(&reply, message)
}
