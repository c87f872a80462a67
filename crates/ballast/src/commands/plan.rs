//! `ballast plan`: what the last tick did, or what the next one would do.

use ballast_api::{Client, PlanGuestView, PlanReply};
use ballast_model::Mechanism;
use comfy_table::CellAlignment::{Left, Right};

use super::Output;
use super::format::{self, UNKNOWN, size, size_or_unknown, span};
use super::source::Origin;

/// Show the latest plan, or what the next tick would do.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast plan
  ballast pause && ballast set --policy global && ballast plan --dry-run")]
pub struct Args {
    /// Show what the next tick would do from the latest observations; nothing is carried out
    #[arg(long, conflicts_with = "journal")]
    dry_run: bool,
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    output: Output,
}

/// Asks the daemon, or else the journal, and prints.
///
/// # Errors
/// Neither answers, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let dry_run = args.dry_run;
    let ask = async |client: Client| match dry_run {
        true => client.dry_run().await,
        false => client.plan().await,
    };
    let reply = args.origin.fetch(ask, |tick| Ok(PlanReply::latest(tick))).await?;
    args.output.print(&reply, render)
}

/// The plan for people, wrapped to `width` columns if given.
pub fn render(reply: &PlanReply, width: Option<u16>) -> String {
    let mut out = format::journal_warning(&reply.tick).unwrap_or_default();
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
    out.push_str(&format!("budget   {}\n", format::budget(&reply.budget)));
    out.push_str(&format::notes(&reply.notes));
    if !reply.guests.is_empty() {
        let columns = [
            ("GUEST", Left),
            ("ALLOCATION", Right),
            ("WANTED", Right),
            ("TARGET", Right),
            ("ACTION", Left),
            ("WHY", Left),
        ];
        out.push('\n');
        out.push_str(&format::table(&columns, reply.guests.iter().map(row), width));
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

fn row(guest: &PlanGuestView) -> Vec<String> {
    let wanted = guest.desired.as_ref();
    let why: Vec<&str> = wanted
        .map(|desired| desired.reason.text.as_str())
        .into_iter()
        .chain(guest.clamps.iter().map(|clamp| clamp.text.as_str()))
        .collect();
    vec![
        guest.guest.clone(),
        size_or_unknown(guest.allocation_bytes),
        wanted.map_or_else(|| UNKNOWN.to_owned(), |desired| size(desired.target_bytes)),
        guest.target_bytes.map_or_else(|| "none".to_owned(), size),
        guest.change.text.clone(),
        why.join("; "),
    ]
}
