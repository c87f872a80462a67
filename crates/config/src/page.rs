//! `[page]`: where the page listens beside the API's socket, and who may look at it.
//!
//! Idea: only the configuration is checked here. The daemon checks the port and the token files
//! when it opens them.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::range::Mistake;

/// Most names of reverse proxies.
const HOSTS_MAX: usize = 16;

/// The table, as serde reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PageTable {
    listen: Option<String>,
    token_file: Option<PathBuf>,
    reader_token_file: Option<PathBuf>,
    hosts: Vec<String>,
}

/// Settings of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// The TCP port; `None`: the page is on the API's socket alone.
    pub port: Option<PortSettings>,
    /// Host names that a browser may use for the page, beside loopback ones: those of reverse
    /// proxies.
    pub hosts: Vec<String>,
}

/// A TCP port and its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// A loopback address; port 0 means any free port.
    pub listen: SocketAddr,
    /// The file with the owner's token; `None`: nobody can change anything through this port.
    pub token_file: Option<PathBuf>,
    /// The file with the token that only permits reading; `None`: there is none.
    pub reader_token_file: Option<PathBuf>,
}

impl PageTable {
    /// The validated settings, or the invalid key and what is wrong with it.
    pub(super) fn settings(self) -> Result<PageSettings, Mistake> {
        if self.hosts.len() > HOSTS_MAX {
            return Err((
                "hosts",
                format!("lists {} names: at most {HOSTS_MAX}", self.hosts.len()),
            ));
        }
        let is_name = |host: &&String| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        };
        if let Some(host) = self.hosts.iter().find(|host| !is_name(host)) {
            let message = format!(
                "`{}` is not a host's name: expected one as in a browser's address, without scheme \
                 and port, such as ballast.example.org",
                host.escape_default()
            );
            return Err(("hosts", message));
        }
        let (token_file, reader_token_file) = (self.token_file, self.reader_token_file);
        let has_token = token_file.is_some() || reader_token_file.is_some();
        let port = match self.listen {
            None if has_token => {
                let key = if token_file.is_some() { "token_file" } else { "reader_token_file" };
                return Err((key, "is of no use without `listen`: tokens are for the port".into()));
            }
            None => None,
            Some(_) if !has_token => {
                let message = "needs `token_file` or `reader_token_file`: whoever has an account on \
                               this machine can connect to a port";
                return Err(("listen", message.into()));
            }
            Some(text) => {
                let listen = address(&text).map_err(|message| ("listen", message))?;
                Some(PortSettings { listen, token_file, reader_token_file })
            }
        };
        Ok(PageSettings { port, hosts: self.hosts })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| {
        let text = text.escape_default();
        format!("`{text}` is not an address with a port: expected one such as 127.0.0.1:7117")
    })?;
    if !address.ip().is_loopback() {
        return Err(format!(
            "`{address}` is not a loopback address, and the page listens on no other: \
             listen on 127.0.0.1:{} and put a reverse proxy in front of it",
            address.port()
        ));
    }
    Ok(address)
}
