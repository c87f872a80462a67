//! A finding of a diagnosis: its severity, why it matters, and the command that fixes it.
//!
//! Idea: a finding is a *problem* if something that is configured or asked for does not work, a
//! *warning* if something works worse than it could and that can be fixed, and a *note* if it is
//! good to know and a matter of choice. Every check has a finding, also when all is well, so that
//! the output shows what was checked.

use ballast_host::ReadError;
use serde::Serialize;

/// The severity of a finding, in ascending order.
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

/// The command that adds `line` to `table` of the configuration, for tables that take effect with a
/// restart.
pub(super) fn configure(config: &str, line: &str, table: &str) -> String {
    format!("$EDITOR {config} && systemctl restart ballast    # {line} under [{table}]")
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Area {
    /// The host's kernel and its settings.
    Host,
    /// Where the daemon looks for guests, and what answers there.
    Hypervisors,
    /// One guest.
    Guests,
    /// Other programs that move balloons.
    Owners,
    /// The rights of the daemon and of this command.
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

    pub(super) const fn check(self, topic: &'static str, why: &'static str) -> Check {
        Check { area: self, topic, why, subject: None }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) area: Area,
    /// What was checked: a stable word for machines.
    pub(super) topic: &'static str,
    /// Which one, if there are several: a guest's name, a folder, a socket.
    pub(super) subject: Option<String>,
    pub(super) severity: Severity,
    pub(super) found: String,
    /// Why it matters, in a sentence.
    pub(super) why: &'static str,
    /// The command that fixes it; `None`: there is nothing to fix, or no single command does.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn remedy(self, line: impl Into<String>) -> Finding {
        Finding { remedy: Some(line.into()), ..self }
    }
}

/// A check, from which its findings are made.
#[derive(Clone, Debug)]
pub(super) struct Check {
    area: Area,
    topic: &'static str,
    why: &'static str,
    subject: Option<String>,
}

impl Check {
    pub(super) fn about(self, subject: impl Into<String>) -> Check {
        Check { subject: Some(subject.into()), ..self }
    }

    /// The same check for another reason.
    pub(super) fn because(&self, why: &'static str) -> Check {
        Check { why, ..self.clone() }
    }

    pub(super) fn found(&self, severity: Severity, found: impl Into<String>) -> Finding {
        let Check { area, topic, why, subject } = self.clone();
        Finding { area, topic, subject, severity, found: found.into(), why, remedy: None }
    }

    pub(super) fn ok(&self, found: impl Into<String>) -> Finding {
        self.found(Severity::Ok, found)
    }

    pub(super) fn note(&self, found: impl Into<String>) -> Finding {
        self.found(Severity::Note, found)
    }

    pub(super) fn warning(&self, found: impl Into<String>) -> Finding {
        self.found(Severity::Warning, found)
    }

    pub(super) fn problem(&self, found: impl Into<String>) -> Finding {
        self.found(Severity::Problem, found)
    }

    /// The finding about a file that cannot be read, or has unexpected content.
    pub(super) fn unreadable(&self, error: &ReadError) -> Finding {
        self.warning(error.to_string()).remedy(format!("cat {}", error.path().display()))
    }
}
