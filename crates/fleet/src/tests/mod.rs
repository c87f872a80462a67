//! Tests of plans as a whole: stories, properties, oracles, sabotage.

pub(crate) mod fleets;
mod optimum;
mod oracle;
mod properties;
mod records;
mod sabotage;
mod stories;
