//! Tests of QEMU features that use the same kernel mechanism as the tracker: background snapshots
//! and post-copy migration. The second user is refused, and neither the first user nor the guest is
//! harmed.
//!
//! Limits: asserts states and counts, never times; needs QEMU, and the page tracker as built for
//! release.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bare::*;
use ballast_tracker::TrackerError;

const SNAPSHOT: &str = "background-snapshot";
const POST_COPY: &str = "postcopy-ram";

fn set_capability(bare: &Bare, name: &str) -> String {
    let one = format!("\"capabilities\":[{{\"capability\":\"{name}\",\"state\":true}}]");
    bare.execute("migrate-set-capabilities", &one)
}

/// A stream to another socket, or to nowhere, that passes a limited number of bytes: a migration
/// through it cannot end before the limit is raised.
struct Stream {
    address: String,
    left: Arc<AtomicU64>,
}

impl Stream {
    fn new(bare: &Bare, to: Option<PathBuf>) -> Stream {
        let path = bare.at("stream");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let left = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&left);
        std::thread::spawn(move || {
            let (from, _) = listener.accept().unwrap();
            match to {
                None => pass_on(from, std::io::sink(), &theirs),
                Some(to) => {
                    let to = UnixStream::connect(to).unwrap();
                    let (back, into) = (to.try_clone().unwrap(), from.try_clone().unwrap());
                    std::thread::spawn(move || pass_on(back, into, &AtomicU64::new(u64::MAX)));
                    pass_on(from, to, &theirs);
                }
            }
        });
        Stream { address: format!("unix:{}", path.display()), left }
    }

    /// Lets `bytes` more pass from now on.
    fn let_pass(&self, bytes: u64) {
        self.left.store(bytes, Ordering::SeqCst);
    }
}

/// Copies until either side is closed.
fn pass_on(mut from: UnixStream, mut to: impl Write, left: &AtomicU64) {
    let mut chunk = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut chunk) {
        let take = |left: u64| left.checked_sub(len as u64);
        while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&chunk[..len]).is_err() {
            return;
        }
    }
}

fn migrate(bare: &Bare, to: &str) {
    let answer = bare.execute("migrate", &format!("\"uri\":\"{to}\""));
    assert!(answer.contains("return"), "{answer}");
}

/// The state of a migration.
fn status(bare: &Bare) -> String {
    let answer = bare.execute("query-migrate", "");
    let status = answer.split("\"status\": \"").nth(1).and_then(|rest| rest.split('"').next());
    status.unwrap_or_default().to_owned()
}

fn wait_for(bare: &Bare, wanted: &str) {
    wait_until(wanted, || {
        let status = status(bare);
        assert!(status == wanted || !["failed", "completed"].contains(&&*status), "{status}");
        status == wanted
    });
}

/// Checks the refusal that a tracker gets when it comes second.
fn assert_refused<T>(tracking: Result<T, TrackerError>) {
    let refused = tracking.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("another userfaultfd may have it"), "{refused}");
}

#[test]
fn a_snapshot_goes_first() {
    if !crate::may_track() {
        return;
    }
    let bare = Bare::start(&Spec::default());
    let memory = bare.memory();
    bare.sees_all();
    // QEMU tests whether it could take a snapshot; the tracker releases the memory for that and
    // takes it again.
    let answer = set_capability(&bare, SNAPSHOT);
    assert!(answer.contains("return"), "{answer}");
    bare.sees_all();
    for is_resting in [false, true] {
        let mut tracking = bare.track().unwrap();
        // All pages are revoked when the snapshot begins, or were before and will be again.
        tracking.begin_interval(Some(every(1))).unwrap();
        if is_resting {
            tracking.begin_interval(None).unwrap();
        }
        let stream = Stream::new(&bare, None);
        migrate(&bare, &stream.address);
        wait_for(&bare, "active");
        // QEMU has registered the memory for write protection.
        wait_until("the snapshot to begin", || has_flag(bare.pid, "uw"));
        drop(tracking);
        assert_refused(bare.track());
        assert_eq!(status(&bare), "active");
        stream.let_pass(u64::MAX);
        wait_for(&bare, "completed");
        bare.goes_on(&memory);
        bare.sees_all();
    }
}

/// A guest and its destination, both ready for post-copy.
fn pair() -> (Bare, Bare, Stream) {
    let source = Bare::start(&Spec::default());
    let path = source.at("migration");
    let more = ["-incoming".to_owned(), format!("unix:{}", path.display())].to_vec();
    let target = Bare::start(&Spec { more, ..Spec::default() });
    for bare in [&source, &target] {
        let answer = set_capability(bare, POST_COPY);
        assert!(answer.contains("return"), "{answer}");
    }
    let slow = source.execute("migrate-set-parameters", "\"max-bandwidth\":8388608");
    assert!(slow.contains("return"), "{slow}");
    let stream = Stream::new(&source, Some(path));
    (source, target, stream)
}

#[test]
fn post_copy_goes_first() {
    if !crate::may_track() {
        return;
    }
    let (source, target, stream) = pair();
    migrate(&source, &stream.address);
    wait_for(&source, "active");
    let answer = source.execute("migrate-start-postcopy", "");
    assert!(answer.contains("return"), "{answer}");
    // Both are tracked when the migration begins.
    let mut from = source.track().unwrap();
    from.begin_interval(Some(every(1))).unwrap();
    let mut to = target.track().unwrap();
    to.begin_interval(Some(every(1))).unwrap();
    // Enough to begin, but not for the 16 MiB that the guest has.
    stream.let_pass(6 << 20);
    wait_for(&source, "postcopy-active");
    wait_until("the guest to run where it goes", || {
        target.execute("query-status", "").contains("\"running\": true")
    });
    drop((from, to));
    assert_refused(target.track());
    // Tracking the source of the migration does no harm.
    source.track().unwrap().begin_interval(Some(every(1))).unwrap();
    assert_eq!(status(&source), "postcopy-active");
    stream.let_pass(u64::MAX);
    wait_for(&source, "completed");
    target.goes_on(&target.memory());
    target.sees_all();
}
