//! What libvirt says unasked, once it was asked to: events of domains.
//!
//! Idea: an event is only a reason to look at a domain again at once; what counts is what libvirt
//! then says. So an event that is lost delays what it would have told to the next tick, and one
//! that is made up costs a call. Source: `remote_protocol.x`; `virDomainEventID`.
//! Limits: of what an event says only its domain is read.

use crate::domain::Domain;
use crate::xdr::{XdrError, XdrReader};

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A domain was started, stopped, suspended, moved, and the like.
    Lifecycle,
    /// A balloon has another size.
    BalloonChange,
    /// A device was taken out.
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

    /// Its number in the call that asks for it.
    pub(crate) const fn id(self) -> i32 {
        match self {
            EventKind::Lifecycle => 0,
            EventKind::BalloonChange => 13,
            EventKind::DeviceRemoved => 15,
            EventKind::MetadataChange => 23,
        }
    }

    /// The kind that the message of a procedure tells of.
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
    /// The domain that it is of.
    pub domain: Domain,
}

impl DomainEvent {
    /// Reads an event; `None`: one of a kind that was not asked for.
    pub(crate) fn read(procedure: i32, body: &[u8]) -> Result<Option<DomainEvent>, XdrError> {
        let Some(kind) = EventKind::of(procedure) else { return Ok(None) };
        let mut from = XdrReader::new(body);
        let _callback = from.i32("an event's number")?;
        Ok(Some(DomainEvent { kind, domain: Domain::read(&mut from)? }))
    }
}
