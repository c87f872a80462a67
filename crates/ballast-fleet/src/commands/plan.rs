//! `ballast fleet plan`: the leader's latest plan.

use anyhow::bail;
use ballast_fleet_proto::{FleetView, MODE_ADVISE, MigrationRecord, PlanRecord};
use ballast_report::format::wrapped;
use serde::Serialize;

use super::{FleetArgs, read};

/// Indentation of wrapped lines.
const INDENT: usize = 4;

/// The latest plan, and whether it still counts.
#[derive(Debug, Serialize)]
pub struct PlanView {
    /// Why it is void; `None` if its author still leads.
    pub void: Option<String>,
    /// The plan.
    pub plan: PlanRecord,
}

/// Prints the plan.
///
/// # Errors
/// There is no plan, it cannot be read, or the coordinator does not answer.
pub async fn run(args: FleetArgs) -> anyhow::Result<()> {
    let config = args.config.load()?;
    let shown = shown(&read(&config.etcd()?, &config).await?)?;
    args.output.print(&shown, render)
}

/// The latest plan in `view`.
///
/// # Errors
/// There is no plan, or it cannot be read.
pub fn shown(view: &FleetView) -> anyhow::Result<PlanView> {
    let plan = match view.plan() {
        Some(Ok(plan)) => plan.clone(),
        Some(Err(error)) => bail!("the plan cannot be read: {error}"),
        None => {
            let hosts = view.hosts().count();
            bail!(
                "there is no plan yet: {hosts} hosts are registered and {}",
                match view.leader() {
                    Some((leader, _)) => format!("{leader} leads"),
                    None => "none leads; does `ballast-fleet run` run on a host?".to_owned(),
                }
            );
        }
    };
    let void = match view.leader() {
        Some((_, revision)) if revision.0 == plan.leader_revision => None,
        Some((leader, _)) => Some(format!("{leader} leads now and has not planned yet")),
        None => Some("no host leads".to_owned()),
    };
    Ok(PlanView { void, plan })
}

/// The plan as text.
pub fn render(shown: &PlanView, width: Option<u16>) -> String {
    let plan = &shown.plan;
    let mut lines = vec![format!(
        "plan of {} (revision {}) for {} hosts with {} guests; mode {}{}",
        plan.leader,
        plan.leader_revision,
        plan.hosts,
        plan.guests,
        plan.mode,
        if plan.mode == MODE_ADVISE { ": nothing is moved" } else { "" }
    )];
    if let Some(why) = &shown.void {
        lines.push(format!("it is void: {why}"));
    }
    if let Some(host) = &plan.paused_by {
        lines.push(format!("paused from {host}: nothing is planned"));
    }
    let mut part = |title: &str, texts: Vec<String>| {
        if !texts.is_empty() {
            lines.push(format!("{title}:"));
            lines.extend(texts.into_iter().map(|text| format!("  {text}")));
        }
    };
    let is_by_hand = |it: &MigrationRecord| it.by_hand && plan.mode != MODE_ADVISE;
    let text = |it: &MigrationRecord| match is_by_hand(it) {
        true => format!("{} (by hand)", it.text),
        false => it.text.clone(),
    };
    part("move now", plan.migrations.iter().map(text).collect());
    part("move later", plan.waiting.iter().map(text).collect());
    part("unmet", plan.unmet.iter().map(|it| it.text.clone()).collect());
    part("left out", plan.left_out.iter().map(|it| format!("{}: {}", it.host, it.text)).collect());
    part("refused by the checker", plan.violations.clone());
    if plan.unlisted > 0 {
        lines.push(format!("and {} more that are not listed", plan.unlisted));
    }
    let is_empty = plan.migrations.is_empty() && plan.waiting.is_empty();
    if is_empty && plan.unmet.is_empty() && plan.paused_by.is_none() {
        lines.push("no guest should move".to_owned());
    }
    wrapped(&(lines.join("\n") + "\n"), width, INDENT)
}
