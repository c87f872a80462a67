//! The integration tests of `ballast-actuation`.

mod fence;
mod host_pressure;
mod hotplug;
mod rates;
mod thrash;
