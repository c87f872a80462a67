//! `ballast status`: host and guests at a glance.

use ballast_api::{Client, DaemonView, GuestView, HostView, StatusReply, TrackingView};
use ballast_model::{Rung, Share};
use comfy_table::CellAlignment::{Left, Right};

use super::Output;
use super::format::{self, UNKNOWN, size, size_or_unknown, span};
use super::source::Origin;

/// Show the host and every guest at a glance.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast status
  ballast status --journal /var/lib/ballast/journal.db
  ballast status --json | jq '.guests[] | select(.change.code == \"hold\") | .guest'")]
pub struct Args {
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
    let ask = async |client: Client| client.status().await;
    let reply = args.origin.fetch(ask, |tick| Ok(StatusReply::from(tick))).await?;
    args.output.print(&reply, render)
}

/// The status for people, wrapped to `width` columns if given.
pub fn render(reply: &StatusReply, width: Option<u16>) -> String {
    let mut out = format::journal_warning(&reply.tick).unwrap_or_default();
    out.push_str(&match &reply.daemon {
        Some(daemon) => daemon_lines(reply, daemon),
        None => format!("plan     #{} by policy {}\n", reply.tick.generation, reply.tick.policy),
    });
    if reply.tick.paused {
        out.push_str("paused   nothing is acted on: `ballast resume` acts again\n");
    }
    out.push_str(&format!("host     {}\n", host(&reply.host)));
    out.push_str(&format!("budget   {}\n", format::budget(&reply.budget)));
    if reply.rung.code != Rung::Normal.code() {
        out.push_str(&format!("short    {}\n", reply.rung.text));
    }
    out.push_str(&format::notes(&reply.notes));
    if reply.guests.is_empty() {
        out.push_str("\nno guest was found: is the folder of their sockets configured?\n");
        return out;
    }
    let mut columns = vec![
        ("GUEST", Left),
        ("STATE", Left),
        ("ALLOCATION", Right),
        ("TARGET", Right),
        ("USED", Right),
        ("DEMAND", Right),
        ("FLOOR–CEILING", Left),
        ("SHARES", Right),
        ("PRIORITY", Right),
        ("STATS AGE", Right),
        ("DOING", Left),
    ];
    // Where no hypervisor has a tracker in it, there is nothing to tell.
    let is_followed = |view: &TrackingView| view.state.code != "absent";
    let any_followed =
        reply.guests.iter().filter_map(|guest| guest.tracking.as_ref()).any(is_followed);
    let mut rows: Vec<Vec<String>> = reply.guests.iter().map(row).collect();
    if any_followed {
        let place = columns.len() - 1;
        columns.insert(place, ("TRACKED", Left));
        for (row, guest) in rows.iter_mut().zip(&reply.guests) {
            row.insert(place, tracked(guest.tracking.as_ref()));
        }
    }
    out.push('\n');
    out.push_str(&format::table(&columns, rows, width));
    out
}

fn daemon_lines(reply: &StatusReply, daemon: &DaemonView) -> String {
    let up = reply.tick.seen_at_unix_ms.saturating_add(reply.tick.age_ms);
    let mut out = format!(
        "daemon   version {}, policy {}, up {}, tick every {}, last one {} ago (plan #{}, decided in \
         {})\n",
        daemon.version,
        daemon.policy,
        span(up.saturating_sub(daemon.started_at_unix_ms)),
        span(daemon.tick_ms),
        span(reply.tick.age_ms),
        reply.tick.generation,
        micros(reply.tick.decision_us),
    );
    if daemon.plans_refused > 0 {
        out.push_str(&format!(
            "refused  {} of {} plans were refused by the checker\n",
            daemon.plans_refused, daemon.ticks
        ));
    }
    if let Some(fairness) = &daemon.fairness {
        out.push_str(&format!(
            "fairness {} (Jain's index of what guests have of their entitlement), {} over the last {} \
             decisions\n",
            percent(fairness.latest_basis_points),
            percent(fairness.mean_basis_points),
            fairness.decisions
        ));
    }
    if let Some(error) = &daemon.reload_error {
        out.push_str(&format!("reload   refused, the last good configuration stays: {error}\n"));
    }
    if let Some(error) = &daemon.journal_error {
        out.push_str(&format!("journal  does not record: {error}\n"));
    }
    out
}

fn micros(us: u64) -> String {
    if us < 1000 { format!("{us}us") } else { format!("{}.{}ms", us / 1000, us % 1000 / 100) }
}

fn host(host: &HostView) -> String {
    let mut out = format!(
        "{} in all, {} available",
        size_or_unknown(host.memory_total_bytes),
        size_or_unknown(host.memory_available_bytes)
    );
    if let (Some(free), Some(total)) = (host.swap_free_bytes, host.swap_total_bytes) {
        out.push_str(&match total {
            0 => ", no swap".to_owned(),
            _ => format!(", {} of {} swap free", size(free), size(total)),
        });
    }
    let percent = |points: Option<u32>| points.map_or_else(|| UNKNOWN.to_owned(), percent);
    out.push_str(&format!(
        ", memory pressure some {} full {}",
        percent(host.pressure_some_basis_points),
        percent(host.pressure_full_basis_points)
    ));
    out
}

fn percent(basis_points: u32) -> String {
    format!("{}.{:02}%", basis_points / 100, basis_points % 100)
}

fn row(guest: &GuestView) -> Vec<String> {
    let bounds = match (guest.floor_bytes, guest.ceiling_bytes) {
        (Some(floor), Some(ceiling)) => format!("{}–{}", size(floor), size(ceiling)),
        _ => UNKNOWN.to_owned(),
    };
    vec![
        guest.guest.clone(),
        guest.state.code.clone(),
        size_or_unknown(guest.allocation_bytes),
        guest.target_bytes.map_or_else(|| "none".to_owned(), size),
        size_or_unknown(guest.used_bytes),
        size_or_unknown(guest.demand_bytes),
        bounds,
        guest.shares.map_or_else(|| UNKNOWN.to_owned(), |shares| shares.to_string()),
        guest.priority.map_or_else(|| UNKNOWN.to_owned(), |priority| priority.to_string()),
        guest.stats_age_ms.map_or_else(|| "none".to_owned(), span),
        doing(guest),
    ]
}

/// The working set and what it costs to know it.
fn tracked(tracking: Option<&TrackingView>) -> String {
    let Some(tracking) = tracking else { return "no".to_owned() };
    let share = |millionths: u32| Share::from_millionths(millionths);
    let mut parts: Vec<String> = tracking.working_set_bytes.map(size).into_iter().collect();
    match tracking.state.code.as_str() {
        "absent" => parts.push("no".to_owned()),
        "watching" => {}
        code => parts.push(code.to_owned()),
    }
    if let Some(watched) = tracking.watched_millionths {
        parts.push(format!("{} of pages", share(watched)));
    }
    if let Some(cost) = tracking.cost_millionths {
        parts.push(format!("{} of a core", share(cost)));
    }
    parts.join(", ")
}

/// From this part on what a guest read back of what was taken is told, in hundredths of a percent: less is usual.
const REGRET_TOLD: u64 = 1_000;

fn doing(guest: &GuestView) -> String {
    let Some(change) = &guest.change else { return UNKNOWN.to_owned() };
    let told = change.why.as_ref().is_some_and(|why| why.code == "stuck");
    let mut text = change.text.clone();
    if let Some(compliance) = &guest.compliance
        && compliance.code != "compliant"
        && !told
    {
        text.push_str(&format!("; {}", compliance.text));
    }
    if let Some(regret) = guest.regret.filter(|regret| regret.basis_points >= REGRET_TOLD) {
        text.push_str(&format!("; read back {} % of what was taken", regret.basis_points / 100));
    }
    text
}
