//! The page tracker inside of real hypervisors, of which some are not as one would wish.
//!
//! Limits: asserts states and counts, never times; needs QEMU, and the page tracker as built for release.
//! What only root may do is tried by root only, and said.

mod bare;

use bare::*;

#[test]
fn a_hypervisor_in_the_background_is_tracked() {
    let bare = Bare::start(&Spec { is_daemonized: true, ..Spec::default() });
    let memory = bare.memory();
    let mut tracking = bare.track().unwrap();
    assert_eq!(tracking.client().pid(), bare.pid);
    drop(tracking);
    bare.sees_all();
    bare.goes_on(&memory);
    assert!(bare.at("track").exists());
    bare.qmp("{\"execute\":\"quit\"}");
    wait_until("its socket to go with it", || !bare.at("track").exists());
}
