//! Tests of the page tracker inside real hypervisors, some of them set up so that tracking must
//! fail.
//!
//! Limits: asserts states and counts, never times; needs QEMU, and the page tracker as built for
//! release. Tests that need root are skipped for other users, with a message.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use crate::bare::*;
use ballast_tracker::{
    TrackerError, TrackingSession, check_shared, clear_referenced, referenced, trackable_at,
};

#[test]
fn a_hypervisor_in_the_background_is_tracked() {
    if !crate::may_track() {
        return;
    }
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

#[test]
fn file_memory_is_tracked_and_private_memory_is_refused() {
    if !crate::may_track() {
        return;
    }
    // Memory in a file, and memory in a folder of files.
    let folder = tempfile::Builder::new().prefix("ballast-").tempdir_in("/dev/shm").unwrap();
    let file = folder.path().join("ram");
    for path in [&file, folder.path()] {
        let backend = format!("memory-backend-file,share=on,mem-path={}", path.display());
        let bare = Bare::start(&Spec { backend, ..Spec::default() });
        assert!(
            matches!(bare.track().unwrap_err(), TrackerError::NoMemory),
            "its path is not given"
        );
        let guest = trackable_at(Path::new("/proc"), bare.pid).unwrap();
        assert_eq!((&guest.address, &guest.paths), (&bare.tracker(), &vec![text(path)]));
        let paths: Vec<&str> = guest.paths.iter().map(String::as_str).collect();
        wait_until("every page to be seen", || {
            let tracking = TrackingSession::begin(bare.pid, &guest.address, &paths, None);
            // The tracker does not forget its last client at once.
            tracking.is_ok_and(|mut tracking| sees(&mut tracking))
        });
        assert_eq!(check_shared(bare.pid, &paths, MEMORY).map_err(|it| it.to_string()), Ok(()));
        let less = check_shared(bare.pid, &paths, MEMORY + 4096).unwrap_err().to_string();
        assert!(less.contains("67112960 bytes of memory but only 67108864 are mapped"), "{less}");
        assert_looks(bare.pid, &paths);
    }
    // Private memory cannot be tracked, nor watched by the kernel's accessed bits.
    let private = Spec { backend: "memory-backend-memfd,share=off".to_owned(), ..Spec::default() };
    let bare = Bare::start(&private);
    for told in [bare.track().map(|_| ()), check_shared(bare.pid, &[], 0)] {
        let told = told.unwrap_err().to_string();
        assert!(told.contains("mapped privately, all 67108864 bytes"), "{told}");
        assert!(told.contains("share=on"), "{told}");
    }
    let anonymous = Spec { backend: "memory-backend-ram".to_owned(), ..Spec::default() };
    let told = Bare::start(&anonymous).track().unwrap_err().to_string();
    assert!(told.contains("memory-backend-memfd,share=on"), "{told}");
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The kernel's accessed bits show what an emulated guest touches, with a tracker or without one.
/// Under KVM they do not, and using them is refused.
fn assert_looks(pid: u32, paths: &[&str]) {
    if is_kvm() {
        assert!(matches!(clear_referenced(pid), Err(TrackerError::Kvm)));
        return;
    }
    wait_until("the referenced bits to be set", || {
        clear_referenced(pid).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let bytes = referenced(pid, paths).unwrap();
        assert!(bytes <= MEMORY);
        bytes >= TOUCHED * 4096
    });
}

#[test]
fn a_guest_without_the_library_is_told_and_looked_at() {
    let bare = Bare::start(&Spec { has_tracker: false, ..Spec::default() });
    assert_eq!(trackable_at(Path::new("/proc"), bare.pid), None);
    let told = bare.track().unwrap_err().to_string();
    assert!(told.contains("no tracker at") && told.contains("LD_PRELOAD"), "{told}");
    assert_looks(bare.pid, &[]);
}

#[test]
fn a_hypervisor_without_privileges_needs_the_device_or_says_so() {
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    if !rustix::process::geteuid().is_root() || setting.is_ok_and(|it| it.trim() == "1") {
        return println!("SKIPPED: needs root, and a host on which only root may");
    }
    let bare = Bare::start(&Spec { user: Some(65_534), ..Spec::default() });
    let memory = bare.memory();
    let error = bare.track().unwrap_err();
    assert!(error.is_lasting(), "{error}");
    assert!(error.to_string().contains("pass an open /dev/userfaultfd"), "{error}");
    bare.goes_on(&memory);
    // The alternative for this guest.
    assert_looks(bare.pid, &[]);
    let device = std::fs::File::options().read(true).write(true).open("/dev/userfaultfd").unwrap();
    wait_until("every page to be seen", || {
        let device = Some(device.as_fd());
        let tracking = TrackingSession::begin(bare.pid, &bare.tracker(), &[], device);
        tracking.is_ok_and(|mut tracking| sees(&mut tracking))
    });
    bare.goes_on(&memory);
}
