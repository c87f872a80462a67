//! The daemon's configuration: one TOML file.
//!
//! Idea: [`parse()`] turns text into a validated [`Config`] without side effects. So a reload can
//! be checked before it replaces the running configuration, and a fuzzer can test it. [`load`]
//! reads the file.
//!
//! Every key is in `docs/ballast.example.toml`, which a test parses. Begin reading at `parse.rs`.

#![forbid(unsafe_code)]

mod external;
mod file;
mod flexmemd;
mod intermittent;
mod meb;
mod mechanisms;
mod page;
pub mod paging;
mod parse;
mod policy_parameters;
mod range;
mod settings;
mod tau;
mod tws;

pub use external::ExternalSettings;
pub use flexmemd::FlexmemdTable;
pub use intermittent::Intermittent;
pub use meb::MebTable;
pub use page::{PageSettings, PortSettings};
pub use parse::{floors_fit, load, parse};
pub use policy_parameters::PolicyParameters;
pub use settings::{
    AgentSettings, Config, EventSettings, JournalSettings, LibvirtSettings, OnExit, RestSettings,
    SourceChoice, TrackingSettings, XenSettings,
};
pub use tau::Tau;
pub use tws::TwsTable;

#[cfg(test)]
mod tests;
