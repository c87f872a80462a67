//! Dependencies between crates point one way.
//!
//! Idea: one table says which crates of the workspace each may depend on, and which are pure. This
//! table is the architecture; `docs/ARCHITECTURE.md` explains it. Tests and benchmarks may depend
//! on more, but those of a pure crate never on a mechanism.

use super::{DependencyKind, Finding, Package, Tree};

/// The kind of a crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Decides, without I/O.
    Pure,
    /// Does I/O, and decides nothing.
    Mechanism,
    /// Joins the two.
    Edge,
    /// Evaluates the others, and never runs on a host.
    Lab,
}

/// A crate's layer and the workspace crates it may depend on.
struct Rule {
    package: &'static str,
    layer: Layer,
    may_depend_on: &'static [&'static str],
}

const fn pure(package: &'static str, may_depend_on: &'static [&'static str]) -> Rule {
    Rule { package, layer: Layer::Pure, may_depend_on }
}

const fn mechanism(package: &'static str, may_depend_on: &'static [&'static str]) -> Rule {
    Rule { package, layer: Layer::Mechanism, may_depend_on }
}

const fn edge(package: &'static str, may_depend_on: &'static [&'static str]) -> Rule {
    Rule { package, layer: Layer::Edge, may_depend_on }
}

const fn lab(package: &'static str, may_depend_on: &'static [&'static str]) -> Rule {
    Rule { package, layer: Layer::Lab, may_depend_on }
}

/// The folder of the crates that never run on a host.
const LAB: &str = "lab/";

const MODEL: &[&str] = &["ballast-model"];

const BACKEND: &[&str] = &["ballast-backend", "ballast-model"];
const SOCKET_BACKEND: &[&str] = &["ballast-backend", "ballast-model", "ballast-pinned-socket"];

const RULES: &[Rule] = &[
    // lib/: nothing of Ballast.
    pure("ballast-mrc", &[]),
    pure("ballast-toml-strict", &[]),
    mechanism("ballast-pinned-socket", &[]),
    mechanism("ballast-trace", &[]),
    // crates/: for hosts and guests.
    pure("ballast-model", &[]),
    pure("ballast-agent-proto", MODEL),
    pure("ballast-backend", &["ballast-agent-proto", "ballast-model"]),
    pure("ballast-tracker-proto", &[]),
    pure("ballast-estimate", MODEL),
    pure("ballast-working-set", &["ballast-estimate", "ballast-model", "ballast-mrc"]),
    pure("ballast-policy", MODEL),
    pure("ballast-policy-proto", &["ballast-model", "ballast-policy"]),
    // Not on `policy`: a checker that shares code with what it checks shares its mistakes.
    pure("ballast-guard", MODEL),
    pure("ballast-actuation", MODEL),
    // For many hosts: reads their records, and uses nothing that runs on one.
    pure("ballast-fleet", MODEL),
    // The protocol between its hosts; the services that carry it implement its trait.
    pure("ballast-fleet-proto", &["ballast-fleet", "ballast-fleet-move", "ballast-model"]),
    pure("ballast-fleet-move", &["ballast-fleet", "ballast-model"]),
    pure(
        "ballast-control",
        &[
            "ballast-actuation",
            "ballast-estimate",
            "ballast-guard",
            "ballast-model",
            "ballast-policy",
        ],
    ),
    pure("ballast-replay", &["ballast-control", "ballast-model", "ballast-policy"]),
    mechanism("ballast-host", MODEL),
    mechanism("ballast-containers", BACKEND),
    // The common part of hypervisors with a REST API, and the part of each.
    mechanism("ballast-rest", SOCKET_BACKEND),
    mechanism("ballast-cloud-hypervisor", &["ballast-model", "ballast-rest"]),
    mechanism("ballast-firecracker", &["ballast-model", "ballast-rest"]),
    mechanism("ballast-etcd", &["ballast-fleet-proto"]),
    mechanism("ballast-libvirt", BACKEND),
    // Reads files; it uses nothing of QMP, although its guests are found by QMP sockets.
    mechanism("ballast-proxmox", MODEL),
    mechanism("ballast-qmp", SOCKET_BACKEND),
    mechanism("ballast-reclaim", MODEL),
    mechanism(
        "ballast-xen",
        &["ballast-agent-proto", "ballast-backend", "ballast-model", "ballast-xenstore"],
    ),
    mechanism("ballast-xenstore", MODEL),
    // Inside a guest: no policy, and nothing of the host.
    mechanism(
        "ballast-agent",
        &["ballast-agent-proto", "ballast-model", "ballast-toml-strict", "ballast-xenstore"],
    ),
    // Inside the hypervisor: with as few dependencies as possible.
    mechanism("ballast-tracker-preload", &["ballast-tracker-proto"]),
    // Not on the preloaded library: the daemon would link the library's own `munmap` too.
    mechanism("ballast-tracker", &["ballast-tracker-proto"]),
    // Shares the tracker's way to choose pages, which is pure, but not the tracker.
    mechanism("ballast-damon", &["ballast-model", "ballast-tracker-proto"]),
    edge("ballast-store", MODEL),
    edge("ballast-api", MODEL),
    // Serves files to browsers, and uses nothing of what they show.
    edge("ballast-page", &[]),
    edge("ballast-report", MODEL),
    edge("ballast-top", &["ballast-api", "ballast-model", "ballast-report", "ballast-store"]),
    edge(
        "ballast-config",
        &[
            "ballast-actuation",
            "ballast-containers",
            "ballast-control",
            "ballast-estimate",
            "ballast-guard",
            "ballast-model",
            "ballast-policy",
            "ballast-reclaim",
            "ballast-rest",
            "ballast-toml-strict",
            "ballast-working-set",
        ],
    ),
    // Advice from a journal: for the program on hosts, and for the lab, which compares it with the
    // truth.
    edge(
        "ballast-advise",
        &[
            "ballast-api",
            "ballast-config",
            "ballast-control",
            "ballast-model",
            "ballast-policy",
            "ballast-replay",
            "ballast-report",
            "ballast-store",
        ],
    ),
    edge(
        "ballast-daemon",
        &[
            "ballast-actuation",
            "ballast-agent-proto",
            "ballast-api",
            "ballast-backend",
            "ballast-cloud-hypervisor",
            "ballast-config",
            "ballast-containers",
            "ballast-control",
            "ballast-damon",
            "ballast-estimate",
            "ballast-firecracker",
            "ballast-host",
            "ballast-libvirt",
            "ballast-model",
            "ballast-page",
            "ballast-policy",
            "ballast-policy-proto",
            "ballast-proxmox",
            "ballast-qmp",
            "ballast-reclaim",
            "ballast-replay",
            "ballast-rest",
            "ballast-store",
            "ballast-toml-strict",
            "ballast-tracker",
            "ballast-tracker-proto",
            "ballast-working-set",
            "ballast-xen",
        ],
    ),
    edge(
        "ballast",
        &[
            "ballast-advise",
            "ballast-api",
            "ballast-cloud-hypervisor",
            "ballast-config",
            "ballast-daemon",
            "ballast-estimate",
            "ballast-firecracker",
            "ballast-host",
            "ballast-libvirt",
            "ballast-model",
            "ballast-policy",
            "ballast-qmp",
            "ballast-reclaim",
            "ballast-report",
            "ballast-rest",
            "ballast-store",
            "ballast-toml-strict",
            "ballast-top",
            "ballast-tracker",
            "ballast-working-set",
            "ballast-xen",
        ],
    ),
    // Runs with the daemon, which knows nothing of fleets.
    edge(
        "ballast-fleet-program",
        &[
            "ballast-api",
            "ballast-etcd",
            "ballast-fleet",
            "ballast-fleet-move",
            "ballast-fleet-proto",
            "ballast-model",
            "ballast-qmp",
            "ballast-report",
            "ballast-toml-strict",
        ],
    ),
    // lab/: never on a host.
    pure("ballast-workload", &["ballast-model", "ballast-toml-strict"]),
    pure(
        "ballast-sim",
        &[
            "ballast-agent-proto",
            "ballast-control",
            "ballast-model",
            "ballast-policy",
            "ballast-workload",
        ],
    ),
    pure("ballast-fleet-sim", &["ballast-control", "ballast-fleet", "ballast-model"]),
    mechanism("ballast-lab-guest", &["ballast-model", "ballast-workload"]),
    mechanism("ballast-lab-truth", &[]),
    mechanism("ballast-xenstore-shim", &[]),
    mechanism("ballast-track-subject", &[]),
    mechanism(
        "ballast-lab-host",
        &[
            "ballast-agent-proto",
            "ballast-lab-guest",
            "ballast-model",
            "ballast-toml-strict",
            "ballast-tracker-proto",
        ],
    ),
    mechanism("ballast-faulty-disk", &[]),
    lab("ballast-qmp-testing", &["ballast-model", "ballast-qmp"]),
    lab("ballast-chart", &["ballast-model", "ballast-report"]),
    lab(
        "ballast-scenario-run",
        &[
            "ballast-api",
            "ballast-chart",
            "ballast-config",
            "ballast-control",
            "ballast-daemon",
            "ballast-estimate",
            "ballast-etcd",
            "ballast-fleet-move",
            "ballast-fleet-proto",
            "ballast-guard",
            "ballast-host",
            "ballast-lab-guest",
            "ballast-lab-host",
            "ballast-model",
            "ballast-policy",
            "ballast-qmp",
            "ballast-report",
            "ballast-sim",
            "ballast-store",
            "ballast-toml-strict",
        ],
    ),
    lab(
        "ballast-storm",
        &[
            "ballast-actuation",
            "ballast-agent-proto",
            "ballast-api",
            "ballast-control",
            "ballast-daemon",
            "ballast-faulty-disk",
            "ballast-model",
            "ballast-qmp",
            "ballast-qmp-testing",
            "ballast-store",
        ],
    ),
    lab(
        "ballast-bench",
        &[
            "ballast-advise",
            "ballast-agent-proto",
            "ballast-config",
            "ballast-control",
            "ballast-daemon",
            "ballast-estimate",
            "ballast-host",
            "ballast-lab-guest",
            "ballast-lab-host",
            "ballast-model",
            "ballast-mrc",
            "ballast-policy",
            "ballast-qmp",
            "ballast-qmp-testing",
            "ballast-reclaim",
            "ballast-report",
            "ballast-scenario-run",
            "ballast-sim",
            "ballast-store",
            "ballast-trace",
            "ballast-track-subject",
            "ballast-tracker",
            "ballast-tracker-proto",
            "ballast-working-set",
        ],
    ),
    lab(
        "ballast-lab",
        &[
            "ballast-advise",
            "ballast-bench",
            "ballast-chart",
            "ballast-config",
            "ballast-daemon",
            "ballast-estimate",
            "ballast-lab-guest",
            "ballast-lab-host",
            "ballast-model",
            "ballast-mrc",
            "ballast-replay",
            "ballast-report",
            "ballast-scenario-run",
            "ballast-sim",
            "ballast-storm",
            "ballast-store",
            "ballast-toml-strict",
            "ballast-trace",
        ],
    ),
    edge("xtask", &[]),
];

fn rule(package: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.package == package)
}

/// The layer of a package; `None` if the table does not have it.
pub(crate) fn layer(package: &str) -> Option<Layer> {
    rule(package).map(|rule| rule.layer)
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.packages.iter().flat_map(|package| check_package(tree, package)).collect()
}

fn check_package(tree: &Tree, package: &Package) -> Vec<Finding> {
    let place = format!("{}/Cargo.toml", package.dir);
    let Some(rule) = rule(&package.name) else {
        let what = format!(
            "`{}` is not in the table of arrows: add it to xtask/src/tidy/arrows.rs",
            package.name
        );
        return vec![Finding::failure(place, what)];
    };
    let mut findings = Vec::new();
    if rule.layer == Layer::Lab && !package.dir.starts_with(LAB) {
        let what = format!("`{}` never runs on a host: move it to {LAB}", package.name);
        findings.push(Finding::failure(&place, what));
    }
    let is_member = |name: &str| tree.packages.iter().any(|member| member.name == name);
    for dependency in package.dependencies.iter().filter(|it| is_member(&it.name)) {
        let name = dependency.name.as_str();
        let to_lab = tree.packages.iter().any(|it| it.name == name && it.dir.starts_with(LAB));
        if to_lab && !package.dir.starts_with(LAB) && dependency.kind != DependencyKind::Development
        {
            let what =
                format!("`{}` runs on hosts: it may not link `{name}` of {LAB}", package.name);
            findings.push(Finding::failure(&place, what));
        }
        let allowed = match dependency.kind {
            DependencyKind::Development => may_test_with(rule, name),
            _ => rule.may_depend_on.contains(&name),
        };
        if !allowed {
            let what = format!(
                "`{}` may not depend on `{name}`: it may on {}",
                package.name,
                list(rule.may_depend_on)
            );
            findings.push(Finding::failure(&place, what));
        }
    }
    findings
}

/// Whether the tests of a crate may use another: any crate below the edge, but pure crates use only
/// pure ones, and the checker stays independent.
fn may_test_with(rule: &Rule, other: &str) -> bool {
    if rule.package == "ballast-guard" && other == "ballast-policy" {
        return false;
    }
    match layer(other) {
        Some(Layer::Pure) => true,
        Some(Layer::Mechanism) => rule.layer != Layer::Pure,
        Some(Layer::Edge) => matches!(rule.layer, Layer::Edge | Layer::Lab),
        // Other lab crates, guests and fixtures; never the programs.
        Some(Layer::Lab) => rule.layer != Layer::Pure,
        None => false,
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "no crate of the workspace".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::DependencyKind::{Build, Development, Normal};
    use super::*;

    #[test]
    fn each_arrow_is_allowed_or_refused() {
        for (from, kind, to, allowed) in [
            ("ballast-policy", Normal, "ballast-model", true),
            ("ballast-model", Normal, "ballast-policy", false),
            ("ballast-guard", Normal, "ballast-policy", false),
            ("ballast-guard", Development, "ballast-policy", false),
            ("ballast-guard", Development, "ballast-estimate", true),
            ("ballast-control", Normal, "ballast-guard", true),
            ("ballast-control", Normal, "ballast-qmp", false),
            ("ballast-control", Development, "ballast-qmp", false),
            ("ballast-policy", Build, "ballast-guard", false),
            ("ballast-qmp", Normal, "ballast-host", false),
            ("ballast-qmp", Development, "ballast-lab-host", true),
            ("ballast-host", Normal, "ballast-control", false),
            ("ballast-lab-host", Normal, "ballast-lab-guest", true),
            ("ballast-api", Normal, "ballast-store", false),
            ("ballast", Normal, "ballast-daemon", true),
            ("ballast", Normal, "ballast-lab-host", false),
            ("ballast", Development, "ballast-lab-host", true),
            ("ballast-lab-host", Development, "ballast", false),
        ] {
            let tree = Tree::default().with_package(to, &[]).with_package(from, &[(to, kind)]);
            assert_eq!(check(&tree).is_empty(), allowed, "{from} -> {to} ({kind:?})");
        }
    }

    #[test]
    fn a_crate_nobody_placed_is_found() {
        let tree = Tree::default().with_package("ballast-new", &[]);
        assert!(check(&tree)[0].what.contains("not in the table"));
    }

    #[test]
    fn crates_may_not_depend_on_each_other_in_a_circle() {
        for rule in RULES {
            for other in rule.may_depend_on {
                let back = super::rule(other).expect(other).may_depend_on;
                assert!(!back.contains(&rule.package), "{} <-> {other}", rule.package);
            }
        }
    }
}
