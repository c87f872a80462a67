//! A client of etcd, 3.4 and later, by its HTTP gateway.
//!
//! | file | answers |
//! |---|---|
//! | `wire` | how do requests and answers look as JSON, and what does a refusal mean? |
//! | `connection` | how does a request reach a member, and how large may an answer be? |
//! | `tls` | which files prove the identities of both sides, and what does a refusal mean? |
//! | `client` | which member is called, and how does etcd implement a coordinator? |
//! | `testing`, `certificates` | members of etcd, and certificates, for tests |
//!
//! Limits: HTTP/1.1. Without TLS, user and password cross the network in clear text.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "testing"))]
pub mod certificates;
mod client;
mod connection;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

pub use client::{EndpointError, EtcdClient, EtcdUser, EtcdWatch};
pub use tls::{EtcdTls, TlsFileError, TlsIdentity};
