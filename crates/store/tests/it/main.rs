//! The integration tests of `ballast-store`.

mod curves;
mod damage;
mod disk_full;
mod fixtures;
mod golden;
mod journal;
mod kill;
mod records;
mod support;
