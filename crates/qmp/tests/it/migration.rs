//! Migrations of peers: the effect of each call, and the state that is reported at each stage.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ballast_model::Bytes;
use ballast_qmp::client::CallError;
use ballast_qmp::migration::{CopyLimits, GuestMigration, MigrationClient, MigrationStage, Origin};
use ballast_qmp_testing::{Peer, PeerConfig};
use tempfile::TempDir;

/// A test fails if a state is not reached within this time.
const PATIENCE: Duration = Duration::from_secs(30);
const SLOW: CopyLimits =
    CopyLimits { bandwidth_per_s: Bytes::mib(1), downtime: Duration::from_millis(300) };
const FAST: CopyLimits =
    CopyLimits { bandwidth_per_s: Bytes::gib(100), downtime: Duration::from_millis(300) };
const BEGAN: Origin = Origin { is_listener: false, began_copy: true };
const LISTENER: Origin = Origin { is_listener: true, began_copy: false };
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn peer(folder: &TempDir, name: &str, is_incoming: bool) -> (Peer, MigrationClient) {
    let path = folder.path().join(name);
    let peer = Peer::spawn(&path, PeerConfig { is_incoming, ..PeerConfig::default() }).unwrap();
    (peer, MigrationClient::connect(&path, PATIENCE).await.unwrap())
}

async fn wait_for(client: &mut MigrationClient, origin: Origin, wanted: GuestMigration) {
    let begun = Instant::now();
    loop {
        let (found, progress) = client.look(origin).await.unwrap();
        if found == wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?} instead of {wanted:?}: {progress:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_guest_is_copied_left_and_started_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (_source, mut from) = peer(&folder, "source", false).await;
    let (destination, mut to) = peer(&folder, "destination", true).await;
    assert_eq!(to.look(LISTENER).await.unwrap().0, GuestMigration::Empty);
    to.listen(HERE).await.unwrap();
    let (listens, progress) = to.look(LISTENER).await.unwrap();
    let address = progress.listens_at.unwrap();
    assert_eq!((listens, address.port()), (GuestMigration::Listens(address), 49152));

    assert_eq!(from.look(BEGAN).await.unwrap().0, GuestMigration::Runs);
    from.copy(address, SLOW).await.unwrap();
    let (copies, progress) = from.look(BEGAN).await.unwrap();
    assert_eq!(copies, GuestMigration::Copies);
    assert!(progress.total == Bytes::gib(1) && progress.remaining <= progress.total);
    from.limit(FAST).await.unwrap();
    wait_for(&mut from, BEGAN, GuestMigration::Left).await;
    destination.arrive();
    assert_eq!(to.look(LISTENER).await.unwrap().0, GuestMigration::Loaded);
    to.start().await.unwrap();
    assert_eq!(to.look(Origin::default()).await.unwrap().0, GuestMigration::Runs);
    let stages: Vec<_> = std::iter::from_fn(|| from.pop_stage()).collect();
    assert_eq!(stages, [MigrationStage::UnderWay, MigrationStage::Completed]);
}

#[tokio::test]
async fn a_cancelled_or_failed_copy_leaves_the_guest_running() {
    let folder = tempfile::tempdir().unwrap();
    let (source, mut from) = peer(&folder, "source", false).await;
    let address = "127.0.0.1:9".parse().unwrap();
    from.copy(address, SLOW).await.unwrap();
    from.cancel().await.unwrap();
    assert_eq!(from.look(BEGAN).await.unwrap().0, GuestMigration::CopyFailed);
    assert_eq!(from.look(Origin::default()).await.unwrap().0, GuestMigration::Runs);
    from.copy(address, SLOW).await.unwrap();
    assert_eq!(from.look(BEGAN).await.unwrap().0, GuestMigration::Copies);
    source.fail_migration();
    assert_eq!(from.look(BEGAN).await.unwrap().0, GuestMigration::CopyFailed);
}

#[tokio::test]
async fn a_guest_that_was_left_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (_source, mut from) = peer(&folder, "source", false).await;
    from.copy("127.0.0.1:9".parse().unwrap(), FAST).await.unwrap();
    wait_for(&mut from, BEGAN, GuestMigration::Left).await;
    from.start().await.unwrap();
    assert_eq!(from.look(BEGAN).await.unwrap().0, GuestMigration::Runs);
}

#[tokio::test]
async fn every_call_may_be_made_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (_source, mut from) = peer(&folder, "source", false).await;
    let (_destination, mut to) = peer(&folder, "destination", true).await;
    let address = "127.0.0.1:9".parse().unwrap();
    for _ in 0..2 {
        to.listen(HERE).await.unwrap();
        from.copy(address, SLOW).await.unwrap();
    }
    for _ in 0..2 {
        from.cancel().await.unwrap();
        from.start().await.unwrap();
    }
    // A hypervisor that already runs its guest refuses to listen.
    let refused = from.listen(HERE).await;
    assert!(matches!(refused, Err(CallError::Refused { .. })), "{refused:?}");
}
