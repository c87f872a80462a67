//! What happens between samples: events of libvirt, and commands of operators.
//!
//! Limits: an event only triggers a query (`event.rs`).

use std::sync::Arc;

use ballast_model::{GuestChange, GuestId};
use tokio::time::Instant;

use super::LibvirtHost;
use crate::call::{Call, Reply};
use crate::connection::Purpose;
use crate::event::{DomainEvent, EventKind};
use crate::metadata;

impl LibvirtHost {
    /// Subscribes to events, once for each connection.
    pub(super) fn watch(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if connection.session.is_open() && !std::mem::replace(&mut connection.is_watched, true) {
            for kind in EventKind::ALL {
                self.call(Call::Watch(kind), Purpose::Watch);
            }
        }
    }

    /// Takes in the received events; returns whether one of them calls for a sample at once.
    pub(super) fn handle_events(&mut self) -> bool {
        let mut is_urgent = false;
        while let Some(event) = self.connection.as_mut().and_then(|it| it.session.next_event()) {
            let DomainEvent { kind, domain } = event;
            let known = self.guests.values_mut().find(|guest| guest.domain == domain);
            is_urgent |= match (kind, known) {
                (EventKind::Lifecycle, _) => true,
                (EventKind::DeviceRemoved | EventKind::MetadataChange, Some(guest)) => {
                    guest.wants_facts = true;
                    true
                }
                // While an order is carried out, its guest is sampled often anyway.
                (EventKind::BalloonChange, Some(guest)) => !guest.was_ordered_lately(),
                (_, None) => false,
            };
        }
        is_urgent
    }

    /// Waits until an event calls for a sample at once, or the connection ends.
    pub(super) async fn wait_for_urgent_event(&mut self) {
        while let Some(connection) = &mut self.connection {
            let moved = connection.exchange().await;
            connection.sort_answers();
            if let Err(why) = moved {
                self.disconnected(why);
                return;
            }
            if self.handle_events() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Makes a call, and waits for its reply.
    async fn ask(&mut self, call: Call, until: Instant) -> Result<Reply, String> {
        let Some(serial) = self.call(call, Purpose::Command) else {
            return Err(format!("libvirt: {}", self.down()));
        };
        self.run(until, |it| !it.pending.contains_key(&serial)).await;
        let Some(connection) = &mut self.connection else {
            return Err(format!("libvirt: {}; it may have been done", self.down()));
        };
        connection.pending.remove(&serial);
        match connection.replies.remove(&serial) {
            Some(answer) => answer.map_err(|error| error.to_string()),
            None => Err("libvirt does not answer in time; it may still do it".to_owned()),
        }
    }

    /// Writes settings into the domain's metadata, also of its stored configuration if it has one.
    pub(super) async fn write_settings(
        &mut self,
        id: &GuestId,
        settings: &GuestChange,
    ) -> Result<(), String> {
        let until = Instant::now() + self.config.command_timeout;
        let domain = self.guests.get(id).map(|guest| guest.domain.clone());
        let domain = domain.ok_or_else(|| format!("{id} is gone"))?;
        let stored = self.ask(Call::IsPersistent(domain.clone()), until).await?;
        let stored = matches!(stored, Reply::IsPersistent(true));
        let element = metadata::write(settings);
        self.ask(Call::SetMetadata { domain, element, stored }, until).await?;
        if let Some(guest) = self.guests.get_mut(id) {
            guest.settings = Some(Arc::new(settings.clone()));
            guest.wants_facts = true;
        }
        Ok(())
    }
}
