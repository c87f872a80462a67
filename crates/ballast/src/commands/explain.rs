//! `ballast explain GUEST`: the chain from observation to action, one step per line.

use anyhow::anyhow;
use ballast_api::{
    AgentView, Client, ComplianceView, CurveView, EstimateView, ExplainReply, FenceView,
    InputsView, LimitsView, OutcomeView, RegretView, RoomView, SourcesView, StatsView, Tick,
    TickView, TrackingView,
};
use ballast_model::{GuestId, Share};

use ballast_toml_strict::nearest;

use ballast_report::Output;
use ballast_report::format::{size, size_or_unknown, span};

use super::source::Origin;
use super::tick;

/// Explain why a guest has the memory it has: every step of the last decision.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast explain web-1
  ballast explain web-1 --journal /var/lib/ballast/journal.db
  ballast explain web-1 --json | jq .clamps")]
pub struct Args {
    /// The guest's name, as in `ballast status`
    #[arg(value_name = "GUEST")]
    guest: GuestId,
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    output: Output,
}

/// Prints the explanation from the daemon, else from the journal.
///
/// # Errors
/// Neither is available, there is no such guest, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let guest = &args.guest;
    let ask = async |client: Client| client.explain(guest).await;
    let view = |tick: &Tick<'_>| ExplainReply::new(tick, guest).ok_or_else(|| unknown(tick, guest));
    let reply = args.origin.fetch(ask, view).await?;
    args.output.print(&reply, |reply, _| render(reply))
}

fn unknown(tick: &Tick<'_>, guest: &GuestId) -> anyhow::Error {
    let known = tick.snapshot.guests().iter().map(|sample| sample.id.as_str());
    match nearest(guest.as_str(), known) {
        Some(near) => anyhow!("there is no guest `{guest}`; the nearest is `{near}`"),
        None => anyhow!("there is no guest `{guest}`"),
    }
}

/// The explanation as text, below a warning if it comes from a journal.
pub fn render(reply: &ExplainReply) -> String {
    tick::journal_warning(&reply.tick) + &chain(reply)
}

/// The explanation as text, one step a line.
pub(super) fn chain(reply: &ExplainReply) -> String {
    let mut out = String::new();
    let mut step = |name: &str, text: String| out.push_str(&format!("{name:<11}{text}\n"));
    step("guest", reply.guest.clone());
    let TickView { generation, policy, age_ms, .. } = &reply.tick;
    let decision = format!("plan #{generation} by policy {policy}, {} ago", span(*age_ms));
    step("decision", decision);
    for (name, line) in tick::inactivity(&reply.tick) {
        step(name, line);
    }
    for note in &reply.notes {
        step("note", note.text.clone());
    }
    step("state", state(&reply.inputs));
    step("memory", memory(&reply.inputs));
    step("statistics", reply.inputs.stats.as_ref().map_or_else(|| "none".to_owned(), statistics));
    for (name, text) in reply.inputs.tracking.iter().flat_map(tracking) {
        step(name, text);
    }
    for (name, text) in reply.inputs.fence.iter().flat_map(fence) {
        step(name, text);
    }
    for RoomView { by, limit_bytes, left_bytes } in &reply.inputs.rooms {
        step("room", format!("{} left of {} by {by}", size(*left_bytes), size(*limit_bytes)));
    }
    if let Some(view) = &reply.inputs.agent {
        step("agent", agent(view));
    }
    step("bounds", bounds(&reply.limits));
    step("budget", tick::budget(&reply.budget));
    step(
        "estimate",
        match &reply.estimate {
            Some(estimate) => format!(
                "uses {}, could give back {} without swapping{}{} ({})",
                size(estimate.used_bytes),
                size(estimate.available_bytes),
                needed(estimate.swap_need_bytes, "that it swapped out"),
                needed(estimate.cache_need_bytes, "of page cache"),
                estimate.provenance
            ),
            None => "none: there is nothing to estimate from".to_owned(),
        },
    );
    if let Some(estimate) = &reply.estimate {
        for (name, text) in need(estimate, reply.limits.miss_rate_max_per_s) {
            step(name, text);
        }
    }
    step(
        "policy",
        match &reply.desired {
            Some(desired) => {
                format!("wants {}: {}", size(desired.target_bytes), desired.reason.text)
            }
            None => "was not asked about it".to_owned(),
        },
    );
    if reply.clamps.is_empty() {
        let nothing = match reply.desired {
            None => "has nothing to change",
            Some(_) => "changes nothing about that",
        };
        step("guard", nothing.to_owned());
    }
    for clamp in &reply.clamps {
        step("guard", clamp.text.clone());
    }
    if let Some(compliance) = &reply.compliance {
        step("compliance", compliance_text(compliance));
    }
    step("action", reply.change.as_ref().map_or_else(|| "none".to_owned(), |c| c.text.clone()));
    for moved in &reply.moves {
        step("mechanism", moved.text.clone());
    }
    if let Some(regret) = &reply.regret {
        step("regret", regret_text(regret));
    }
    step("target", reply.target_bytes.map_or_else(|| "none so far".to_owned(), size));
    step("outcome", reply.outcome.as_ref().map_or_else(|| "none so far".to_owned(), outcome));
    out
}

/// A guest's demand, its source, and the cost of more or less memory.
fn need(estimate: &EstimateView, objective: Option<u64>) -> Vec<(&'static str, String)> {
    let demand = &estimate.demand;
    let (source, age) = (&demand.source.text, span(demand.age_ms));
    let text = format!(
        "{}, from {source} {age} old, confidence {}%",
        size(demand.size_bytes),
        demand.confidence_percent
    );
    let mut lines = vec![("demand", text)];
    lines.extend(estimate.passed_over.iter().map(|other| {
        let (bytes, age) = (size(other.size_bytes), span(other.age_ms));
        ("", format!("not {} ({bytes}, {age} old): {}", other.source.text, other.why.text))
    }));
    match &estimate.curve {
        None => lines.push(("misses", "not known by size".to_owned())),
        Some(curve) if curve.points.is_empty() => {
            lines.push(("misses", "known by size, but not what it holds".to_owned()));
        }
        Some(curve) => lines.extend(misses(curve)),
    }
    if let (Some(most), Some(curve)) = (objective, &estimate.curve) {
        let kept = match curve.objective_bytes {
            Some(bytes) => format!("at most {most} misses/s need {}", size(bytes)),
            None => format!("at most {most} misses/s: no size in sight keeps that"),
        };
        lines.push(("objective", kept));
    }
    lines
}

/// A small table of the miss curve, with one column per share of the allocation.
fn misses(curve: &CurveView) -> [(&'static str, String); 3] {
    let columns = curve.points.iter().map(|point| {
        let percent = format!("{}%", point.percent);
        [percent, size(point.memory_bytes), point.misses_per_s.to_string()]
    });
    let mut lines = ["of allocation", "size", "misses a second"].map(|name| format!("{name:<15}"));
    for column in columns {
        let width = column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(column) {
            line.push_str(&format!("  {cell:>width$}"));
        }
    }
    let [percents, sizes, misses] = lines;
    [("misses", percents), ("", sizes), ("", misses)]
}

fn state(inputs: &InputsView) -> String {
    let mut out = inputs.state.text.clone();
    let can = &inputs.capabilities;
    for (lacking, text) in [
        (can.balloon == Some(false), "no balloon device"),
        (can.statistics == Some(false), "no balloon statistics"),
        (
            can.discard_inhibited == Some(true) && inputs.pinned.is_none(),
            "ballooned pages stay on the host",
        ),
    ] {
        if lacking {
            out.push_str(&format!(", {text}"));
        }
    }
    if let Some(pinned) = &inputs.pinned {
        out.push_str(&format!(", ballooned pages stay on the host: {}", pinned.text));
    }
    out
}

fn memory(inputs: &InputsView) -> String {
    let aged = |bytes: Option<u64>, age: Option<u64>| match (bytes, age) {
        (Some(bytes), Some(age)) => format!("{} ({} old)", size(bytes), span(age)),
        _ => "an unknown amount".to_owned(),
    };
    let plugged = inputs.hotplug.as_ref().map_or_else(String::new, |hotplug| {
        let of = format!("{} of {}", size(hotplug.plugged_bytes), size(hotplug.max_bytes));
        format!(", plugged in {of} by {}", hotplug.kind)
    });
    format!(
        "booted with {}{plugged}, holds {}, occupies {} of the host",
        inputs.boot_bytes.map_or_else(|| "an unknown amount".to_owned(), size),
        aged(inputs.allocation_bytes, inputs.allocation_age_ms),
        aged(inputs.resident_bytes, inputs.resident_age_ms)
    )
}

fn regret_text(regret: &RegretView) -> String {
    let RegretView { taken_bytes, read_back_bytes, basis_points, undone } = *regret;
    let part = basis_points as f64 / 100.0;
    let undone = if undone == 0 { String::new() } else { format!(", {undone} undone") };
    format!(
        "read back {} of {} taken ({part:.1} %){undone}",
        size(read_back_bytes),
        size(taken_bytes)
    )
}

fn statistics(stats: &StatsView) -> String {
    let sizes = [
        ("total", stats.total_bytes),
        ("free", stats.free_bytes),
        ("available", stats.available_bytes),
        ("page cache", stats.disk_caches_bytes),
        ("swapped in", stats.swap_in_bytes),
        ("swapped out", stats.swap_out_bytes),
    ];
    let sizes = sizes.into_iter().filter_map(|(name, bytes)| Some((name, size(bytes?))));
    let faults = stats.major_faults.map(|count| ("major faults", count.to_string()));
    figures(stats.age_ms, sizes.chain(faults))
}

/// What the guest needs beyond its memory in use, unless that is nothing.
fn needed(bytes: u64, what: &str) -> String {
    if bytes == 0 { String::new() } else { format!(", needs {} {what}", size(bytes)) }
}

/// Names with their figures and age.
fn figures(age_ms: u64, all: impl Iterator<Item = (&'static str, String)>) -> String {
    let mut out = format!("{} old", span(age_ms));
    for (at, (name, figure)) in all.enumerate() {
        let separator = if at == 0 { ':' } else { ',' };
        out.push_str(&format!("{separator} {name} {figure}"));
    }
    out
}

/// The agent's report.
fn agent(view: &AgentView) -> String {
    let sizes = [
        ("promised to processes", view.committed_bytes),
        ("swap in use", view.swap_used_bytes),
        ("active", view.active_bytes),
        ("inactive", view.inactive_bytes),
        ("kept free", view.watermark_high_bytes),
    ];
    let sizes = sizes.into_iter().filter_map(|(name, bytes)| Some((name, size(bytes?))));
    let mut out = figures(view.age_ms, sizes);
    if let Some(request) = &view.request {
        out.push_str(&format!("; {}", request.text));
    }
    out
}

/// The state, result and cost of page tracking, and why it does not work.
fn tracking(view: &TrackingView) -> Vec<(&'static str, String)> {
    let mut text = view.state.text.clone();
    let share = |millionths: u32| Share::from_millionths(millionths);
    if let Some(watched) = view.watched_millionths {
        text.push_str(&format!(", {} of its pages", share(watched)));
    }
    if let Some(cost) = view.cost_millionths {
        text.push_str(&format!(", for {} of a core", share(cost)));
    }
    if let Some((bytes, age)) = view.working_set_bytes.zip(view.age_ms) {
        text.push_str(&format!("; working set {}, {} old", size(bytes), span(age)));
        if let Some(source) = view.source.as_ref().filter(|source| source.code != "library") {
            text.push_str(&format!(" ({})", source.text));
        }
    }
    let trouble = view.trouble.iter().map(|trouble| ("", trouble.clone()));
    std::iter::once(("tracking", text)).chain(trouble).collect()
}

/// The fence, and why it is missing.
fn fence(view: &FenceView) -> Vec<(&'static str, String)> {
    let text = match view.limit_bytes {
        Some(limit) => format!("at {}: its cgroup cannot grow beyond that", size(limit)),
        None => "none stands".to_owned(),
    };
    let trouble = view.trouble.iter().map(|trouble| ("", trouble.clone()));
    std::iter::once(("fence", text)).chain(trouble).collect()
}

fn bounds(limits: &LimitsView) -> String {
    let sources = limits.sources.as_ref();
    let source_of = |field: fn(&SourcesView) -> &String| sources.map(field).map(String::as_str);
    // A value from `[defaults]` in the file counts as set too.
    let origin_text = |set: Option<u64>, source: Option<&str>| match (set, source) {
        (None, _) => "default".to_owned(),
        (Some(_), Some("default") | None) => "set".to_owned(),
        (Some(_), Some(source)) => source.to_owned(),
    };
    let source_text = |source: Option<&str>| match source {
        Some("default") | None => String::new(),
        Some(source) => format!(" ({source})"),
    };
    let mut out = format!(
        "floor {} ({}), ceiling {} ({})",
        size_or_unknown(limits.floor_bytes),
        origin_text(limits.floor_set_bytes, source_of(|it| &it.floor)),
        size_or_unknown(limits.ceiling_bytes),
        origin_text(limits.ceiling_set_bytes, source_of(|it| &it.ceiling))
    );
    if let Some(shares) = limits.shares {
        out.push_str(&format!(", {shares} shares{}", source_text(source_of(|it| &it.shares))));
    }
    if let Some(priority) = limits.priority {
        out.push_str(&format!(
            ", priority {priority}{}",
            source_text(source_of(|it| &it.priority))
        ));
    }
    if let Some(rate) = limits.miss_rate_max_per_s {
        let source = source_text(source_of(|it| &it.miss_rate_max));
        out.push_str(&format!(", at most {rate} misses/s{source}"));
    }
    if limits.managed == Some(false) {
        out.push_str(&format!(", not managed{}", source_text(source_of(|it| &it.managed))));
    }
    if limits.take_over == Some(true) {
        out.push_str(&format!(", taken over{}", source_text(source_of(|it| &it.take_over))));
    }
    out
}

fn compliance_text(compliance: &ComplianceView) -> String {
    let rate = compliance
        .balloon_bytes_per_s
        .map(|rate| format!("; its balloon took {} a second", size(rate)));
    let text = match compliance.idle_ms {
        Some(idle) if compliance.code == "releasing" => {
            format!("{}, last gave any {} ago", compliance.text, span(idle))
        }
        _ => compliance.text.clone(),
    };
    text + &rate.unwrap_or_default()
}

fn outcome(outcome: &OutcomeView) -> String {
    format!(
        "{} ({} for plan #{}, {} ago)",
        outcome.kind.text,
        size(outcome.target_bytes),
        outcome.generation,
        span(outcome.age_ms)
    )
}
