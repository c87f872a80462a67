//! Logins at the page's port.
//!
//! Idea: a login makes a session with two secrets. The secret in the cookie identifies the visitor
//! and is hidden from the page's scripts. The page sends the other one with every action, so that
//! no other site can make a browser act in the operator's name. Sessions are kept in memory only
//! and end with the daemon.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use crate::server::access::Access;

/// How long a login is valid.
pub(super) const SESSION_TIME_MAX: Duration = Duration::from_secs(12 * 3600);
/// Most sessions at once; another login ends the oldest.
pub(super) const SESSIONS_MAX: usize = 64;
/// The kernel's source of random bytes.
const RANDOM: &str = "/dev/urandom";
/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// One login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) access: Access,
    /// The secret that its actions carry.
    pub(super) csrf: String,
    begun_at: Instant,
}

/// All sessions, by the secret of the cookie.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<String, Session>,
}

impl Sessions {
    /// Begins a session. Returns the secret of its cookie.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub(super) fn begin(&mut self, access: Access, now: Instant) -> io::Result<String> {
        let (cookie, csrf) = (secret()?, secret()?);
        self.open.retain(|_, session| is_valid(session, now));
        while self.open.len() >= SESSIONS_MAX {
            let oldest = self.open.iter().min_by_key(|(_, session)| session.begun_at);
            let Some(oldest) = oldest.map(|(cookie, _)| cookie.clone()) else { break };
            self.open.remove(&oldest);
        }
        self.open.insert(cookie.clone(), Session { access, csrf, begun_at: now });
        Ok(cookie)
    }

    /// The session of a cookie; `None`: there is none, or it is over.
    pub(super) fn find(&self, cookie: &str, now: Instant) -> Option<&Session> {
        self.open.get(cookie).filter(|session| is_valid(session, now))
    }

    /// Ends the session of a cookie.
    pub(super) fn end(&mut self, cookie: &str) {
        self.open.remove(cookie);
    }
}

fn is_valid(session: &Session, now: Instant) -> bool {
    now.saturating_duration_since(session.begun_at) < SESSION_TIME_MAX
}

/// A text that cannot be guessed.
///
/// # Errors
/// The kernel gives no random bytes.
pub(super) fn secret() -> io::Result<String> {
    let mut bytes = [0_u8; SECRET_BYTES];
    File::open(RANDOM)?.read_exact(&mut bytes)?;
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lasts_until_it_is_over() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let cookie = sessions.begin(Access::Read, now).unwrap();
        assert_eq!(cookie.len(), 64);
        let session = sessions.find(&cookie, now).unwrap();
        assert_eq!(session.access, Access::Read);
        assert_ne!(session.csrf, cookie);
        assert!(sessions.find(&cookie, now + SESSION_TIME_MAX - Duration::from_secs(1)).is_some());
        assert!(sessions.find(&cookie, now + SESSION_TIME_MAX).is_none());
        assert!(sessions.find("", now).is_none());
        sessions.end(&cookie);
        assert!(sessions.find(&cookie, now).is_none());
    }

    #[test]
    fn one_login_too_many_ends_the_oldest() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let second = Duration::from_secs(1);
        let cookies: Vec<String> = (0..=SESSIONS_MAX as u32)
            .map(|nth| sessions.begin(Access::Write, now + second * nth).unwrap())
            .collect();
        assert!(sessions.find(&cookies[0], now).is_none());
        assert!(cookies[1..].iter().all(|cookie| sessions.find(cookie, now).is_some()));
        // Sessions that are over make room, too.
        let later = now + SESSION_TIME_MAX * 2;
        sessions.begin(Access::Write, later).unwrap();
        assert_eq!(sessions.open.len(), 1);
    }
}
