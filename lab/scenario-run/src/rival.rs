//! A rival's rule that decides in the daemon of a run.
//!
//! Idea: the rule is the simulator's (`lab/sim/src/rivals`). The daemon around it is the one that
//! runs our policies, with the same samples, guard and mechanisms, so that only the rules differ.
//! Limits: the run's budget stands for the host. A rule that looks at the host's free memory sees
//! the unused part of the budget, because the lab's machine has far more memory. The journal has no
//! rivals: it calls the rule `external`, and it cannot be replayed; it is deleted with the run.

use anyhow::Context;
use ballast_lab_guest::workload::RIVAL_PREFIX;
use ballast_model::{HostSample, PolicyName};
use ballast_policy::{Division, Pacing, Policy, Problem};
use ballast_sim::rivals;

/// The rule of a rival.
///
/// # Errors
/// There is no rival of that name.
pub(super) fn rule(name: &str) -> anyhow::Result<Box<dyn Policy>> {
    let rule = rivals::build(name).with_context(|| {
        let all = rivals::ALL.map(PolicyName::as_str).join(", ");
        format!(
            "`{RIVAL_PREFIX}{name}` is not a rival: expected {RIVAL_PREFIX} before one of {all}"
        )
    })?;
    Ok(Box::new(RivalRule(rule)))
}

#[derive(Clone, Debug)]
struct RivalRule(Box<dyn Policy>);

impl Policy for RivalRule {
    fn name(&self) -> PolicyName {
        PolicyName::External
    }

    fn pacing(&self) -> Pacing {
        self.0.pacing()
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        self.0.divide(&problem.clone().on(HostSample::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_model::Bytes;
    use ballast_policy::Contender;

    #[test]
    fn a_run_is_as_large_as_its_budget() {
        let contender = |name: &str, used| Contender {
            allocation: Bytes::mib(512),
            ..Contender::new(name.parse().unwrap(), Bytes::mib(used))
        };
        let guests = vec![contender("busy", 500), contender("idle", 50)];
        let host = HostSample {
            memory_total: Some(Bytes::gib(24)),
            memory_available: Some(Bytes::gib(20)),
            ..HostSample::default()
        };
        let problem = Problem::new(Bytes::gib(1), guests).on(host);
        // The guests use all of the budget, so MOM takes 5 % from each; by the memory that is free
        // on this machine it would give.
        let wanted = rule("mom").unwrap().divide(&problem).wanted;
        assert!(wanted.iter().all(|it| it.target < Bytes::mib(490)), "{wanted:?}");
    }

    #[test]
    fn an_unknown_rival_is_reported_with_the_known_ones() {
        let error = rule("mum").unwrap_err().to_string();
        assert!(error.contains("`rival:mum`") && error.contains("qmemman"), "{error}");
    }
}
