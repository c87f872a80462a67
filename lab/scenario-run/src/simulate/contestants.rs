//! Which policies a simulation or a replay compares.
//!
//! Idea: the daemon's policies and the rivals share one list of names, separated by commas: `ours`
//! for every policy of the daemon, `rivals` for the rules of other products, `all` for both.
//! Limits: `external` is not available, because only the daemon starts its program.

use std::str::FromStr;

use ballast_model::PolicyName;
use ballast_policy::{Policy, PolicySettings, build};
use ballast_sim::rivals;
use ballast_toml_strict::nearest;

/// The chosen policies, each once, in the order of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contestants(Vec<PolicyName>);

impl Contestants {
    /// The policies `names`, as a scenario lists them.
    pub fn new(names: Vec<PolicyName>) -> Contestants {
        Contestants(names)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Builds the policies with `settings`, without any history.
    pub fn build(&self, settings: &PolicySettings) -> Vec<Box<dyn Policy>> {
        let policy = |name: &PolicyName| match name {
            PolicyName::Custom(rival) => rivals::build(rival),
            _ => Some(build(*name, settings.clone())),
        };
        self.0.iter().filter_map(policy).collect()
    }
}

/// The name of a policy or rival.
///
/// # Errors
/// There is none of that name (the text lists all), or it is `external`.
pub fn policy(name: &str) -> Result<PolicyName, String> {
    if name == PolicyName::External.as_str() {
        return Err(format!(
            "`{name}` asks a program, which only the daemon starts: simulate another policy, or have the \
             program decide on a host that observes"
        ));
    }
    let own = PolicyName::BUILT_IN.iter().copied().find(|policy| policy.as_str() == name);
    own.or_else(|| rivals::find(name)).ok_or_else(|| {
        let rivals_list = rivals::ALL.map(PolicyName::as_str).join(", ");
        let all = PolicyName::BUILT_IN.iter().copied().chain(rivals::ALL).map(PolicyName::as_str);
        let nearest = nearest(name, all).map(|near| format!("; the nearest is `{near}`"));
        format!(
            "`{name}` is not a policy: expected {}, or of the rivals {rivals_list}{}",
            PolicyName::list(),
            nearest.unwrap_or_default()
        )
    })
}

impl FromStr for Contestants {
    type Err = String;

    fn from_str(text: &str) -> Result<Contestants, String> {
        let mut found: Vec<PolicyName> = Vec::new();
        for word in text.split(',').map(str::trim) {
            let named: Vec<PolicyName> = match word {
                "all" => PolicyName::BUILT_IN.iter().copied().chain(rivals::ALL).collect(),
                "ours" => PolicyName::BUILT_IN.to_vec(),
                "rivals" => rivals::ALL.to_vec(),
                _ => vec![policy(word)?],
            };
            for name in named {
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        Ok(Contestants(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_each_policy_once_in_their_order() {
        let list: Contestants = "global,static , global".parse().unwrap();
        assert_eq!(list.0, [PolicyName::Global, PolicyName::Static]);
        let all: Contestants = "rivals,ours".parse().unwrap();
        assert_eq!(all.0.len(), PolicyName::BUILT_IN.len() + rivals::ALL.len());
        assert!(matches!(all.0[0], PolicyName::Custom(_)));
        let same: Contestants = "all".parse().unwrap();
        assert_eq!(same.0.len(), all.0.len());
    }

    #[test]
    fn a_program_is_refused_with_the_reason() {
        let error = "global,external".parse::<Contestants>().unwrap_err();
        assert!(error.contains("program") && error.contains("daemon"), "{error}");
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let error = "global,nosuch".parse::<Contestants>().unwrap_err();
        for word in ["`nosuch`", "global", "mom"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
