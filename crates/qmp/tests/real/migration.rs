//! Migrations between two real QEMUs that run their firmware and no guest system.
//!
//! Limits: that a guest's memory comes along is tested with guests (`crates/ballast/tests/real/`).

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ballast_model::Bytes;
use ballast_qmp::migration::{CopyLimits, GuestMigration, MigrationClient, MigrationStage, Origin};
use tempfile::TempDir;

use crate::qemu::Qemu;

/// A test fails if a state is not reached within this time.
const PATIENCE: Duration = Duration::from_secs(60);
const BALLOON: &[&str] = &["-device", "virtio-balloon-pci,id=balloon0"];
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const BEGAN: Origin = Origin { is_listener: false, began_copy: true };
const LISTENER: Origin = Origin { is_listener: true, began_copy: false };
/// Slow enough to be met under way, and as fast as can be.
const SLOW: CopyLimits =
    CopyLimits { bandwidth_per_s: Bytes::kib(64), downtime: Duration::from_millis(1) };
const FAST: CopyLimits =
    CopyLimits { bandwidth_per_s: Bytes::gib(4), downtime: Duration::from_millis(300) };

/// A QEMU and a connection to it.
struct Side {
    qemu: Qemu,
    client: MigrationClient,
}

impl Side {
    async fn start(folder: &TempDir, name: &str, arguments: &[&str]) -> Side {
        let qemu = Qemu::start(&folder.path().join(name), &[BALLOON, arguments].concat());
        let client = MigrationClient::connect(qemu.socket(), PATIENCE).await.unwrap();
        Side { qemu, client }
    }

    async fn running(folder: &TempDir) -> Side {
        let mut side = Side::start(folder, "source", &[]).await;
        side.client.start().await.unwrap();
        side.wait_for(Origin::default(), GuestMigration::Runs).await;
        side
    }

    async fn listening(folder: &TempDir) -> (Side, std::net::SocketAddr) {
        let mut side = Side::start(folder, "destination", &["-incoming", "defer"]).await;
        side.wait_for(LISTENER, GuestMigration::Empty).await;
        for _ in 0..2 {
            side.client.listen(HERE).await.unwrap();
        }
        let (found, progress) = side.client.look(LISTENER).await.unwrap();
        let address = progress.listens_at.unwrap();
        assert_eq!(found, GuestMigration::Listens(address));
        (side, address)
    }

    async fn wait_for(&mut self, origin: Origin, wanted: GuestMigration) {
        let begun = Instant::now();
        loop {
            let (found, progress) = self.client.look(origin).await.unwrap();
            if found == wanted {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{found:?} instead of {wanted:?}: {progress:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_guest_that_was_copied_runs_where_it_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = Side::running(&folder).await;
    let (mut destination, address) = Side::listening(&folder).await;
    source.client.copy(address, SLOW).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::Copies).await;
    let begun = Instant::now();
    while source.client.progress().await.unwrap().total < Bytes::mib(256) {
        assert!(begun.elapsed() < PATIENCE, "it says nothing of the guest's memory");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    source.client.limit(FAST).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::Left).await;
    // Complete at the source means loaded at the destination; neither runs by itself.
    assert_eq!(destination.client.look(LISTENER).await.unwrap().0, GuestMigration::Loaded);
    let stages: Vec<_> = std::iter::from_fn(|| source.client.pop_stage()).collect();
    assert_eq!(stages.first(), Some(&MigrationStage::UnderWay));
    assert_eq!(stages.last(), Some(&MigrationStage::Completed));

    destination.client.start().await.unwrap();
    destination.wait_for(Origin::default(), GuestMigration::Runs).await;
    assert_eq!(source.client.look(BEGAN).await.unwrap().0, GuestMigration::Left);
    source.client.quit().await.unwrap();
}

#[tokio::test]
async fn a_copied_guest_that_is_not_started_elsewhere_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = Side::running(&folder).await;
    let (mut destination, address) = Side::listening(&folder).await;
    source.client.copy(address, FAST).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::Left).await;
    destination.client.quit().await.unwrap();
    source.client.start().await.unwrap();
    source.wait_for(BEGAN, GuestMigration::Runs).await;
    // It can go again.
    drop(destination);
    let again = tempfile::tempdir().unwrap();
    let (mut destination, address) = Side::listening(&again).await;
    source.client.copy(address, FAST).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::Left).await;
    destination.wait_for(LISTENER, GuestMigration::Loaded).await;
}

#[tokio::test]
async fn a_cancelled_copy_leaves_the_guest_running() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = Side::running(&folder).await;
    let (_destination, address) = Side::listening(&folder).await;
    source.client.copy(address, SLOW).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::Copies).await;
    for _ in 0..2 {
        source.client.cancel().await.unwrap();
    }
    source.wait_for(BEGAN, GuestMigration::CopyFailed).await;
}

#[tokio::test]
async fn a_destination_that_dies_leaves_the_guest_running() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = Side::running(&folder).await;
    let (mut destination, address) = Side::listening(&folder).await;
    source.client.copy(address, SLOW).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::Copies).await;
    destination.qemu.kill();
    source.wait_for(BEGAN, GuestMigration::CopyFailed).await;
    // Nor does it matter that nobody listens at all.
    source.client.copy(address, FAST).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::CopyFailed).await;
}
