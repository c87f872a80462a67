//! A second QEMU for a guest, in a run of its own, to which the guest moves.
//!
//! Idea: the lab starts it as `ballast-lab lab listen` does, and the guest is copied with the code
//! that hosts of a fleet use. The daemon under test finds it among the sockets of the first run,
//! under another name of the guest.
//! Limits: the run has no other guest; its QEMU ends when the value is dropped.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_lab_host::{Guest, GuestRecord, GuestSpec, RunFolder, listen};
use ballast_model::{Bytes, GuestId};
use ballast_qmp::migration::{CopyLimits, GuestMigration, MigrationClient, MigrationStage, Origin};
use tokio::runtime::Runtime;

use super::{CHECKSUM, Data, Lab};
use crate::harness::{PATIENCE, wait_for};

const DOWNTIME: Duration = Duration::from_millis(300);
/// A bandwidth per second that limits nothing.
const FAST: Bytes = Bytes::gib(4);

/// The QEMU to which a guest moves; it ends when this is dropped.
pub struct Destination {
    folder: RunFolder,
    record: GuestRecord,
    spec: GuestSpec,
    /// The path of the socket at which the daemon finds it.
    found_at: PathBuf,
    runtime: Runtime,
}

impl Destination {
    /// Starts an empty QEMU for the guest `guest` of `lab`, wherever that is now. The daemon of
    /// `lab` finds it as the guest `name`.
    pub fn start(lab: &Lab, guest: &str, name: &str) -> Destination {
        let base = lab.run.folder().path().parent().unwrap();
        let id: GuestId = guest.parse().unwrap();
        let folder = RunFolder::create(base, &name.parse().unwrap()).unwrap();
        let record = listen(base, name, &id).unwrap();
        let found_at = lab.sockets().join(format!("{name}.sock"));
        std::os::unix::fs::symlink(&record.qmp_socket, &found_at).unwrap();
        let spec = lab.guest(guest).spec().clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Destination { folder, record, spec, found_at, runtime }
    }

    /// A QMP socket that the daemon does not use.
    pub fn second_qmp(&self) -> PathBuf {
        self.folder.path().join("lab").join(format!("{}.qmp", self.record.id))
    }

    fn with<T>(&self, socket: &Path, does: impl AsyncFnOnce(&mut MigrationClient) -> T) -> T {
        // QEMU may still be serving its last client.
        let connect = || self.runtime.block_on(MigrationClient::connect(socket, PATIENCE)).ok();
        let mut client = wait_for("its QMP socket", connect);
        self.runtime.block_on(does(&mut client))
    }

    /// Begins to copy the guest from the QEMU with the QMP socket `source`, which nobody else uses,
    /// at `mib_per_s` MiB a second: slow enough to be observed.
    pub fn begin(&self, source: &Path, mib_per_s: u64) {
        self.with(&self.second_qmp(), async |client| {
            client.listen(IpAddr::V4(Ipv4Addr::LOCALHOST)).await.unwrap();
        });
        let origin = Origin { is_listener: true, began_copy: false };
        let to = wait_for("where it listens", || {
            let look = async |client: &mut MigrationClient| client.look(origin).await.unwrap().0;
            match self.with(&self.second_qmp(), look) {
                GuestMigration::Listens(to) => Some(to),
                _ => None,
            }
        });
        let slow = CopyLimits { bandwidth_per_s: Bytes::mib(mib_per_s), downtime: DOWNTIME };
        self.with(source, async |client| client.copy(to, slow).await.unwrap());
    }

    /// Copies the rest at full speed, waits until all of the guest is here, and starts it.
    pub fn finish(&self, source: &Path) {
        let fast = CopyLimits { bandwidth_per_s: FAST, downtime: DOWNTIME };
        self.with(source, async |client| client.limit(fast).await.unwrap());
        wait_for("the end of the move", || {
            let stage = self.with(source, async |client| client.progress().await.unwrap().stage);
            let has_failed = matches!(stage, MigrationStage::Failed | MigrationStage::Cancelled);
            assert!(!has_failed, "{stage:?}");
            (stage == MigrationStage::Completed).then_some(())
        });
        self.with(&self.second_qmp(), async |client| client.start().await.unwrap());
    }

    /// Reads all of the guest's data in this QEMU and compares it.
    pub fn assert_intact(&self, data: &Data) {
        let moved = Guest::arrived(&self.folder, &self.spec, PATIENCE).unwrap();
        let argv = ["/bin/sh", "-c", CHECKSUM].map(str::to_owned);
        data.assert_is(&moved.exec(&argv, PATIENCE).unwrap().stdout);
    }

    /// Whether the guest's kernel has died here: see `GuestRecord::kernel_death`.
    pub fn has_kernel_died(&self) -> bool {
        self.record.kernel_death().is_some()
    }

    /// Ends its process.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.folder.end();
        let _ = std::fs::remove_file(&self.found_at);
    }
}
