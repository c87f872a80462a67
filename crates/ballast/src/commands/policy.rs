//! `ballast policy`: the available policies, what each does and which inputs it needs.
//!
//! Idea: prints the catalogue of `ballast-policy`, without a daemon.

use ballast_model::PolicyName;
use ballast_policy::catalogue::{ENTRIES, PolicyEntry, PolicyInput, PolicyParameter};
use ballast_policy::flexmemd::Combination;
use clap::Subcommand;
use serde::Serialize;

use ballast_report::format::{size, span};
use ballast_report::{Output, Report};

/// List the policies, or describe one.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast policy list
  ballast policy show global")]
pub struct Args {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum PolicyCommand {
    /// List every policy with its rule and the inputs it needs.
    List(ListArgs),
    /// Describe one policy: rule, source, pace, parameters, and what it does if inputs are missing.
    Show(ShowArgs),
}

/// List every policy that can be chosen.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast policy list
  ballast policy list --json | jq '.policies[] | select(.needs == []) | .policy'")]
struct ListArgs {
    #[command(flatten)]
    output: Output,
}

/// Describe one policy.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast policy show tws
  ballast policy show global --json | jq '.parameters[].key'")]
struct ShowArgs {
    /// The policy's name, as in `ballast policy list`
    #[arg(value_name = "NAME")]
    policy: PolicyName,
    #[command(flatten)]
    output: Output,
}

/// Prints the catalogue or one entry.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        PolicyCommand::List(args) => args.output.print(&list(), render_list),
        PolicyCommand::Show(args) => match show(args.policy) {
            Some(policy) => args.output.print(&policy, |policy, _| render(policy)),
            None => anyhow::bail!("there is nothing to show of policy {}", args.policy),
        },
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PolicyList {
    policies: Vec<PolicyView>,
}

#[derive(Debug, Serialize)]
pub(super) struct PolicyView {
    policy: &'static str,
    rule: &'static str,
    shortage: &'static str,
    source: &'static str,
    interval_ms: u64,
    dead_band_bytes: u64,
    decides_on_request: bool,
    decides_on_need: bool,
    parameters: Vec<ParameterView>,
    needs: Vec<NeedView>,
    /// Combinations that its algorithm allows; empty unless it is a policy of flexmemd.
    combinations: Vec<CombinationView>,
}

#[derive(Debug, Serialize)]
struct ParameterView {
    key: String,
    meaning: &'static str,
    unit: &'static str,
    default: String,
    range: &'static str,
}

#[derive(Debug, Serialize)]
struct NeedView {
    input: &'static str,
    provider: &'static str,
    without: &'static str,
}

#[derive(Debug, Serialize)]
struct CombinationView {
    frequency: &'static str,
    price: &'static str,
    demand: &'static str,
    meaning: &'static str,
    /// Whether the paper evaluates the algorithm with this combination; it is then the default.
    evaluated: bool,
}

impl From<&PolicyEntry> for PolicyView {
    fn from(entry: &PolicyEntry) -> Self {
        let pacing = entry.pacing();
        let interval_ms = u64::try_from(pacing.interval.as_millis()).unwrap_or(u64::MAX);
        let parameter = |parameter: &PolicyParameter| ParameterView {
            key: format!("policy.{}", parameter.key),
            meaning: parameter.meaning,
            unit: parameter.unit,
            default: match parameter.default {
                "" if parameter.key == "interval" => format!("\"{interval_ms}ms\""),
                "" => "the policy's own".to_owned(),
                default => default.to_owned(),
            },
            range: parameter.range,
        };
        let need = |need: &PolicyInput| NeedView {
            input: need.input.code(),
            provider: need.input.provider(),
            without: need.fallback,
        };
        let composed = |with: &Combination| with.algorithm.as_str() == entry.name.as_str();
        let combination = |with: Combination| CombinationView {
            frequency: with.frequency.as_str(),
            price: with.pricing.as_str(),
            demand: with.demand.as_str(),
            meaning: with.meaning(),
            evaluated: with == Combination::evaluated(with.algorithm),
        };
        PolicyView {
            policy: entry.name.as_str(),
            rule: entry.rule,
            shortage: entry.shortage,
            source: entry.source,
            interval_ms,
            dead_band_bytes: pacing.dead_band.get(),
            decides_on_request: pacing.on_request,
            decides_on_need: pacing.on_need,
            parameters: entry.parameters.iter().map(parameter).collect(),
            needs: entry.needs.iter().map(need).collect(),
            combinations: Combination::all().filter(composed).map(combination).collect(),
        }
    }
}

pub(super) fn list() -> PolicyList {
    PolicyList { policies: ENTRIES.iter().map(PolicyView::from).collect() }
}

pub(super) fn show(name: PolicyName) -> Option<PolicyView> {
    ballast_policy::catalogue::entry(name).map(PolicyView::from)
}

/// The list as text, wrapped to `width` columns if given.
pub(super) fn render_list(list: &PolicyList, width: Option<u16>) -> String {
    let needs =
        |it: &PolicyView| it.needs.iter().map(|need| need.input).collect::<Vec<_>>().join(", ");
    let columns = Report::<PolicyView>::new()
        .text("POLICY", |it| it.policy)
        .text("NEEDS", needs)
        .text("RULE", |it| it.rule);
    columns.table(&list.policies, width)
}

pub(super) fn render(policy: &PolicyView) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| out.push_str(&format!("{name:<11}{text}\n"));
    line("policy", policy.policy);
    line("rule", policy.rule);
    line("shortage", policy.shortage);
    line("priority", "In a shortage, higher priorities take what they need from lower ones.");
    line("source", policy.source);
    let on_request = if policy.decides_on_request { ", and at every request" } else { "" };
    let on_need = match policy.decides_on_need {
        true => ", and as soon as a guest needs more than it is to have",
        false => "",
    };
    let dead_band = match policy.dead_band_bytes {
        0 => "makes every change".to_owned(),
        band => format!("makes no change up to {}", size(band)),
    };
    line("pace", &format!("every {}{on_request}{on_need}; {dead_band}", span(policy.interval_ms)));
    for parameter in &policy.parameters {
        let ParameterView { key, meaning, unit, default, range } = parameter;
        line("parameter", &format!("{key}: {meaning} ({unit}, {range}; default {default})"));
    }
    for need in &policy.needs {
        let NeedView { input, provider, without } = need;
        line("needs", &format!("{input}, from {provider}; guests without: {without}"));
    }
    if policy.needs.is_empty() {
        line("needs", "nothing but the statistics of the guests' balloons");
    }
    for with in &policy.combinations {
        let CombinationView { frequency, price, demand, meaning, evaluated } = with;
        let default = if *evaluated { " (the default)" } else { "" };
        let text =
            format!("frequency {frequency}, price {price}, demand {demand}: {meaning}{default}");
        line("made of", &text);
    }
    out
}
