//! Migrations between two real QEMUs that run their firmware and no guest system.
//!
//! Limits: whether a guest's memory arrives intact is tested with guest systems
//! (`crates/ballast/tests/real/`).

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ballast_model::Bytes;
use ballast_qmp::migration::{
    CopyLimits, DirtyRate, GuestMigration, MigrationClient, MigrationStage, Origin,
};
use tempfile::TempDir;

use crate::qemu::Qemu;

/// A test fails if a state is not reached within this time.
const PATIENCE: Duration = Duration::from_secs(60);
const BALLOON: &[&str] = &["-device", "virtio-balloon-pci,id=balloon0"];
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const BEGAN: Origin = Origin { is_listener: false, began_copy: true };
const LISTENER: Origin = Origin { is_listener: true, began_copy: false };
/// `SLOW` lets a test see the copy under way; `FAST` hardly limits it.
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
    let copied = source.client.progress().await.unwrap();
    let bandwidth = copied.bandwidth_per_s().expect("it is complete");
    assert!(bandwidth >= Bytes::kib(1) && bandwidth <= FAST.bandwidth_per_s, "{copied:?}");

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
    // The guest can be migrated again.
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
    // A copy to an address at which no process listens fails in the same way.
    source.client.copy(address, FAST).await.unwrap();
    source.wait_for(BEGAN, GuestMigration::CopyFailed).await;
}

/// A boot sector that writes 64 MiB over and over, each time with another number: it switches to
/// 32 bits (`lgdt`, `cr0`, `ljmp`), then `incl %eax; movl $0x200000,%edi; movl $0x1000000,%ecx;
/// rep stosl` in a loop; the table of segments is at 0x38.
const WRITER: [u8; 0x56] = [
    0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0xb0, 0x02, 0xe6, 0x92, 0x0f, 0x01, 0x16, 0x50, 0x7c, 0x0f, 0x20,
    0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0, 0xea, 0x1b, 0x7c, 0x08, 0x00, 0x66, 0xb8, 0x10, 0x00, 0x8e,
    0xd8, 0x8e, 0xc0, 0xfc, 0x31, 0xc0, 0x40, 0xbf, 0x00, 0x00, 0x20, 0x00, 0xb9, 0x00, 0x00, 0x00,
    0x01, 0xf3, 0xab, 0xeb, 0xf1, 0x8d, 0x76, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9a, 0xcf, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x92, 0xcf, 0x00,
    0x17, 0x00, 0x38, 0x7c, 0x00, 0x00,
];

async fn measured(side: &mut Side) -> Bytes {
    for _ in 0..2 {
        side.client.measure_dirty_rate().await.unwrap();
    }
    let begun = Instant::now();
    loop {
        match side.client.dirty_rate().await.unwrap() {
            DirtyRate::Measured { per_s } => return per_s,
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_guest_that_writes_is_told_from_an_idle_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut idle = Side::running(&folder).await;
    assert_eq!(idle.client.dirty_rate().await.unwrap(), DirtyRate::Nothing);
    let mut sector = WRITER.to_vec();
    sector.resize(1 << 20, 0);
    sector[510..512].copy_from_slice(&[0x55, 0xaa]);
    let disk = folder.path().join("writer.img");
    std::fs::write(&disk, sector).unwrap();
    let drive = format!("file={},format=raw,if=none,id=disk", disk.display());
    let disk = ["-drive", &drive, "-device", "ide-hd,drive=disk"];
    let mut writer = Side::start(&folder, "writer", &disk).await;
    writer.client.start().await.unwrap();
    // The firmware takes a while to start the boot sector.
    let begun = Instant::now();
    let mut most = Bytes::ZERO;
    while most < Bytes::mib(32) {
        most = most.max(measured(&mut writer).await);
        assert!(begun.elapsed() < PATIENCE, "it writes {most} a second at most");
    }
    assert!(most <= Bytes::mib(256), "{most}: no more than it has");
    let idle = measured(&mut idle).await;
    assert!(idle < most.fraction(1, 8), "{idle} is written by one that does nothing");
}
