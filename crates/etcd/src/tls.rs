//! TLS to etcd's members.
//!
//! Idea: etcd's certificate has to be signed by an authority in one file; the machine's other
//! authorities do not count. The host shows its own certificate if etcd asks for one. The files are
//! read for each new connection, so a renewed certificate needs no restart.
//! Cost: reading three files and a handshake for each new connection; connections are kept.
//! Source: TLS 1.2 and 1.3 by rustls with ring.
//! Limits: no revocation lists. etcd's gateway does not take the user from a certificate, so users
//! need passwords also with TLS.
//! have passwords all the same.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ballast_fleet_proto::CoordinatorError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::wire::excerpt;

/// Largest file of certificates or of a key, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How etcd's members and this client prove their identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// Certificates of the authorities that may sign etcd's, in PEM.
    pub authorities: PathBuf,
    /// What the client shows, if anything.
    pub identity: Option<TlsIdentity>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate, followed by intermediate ones, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// A file that cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", .file.display())]
pub struct TlsFileError {
    file: PathBuf,
    why: String,
}

impl EtcdTls {
    /// Reads the files once to find out whether they can be used.
    ///
    /// # Errors
    /// A file cannot be read, is not PEM, or lacks what is expected; or certificate and key do not
    /// belong together.
    pub fn check(&self) -> Result<(), TlsFileError> {
        self.configuration().map(drop)
    }

    fn configuration(&self) -> Result<ClientConfig, TlsFileError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authorities)? {
            let added = roots.add(certificate);
            added.map_err(|error| tls_file_error(&self.authorities, error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| tls_file_error(&self.authorities, error.to_string()))?
            .with_root_certificates(roots);
        let Some(TlsIdentity { certificate, key }) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let secret = PrivateKeyDer::from_pem_slice(&contents(key)?).map_err(|error| {
            tls_file_error(key, format!("expected a private key in PEM: {error}"))
        })?;
        builder.with_client_auth_cert(certificates(certificate)?, secret).map_err(|error| {
            let why = match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("it is not the key of {}", certificate.display())
                }
                error => error.to_string(),
            };
            tls_file_error(key, why)
        })
    }

    /// Starts TLS over `stream`, which is connected to `address`, `HOST:PORT`.
    pub(crate) async fn shake_hands(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, CoordinatorError> {
        let unusable = |why: String| CoordinatorError::Unreachable(why);
        let configuration = self.configuration().map_err(|error| unusable(error.to_string()))?;
        let name = host(address);
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| unusable(format!("`{name}` is neither a name nor an IP address")))?;
        let connector = TlsConnector::from(Arc::new(configuration));
        connector.connect(server, stream).await.map_err(|error| {
            unusable(match tls_cause(&error) {
                Some(cause) => self.explain(address, cause),
                None => format!(
                    "TLS with {address} failed: {error}; if etcd has none there, its endpoint \
                     begins with http://"
                ),
            })
        })
    }

    /// What `error` on a connection to `address` means, for the person who has to fix it.
    pub(crate) fn explain(&self, address: &str, error: &rustls::Error) -> String {
        match error {
            rustls::Error::InvalidCertificate(why) => self.distrusted(address, why),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                format!("{address} does not speak TLS: then its endpoint begins with http://")
            }
            rustls::Error::AlertReceived(alert) if is_about_client(*alert) => {
                match &self.identity {
                    None => format!(
                        "{address} asks for a client's certificate: set `tls.certificate` and \
                         `tls.key` ({alert:?})"
                    ),
                    Some(TlsIdentity { certificate, .. }) => format!(
                        "{address} refuses the certificate {}: {alert:?}; look at its authority, \
                         its dates, and that it is for clients",
                        certificate.display()
                    ),
                }
            }
            error => format!("TLS with {address} failed: {}", excerpt(&error.to_string())),
        }
    }

    fn distrusted(&self, address: &str, why: &CertificateError) -> String {
        let of = format!("the certificate of {address}");
        let clock = "by this machine's clock";
        match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("{of} is signed by no authority in {}", self.authorities.display())
            }
            CertificateError::ExpiredContext { time, not_after } => {
                format!("{of} expired {} ago, {clock}", between(*not_after, *time))
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                format!("{of} is valid only in {}, {clock}", between(*time, *not_before))
            }
            CertificateError::NotValidForNameContext { presented, .. } => format!(
                "{of} is not for {}, but for {}",
                host(address),
                excerpt(&presented.join(", "))
            ),
            why => format!("{of} is not accepted: {}", excerpt(&why.to_string())),
        }
    }
}

/// `HOST` of `HOST:PORT`; an IPv6 address without its brackets.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host)
}

/// Whether a server sends this alert because it refuses or misses a client's certificate.
fn is_about_client(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

fn between(from: UnixTime, to: UnixTime) -> String {
    let s = Duration::from_secs(to.as_secs().saturating_sub(from.as_secs())).as_secs();
    match (s / 86400, s / 3600, s / 60) {
        (days @ 2.., _, _) => format!("{days} days"),
        (_, hours @ 2.., _) => format!("{hours} hours"),
        (_, _, minutes @ 2..) => format!("{minutes} minutes"),
        _ => format!("{s} s"),
    }
}

/// The TLS error that caused `error`, if one did.
pub(crate) fn tls_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // The `source` of an I/O error skips the error that it wraps.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        at = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

fn tls_file_error(file: &Path, why: String) -> TlsFileError {
    TlsFileError { file: file.to_owned(), why: excerpt(&why) }
}

/// Reads the certificates in a file: at least one, in PEM.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = contents(file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(tls_file_error(file, "expected a certificate in PEM; it has none".to_owned())),
        Err(error) => Err(tls_file_error(file, format!("expected certificates in PEM: {error}"))),
    }
}

fn contents(file: &Path) -> Result<Vec<u8>, TlsFileError> {
    let read = || {
        let size = std::fs::metadata(file)?.len();
        match size {
            ..=FILE_BYTES_MAX => std::fs::read(file),
            _ => Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))),
        }
    };
    read().map_err(|error| tls_file_error(file, format!("cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_addresses_lose_port_and_brackets() {
        for (address, expected) in [
            ("etcd-1:2379", "etcd-1"),
            ("10.0.0.1:2379", "10.0.0.1"),
            ("[fd00::1]:2379", "fd00::1"),
        ] {
            assert_eq!(host(address), expected);
            assert!(ServerName::try_from(host(address)).is_ok(), "{address}");
        }
    }

    #[test]
    fn durations_are_shown_in_one_unit() {
        let at = |s: u64| UnixTime::since_unix_epoch(Duration::from_secs(s));
        for (s, expected) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 minutes"),
            (7200, "2 hours"),
            (864_000, "10 days"),
        ] {
            assert_eq!(between(at(1000), at(1000 + s)), expected);
        }
        assert_eq!(between(at(5), at(1)), "0 s", "clocks may go back");
    }
}
