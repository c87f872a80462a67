//! The six policies of flexmemd.
//!
//! Idea: every guest is guaranteed its floor, the paper's `static_min`. Memory beyond the floors is
//! rented out, for credits if the policy uses them. A policy combines a frequency, a price, a
//! source of demand and an algorithm: see [`Combination`].
//!
//! Begin with `driver.rs`, the event loop; each algorithm has a file of its own with pure functions
//! of pages and credits.
//!
//! Source: R. Smith, S. Rixner, *A Policy-Based System for Dynamic Scaling of Virtual Machine
//! Memory Reservations*, SoCC 2017. Misprints are described where they are corrected.

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
mod pricing;
mod proportional;
mod round_robin;
mod settings;

pub use combination::{Algorithm, Combination, CombinationError, DemandInput, Frequency};
pub use credits::{
    ABSENCE_MAX, AccountHolder, Accounts, CREDITS_START_MAX, CREDITS_TOTAL_MAX,
    TAX_DEFAULT_BASIS_POINTS, TAX_INTERVAL, WEIGHT_MAX,
};
pub use demand::{DemandThresholds, TenantStatistics};
pub use driver::Driver;
pub use lease::{Lease, LeaseLimit, RentRequest, Tenant};
pub use policy::Flexmemd;
pub use price::{PRICE_MAX, Price, PriceRule, TARIFF_STEPS_MAX, Tariff, TariffError, TariffStep};
pub use pricing::Pricing;
pub use round_robin::RoundLimit;
pub use settings::{CombinationChoice, FlexmemdSettings};
