//! Ballast's settings in the tags of a virtual machine.
//!
//! Idea: Proxmox VE has no fields for a priority or an objective, but it has tags, which are copied
//! and moved with a guest. `ballast-floor-1gib` sets a floor; tags that do not begin with
//! `ballast-` are not Ballast's.
//! Limits: Proxmox VE allows letters, digits and `_ - + .` in a tag, may write it in lower case,
//! and may sort tags. So a setting that occurs twice is a mistake: it is not known which one is
//! later.

use std::str::FromStr;

use ballast_model::{Bytes, GuestChange};

const EXPECTED: &str = "expected ballast-floor-SIZE, ballast-ceiling-SIZE (as in 512MiB or 2GiB), \
                        ballast-shares-N, ballast-priority-N, ballast-objective-N or ballast-unmanaged";

/// The settings in the tags.
///
/// # Errors
/// A tag is wrong; the text names it, and what was expected.
pub(crate) fn settings(tags: &str) -> Result<GuestChange, String> {
    let mut settings = GuestChange::default();
    for tag in tags.split([',', ';', ' ', '\t']) {
        let lower = tag.to_ascii_lowercase();
        if let Some(setting) = lower.strip_prefix("ballast-") {
            add(&mut settings, setting).map_err(|why| format!("`{tag}` {why}"))?;
        }
    }
    Ok(settings)
}

fn add(settings: &mut GuestChange, setting: &str) -> Result<(), String> {
    let (name, value) = setting.split_once('-').unwrap_or((setting, ""));
    let is_new = match name {
        "floor" => settings.floor.replace(size(value)?).is_none(),
        "ceiling" => settings.ceiling.replace(size(value)?).is_none(),
        "shares" => settings.shares.replace(number(value)?).is_none(),
        "priority" => settings.priority.replace(number(value)?).is_none(),
        "objective" => settings.miss_rate_max.replace(number(value)?).is_none(),
        "unmanaged" if value.is_empty() => settings.managed.replace(false).is_none(),
        _ => return Err(format!("is no setting: {EXPECTED}")),
    };
    match is_new {
        true => Ok(()),
        false => Err(format!("is one of two that set {name}: remove one of them")),
    }
}

/// A size with its unit. A number without a unit is refused, because it means MiB in Proxmox VE and
/// bytes in Ballast.
fn size(value: &str) -> Result<Bytes, String> {
    let unit = value.len().checked_sub("mib".len()).and_then(|at| value.split_at_checked(at));
    let size = match unit {
        Some((number, "kib")) => format!("{number}KiB").parse(),
        Some((number, "mib")) => format!("{number}MiB").parse(),
        Some((number, "gib")) => format!("{number}GiB").parse(),
        Some((number, "tib")) => format!("{number}TiB").parse(),
        _ => return Err("has no size with a unit: expected one as in 512MiB or 2GiB".to_owned()),
    };
    size.map_err(|error: ballast_model::ParseBytesError| format!("has no size: {error}"))
}

fn number<N: FromStr<Err: std::fmt::Display>>(value: &str) -> Result<N, String> {
    value.parse().map_err(|error| format!("has no number in range: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_ballast_are_settings_and_others_are_not() {
        let all = "web;Ballast-Floor-1.5GiB,ballast-ceiling-4gib ballast-shares-2000;\
                   ballast-priority-3;ballast-objective-0;ballast-unmanaged;ballast";
        let GuestChange { floor, ceiling, shares, priority, miss_rate_max, managed, .. } =
            settings(all).unwrap();
        assert_eq!((floor, ceiling), (Some(Bytes::mib(1536)), Some(Bytes::gib(4))));
        assert_eq!((shares, priority, miss_rate_max), (Some(2000), Some(3), Some(0)));
        assert_eq!(managed, Some(false));
        assert_eq!(settings("web;db"), Ok(GuestChange::default()));
    }

    #[test]
    fn a_mistake_names_the_tag_and_what_was_expected() {
        for (tags, told) in [
            ("ballast-flor-1gib", "ballast-floor-SIZE"),
            ("ballast-", "ballast-floor-SIZE"),
            ("ballast-unmanaged-1", "ballast-floor-SIZE"),
            ("ballast-floor-1024", "with a unit"),
            ("ballast-floor-1gb", "with a unit"),
            ("ballast-floor-é", "with a unit"),
            ("ballast-floor-xgib", "not a size"),
            ("ballast-floor-99999999tib", "16 EiB"),
            ("ballast-priority-256", "range"),
            ("ballast-shares-", "range"),
            ("ballast-floor-1gib;ballast-floor-2gib", "remove one"),
        ] {
            let why = settings(tags).unwrap_err();
            let tag = tags.split(';').next_back().unwrap();
            assert!(why.contains(tag) && why.contains(told), "{tags}: {why}");
        }
    }
}
