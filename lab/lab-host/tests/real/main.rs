//! The tests of `ballast-lab-host` with real guests.

mod agent;
mod bare;
mod damon;
mod guests;
mod host_side;
mod hotplug;
mod kernels;
mod qmp;
mod tracked;
mod tracked_bare;
mod tracked_beside;
mod tracked_killed;

/// Whether this user's guests can be tracked; prints `SKIPPED` if not.
fn may_track() -> bool {
    let is_permitted = ballast_lab_host::is_tracking_permitted();
    if !is_permitted {
        println!("SKIPPED: tracking needs root, or vm.unprivileged_userfaultfd=1");
    }
    is_permitted
}
