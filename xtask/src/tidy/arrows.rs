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
    may_depend_on: Vec<String>,
}

/// The folder of the crates that never run on a host.
const LAB: &str = "lab/";

/// A crate's layer, its name, and the crates it may depend on, these without `ballast-`. A line
/// without a colon continues the line before it.
const TABLE: &str = "\
# lib/: nothing of Ballast.
pure ballast-mrc:
pure ballast-toml-strict:
mechanism ballast-pinned-socket:
mechanism ballast-trace:
# crates/: for hosts and guests.
pure ballast-model:
pure ballast-agent-proto: model
pure ballast-backend: agent-proto model
pure ballast-tracker-proto:
pure ballast-estimate: model
pure ballast-working-set: estimate model mrc
pure ballast-policy: model
pure ballast-policy-proto: model policy
# Not on `policy`: a checker that shares code with what it checks shares its mistakes.
pure ballast-guard: model
pure ballast-actuation: model
# For many hosts: reads their records, and uses nothing that runs on one.
pure ballast-fleet: model
# The protocol between its hosts; the services that carry it implement its trait.
pure ballast-fleet-proto: fleet fleet-move model
pure ballast-fleet-move: fleet model
pure ballast-control: actuation estimate guard model policy
pure ballast-replay: control model policy
mechanism ballast-host: model
mechanism ballast-containers: backend model
# The common part of hypervisors with a REST API, and the part of each.
mechanism ballast-rest: backend model pinned-socket
mechanism ballast-cloud-hypervisor: model rest
mechanism ballast-firecracker: model rest
mechanism ballast-etcd: fleet-proto
mechanism ballast-libvirt: backend model
# Reads files; it uses nothing of QMP, although its guests are found by QMP sockets.
mechanism ballast-proxmox: model
mechanism ballast-qmp: backend model pinned-socket
mechanism ballast-reclaim: model
mechanism ballast-xen: agent-proto backend model xenstore
mechanism ballast-xenstore: model
# Inside a guest: no policy, and nothing of the host.
mechanism ballast-agent: agent-proto model toml-strict xenstore
# Inside the hypervisor: with as few dependencies as possible.
mechanism ballast-tracker-preload: tracker-proto
# Not on the preloaded library: the daemon would link the library's own `munmap` too.
mechanism ballast-tracker: tracker-proto
# Shares the tracker's way to choose pages, which is pure, but not the tracker.
mechanism ballast-damon: model tracker-proto
edge ballast-store: model
edge ballast-api: model
# Serves files to browsers, and uses nothing of what they show.
edge ballast-page:
edge ballast-report: model
edge ballast-top: api model report store
edge ballast-config: actuation containers control estimate guard model policy reclaim rest
    toml-strict working-set
# Advice from a journal: for the program on hosts, and for the lab, which compares it with the
# truth.
edge ballast-advise: api config control model policy replay report store
edge ballast-daemon: actuation agent-proto api backend cloud-hypervisor config containers
    control damon estimate firecracker host libvirt model page policy policy-proto proxmox qmp
    reclaim replay rest store toml-strict tracker tracker-proto working-set xen
edge ballast: advise api cloud-hypervisor config daemon estimate firecracker host libvirt model
    policy proxmox qmp reclaim report rest store toml-strict top tracker working-set xen
# Runs with the daemon, which knows nothing of fleets.
edge ballast-fleet-program: api etcd fleet fleet-move fleet-proto model qmp report toml-strict
# lab/: never on a host.
pure ballast-workload: model toml-strict
pure ballast-sim: agent-proto control model policy workload
pure ballast-fleet-sim: control fleet model
mechanism ballast-lab-guest: model workload
mechanism ballast-lab-truth:
mechanism ballast-xenstore-shim:
mechanism ballast-track-subject:
mechanism ballast-lab-host: agent-proto lab-guest model toml-strict tracker-proto
mechanism ballast-faulty-disk:
lab ballast-qmp-testing: model qmp
lab ballast-chart: model report
lab ballast-scenario-run: api chart config control daemon estimate etcd fleet-move fleet-proto
    guard host lab-guest lab-host model policy qmp report sim store toml-strict
lab ballast-storm: actuation agent-proto api control daemon faulty-disk model qmp qmp-testing
    store
lab ballast-bench: advise agent-proto config control daemon estimate host lab-guest lab-host
    model mrc policy qmp qmp-testing reclaim report scenario-run sim store trace track-subject
    tracker tracker-proto working-set
lab ballast-lab: advise bench chart config daemon estimate lab-guest lab-host model mrc replay
    report scenario-run sim storm store toml-strict trace
edge xtask:
";

fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let names = match line.split_once(':') {
            Some((head, names)) => {
                let (layer, package) = head.split_once(' ').expect("a layer and a name");
                let layer = match layer {
                    "pure" => Layer::Pure,
                    "mechanism" => Layer::Mechanism,
                    "edge" => Layer::Edge,
                    "lab" => Layer::Lab,
                    other => unreachable!("`{other}` is no layer"),
                };
                rules.push(Rule { package, layer, may_depend_on: Vec::new() });
                names
            }
            None => line,
        };
        if let Some(rule) = rules.last_mut() {
            rule.may_depend_on.extend(names.split_whitespace().map(|it| format!("ballast-{it}")));
        }
    }
    rules
}

fn rule(package: &str) -> Option<Rule> {
    rules().into_iter().find(|rule| rule.package == package)
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
        return vec![Finding::new(place, what)];
    };
    let mut findings = Vec::new();
    if rule.layer == Layer::Lab && !package.dir.starts_with(LAB) {
        let what = format!("`{}` never runs on a host: move it to {LAB}", package.name);
        findings.push(Finding::new(&place, what));
    }
    let is_member = |name: &str| tree.packages.iter().any(|member| member.name == name);
    for dependency in package.dependencies.iter().filter(|it| is_member(&it.name)) {
        let name = dependency.name.as_str();
        let to_lab = tree.packages.iter().any(|it| it.name == name && it.dir.starts_with(LAB));
        if to_lab && !package.dir.starts_with(LAB) && dependency.kind != DependencyKind::Development
        {
            let what =
                format!("`{}` runs on hosts: it may not link `{name}` of {LAB}", package.name);
            findings.push(Finding::new(&place, what));
        }
        let allowed = match dependency.kind {
            DependencyKind::Development => may_test_with(&rule, name),
            _ => rule.may_depend_on.contains(&dependency.name),
        };
        if !allowed {
            let what = format!(
                "`{}` may not depend on `{name}`: it may on {}",
                package.name,
                list(&rule.may_depend_on)
            );
            findings.push(Finding::new(&place, what));
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

fn list(names: &[String]) -> String {
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
        for Rule { package, may_depend_on, .. } in rules() {
            for other in may_depend_on {
                let back = rule(&other).expect(&other).may_depend_on;
                assert!(!back.iter().any(|it| it == package), "{package} <-> {other}");
            }
        }
    }
}
