//! The domains of libvirt as guests, through libvirt's own RPC.
//!
//! Idea: [`LibvirtSession`] is one connection without I/O, made of [`Call`]s; [`LibvirtHost`] is
//! the backend that keeps the connection and the domains. No C library: a handful of calls over a
//! local socket are all that balancing needs. Start reading at `host.rs`.

#![forbid(unsafe_code)]

mod call;
mod connection;
mod domain;
mod domain_guest;
mod domain_xml;
mod event;
mod host;
mod message;
mod metadata;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod version;
mod virtio_mem;
mod xdr;
mod xml;

pub use call::{BalloonStats, Call, DomainStats, RemoteError, Reply};
pub use domain::Domain;
pub use domain_xml::{DomainFacts, read_domain_xml};
pub use event::{DomainEvent, EventKind};
pub use host::{LibvirtConfig, LibvirtHost};
pub use message::MESSAGE_MAX;
pub use metadata::NAMESPACE;
pub use session::{Answer, LibvirtSession, Serial};
pub use version::{LibvirtVersion, ask_version};
pub use virtio_mem::VirtioMem;
