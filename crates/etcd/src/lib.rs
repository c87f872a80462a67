//! etcd 3.4 and later by its HTTP gateway.
//!
//! | file | answers |
//! |---|---|
//! | `wire` | what are requests and answers as JSON, and what does a refusal mean? |
//! | `connection` | how does a request reach a member, and how large may an answer be? |
//! | `tls` | which files prove who etcd and the host are, and what does a refusal mean? |
//! | `client` | which member is asked, and what makes etcd a coordinator? |
//! | `testing`, `certificates` | members and certificates that are made for a test |
//!
//! Limits: HTTP/1.1. Without TLS, user and password are sent for everybody on the way to read.

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
