//! The integration tests of `ballast-store`.

mod curves;
mod damage;
mod disk_full;
mod faulty_disk;
mod fixtures;
mod golden;
mod journal;
mod kill;
mod records;
mod support;
