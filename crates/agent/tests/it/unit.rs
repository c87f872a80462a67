//! The shipped systemd unit, and what the guide says of it.

/// The unit as it is shipped.
const UNIT: &str = include_str!("../../packaging/ballast-agent.service");
const GUIDE: &str = include_str!("../../../../docs/agent.md");
const HEADING: &str = "### Hooks within the unit's limits\n";

/// What the unit sets for the agent alone.
const OWN: [&str; 3] = ["Exec", "Restart", "RuntimeDirectory"];

#[test]
fn the_guide_names_every_limit_that_hooks_inherit() {
    let (_, guide) = GUIDE.split_once(HEADING).unwrap();
    let (guide, _) = guide.split_once("\n## ").unwrap();
    let (_, service) = UNIT.split_once("\n[Service]\n").unwrap();
    let (service, _) = service.split_once("\n[").unwrap();
    let lines = service.lines().filter(|line| !line.starts_with('#'));
    let settings: Vec<&str> = lines.filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let is_own = |key: &str| OWN.iter().any(|own| key.starts_with(own));
    let limits: Vec<&str> = settings.into_iter().filter(|key| !is_own(key)).collect();
    assert!(limits.len() > 4, "{limits:?}");
    for key in limits {
        assert!(guide.contains(&format!("`{key}=")), "{key} is not under {HEADING}");
    }
}
