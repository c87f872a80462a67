//! `ballast plan`: the last tick's plan, or a dry run.

use ballast_api::{Client, PlanGuestView, PlanReply};
use ballast_model::Mechanism;

use ballast_report::format::{size, size_or_unknown, span};
use ballast_report::{Output, Report};

use super::source::Origin;
use super::tick;

/// Show the latest plan, or what Ballast would do now if it were balancing.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast plan
  ballast mode observe && ballast plan --dry-run
  ballast pause && ballast set --policy global && ballast plan --dry-run")]
pub struct Args {
    /// Make a plan from the latest observations, as if a decision were due, Ballast were not
    /// paused, and its mode were balance; nothing of it is carried out
    #[arg(long, conflicts_with = "journal")]
    dry_run: bool,
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    output: Output,
}

/// Prints the plan from the daemon, else from the journal.
///
/// # Errors
/// Neither is available, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let dry_run = args.dry_run;
    let ask = async |client: Client| match dry_run {
        true => client.dry_run().await,
        false => client.plan().await,
    };
    let reply = args.origin.fetch(ask, |tick| Ok(PlanReply::latest(tick))).await?;
    args.output.print(&reply, render)
}

/// The plan as text, wrapped to `width` columns if given.
pub fn render(reply: &PlanReply, width: Option<u16>) -> String {
    let mut out = tick::journal_warning(&reply.tick);
    let seen = span(reply.tick.age_ms);
    out.push_str(&match reply.dry_run {
        true => format!(
            "dry run  what policy {} would do next, from what was seen {seen} ago; nothing is \
             carried out\n",
            reply.policy
        ),
        false => {
            format!("plan     #{} by policy {}, {seen} ago\n", reply.generation, reply.policy)
        }
    });
    if !reply.dry_run {
        for (name, line) in tick::inactivity(&reply.tick) {
            out.push_str(&format!("{name:<9}{line}\n"));
        }
    }
    out.push_str(&format!("budget   {}\n", tick::budget(&reply.budget)));
    out.push_str(&tick::notes(&reply.notes));
    if !reply.guests.is_empty() {
        out.push('\n');
        out.push_str(&columns().table(&reply.guests, width));
    }
    out.push('\n');
    if reply.actions.is_empty() {
        out.push_str("nothing is to be done\n");
    }
    for (at, action) in reply.actions.iter().enumerate() {
        let (number, target) = (at + 1, size(action.target_bytes));
        let within = span(action.deadline_ms);
        let plugged = action.plug_bytes.map(|bytes| format!(", {} of it plugged in", size(bytes)));
        out.push_str(&format!(
            "{number}. set {} to {target}{}, to be begun within {within}\n",
            action.guest,
            plugged.unwrap_or_default()
        ));
    }
    for paging in &reply.paging {
        let (resident, guest) = (size(paging.resident_bytes), &paging.guest);
        let way = if paging.mechanism == Mechanism::PageIn.code() { "in" } else { "out" };
        out.push_str(&format!("   page {guest} {way} until {resident} are resident\n"));
    }
    out
}

fn columns() -> Report<'static, PlanGuestView> {
    Report::<PlanGuestView>::new()
        .text("GUEST", |it| it.guest.clone())
        .figure("ALLOCATION", |it| size_or_unknown(it.allocation_bytes))
        .figure("WANTED", |it| size_or_unknown(it.desired.as_ref().map(|it| it.target_bytes)))
        .figure("TARGET", |it| it.target_bytes.map_or_else(|| "none".to_owned(), size))
        .text("ACTION", |it| it.change.text.clone())
        .text("WHY", why)
}

/// The reasons for a guest's target: first the policy's, then the guard's.
fn why(guest: &PlanGuestView) -> String {
    let desired = guest.desired.iter().map(|desired| desired.reason.text.as_str());
    let clamps = guest.clamps.iter().map(|clamp| clamp.text.as_str());
    desired.chain(clamps).collect::<Vec<_>>().join("; ")
}
