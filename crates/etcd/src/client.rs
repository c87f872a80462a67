//! etcd as a coordinator.
//!
//! Idea: calls go to one member until one fails, then to the next member. A call is not repeated
//! after it was sent, because it may have been carried out: the caller reads again, or its
//! condition shows. All members have to be of the cluster that answered first.
//! Limits: every call ends within the client's time limit; a watch has none.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ballast_fleet_proto::{
    Changes, Condition, Coordinator, CoordinatorError, KeyWatch, KeyWrite, LeaseId, Listing,
    PutResult, Revision,
};
use serde::Serialize;
use serde_json::json;

use crate::connection::{Member, Stream, WATCH};
use crate::tls::EtcdTls;
use crate::wire::{
    Grant, Range, Renewal, Token, Transaction, TransactionRequest, WatchAnswer, needs_new_token,
    parse, parse_line, range, watch,
};

/// Most pages of one listing: enough for 65,536 hosts with three keys each, at 500 keys a page.
const PAGES_MAX: usize = 400;

/// The user that the client logs in as.
#[derive(Clone)]
pub struct EtcdUser {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
}

/// A client of one cluster of etcd.
pub struct EtcdClient {
    members: Vec<Member>,
    user: Option<EtcdUser>,
    timeout: Duration,
    state: Mutex<EndpointState>,
}

#[derive(Default)]
struct EndpointState {
    /// Index of the member that is called.
    current: usize,
    token: Option<String>,
}

/// Why endpoints are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// There is none.
    #[error("the list of endpoints is empty: expected at least one {scheme}HOST:PORT")]
    Missing {
        /// The scheme of endpoints, with its slashes.
        scheme: &'static str,
    },
    /// One has the wrong form.
    #[error("endpoint `{endpoint}`: expected {scheme}HOST:PORT")]
    Malformed {
        /// The endpoint.
        endpoint: String,
        /// The scheme of endpoints, with its slashes.
        scheme: &'static str,
    },
}

/// Watches keys for changes.
pub struct EtcdWatch {
    stream: Stream,
}

impl EtcdClient {
    /// A client of the cluster with these members, at least one, each as `http://HOST:PORT`. Calls
    /// end after `timeout`.
    ///
    /// # Errors
    /// There is no endpoint, or one has another form.
    pub fn new(
        endpoints: &[String],
        user: Option<EtcdUser>,
        timeout: Duration,
    ) -> Result<EtcdClient, EndpointError> {
        EtcdClient::of(endpoints, None, user, timeout)
    }

    /// The same with TLS: each endpoint is `https://HOST:PORT`.
    ///
    /// # Errors
    /// There is no endpoint, or one has another form.
    pub fn with_tls(
        endpoints: &[String],
        tls: EtcdTls,
        user: Option<EtcdUser>,
        timeout: Duration,
    ) -> Result<EtcdClient, EndpointError> {
        EtcdClient::of(endpoints, Some(Arc::new(tls)), user, timeout)
    }

    fn of(
        endpoints: &[String],
        tls: Option<Arc<EtcdTls>>,
        user: Option<EtcdUser>,
        timeout: Duration,
    ) -> Result<EtcdClient, EndpointError> {
        let scheme = match tls {
            Some(_) => "https://",
            None => "http://",
        };
        let (mut members, cluster) = (Vec::new(), Arc::new(OnceLock::new()));
        for endpoint in endpoints {
            let address = endpoint.strip_prefix(scheme).map(|it| it.trim_end_matches('/'));
            let port = address.and_then(|address| address.rsplit_once(':'));
            let is_valid = port.is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok() && !host.contains(['/', '@', ' '])
            });
            match address {
                Some(address) if is_valid => {
                    members.push(Member::new(address.to_owned(), tls.clone(), cluster.clone()));
                }
                _ => {
                    let endpoint = endpoint.escape_debug().to_string();
                    return Err(EndpointError::Malformed { endpoint, scheme });
                }
            }
        }
        if members.is_empty() {
            return Err(EndpointError::Missing { scheme });
        }
        Ok(EtcdClient { members, user, timeout, state: Mutex::default() })
    }

    /// The address of the member that is called now, `HOST:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.members[self.current()].address
    }

    fn current(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).current
    }

    fn token(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).token.clone()
    }

    /// Calls the next member from now on, unless another call has moved on from `at` already.
    fn use_next_member(&self, at: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.current == at {
            state.current = (at + 1) % self.members.len();
        }
    }

    /// One call to the current member. If it fails, the next call goes to the next member.
    async fn attempt<T>(
        &self,
        call: impl AsyncFnOnce(&Member) -> Result<T, CoordinatorError>,
    ) -> Result<T, CoordinatorError> {
        let at = self.current();
        let member = &self.members[at];
        let result = match tokio::time::timeout(self.timeout, call(member)).await {
            Ok(result) => result,
            Err(_) => {
                let s = self.timeout.as_secs_f64();
                let why = format!("{} did not answer within {s} s", member.address);
                Err(CoordinatorError::Unreachable(why))
            }
        };
        if let Err(
            CoordinatorError::Unreachable(_)
            | CoordinatorError::NoLeader(_)
            | CoordinatorError::Protocol(_)
            | CoordinatorError::OtherCluster { .. },
        ) = &result
        {
            self.use_next_member(at);
        }
        result
    }

    /// One call; returns the body of its answer.
    async fn call(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<Vec<u8>, CoordinatorError> {
        let body = encoded(request)?;
        let ask = async |token: Option<&str>| {
            self.attempt(async |member| member.ask(path, body.clone(), token).await).await
        };
        match ask(self.token_or_new().await?.as_deref()).await {
            // It was refused before anything was done, so it may be repeated with a new token.
            Err(error) if self.user.is_some() && needs_new_token(&error) => {
                ask(Some(&self.new_token().await?)).await
            }
            answer => answer,
        }
    }

    async fn token_or_new(&self) -> Result<Option<String>, CoordinatorError> {
        match (&self.user, self.token()) {
            (Some(_), None) => self.new_token().await.map(Some),
            (_, token) => Ok(token),
        }
    }

    async fn new_token(&self) -> Result<String, CoordinatorError> {
        let Some(EtcdUser { name, password }) = &self.user else { return Ok(String::new()) };
        let body = encoded(&json!({"name": name, "password": password}))?;
        let path = "/v3/auth/authenticate";
        let answer = self.attempt(async |member| member.ask(path, body, None).await).await?;
        let Token { token } = parse(&answer)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.token = Some(token.clone());
        Ok(token)
    }
}

fn encoded(request: &impl Serialize) -> Result<Vec<u8>, CoordinatorError> {
    serde_json::to_vec(request).map_err(|error| CoordinatorError::Protocol(error.to_string()))
}

impl Coordinator for EtcdClient {
    type Watch = EtcdWatch;

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, CoordinatorError> {
        let request = json!({"TTL": ttl.as_secs().to_string()});
        let answer: Grant = parse(&self.call("/v3/lease/grant", &request).await?)?;
        Ok(LeaseId(answer.id))
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), CoordinatorError> {
        let request = json!({"ID": lease.0.to_string()});
        let answer = self.call("/v3/lease/keepalive", &request).await?;
        let answer: Renewal = parse_line(answer.trim_ascii_end())?;
        match answer.ttl {
            1.. => Ok(()),
            _ => Err(CoordinatorError::LeaseGone),
        }
    }

    async fn release(&self, lease: LeaseId) -> Result<(), CoordinatorError> {
        let request = json!({"ID": lease.0.to_string()});
        match self.call("/v3/lease/revoke", &request).await {
            Ok(_) | Err(CoordinatorError::LeaseGone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, prefix: &str) -> Result<Listing, CoordinatorError> {
        let (mut entries, mut from, mut state) = (Vec::new(), prefix.as_bytes().to_vec(), 0);
        for _ in 0..PAGES_MAX {
            let request = range(prefix, &from, state);
            let page: Range = parse(&self.call("/v3/kv/range", &request).await?)?;
            // Later pages are read at the revision of the first one.
            if state == 0 {
                state = page.header.revision;
            }
            if let Some(last) = page.kvs.last() {
                from = last.key.clone();
                from.push(0);
            }
            let is_last = !page.more || page.kvs.is_empty();
            for pair in page.kvs {
                entries.push(pair.entry()?);
            }
            if is_last {
                return Ok(Listing { entries, revision: Revision(state) });
            }
        }
        let why = format!("more than {} keys: not one fleet's", entries.len());
        Err(CoordinatorError::Protocol(why))
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<EtcdWatch, CoordinatorError> {
        let body = encoded(&watch(prefix, after))?;
        let token = self.token_or_new().await?;
        let open = async |member: &Member| member.stream(WATCH, body, token.as_deref()).await;
        let stream = self.attempt(open).await?;
        Ok(EtcdWatch { stream })
    }

    async fn compare_and_put(
        &self,
        conditions: &[Condition],
        writes: Vec<KeyWrite>,
    ) -> Result<PutResult, CoordinatorError> {
        let request = TransactionRequest::new(conditions, writes);
        let answer: Transaction = parse(&self.call("/v3/kv/txn", &request).await?)?;
        Ok(match answer.succeeded {
            true => PutResult::Written(Revision(answer.header.revision)),
            false => PutResult::Conflict,
        })
    }
}

impl KeyWatch for EtcdWatch {
    async fn next(&mut self) -> Result<Changes, CoordinatorError> {
        loop {
            let line = self.stream.line().await?;
            let answer: WatchAnswer = parse_line(&line)?;
            if let Some(changes) = answer.changes()? {
                return Ok(changes);
            }
        }
    }
}
