//! Certificates for tests: an authority and the certificates that it signs.
//!
//! Idea: they are made in the folder of each test, so that no certificate in the tree can expire.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, date_time_ymd,
};

use crate::TlsIdentity;

/// An authority that signs certificates for a test.
pub struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// Its own certificate.
    pub certificate: PathBuf,
}

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateAge {
    /// Valid.
    #[default]
    Valid,
    /// Valid until 2001.
    Expired,
    /// Valid from 2200 on.
    Early,
}

impl TestAuthority {
    /// A new authority, with files in `folder` whose names begin with `name`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn new(folder: &Path, name: &str) -> io::Result<TestAuthority> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = named(name);
        let own = params.self_signed(&key).map_err(io::Error::other)?;
        let certificate = folder.join(format!("{name}.pem"));
        fs::write(&certificate, own.pem())?;
        Ok(TestAuthority {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
            certificate,
        })
    }

    /// Signs a certificate for `names` (DNS or IP) with a new key. It is for servers and clients,
    /// as etcd's gateway is a client of its own server.
    ///
    /// # Errors
    /// A file cannot be written, or a name is not valid.
    pub fn sign(&self, file: &str, names: &[&str], age: CertificateAge) -> io::Result<TlsIdentity> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.distinguished_name = named(file);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let years = match age {
            CertificateAge::Valid => (2001, 2200),
            CertificateAge::Expired => (2000, 2001),
            CertificateAge::Early => (2200, 2201),
        };
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let signed = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let at = |end: &str| self.folder.join(format!("{file}{end}"));
        let identity = TlsIdentity { certificate: at(".pem"), key: at("-key.pem") };
        fs::write(&identity.certificate, signed.pem())?;
        fs::write(&identity.key, key.serialize_pem())?;
        Ok(identity)
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
