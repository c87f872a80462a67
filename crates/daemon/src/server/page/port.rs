//! The page's TCP port on a loopback address, for clients that know a token.
//!
//! Idea: if something is wrong with the port or its token files, that is reported, and the daemon
//! goes on without the port: balancing matters more than a page.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use ballast_config::PortSettings;

use super::token::{self, Token, TokenError};
use crate::server::access::Access;

/// Why the page is not served on its port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Another program listens there.
    #[error(
        "port {} of {} is in use: stop who listens there (`ss -ltnp 'sport = :{}'`), or give \
         page.listen another port", .0.port(), .0.ip(), .0.port()
    )]
    InUse(SocketAddr),
    /// The port cannot be opened for another reason.
    #[error("cannot listen on {listen}: {source}")]
    Io {
        /// The address.
        listen: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// The tokens of the port.
#[derive(Default)]
pub(in crate::server) struct Tokens {
    owner: Option<Token>,
    reader: Option<Token>,
}

impl Tokens {
    /// The access that `given` has; `None`: it is not a token.
    pub(super) fn access(&self, given: &str) -> Option<Access> {
        let is = |token: &Option<Token>| token.as_ref().is_some_and(|token| token.matches(given));
        if is(&self.owner) {
            Some(Access::Write)
        } else if is(&self.reader) {
            Some(Access::Read)
        } else {
            None
        }
    }

    fn read(settings: &PortSettings) -> Result<Tokens, TokenError> {
        let user = rustix::process::geteuid().as_raw();
        let read = |path: &Option<PathBuf>| -> Result<Option<Token>, TokenError> {
            path.as_deref().map(|path| token::read(path, user)).transpose()
        };
        let (owner, reader) = (&settings.token_file, &settings.reader_token_file);
        let tokens = Tokens { owner: read(owner)?, reader: read(reader)? };
        match (&tokens.owner, &tokens.reader, owner, reader) {
            // With the same token, a reader could give commands.
            (Some(one), Some(other), Some(owner), Some(reader)) if one.equals(other) => {
                Err(TokenError::Same(owner.clone(), reader.clone()))
            }
            _ => Ok(tokens),
        }
    }
}

/// An open port that is not served yet, with its tokens.
pub(in crate::server) struct Port {
    /// The listener, nonblocking.
    pub(in crate::server) listener: TcpListener,
    pub(in crate::server) address: SocketAddr,
    pub(in crate::server) tokens: Tokens,
}

impl Port {
    /// Reads the tokens and opens the port.
    ///
    /// # Errors
    /// A token file cannot be used, or the port cannot be opened.
    pub(in crate::server) fn open(settings: &PortSettings) -> Result<Port, PortError> {
        let listen = settings.listen;
        let tokens = Tokens::read(settings)?;
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => PortError::InUse(listen),
            _ => PortError::Io { listen, source },
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Port { listener, address, tokens })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn token(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn error(settings: &PortSettings) -> String {
        Port::open(settings).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn each_token_opens_as_much_as_its_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let settings = PortSettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            token_file: Some(token(folder.path(), "owner", "too-short")),
            reader_token_file: None,
        };
        assert!(error(&settings).contains("holds no token"));
        let settings = PortSettings {
            token_file: Some(token(folder.path(), "owner", "owner-0123456789")),
            reader_token_file: Some(token(folder.path(), "reader", "reader-0123456789")),
            ..settings
        };
        let port = Port::open(&settings).unwrap();
        assert!(port.address.port() > 0);
        assert_eq!(port.tokens.access("owner-0123456789"), Some(Access::Write));
        assert_eq!(port.tokens.access("reader-0123456789"), Some(Access::Read));
        assert_eq!(port.tokens.access(""), None);
        assert_eq!(Tokens::default().access(""), None);
        let same = PortSettings { reader_token_file: settings.token_file.clone(), ..settings };
        assert!(error(&same).contains("hold the same token: readers could act"));
    }

    #[test]
    fn a_port_in_use_says_how_to_find_who_listens() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = PortSettings {
            listen: taken.local_addr().unwrap(),
            token_file: Some(token(folder.path(), "owner", "owner-0123456789")),
            reader_token_file: None,
        };
        let error = error(&settings);
        let port = taken.local_addr().unwrap().port();
        assert!(error.starts_with(&format!("port {port} of 127.0.0.1 is in use")), "{error}");
        assert!(error.contains(&format!("ss -ltnp 'sport = :{port}'")), "{error}");
    }
}
