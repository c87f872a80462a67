//! etcd 3.4 and later by its HTTP gateway.
//!
//! | file | answers |
//! |---|---|
//! | `wire` | what are requests and answers as JSON, and what does a refusal mean? |
//! | `connection` | how does a request reach a member, and how large may an answer be? |
//! | `client` | which member is asked, and what makes etcd a coordinator? |
//! | `testing` | members that are started for a test |
//!
//! Limits: plain HTTP/1.1, without TLS: etcd has to be reached by a trusted network, or through a
//! tunnel on the host. A user and a password are sent as they are.

#![forbid(unsafe_code)]

mod client;
mod connection;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wire;

pub use client::{EndpointError, EtcdClient, EtcdUser, EtcdWatch};
