//! Notes what changed in xenstore, and reads it.
//!
//! Idea: an event names a key; the key is noted and read in the next sample, once however often it
//! changed. Only a request for memory is read at once, because it may be an emergency. When the
//! connection is new, and when events were lost, everything is read.
//! Cost: O(log n) per event. Limits: a sample lists the domains once and reads a key once, and
//! between samples a guest's request is read [`REQUEST_APART`] after the last one at the earliest,
//! however often guests write. So a guest cannot keep a sample from its end. What changes after
//! the list was requested is found by the next sample.

use std::collections::BTreeSet;
use std::time::Duration;

use ballast_model::{LinkDown, Timestamp};
use ballast_xenstore::{Answer, Reply, Request, StoreError, StorePath};
use tokio::time::{Instant, timeout_at};

use super::in_flight::ListingParts;
use super::{RequestPurpose, XenHost};
use crate::claims::ValueTimes;
use crate::domain::{Domain, KeyEffect};
use crate::key::{DOMAINS, DomainId, DomainKey, PathKind};

/// The watch's token.
const TOKEN: &str = "ballast";
/// Shortest time between two reads of a guest's request outside of samples.
const REQUEST_APART: Duration = Duration::from_millis(200);
/// Most attempts to list domains in parts before their number settles.
const LISTINGS_MAX: u32 = 8;

impl XenHost {
    /// Sets the watch. The store answers with an event for the watched node itself.
    pub(super) fn watch(&mut self) {
        if let Ok(path) = DOMAINS.parse() {
            self.ask(Request::Watch { path, token: TOKEN.to_owned() }, RequestPurpose::Watch);
        }
        // Changes before the watch are not reported.
        let known: Vec<DomainId> = self.domains.keys().copied().collect();
        for id in known {
            self.want_all_of(id);
        }
    }

    /// Sends a request; returns whether the session accepted it.
    pub(super) fn ask(&mut self, request: Request, purpose: RequestPurpose) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let id = connection.session.request(request);
        if let Some(id) = id {
            self.asked.insert(id, purpose);
        }
        id.is_some()
    }

    /// Reads a small key, whatever its value: its answer shows that the store is alive, and the
    /// store sends all earlier events before it.
    fn check_liveness(&mut self) {
        let is_asked = self.asked.values().any(|it| *it == RequestPurpose::LivenessCheck);
        if let Some(path) = DomainKey::Name.path(DomainId::DOM0).filter(|_| !is_asked) {
            self.ask(Request::Read(path), RequestPurpose::LivenessCheck);
        }
    }

    /// Reads all keys that changed. Ends when all are read, at `until`, or with the connection.
    pub(super) async fn read_changes(&mut self, until: Instant) {
        self.read.clear();
        self.listing.was_begun = false;
        self.check_liveness();
        loop {
            self.take_events();
            self.take_answers();
            self.ask_for_domains();
            self.ask_for_keys();
            let Some(connection) = &mut self.connection else { return };
            if connection.session.unanswered() == 0 {
                if self.down.take().is_some() {
                    let socket = self.config.socket.display();
                    let domains = self.domains.len();
                    self.say(format!("connected to xenstored ({socket}), {domains} domains"));
                }
                return;
            }
            match timeout_at(until, connection.exchange()).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return self.disconnected(why),
                Err(_) => return,
            }
        }
    }

    fn ask_for_domains(&mut self) {
        let is_new = self.listing.is_wanted && !self.listing.was_begun;
        let is_due = is_new || self.listing.parts.is_some();
        if !is_due || self.listing.is_asked {
            return;
        }
        let Ok(path) = DOMAINS.parse::<StorePath>() else { return };
        let request = match &self.listing.parts {
            None => Request::Directory(path),
            Some(parts) => Request::DirectoryPart { path, offset: parts.offset },
        };
        // A change from now on needs another list.
        self.listing.is_wanted = false;
        self.listing.was_begun = true;
        self.listing.is_asked = self.ask(request, RequestPurpose::Domains);
    }

    /// Requests keys that changed, each once in a sample: a key that was read already waits for the
    /// next sample.
    fn ask_for_keys(&mut self) {
        let mut wanted = Vec::new();
        for (&(id, key), &changed) in &self.changed {
            if !self.read.contains(&(id, key)) {
                wanted.push((id, key, changed));
            }
        }
        for (id, key, changed) in wanted {
            if !self.ask_for_key(id, key, changed) {
                return;
            }
            self.read.insert((id, key));
        }
    }

    fn ask_for_key(&mut self, id: DomainId, key: DomainKey, changed: Option<Timestamp>) -> bool {
        let Some(path) = key.path(id) else { return false };
        let is_asked = self.ask(Request::Read(path), RequestPurpose::Key(id, key, changed));
        if is_asked {
            self.changed.remove(&(id, key));
        }
        is_asked
    }

    /// Marks all keys of a domain as to be read. Their values are of unknown age.
    fn want_all_of(&mut self, id: DomainId) {
        for key in DomainKey::ALL {
            self.changed.entry((id, key)).or_insert(None);
        }
    }

    /// Takes in the received events. Returns whether one is of an unknown domain, and the domains
    /// whose requests for memory changed.
    fn take_events(&mut self) -> (bool, Vec<DomainId>) {
        let (mut is_other, mut requests) = (false, Vec::new());
        let now = self.now();
        let Some(connection) = &mut self.connection else { return (false, requests) };
        if connection.session.has_lost_events() {
            self.listing.is_wanted = true;
            let all = self.domains.keys().flat_map(|id| DomainKey::ALL.map(|key| (*id, key)));
            self.changed.extend(all.map(|key| (key, None)));
        }
        while let Some(event) = self.connection.as_mut().and_then(|it| it.session.next_event()) {
            match PathKind::of(&event.path) {
                PathKind::Domains => self.listing.is_wanted = true,
                PathKind::Domain(id) => {
                    // The domain appeared or ended, or another one has its number already.
                    self.listing.is_wanted = true;
                    is_other |= !self.domains.contains_key(&id);
                    if self.domains.contains_key(&id) {
                        self.want_all_of(id);
                    }
                }
                // Guests write there as often as they like: it needs no list.
                PathKind::Part(id) if self.domains.contains_key(&id) => self.want_all_of(id),
                PathKind::Key(id, key) if self.domains.contains_key(&id) => {
                    self.changed.insert((id, key), Some(now));
                    if key == DomainKey::MemReq && !requests.contains(&id) {
                        requests.push(id);
                    }
                }
                PathKind::Part(_) | PathKind::Key(..) => {
                    // A domain that is not known yet.
                    self.listing.is_wanted = true;
                    is_other = true;
                }
                PathKind::Elsewhere => {}
            }
        }
        (is_other, requests)
    }

    /// Takes in the received answers; returns whether one calls for a sample at once.
    pub(super) fn take_answers(&mut self) -> bool {
        let mut is_urgent = false;
        while let Some((id, answer)) =
            self.connection.as_mut().and_then(|it| it.session.next_answer())
        {
            match self.asked.remove(&id) {
                // The caller no longer waits.
                None => {}
                Some(RequestPurpose::LivenessCheck) => self.answered_at = Some(self.now()),
                Some(RequestPurpose::Order) => {
                    self.order_answers.insert(id, answer);
                }
                Some(RequestPurpose::AgentAnswer) => self.continue_answer_write(id, answer),
                Some(RequestPurpose::Watch) => {
                    if let Err(error) = answer {
                        self.disconnected(LinkDown::Closed(error.to_string()));
                    }
                }
                Some(RequestPurpose::Domains) => is_urgent |= self.take_domains(answer),
                Some(RequestPurpose::Key(id, key, changed)) => {
                    is_urgent |= self.take_key(id, key, changed, answer);
                }
            }
        }
        is_urgent
    }

    /// Takes in a list of domains, or a part of one; returns whether a domain appeared or ended.
    fn take_domains(&mut self, answer: Answer) -> bool {
        self.listing.is_asked = false;
        match answer {
            Ok(Reply::Names(names)) => self.listed(&names),
            // Too many domains for one answer: they are listed in parts.
            Err(StoreError::TooLarge) => {
                self.listing.parts = Some(ListingParts::default());
                false
            }
            Ok(Reply::NamesPart { generation, names, len, is_last }) => {
                let Some(parts) = &mut self.listing.parts else { return false };
                if parts.offset > 0 && parts.generation != generation {
                    // The list changed meanwhile: start again.
                    let attempts = parts.attempts + 1;
                    let again = ListingParts { attempts, ..ListingParts::default() };
                    self.listing.parts = (attempts < LISTINGS_MAX).then_some(again);
                    return false;
                }
                parts.generation = generation;
                parts.offset = parts.offset.saturating_add(len);
                parts.names.extend(names);
                if !is_last {
                    return false;
                }
                let names = std::mem::take(&mut parts.names);
                self.listing.parts = None;
                self.listed(&names)
            }
            // No domain was ever created.
            Err(StoreError::NotFound) => self.listed(&[]),
            Ok(_) => false,
            Err(error) => {
                self.disconnected(LinkDown::Closed(error.to_string()));
                false
            }
        }
    }

    /// Takes in the names of all domains; returns whether a domain appeared or ended.
    fn listed(&mut self, names: &[String]) -> bool {
        let ids: BTreeSet<DomainId> = names.iter().filter_map(|it| DomainId::parse(it)).collect();
        let gone: Vec<DomainId> =
            self.domains.keys().filter(|id| !ids.contains(id)).copied().collect();
        for id in &gone {
            if let Some(domain) = self.domains.remove(id) {
                let name = domain.name().unwrap_or("of no name").escape_debug().to_string();
                self.say(format!("domain {id} is gone: {name}"));
            }
            self.changed.retain(|(of, _), _| of != id);
        }
        let mut is_other = !gone.is_empty();
        for id in ids {
            if !self.domains.contains_key(&id) {
                self.adopt(id);
                is_other = true;
            }
        }
        is_other
    }

    /// Adds a domain without any figures, and marks all its keys as to be read.
    fn adopt(&mut self, id: DomainId) {
        let floor = (id == DomainId::DOM0).then_some(self.config.dom0_floor);
        self.domains.insert(id, Domain::new(id, floor));
        self.read.retain(|(of, _)| *of != id);
        self.want_all_of(id);
    }

    /// Takes in the value of a key; returns whether it calls for a sample at once.
    fn take_key(
        &mut self,
        id: DomainId,
        key: DomainKey,
        changed: Option<Timestamp>,
        answer: Answer,
    ) -> bool {
        let at = ValueTimes { now: self.now(), changed };
        let period = self.config.emergency_period;
        let Some(domain) = self.domains.get_mut(&id) else { return false };
        let was_known = domain.name().is_some();
        let effect = match answer {
            Ok(Reply::Value(value)) => domain.take(key, Some(&value), at, period),
            Err(StoreError::NotFound) => domain.take(key, None, at, period),
            Ok(_) => KeyEffect::Nothing,
            Err(error) => {
                domain.complain(key, &error.to_string());
                KeyEffect::Nothing
            }
        };
        match effect {
            KeyEffect::Nothing => {
                // The domain's name is known now.
                let domain = self.domains.get(&id).and_then(Domain::name);
                let name = domain.filter(|_| !was_known).map(|it| it.escape_debug().to_string());
                let is_new = name.is_some();
                if let Some(name) = name {
                    self.say(format!("domain {id} appeared: {name}"));
                }
                is_new
            }
            KeyEffect::Emergency => true,
            KeyEffect::AnotherDomain => {
                self.say(format!("domain {id} is another virtual machine now"));
                self.adopt(id);
                true
            }
        }
    }

    /// Waits until a change calls for a sample at once, or the connection ends.
    pub(super) async fn wait_for_urgent_event(&mut self) {
        while let Some(connection) = &mut self.connection {
            if let Err(why) = connection.exchange().await {
                return self.disconnected(why);
            }
            let (is_other, requests) = self.take_events();
            for id in requests {
                self.read_request(id);
            }
            if self.take_answers() || is_other {
                return;
            }
        }
        std::future::pending().await
    }

    /// Reads a guest's request for memory now, unless it was read less than [`REQUEST_APART`] ago.
    fn read_request(&mut self, id: DomainId) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        if domain.request_read_at.is_some_and(|at| at.elapsed() < REQUEST_APART) {
            return;
        }
        domain.request_read_at = Some(Instant::now());
        let changed = self.changed.get(&(id, DomainKey::MemReq)).copied().flatten();
        self.ask_for_key(id, DomainKey::MemReq, changed);
    }
}
