//! `ballast status`: host and guests at a glance.

use std::ops::RangeInclusive;
use std::time::Duration;

use ballast_api::{
    Client, DaemonView, FenceView, GuestView, HostView, ReservationView, StatusReply, TrackingView,
};
use ballast_model::{PressureLevel, Share};

use ballast_report::format::{UNKNOWN, size, size_or_unknown, span, wrapped};
use ballast_report::{Live, Output, Report};
use tokio::signal::unix::{SignalKind, signal};

use super::source::Origin;
use super::tick;

/// Show the host and every guest at a glance.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast status
  ballast status --watch 5
  ballast status --journal /var/lib/ballast/journal.db
  ballast status --json | jq '.guests[] | select(.change.code == \"hold\") | .guest'")]
pub struct Args {
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    output: Output,
    /// Repeat every SECONDS (2 if not given) until interrupted; with --json, print one object per
    /// line
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = seconds,
        conflicts_with = "journal"
    )]
    watch: Option<Duration>,
}

/// Range of the time between two requests, in seconds.
const WATCH_S: RangeInclusive<f64> = 0.1..=3600.0;

/// Parses the time between two requests.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|it| WATCH_S.contains(it));
    let wrong = || format!("expected seconds from {} to {}", WATCH_S.start(), WATCH_S.end());
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Prints the status from the daemon, else from the journal.
///
/// # Errors
/// Neither is available, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let reply = ask(&args).await?;
    let Some(interval) = args.watch else { return args.output.print(&reply, render) };
    // From here on signals are handled, so that the terminal is restored.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut live = Live::begin(args.output)?;
    live.show(&reply, render)?;
    loop {
        tokio::select! {
            _ = interrupted.recv() => return Ok(()),
            _ = terminated.recv() => return Ok(()),
            () = tokio::time::sleep(interval) => {}
        }
        // Every request connects again, so a restarted daemon is found.
        match ask(&args).await {
            Ok(reply) => live.show(&reply, render)?,
            Err(error) => live.show_trouble(&format!("{error:#}"))?,
        }
    }
}

async fn ask(args: &Args) -> anyhow::Result<StatusReply> {
    let ask = async |client: Client| client.status().await;
    args.origin.fetch(ask, |tick| Ok(StatusReply::from(tick))).await
}

/// Column to which continuation lines above the table are indented.
const INDENT: usize = 9;

/// The status as text, for a terminal of `width` columns if given: lines are wrapped, and columns
/// of the table that do not fit are left out, as the last line says.
pub fn render(reply: &StatusReply, width: Option<u16>) -> String {
    let mut out = tick::journal_warning(&reply.tick);
    out.push_str(&match &reply.daemon {
        Some(daemon) => daemon_lines(reply, daemon),
        None => format!("plan     #{} by policy {}\n", reply.tick.generation, reply.tick.policy),
    });
    let inactivity = tick::inactivity(&reply.tick);
    for (name, line) in &inactivity {
        out.push_str(&format!("{name:<9}{line}\n"));
    }
    out.push_str(&format!("host     {}\n", host(&reply.host)));
    out.push_str(&format!("budget   {}\n", tick::budget(&reply.budget)));
    for reservation in &reply.reservations {
        out.push_str(&format!("reserved {}\n", reserved(reservation)));
    }
    if reply.host_pressure.code != PressureLevel::Normal.code() {
        out.push_str(&format!("short    {}\n", reply.host_pressure.text));
    }
    out.push_str(&tick::notes(&reply.notes));
    if reply.guests.is_empty() {
        out.push_str("\nno guest was found: `ballast doctor host` says where Ballast looks\n");
        return wrapped(&out, width, INDENT);
    }
    // The column would be empty if no guest is tracked.
    let is_followed = |view: &TrackingView| view.state.code != "absent";
    let any_followed =
        reply.guests.iter().filter_map(|guest| guest.tracking.as_ref()).any(is_followed);
    out.push('\n');
    let any_fenced = reply.guests.iter().any(|guest| guest.fence.is_some());
    // What the policy wants is shown only if plans are not carried out; else it soon is the target.
    let is_inactive = !inactivity.is_empty();
    let columns = columns(is_inactive, any_followed, any_fenced);
    let (table, left_out) = columns.fitted(&reply.guests, width);
    out = wrapped(&out, width, INDENT) + &table;
    if !left_out.is_empty() {
        let left_out = format!("no room for {} (--json has all)\n", left_out.join(", "));
        out.push_str(&wrapped(&left_out, width, 2));
    }
    out
}

fn columns(is_inactive: bool, any_followed: bool, any_fenced: bool) -> Report<'static, GuestView> {
    fn known(figure: Option<impl ToString>) -> String {
        figure.map_or_else(|| UNKNOWN.to_owned(), |figure| figure.to_string())
    }
    let columns = Report::<GuestView>::new()
        .text("GUEST", |it| it.guest.clone())
        .text("STATE", |it| it.state.code.clone())
        .lesser(1)
        .figure("ALLOCATION", |it| size_or_unknown(it.allocation_bytes));
    let columns = match is_inactive {
        true => columns.figure("WANTED", |it| size_or_unknown(it.wanted_bytes)),
        false => columns,
    };
    let columns = columns
        .figure("TARGET", |it| it.target_bytes.map_or_else(|| "none".to_owned(), size))
        .lesser(2)
        .figure("USED", |it| size_or_unknown(it.used_bytes))
        .lesser(3)
        .figure("DEMAND", demand)
        .lesser(5)
        .figure("FLOOR", |it| size_or_unknown(it.floor_bytes))
        .lesser(4)
        .figure("CEILING", |it| size_or_unknown(it.ceiling_bytes))
        .lesser(7)
        .figure("SHARES", |it| known(it.shares))
        .lesser(9)
        .figure("PRIORITY", |it| known(it.priority))
        .lesser(10)
        .figure("STATS AGE", |it| it.stats_age_ms.map_or_else(|| "none".to_owned(), span))
        .lesser(8);
    let columns = match any_followed {
        true => columns.text("TRACKED", |it| tracked(it.tracking.as_ref())).lesser(6),
        false => columns,
    };
    let columns = match any_fenced {
        true => columns.text("FENCE", |it| fenced(it.fence.as_ref())).lesser(6),
        false => columns,
    };
    columns.text("DOING", doing)
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
    for file in &daemon.journal_aside {
        out.push_str(&format!("journal  begun anew; the old file could not be used: {file}\n"));
    }
    if daemon.guests_refused > 0 {
        out.push_str(&format!(
            "guests   {} are left out: raise the daemon's limit of open files (systemd: \
             LimitNOFILE=)\n",
            daemon.guests_refused
        ));
    }
    if let Some(error) = &daemon.page_error {
        out.push_str(&format!("page     not on its port: {error}\n"));
    }
    if let Some(trouble) = &daemon.api_trouble {
        let times = daemon.api_restarts;
        out.push_str(&format!(
            "api      failed, and was started again ({times} in all): {trouble}\n"
        ));
    }
    if let Some(trouble) = &daemon.metrics_trouble {
        out.push_str(&format!("metrics  {trouble}\n"));
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
    if let Some(ksm) = host.ksm.as_ref().filter(|ksm| ksm.running || ksm.saved_bytes > 0) {
        out.push_str(&format!(", KSM saves {}", size(ksm.saved_bytes)));
    }
    out
}

fn reserved(reservation: &ReservationView) -> String {
    let ReservationView { guest, size_bytes, free_bytes, ends_in_ms } = reservation;
    let free = match free_bytes >= size_bytes {
        true => "all of it free".to_owned(),
        false => format!("{} of it free yet", size(*free_bytes)),
    };
    format!("{} for `{guest}`, {free}, for {} more at most", size(*size_bytes), span(*ends_in_ms))
}

fn percent(basis_points: u32) -> String {
    format!("{}.{:02}%", basis_points / 100, basis_points % 100)
}

/// The demand of a guest and the confidence in it.
fn demand(guest: &GuestView) -> String {
    match (guest.demand_bytes, guest.demand_confidence_percent) {
        (Some(bytes), Some(percent)) => format!("{} {percent:>3}%", size(bytes)),
        (bytes, _) => size_or_unknown(bytes),
    }
}

/// The state and cost of tracking.
fn tracked(tracking: Option<&TrackingView>) -> String {
    let Some(tracking) = tracking else { return "no".to_owned() };
    let share = |millionths: u32| Share::from_millionths(millionths);
    let mut parts: Vec<String> = tracking.working_set_bytes.map(size).into_iter().collect();
    match tracking.state.code.as_str() {
        "absent" => parts.push("no".to_owned()),
        "watching" => {}
        code @ ("sampling" | "aging") => {
            let by = if code == "aging" { "by MGLRU" } else { "by DAMON" };
            let is_bound = tracking.source.as_ref().is_some_and(|it| it.code.ends_with("-huge"));
            parts.push(if is_bound { format!("at most, {by}") } else { by.to_owned() });
        }
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

/// The fence's limit, and whether something is wrong; `ballast explain` says what.
fn fenced(fence: Option<&FenceView>) -> String {
    let Some(fence) = fence else { return "no".to_owned() };
    let limit = fence.limit_bytes.map_or_else(|| "none".to_owned(), size);
    match fence.trouble {
        Some(_) => format!("{limit}, failing"),
        None => limit,
    }
}

/// Regret is shown from this many basis points on; smaller values are normal.
const REGRET_SHOWN_MIN: u64 = 1_000;

fn doing(guest: &GuestView) -> String {
    let Some(change) = &guest.change else { return UNKNOWN.to_owned() };
    let is_stuck = change.why.as_ref().is_some_and(|why| why.code == "stuck");
    let mut text = change.text.clone();
    if let Some(compliance) = &guest.compliance
        && compliance.code != "compliant"
        && !is_stuck
    {
        text.push_str(&format!("; {}", compliance.text));
    }
    if let Some(regret) = guest.regret.filter(|regret| regret.basis_points >= REGRET_SHOWN_MIN) {
        text.push_str(&format!("; read back {} % of what was taken", regret.basis_points / 100));
    }
    text
}
