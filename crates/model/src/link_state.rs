//! Whether the control connection to a guest's hypervisor works, and if not, why.
//!
//! Limits: it is the state when the guest was sampled.

use std::fmt;

/// Whether the hypervisor's control connection for a guest works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "row::LinkRow", into = "row::LinkRow")
)]
pub enum LinkState {
    /// It answers.
    Up,
    /// It does not answer.
    Down(LinkDown),
}

/// Why a guest's control connection does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkDown {
    /// A first connection is being made.
    Connecting,
    /// Another client holds the connection: the socket accepts one client at a time, and sent no
    /// greeting.
    Taken,
    /// The socket cannot be opened.
    PermissionDenied,
    /// No process listens: the hypervisor is gone or going.
    Refused,
    /// It did not answer in time.
    TimedOut,
    /// It violated the protocol; the text says how.
    Protocol(String),
    /// It closed the connection or the connection broke; the text says how.
    Closed(String),
}

impl fmt::Display for LinkDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkDown::Connecting => f.write_str("connecting"),
            LinkDown::Taken => f.write_str(
                "another client holds the socket: give Ballast one of its own (a second -qmp option)",
            ),
            LinkDown::PermissionDenied => {
                f.write_str("permission denied: run the daemon as the socket's owner or in its group")
            }
            LinkDown::Refused => f.write_str("nobody listens on the socket"),
            LinkDown::TimedOut => f.write_str("no answer in time"),
            LinkDown::Protocol(what) => write!(f, "protocol error: {what}"),
            LinkDown::Closed(how) => write!(f, "connection closed: {how}"),
        }
    }
}

#[cfg(feature = "serde")]
mod row {
    use serde::{Deserialize, Serialize};

    use super::{LinkDown, LinkState};

    /// A link in a row: one word for up and for each kind of down.
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "code", content = "text", rename_all = "kebab-case")]
    pub(super) enum LinkRow {
        Up,
        Connecting,
        Taken,
        PermissionDenied,
        Refused,
        TimedOut,
        Protocol(String),
        Closed(String),
    }

    impl From<LinkState> for LinkRow {
        fn from(link: LinkState) -> LinkRow {
            match link {
                LinkState::Up => LinkRow::Up,
                LinkState::Down(LinkDown::Connecting) => LinkRow::Connecting,
                LinkState::Down(LinkDown::Taken) => LinkRow::Taken,
                LinkState::Down(LinkDown::PermissionDenied) => LinkRow::PermissionDenied,
                LinkState::Down(LinkDown::Refused) => LinkRow::Refused,
                LinkState::Down(LinkDown::TimedOut) => LinkRow::TimedOut,
                LinkState::Down(LinkDown::Protocol(what)) => LinkRow::Protocol(what),
                LinkState::Down(LinkDown::Closed(how)) => LinkRow::Closed(how),
            }
        }
    }

    impl From<LinkRow> for LinkState {
        fn from(row: LinkRow) -> LinkState {
            LinkState::Down(match row {
                LinkRow::Up => return LinkState::Up,
                LinkRow::Connecting => LinkDown::Connecting,
                LinkRow::Taken => LinkDown::Taken,
                LinkRow::PermissionDenied => LinkDown::PermissionDenied,
                LinkRow::Refused => LinkDown::Refused,
                LinkRow::TimedOut => LinkDown::TimedOut,
                LinkRow::Protocol(what) => LinkDown::Protocol(what),
                LinkRow::Closed(how) => LinkDown::Closed(how),
            })
        }
    }
}
