//! The commands: they read arguments and produce figures, tables, pages and files.

pub mod demo;
pub mod evaluate;
pub mod imt;
pub mod lab;
pub mod lab_listen;
pub mod lab_run;
pub mod mrc;
pub mod nested;
pub mod replay;
pub mod simulate;
pub mod storm;
pub mod track_page;
