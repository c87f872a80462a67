//! The tests of `ballast-lab-host` with real guests.

mod agent;
mod bare;
mod guests;
mod host_side;
mod hotplug;
mod kernels;
mod qmp;
mod tracked;
mod tracked_bare;
mod tracked_beside;
mod tracked_killed;
