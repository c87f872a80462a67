//! What commands write and draw alike: files that are replaced whole, axes, plots, the command itself.

pub(crate) mod axis;
pub(crate) mod command_line;
pub(crate) mod files;
pub(crate) mod svg;
