//! What a diagnosis finds: how bad it is, why it matters, and what to type.
//!
//! Idea: a finding is a *problem* if something that is configured or asked for does not work, a
//! *warning* if it works worse than it could and that can be mended, a *note* if it is good to know
//! and a matter of choice. What is fine has a finding too: a diagnosis that says nothing of a thing
//! has not looked at it.

use ballast_host::ReadError;
use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Works, and could work better.
    Warning,
    /// Does not work.
    Problem,
}

impl Severity {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        }
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Area {
    /// The host's kernel, and how it is set.
    Host,
    /// Where guests are looked for.
    Hypervisors,
    /// One guest.
    Guests,
    /// Other programs that move balloons.
    Owners,
    /// What the daemon and this command may do.
    Permissions,
}

impl Area {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Area::Host => "host",
            Area::Hypervisors => "hypervisors",
            Area::Guests => "guests",
            Area::Owners => "owners",
            Area::Permissions => "permissions",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) area: Area,
    /// What was looked at: a stable word for machines.
    pub(super) topic: &'static str,
    /// Which one, where there are several: a guest's name, a folder, a socket.
    pub(super) subject: Option<String>,
    pub(super) severity: Severity,
    /// What was found.
    pub(super) found: String,
    /// Why it matters, in a sentence.
    pub(super) why: &'static str,
    /// What to type to mend it; `None`: nothing is to be mended, or no line mends it.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn new(
        area: Area,
        topic: &'static str,
        why: &'static str,
        severity: Severity,
        found: impl Into<String>,
    ) -> Finding {
        Finding { area, topic, subject: None, severity, found: found.into(), why, remedy: None }
    }

    /// The finding about a file that could not be read, or holds what it should not.
    pub(super) fn unreadable(
        area: Area,
        topic: &'static str,
        why: &'static str,
        error: &ReadError,
    ) -> Finding {
        let look = format!("cat {}", error.path().display());
        Finding::new(area, topic, why, Severity::Warning, error.to_string()).remedy(look)
    }

    pub(super) fn remedy(self, line: impl Into<String>) -> Finding {
        Finding { remedy: Some(line.into()), ..self }
    }

    pub(super) fn of(self, subject: impl Into<String>) -> Finding {
        Finding { subject: Some(subject.into()), ..self }
    }
}
