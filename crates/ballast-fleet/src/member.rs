//! A host's membership: it registers under a lease, keeps its record true, and tries to lead.
//!
//! Idea: three tasks run side by side: one renews the lease, one keeps the record true, one tries
//! to lead. Whichever ends first ends the session. The lease is renewed only while the record is
//! true: if the daemon is silent, or the host cannot write, the host leaves the fleet; else others
//! would plan for it by old figures. Every write has the condition that the host's name is still
//! this machine's.
//! None of this touches the daemon or a guest: whatever fails here, the host goes on balancing
//! alone.
//! Limits: one session at a time; after it ends, the next one begins with a new lease.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use ballast_fleet::HostRecord;
use ballast_fleet_proto::{
    Condition, Coordinator, CoordinatorError, FleetKey, Identity, KeyWrite, PutResult,
    Registration, WrittenParts, decode, encode,
};
use tokio::time::{Instant, sleep, timeout};

use crate::host_record::{Daemon, ObserverError};
use crate::lead;
use crate::session::{RECORD_AGE_MAX, Session};

pub use crate::session::{Member, SessionEnd};

/// The part of the lease after which it is renewed. The rest is enough for a member of etcd that
/// does not answer and another try.
const RENEW_AFTER_SHARE: f64 = 2.0 / 3.0;
/// Time until a failed renewal is tried again.
const RENEW_RETRY: Duration = Duration::from_millis(250);
/// Time between the end of a session and the next one.
const SESSION_PAUSE: Duration = Duration::from_secs(5);
/// Longest wait at the end for etcd to release the lease.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(2);

impl<C: Coordinator, D: Daemon> Member<C, D> {
    /// Runs one session after the other until `stop`; then the host leaves the fleet.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            let session = tokio::select! {
                session = self.begin() => session,
                () = &mut stop => return,
            };
            let end = match session {
                Err(end) => end,
                Ok(session) => {
                    self.metrics.set_member(true);
                    let end = tokio::select! {
                        end = self.session(&session) => Some(end),
                        () = &mut stop => None,
                    };
                    self.metrics.set_member(false);
                    self.leave(&session).await;
                    let Some(end) = end else { return };
                    end
                }
            };
            self.status_log.log("session", &end.to_string());
            tokio::select! {
                () = sleep(SESSION_PAUSE) => {}
                () = &mut stop => return,
            }
        }
    }

    /// One session, from registration to its end.
    async fn session(&self, session: &Session) -> SessionEnd {
        let host = &self.config.host;
        self.status_log.log("session", &format!("registered as {host}"));
        self.identity.set(Some(session.identity));
        let end = tokio::select! {
            // The record is written before leading begins, so that a leader knows at least its own
            // host.
            biased;
            end = self.keep(session) => end,
            end = self.report(session) => end,
            end = lead::seek(self, session) => end,
        };
        self.identity.set(None);
        end
    }

    /// Releases the lease, so that others need not wait for its end.
    async fn leave(&self, session: &Session) {
        // If that fails, the lease ends by itself.
        let _ = timeout(RELEASE_TIME_MAX, self.coordinator.release(session.lease)).await;
    }

    /// The host's record as of now.
    async fn look(&self) -> Result<HostRecord, ObserverError> {
        let measured = self.measured.borrow().clone();
        self.observer.lock().await.look(&self.daemon, &self.config, &measured).await
    }

    async fn begin(&self) -> Result<Session, SessionEnd> {
        // A host without a record does not register.
        self.look().await?;
        let host = &self.config.host;
        let key = self.config.keys.key(&FleetKey::Identity(host.clone()));
        let listing = self.coordinator.read(&key).await?;
        let found = listing.entries.into_iter().find(|entry| entry.key == key);
        if let Some(entry) = &found {
            let machine = match decode::<Identity>(&entry.value) {
                Ok(Identity { machine }) => machine,
                Err(error) => error.to_string(),
            };
            if machine != self.machine {
                return Err(SessionEnd::NameTaken(host.clone(), machine));
            }
        }
        let value = encode(&Identity { machine: self.machine.clone() })?;
        let sent_at = Instant::now();
        let found = found.map(|entry| entry.written);
        match self.coordinator.register(&key, value, self.config.lease, found).await? {
            Registration::Taken => Err(SessionEnd::Fenced),
            Registration::Registered { lease, written } => Ok(Session {
                lease,
                identity: written,
                confirmed_at: Cell::new(sent_at),
                held_until: Cell::new(sent_at + self.config.lease),
            }),
        }
    }

    /// Renews the lease while the record is true.
    async fn keep(&self, session: &Session) -> SessionEnd {
        let period = self.config.lease.mul_f64(RENEW_AFTER_SHARE);
        let mut pause = period;
        loop {
            sleep(pause).await;
            if session.confirmed_at.get().elapsed() > RECORD_AGE_MAX {
                return SessionEnd::RecordStale;
            }
            let sent_at = Instant::now();
            match self.coordinator.renew(session.lease).await {
                Ok(()) => {
                    session.held_until.set(sent_at + self.config.lease);
                    pause = period;
                }
                Err(CoordinatorError::LeaseGone) => {
                    return SessionEnd::LeaseEnded(CoordinatorError::LeaseGone);
                }
                Err(error) if Instant::now() >= session.held_until.get() => {
                    return SessionEnd::LeaseEnded(error);
                }
                Err(error) => {
                    self.status_log.log("renew", &format!("cannot renew the lease yet: {error}"));
                    pause = RENEW_RETRY;
                }
            }
        }
    }

    /// Keeps the record true.
    async fn report(&self, session: &Session) -> SessionEnd {
        let mut written = WrittenParts::new(self.config.tick);
        loop {
            match self.report_once(session, &mut written).await {
                Ok(()) => {
                    session.confirmed_at.set(Instant::now());
                    self.status_log.log("record", "the host's record is in the fleet");
                }
                Err(end @ (SessionEnd::Fenced | SessionEnd::Record(_))) => return end,
                Err(SessionEnd::Coordinator(CoordinatorError::LeaseGone)) => {
                    return SessionEnd::LeaseEnded(CoordinatorError::LeaseGone);
                }
                Err(why) => {
                    let why = format!("the host's record is not written: {why}");
                    self.status_log.log("record", &why);
                }
            }
            sleep(self.config.tick).await;
        }
    }

    async fn report_once(
        &self,
        session: &Session,
        written: &mut WrittenParts,
    ) -> Result<(), SessionEnd> {
        let record = self.look().await?;
        let due = written.due(&record, self.now());
        if due.is_empty() {
            return Ok(());
        }
        let (keys, host) = (&self.config.keys, &self.config.host);
        let put = |key: FleetKey, value| KeyWrite::Put {
            key: keys.key(&key),
            value,
            lease: Some(session.lease),
        };
        let mut writes = Vec::new();
        if let Some(slow) = &due.slow {
            writes.push(put(FleetKey::Slow(host.clone()), encode(slow)?));
        }
        if let Some(fast) = &due.fast {
            writes.push(put(FleetKey::Fast(host.clone()), encode(fast)?));
        }
        let ours = Condition {
            key: keys.key(&FleetKey::Identity(host.clone())),
            written: Some(session.identity),
        };
        match self.coordinator.compare_and_put(&[ours], writes).await? {
            PutResult::Written(_) => written.confirm(due, self.now()),
            PutResult::Conflict => return Err(SessionEnd::Fenced),
        }
        Ok(())
    }
}
