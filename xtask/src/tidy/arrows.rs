//! Arrows between crates point one way.
//!
//! Idea: one table says which crates of the workspace each may depend on, and which are pure. The
//! architecture is this table; everything else in `docs/ARCHITECTURE.md` explains it.
//! Tests and benchmarks may reach further, but a pure crate's never to a mechanism.

use super::{DependencyKind, Finding, Package, Tree};

/// What kind of crate it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Decides, touches nothing.
    Pure,
    /// Touches the world, decides nothing.
    Mechanism,
    /// Joins the two.
    Edge,
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

const MODEL: &[&str] = &["ballast-model"];

const RULES: &[Rule] = &[
    pure("ballast-model", &[]),
    pure("ballast-agent-wire", &[]),
    pure("ballast-agent-host", &["ballast-model", "ballast-agent-wire"]),
    pure("ballast-mrc", &[]),
    pure("ballast-toml-strict", &[]),
    pure("ballast-track-wire", &[]),
    pure("ballast-estimate", MODEL),
    pure("ballast-policy", MODEL),
    pure("ballast-request", MODEL),
    pure("ballast-working-set", &["ballast-model", "ballast-mrc", "ballast-estimate"]),
    // Not on `policy`: a checker that shares code with what it checks shares its mistakes.
    pure("ballast-guard", MODEL),
    pure("ballast-mechanism", MODEL),
    pure(
        "ballast-control",
        &[
            "ballast-model",
            "ballast-estimate",
            "ballast-policy",
            "ballast-guard",
            "ballast-mechanism",
        ],
    ),
    pure(
        "ballast-sim",
        &[
            "ballast-model",
            "ballast-estimate",
            "ballast-policy",
            "ballast-guard",
            "ballast-control",
            "ballast-request",
        ],
    ),
    mechanism("ballast-host", MODEL),
    mechanism("ballast-qmp", MODEL),
    mechanism("ballast-reclaim", MODEL),
    mechanism("ballast-trace", &[]),
    // Inside a guest: no policy, and nothing of the host.
    mechanism(
        "ballast-agent",
        &["ballast-model", "ballast-agent-wire", "ballast-request", "ballast-toml-strict"],
    ),
    // Inside the hypervisor: as little as can be.
    mechanism("ballast-track", &["ballast-track-wire"]),
    // Not on `track`, which would come along into the daemon with its own `munmap`.
    mechanism("ballast-tracker", &["ballast-track-wire"]),
    mechanism("ballast-lab-guest", MODEL),
    mechanism("ballast-lab-truth", &[]),
    mechanism("ballast-track-subject", &[]),
    mechanism(
        "ballast-lab",
        &[
            "ballast-model",
            "ballast-agent-wire",
            "ballast-lab-guest",
            "ballast-toml-strict",
            "ballast-track-wire",
        ],
    ),
    edge("ballast-store", MODEL),
    edge("ballast-api", MODEL),
    edge(
        "ballast",
        &[
            "ballast-agent-host",
            "ballast-agent-wire",
            "ballast-api",
            "ballast-control",
            "ballast-estimate",
            "ballast-guard",
            "ballast-host",
            "ballast-lab",
            "ballast-lab-guest",
            "ballast-mechanism",
            "ballast-model",
            "ballast-mrc",
            "ballast-policy",
            "ballast-qmp",
            "ballast-reclaim",
            "ballast-sim",
            "ballast-store",
            "ballast-toml-strict",
            "ballast-trace",
            "ballast-track-subject",
            "ballast-track-wire",
            "ballast-tracker",
            "ballast-working-set",
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
    let is_member = |name: &str| tree.packages.iter().any(|member| member.name == name);
    let mut findings = Vec::new();
    for dependency in package.dependencies.iter().filter(|it| is_member(&it.name)) {
        let name = dependency.name.as_str();
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

/// Whether tests of a crate may use another: any below the edge, but the pure stay among themselves
/// and the checker stays independent.
fn may_test_with(rule: &Rule, other: &str) -> bool {
    if rule.package == "ballast-guard" && other == "ballast-policy" {
        return false;
    }
    match layer(other) {
        Some(Layer::Pure) => true,
        Some(Layer::Mechanism) => rule.layer != Layer::Pure,
        Some(Layer::Edge) => rule.layer == Layer::Edge,
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
            ("ballast-qmp", Development, "ballast-lab", true),
            ("ballast-host", Normal, "ballast-control", false),
            ("ballast-lab", Normal, "ballast-lab-guest", true),
            ("ballast-api", Normal, "ballast-store", false),
            ("ballast", Normal, "ballast-control", true),
            ("ballast-lab", Development, "ballast", false),
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
    fn what_a_crate_depends_on_may_be_depended_on_in_no_circle() {
        for rule in RULES {
            for other in rule.may_depend_on {
                let back = super::rule(other).expect(other).may_depend_on;
                assert!(!back.contains(&rule.package), "{} <-> {other}", rule.package);
            }
        }
    }
}
