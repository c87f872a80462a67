//! The six policies of flexmemd.
//!
//! Idea: every guest is guaranteed its floor, the paper's `static_min`; what the host has beyond
//! the floors is rented out, for credits where a policy uses them. A policy is composed of when it
//! runs, what memory costs, what demand is taken from, and an algorithm: see [`Combination`].
//!
//! Begin reading at `driver.rs`, the event loop; each algorithm is a file of its own, pure functions
//! of pages and credits.
//!
//! Source: R. Smith, S. Rixner, *A Policy-Based System for Dynamic Scaling of Virtual Machine Memory
//! Reservations*, SoCC 2017. Misprints are named where they are mended.

mod auction;
mod combination;
mod credits;
mod demand;
mod demand_proportional;
mod direct_assign;
mod driver;
mod fcfs;
mod lease;
mod market;
mod max_min;
mod policy;
mod price;
mod proportional;
mod round_robin;
mod settings;

pub use combination::{Algorithm, Combination, CombinationError, Demand, Frequency, Pricing};
pub use credits::{
    ABSENCE_MAX, CREDITS_START_MAX, CREDITS_TOTAL_MAX, Holder, Ledger, TAX_DEFAULT_BASIS_POINTS,
    TAX_INTERVAL, WEIGHT_MAX,
};
pub use demand::{Statistics, Thresholds};
pub use driver::Driver;
pub use lease::{Lease, Limit, Request, Tenant};
pub use policy::Flexmemd;
pub use price::{PRICE_MAX, Price, PriceRule, TARIFF_STEPS_MAX, Tariff, TariffError, TariffStep};
pub use round_robin::RoundLimit;
pub use settings::{Choice, Settings};
