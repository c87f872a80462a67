//! Shrinkers: programs and caches that can give memory back.
//!
//! After flexmemd's shrinkers for OSv, here for any program: if the kernel would have to swap to
//! give memory to the balloon, programs with memory that they can do without are asked first to
//! give it back. Each [`Shrinker`] says how much it can give and how much it gave. [`ShrinkWorker`]
//! goes through them, cheapest first, until an order is filled or its time is up.
//!
//! Properties: no shrinker is asked for more than it offered, and none offers memory whose loss
//! would fail requests. However many orders come, a cache keeps half of the most it used. The host
//! releases shrunk programs when the guest grows; the agent does so itself when it starts, and
//! [`SHRUNK_TIME_MAX`] after the last order. An original limit is recorded in a file before it is
//! lowered, so that it can be restored even if the agent was killed in between.

mod hooks;
mod limit_record;
mod line_client;
mod memcached;
mod page_cache;
mod redis;
mod shrinker;
mod worker;

use std::path::Path;

use ballast_agent_proto::wire::message::{NAME_LEN_MAX, NAMES_MAX};

use crate::config::ShrinkersConfig;

pub use hooks::Hook;
pub use limit_record::LimitRecord;
pub use line_client::LineClient;
pub use memcached::{Memcached, MemcachedConnection, ReassignReply};
pub use page_cache::PageCache;
pub use redis::{Redis, RedisConnection, RedisMemory};
pub use shrinker::{Shrinker, release_all};
pub use worker::{ORDER_TIME_MAX, SHRUNK_TIME_MAX, ShrinkWorker};

/// The shrinkers of `config`, cheapest first, with their limit records in `state_folder`.
pub fn configured(config: &ShrinkersConfig, state_folder: &Path) -> Vec<Box<dyn Shrinker>> {
    let mut all: Vec<Box<dyn Shrinker>> = Vec::new();
    if config.page_cache {
        all.push(Box::new(PageCache::new(Path::new("/"))));
    }
    if let Some(folder) = &config.hooks {
        for hook in Hook::all(folder) {
            all.push(Box::new(hook));
        }
    }
    if let Some(settings) = &config.memcached {
        let record = LimitRecord::open(state_folder.join("memcached"));
        all.push(Box::new(Memcached::new(settings.clone(), record)));
    }
    if let Some(settings) = &config.redis {
        let record = LimitRecord::open(state_folder.join("redis"));
        all.push(Box::new(Redis::new(settings.clone(), record)));
    }
    all.retain(|it| it.name().len() <= NAME_LEN_MAX);
    all.truncate(NAMES_MAX);
    all
}
