//! Decides who a request is from: names, tokens, sessions.
//!
//! Idea: on the socket, the kernel names the peer, as for every command. On the port, a cookie
//! does, which a visitor gets for a token. A request of a browser that changes something must also
//! carry a second secret, in a header: any site that an operator visits can make the browser send
//! requests, but it cannot read replies and so does not know the secret.

use std::sync::Mutex;
use std::time::Instant;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};

use super::hosts;
use super::port::Tokens;
use super::sessions::{self, SESSION_TIME_MAX, Session, Sessions};
use crate::server::access::Access;
use crate::server::reply::Refusal;
use crate::worker::lock;

/// The header with which actions prove that the page made them.
pub(in crate::server) const CSRF_HEADER: &str = "x-ballast-csrf";
/// Headers that browsers send with a page's requests, and programs do not.
const OF_BROWSERS: [&str; 4] = ["origin", "referer", "cookie", "sec-fetch-site"];

/// The entrance of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Entrance {
    /// Through the Unix socket.
    Socket {
        /// The peer's access.
        access: Access,
        /// The peer's user.
        uid: u32,
    },
    /// Through the page's TCP port.
    Port,
}

/// Who a request is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct Visitor {
    /// The entrance it used.
    pub(in crate::server) entrance: Entrance,
    pub(in crate::server) access: Access,
    /// The secret that its actions have to carry; `None`: it is not logged in.
    pub(in crate::server) csrf: Option<String>,
    /// Whether a request that acts has to carry the secret.
    pub(in crate::server) is_browser: bool,
}

impl Visitor {
    /// The visitor that admission noted in a request.
    pub(in crate::server) fn of(request: &Parts) -> Result<&Visitor, Refusal> {
        request.extensions.get::<Visitor>().ok_or_else(|| {
            let text = "this request was routed without admission";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no-visitor", text)
        })
    }

    /// Its name in the journal, which records who gave a command. Only owners give commands.
    pub(in crate::server) fn who(&self) -> String {
        match self.entrance {
            Entrance::Socket { uid, .. } if self.is_browser => format!("page, uid {uid}"),
            Entrance::Socket { uid, .. } => format!("uid {uid}"),
            Entrance::Port => "page, owner token".to_owned(),
        }
    }
}

/// What admission checks requests against.
pub(in crate::server) struct Keys {
    hosts: Vec<String>,
    csrf_on_socket: String,
    tokens: Tokens,
    cookie: String,
    sessions: Mutex<Sessions>,
}

impl Keys {
    /// Keys for `tokens` on the port of this number, and for requests to `hosts`.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub(in crate::server) fn new(
        hosts: Vec<String>,
        tokens: Tokens,
        port: Option<u16>,
    ) -> std::io::Result<Keys> {
        // Browsers keep cookies by host, whatever the port, so that two daemons on a host need
        // different names.
        let cookie = format!("ballast-{}", port.unwrap_or_default());
        let csrf_on_socket = sessions::secret()?;
        Ok(Keys { hosts, csrf_on_socket, tokens, cookie, sessions: Mutex::default() })
    }

    /// Whether a request through this entrance to the host that it names is answered.
    pub(in crate::server) fn answers(&self, entrance: Entrance, parts: &Parts) -> bool {
        let named = parts.headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
        let named = named.or(parts.uri.authority().map(|authority| authority.as_str()));
        let on_socket = entrance != Entrance::Port;
        named.map_or(on_socket, |host| hosts::is_answered(host, &self.hosts, on_socket))
    }

    /// Who sent a request with these headers.
    pub(in crate::server) fn visitor(&self, entrance: Entrance, headers: &HeaderMap) -> Visitor {
        match entrance {
            Entrance::Socket { access, .. } => Visitor {
                entrance,
                access,
                csrf: Some(self.csrf_on_socket.clone()),
                is_browser: OF_BROWSERS.iter().any(|name| headers.contains_key(*name)),
            },
            Entrance::Port => {
                let session = self.cookie(headers).and_then(|cookie| self.session(cookie));
                let access = session.as_ref().map_or(Access::None, |session| session.access);
                Visitor { entrance, access, csrf: session.map(|it| it.csrf), is_browser: true }
            }
        }
    }

    /// Begins a session for a token. Returns the header that sets its cookie; `None`: it is not a
    /// token.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub(super) fn log_in(&self, token: &str) -> std::io::Result<Option<String>> {
        let Some(access) = self.tokens.access(token) else { return Ok(None) };
        let secret = lock(&self.sessions).begin(access, Instant::now())?;
        Ok(Some(self.set_cookie(&secret, SESSION_TIME_MAX.as_secs())))
    }

    /// Ends the session of a request with `headers`. Returns the header that removes its cookie.
    pub(super) fn log_out(&self, headers: &HeaderMap) -> String {
        if let Some(cookie) = self.cookie(headers) {
            lock(&self.sessions).end(cookie);
        }
        self.set_cookie("", 0)
    }

    fn session(&self, cookie: &str) -> Option<Session> {
        lock(&self.sessions).find(cookie, Instant::now()).cloned()
    }

    fn cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|it| it.split_once('='));
        pairs.find(|(name, _)| name.trim() == self.cookie).map(|(_, value)| value.trim())
    }

    fn set_cookie(&self, value: &str, lasts_s: u64) -> String {
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={lasts_s}", self.cookie)
    }
}
