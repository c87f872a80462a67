//! Events of domains, which libvirt sends to a client that subscribed to them.
//!
//! Idea: an event only triggers a query of its domain; what counts is the reply to the query. So a
//! lost event delays its news until the next tick, and a forged event costs one call. Source:
//! `remote_protocol.x`; `virDomainEventID`.
//! Limits: only the domain is read from an event.

use crate::domain::Domain;
use crate::xdr::{XdrError, XdrReader};

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A domain was started, stopped, suspended, moved, and the like.
    Lifecycle,
    /// A balloon has changed its size.
    BalloonChange,
    /// A device was removed.
    DeviceRemoved,
    /// Metadata were written.
    MetadataChange,
}

impl EventKind {
    /// All of them.
    pub const ALL: [EventKind; 4] = [
        EventKind::Lifecycle,
        EventKind::BalloonChange,
        EventKind::DeviceRemoved,
        EventKind::MetadataChange,
    ];

    /// Its number in the call that subscribes to it.
    pub(crate) const fn id(self) -> i32 {
        match self {
            EventKind::Lifecycle => 0,
            EventKind::BalloonChange => 13,
            EventKind::DeviceRemoved => 15,
            EventKind::MetadataChange => 23,
        }
    }

    /// The kind of event that a procedure's message reports.
    fn of(procedure: i32) -> Option<EventKind> {
        match procedure {
            318 => Some(EventKind::Lifecycle),
            331 => Some(EventKind::BalloonChange),
            333 => Some(EventKind::DeviceRemoved),
            379 => Some(EventKind::MetadataChange),
            _ => None,
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainEvent {
    /// Its kind.
    pub kind: EventKind,
    /// Its domain.
    pub domain: Domain,
}

impl DomainEvent {
    /// Reads an event; `None` if its kind is not one of these.
    pub(crate) fn read(procedure: i32, body: &[u8]) -> Result<Option<DomainEvent>, XdrError> {
        let Some(kind) = EventKind::of(procedure) else { return Ok(None) };
        let mut from = XdrReader::new(body);
        let _callback = from.i32("an event's number")?;
        Ok(Some(DomainEvent { kind, domain: Domain::read(&mut from)? }))
    }
}
