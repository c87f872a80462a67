//! The real daemon tunes the kernel's merging of equal pages (KSM) beside guests with equal memory.
//!
//! Idea: the test takes memory of the machine until the host is short, and frees it again.
//! Limits: only in an outer machine of `ballast-lab nested`, which has no other users; asserts
//! states and amounts, never times.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Daemon, Testbed, guest, wait_for};
use crate::support::Lab;
use ballast_api::MergingView;
use ballast_lab_guest::procfs;
use ballast_lab_host::{GuestSpec, NESTED_VARIABLE};
use ballast_model::Bytes;

const KSM: &str = "/sys/kernel/mm/ksm";
const GUESTS: [&str; 2] = ["one", "other"];
const BOOT: Bytes = Bytes::mib(256);
/// Memory that is the same in both guests, beside their kernels; its pages differ from each other.
const ALIKE: Bytes = Bytes::mib(16);
/// The settings before the daemon starts: off, pages to scan, and milliseconds of sleep.
const FOUND: [&str; 3] = ["0", "77", "33"];
const FILES: [&str; 3] = ["run", "pages_to_scan", "sleep_millisecs"];

#[test]
fn like_guests_are_merged_only_while_the_host_is_short() {
    if std::env::var_os(NESTED_VARIABLE).is_none() || !Path::new(KSM).exists() {
        return println!("SKIPPED: needs an outer machine of `ballast-lab nested` with KSM");
    }
    for (name, value) in FILES.iter().zip(FOUND) {
        fs::write(Path::new(KSM).join(name), value).unwrap();
    }
    let spec = |name: &str| {
        let spec = GuestSpec::new(name.parse().unwrap(), BOOT);
        GuestSpec { private_memory: true, ..spec }
    };
    let lab = Lab::boot(GUESTS.map(spec).into());
    for name in GUESTS {
        lab.shell(name, &format!("seq 1 10000000 | head -c {} >/tmp/alike", ALIKE.get()));
    }
    let testbed = Testbed::new();
    let settings = "[policy]\nname = \"static\"\n[tracking]\nenabled = false\n\
                    [mechanisms.ksm]\nenabled = true";
    testbed.configure_for(lab.sockets(), "tick = \"1s\"", settings);
    let daemon = testbed.start();
    wait_for("its first setting", || (figures()[1..] != FOUND[1..]).then_some(()));
    assert_eq!(figures()[0], "0", "a calm host is not searched");

    let taken = take_all_but_an_eighth();
    wait_for("as much to be merged of each guest as they have alike", || {
        let (host, guests) = (ksm(&daemon)?, merged(&daemon)?);
        eprintln!("{host:?}, of guests: {guests:?}");
        // An outer machine without output for long would be taken to hang.
        std::thread::sleep(Duration::from_secs(1));
        let is_merged = |bytes: &u64| *bytes >= ALIKE.get();
        (is_merged(&host.saved_bytes) && guests.iter().all(is_merged)).then_some(())
    });
    assert!(ksm(&daemon).unwrap().running);
    let (_, output, _) = testbed.ballast(&["status"]);
    assert!(output.contains("KSM saves "), "{output}");

    drop(taken);
    wait_for("rest", || (!ksm(&daemon)?.running).then_some(()));
    assert!(ksm(&daemon).unwrap().saved_bytes >= ALIKE.get(), "what is merged stays merged");
    assert_eq!(figures()[0], "0");

    let taken = take_all_but_an_eighth();
    wait_for("another search", || ksm(&daemon)?.running.then_some(()));
    assert!(daemon.stop().success());
    assert_eq!(figures(), FOUND, "as it was found");
    drop(taken);
}

/// The settings in force.
fn figures() -> [String; 3] {
    FILES.map(|name| fs::read_to_string(Path::new(KSM).join(name)).unwrap().trim().to_owned())
}

/// The host's merging, by the daemon's status.
fn ksm(daemon: &Daemon<'_>) -> Option<MergingView> {
    daemon.status()?.host.ksm
}

/// How much memory of each guest is merged, in bytes.
fn merged(daemon: &Daemon<'_>) -> Option<[u64; 2]> {
    let status = daemon.status()?;
    let of = |name| guest(&status, name)?.merged_bytes.or(Some(0));
    Some([of(GUESTS[0])?, of(GUESTS[1])?])
}

/// Takes memory until an eighth of the machine's is available; it is freed when dropped. With less
/// than a fifth available, the host counts as short.
fn take_all_but_an_eighth() -> Vec<u8> {
    let meminfo = procfs::meminfo(&fs::read_to_string("/proc/meminfo").unwrap());
    let left = meminfo.total.unwrap().fraction(1, 8);
    let taken = meminfo.available.unwrap().saturating_sub(left);
    vec![1; usize::try_from(taken.get()).unwrap()]
}
