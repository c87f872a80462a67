//! A coordinator that counts its calls.
//!
//! Idea: it wraps another coordinator and passes every call on. A watch counts as the call that
//! opens it: how long it then waits for changes says nothing about etcd.

use std::sync::Arc;
use std::time::Duration;

use ballast_fleet_proto::{
    Condition, Coordinator, CoordinatorError, KeyWrite, LeaseId, Listing, PutResult, Revision,
};
use tokio::time::Instant;

use crate::metrics::FleetMetrics;

/// A coordinator that counts its calls.
pub struct TimedCoordinator<C> {
    inner: C,
    metrics: Arc<FleetMetrics>,
}

impl<C> TimedCoordinator<C> {
    /// Wraps `inner`; its calls are counted in `metrics`.
    pub fn new(inner: C, metrics: Arc<FleetMetrics>) -> TimedCoordinator<C> {
        TimedCoordinator { inner, metrics }
    }

    async fn count<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, CoordinatorError>>,
    ) -> Result<T, CoordinatorError> {
        let began = Instant::now();
        let result = call.await;
        self.metrics.count_call(name, began.elapsed(), result.as_ref().err());
        result
    }
}

impl<C: Coordinator> Coordinator for TimedCoordinator<C> {
    type Watch = C::Watch;

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, CoordinatorError> {
        self.count("grant", self.inner.grant(ttl)).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), CoordinatorError> {
        self.count("renew", self.inner.renew(lease)).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), CoordinatorError> {
        self.count("release", self.inner.release(lease)).await
    }

    async fn read(&self, prefix: &str) -> Result<Listing, CoordinatorError> {
        self.count("read", self.inner.read(prefix)).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<C::Watch, CoordinatorError> {
        self.count("watch", self.inner.watch(prefix, after)).await
    }

    async fn compare_and_put(
        &self,
        conditions: &[Condition],
        writes: Vec<KeyWrite>,
    ) -> Result<PutResult, CoordinatorError> {
        self.count("write", self.inner.compare_and_put(conditions, writes)).await
    }
}
