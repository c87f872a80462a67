//! Domains of libvirt, by `virsh` on this host; libvirt copies between two hosts by itself.
//!
//! Idea: the source has libvirt copy peer to peer and pause the domain at the end of the copy.
//! libvirt starts the destination's domain; once that has everything, it ends and then undefines
//! the source's. A domain that died keeps its definition, and is shut off for another reason, which
//! tells the two cases apart: so only persistent domains are moved. The figures of its copy go with
//! the source's domain, so those last seen are kept.
//! Source: `virsh(1)` of libvirt 9.0. What it prints in each phase was seen with two libvirts of
//! that version ([decision 25](../../../../docs/decisions/0025-two-phase-migration.md)).
//! Cost: two runs of `virsh` a look.
//! Limits: what libvirt does if the answer to its last step is lost is known only from its
//! documentation. The destination's libvirt is reached as `peer` says; TLS is libvirt's own. What a
//! copy sent after the last look is not counted; of one that was never seen under way nothing is.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use ballast_fleet_move::{CopyState, Process};
use ballast_model::{Bytes, GuestId};
use ballast_qmp::migration::Origin;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::hypervisor::{
    CopyProgress, ERROR_BYTES_MAX, Hypervisor, HypervisorError, HypervisorView, error_excerpt,
};

/// Placeholder for the destination's address in the URI of its libvirt.
pub(crate) const ADDRESS_PLACEHOLDER: &str = "{address}";
const VIRSH: &str = "virsh";
/// Longest run of a `virsh` command that should answer at once.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// Time between two looks whether a copy has begun.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// libvirt's number for a job that copies a domain to another host.
const MIGRATION_OUT: u64 = 5;
/// The shortest copy whose mean bandwidth counts, in milliseconds: libvirt's time also has the
/// preparation, which takes most of a second.
const MEASURED_MIN_MS: u64 = 5_000;
/// Most copies whose figures are kept: many more than run at once.
const COPIES_MAX: usize = 64;

/// How domains of libvirt are moved to and from this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibvirtConfig {
    /// The URI of this host's libvirt.
    pub uri: String,
    /// The URI of another host's libvirt, with `{address}` for its address.
    pub peer: String,
    /// The address at which other hosts reach this host's libvirt.
    pub listen: SocketAddr,
    /// Most bytes a second of a copy.
    pub bandwidth_per_s: Bytes,
}

/// Domains of libvirt.
#[derive(Clone, Debug)]
pub struct Libvirt {
    config: LibvirtConfig,
    /// The program and arguments that come before the options of `virsh`.
    program: Vec<String>,
    /// The figures of copies from here as last seen, the latest last.
    copies: RefCell<Vec<(GuestId, CopyProgress)>>,
}

/// The states that `virsh domstate --reason` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DomainState {
    /// There is no such domain, neither active nor defined.
    Undefined,
    /// It is defined but not active.
    ShutOff,
    /// The same, because it was copied to another host. It will be undefined in a moment.
    Migrated,
    /// It runs, or stands still for the last moment of a copy to another host.
    Runs,
    /// It stands still and is being filled from another host.
    Incoming,
    /// It stands still.
    Paused,
}

/// The job that `virsh domjobinfo --rawstats` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyJob {
    is_copy: bool,
    /// With the mean bandwidth so far, if that says something of the whole copy.
    progress: Option<CopyProgress>,
}

impl Libvirt {
    /// The domains of this host.
    pub fn new(config: LibvirtConfig) -> Libvirt {
        Libvirt { config, program: vec![VIRSH.to_owned()], copies: RefCell::default() }
    }

    /// The same, but `virsh` is run by these words.
    #[cfg(test)]
    pub(crate) fn run_by(self, program: Vec<String>) -> Libvirt {
        Libvirt { program, ..self }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut program = self.program.iter();
        let mut command = Command::new(program.next().map_or(VIRSH, String::as_str));
        command.args(program).args(["--quiet", "--connect", &self.config.uri]).args(words);
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        command
    }

    /// Runs one command and returns what it prints.
    async fn virsh(&self, words: &[&str]) -> Result<String, HypervisorError> {
        let mut command = self.command(words);
        command.kill_on_drop(true);
        let failed = |why: String| HypervisorError(format!("virsh {}: {why}", words[0]));
        let output = match timeout(CALL_TIME_MAX, command.output()).await {
            Ok(output) => output.map_err(|error| failed(error.to_string()))?,
            Err(_) => {
                let s = CALL_TIME_MAX.as_secs();
                return Err(failed(format!("did not end within {s} s")));
            }
        };
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(failed(error_excerpt(&output.stderr))),
        }
    }

    /// The state of a domain; `None` if it is unknown.
    async fn state(&self, guest: &GuestId) -> Option<DomainState> {
        // `list` tells a domain that does not exist from a libvirt that does not answer.
        let listed = self.virsh(&["list", "--all", "--name"]).await.ok()?;
        if !listed.lines().any(|name| name.trim() == guest.as_str()) {
            return Some(DomainState::Undefined);
        }
        domain_state(&self.virsh(&["domstate", "--reason", guest.as_str()]).await.ok()?)
    }

    async fn job(&self, guest: &GuestId) -> Option<CopyJob> {
        let text = self.virsh(&["domjobinfo", "--rawstats", guest.as_str()]).await.ok()?;
        Some(job(&text))
    }

    /// Keeps the figures of a copy under way and returns them; its bandwidth counts at the end.
    fn keep_figures(
        &self,
        guest: &GuestId,
        progress: Option<CopyProgress>,
    ) -> Option<CopyProgress> {
        let progress = progress?;
        self.drop_figures(guest);
        let mut copies = self.copies.borrow_mut();
        copies.push((guest.clone(), progress));
        if copies.len() > COPIES_MAX {
            copies.remove(0);
        }
        Some(CopyProgress { bandwidth_per_s: None, ..progress })
    }

    /// The figures of a copy that is over.
    fn last_figures(&self, guest: &GuestId) -> Option<CopyProgress> {
        self.copies.borrow().iter().find(|(id, _)| id == guest).map(|(_, progress)| *progress)
    }

    fn drop_figures(&self, guest: &GuestId) {
        self.copies.borrow_mut().retain(|(id, _)| id != guest);
    }

    /// Waits until `copy` has begun, or has ended.
    async fn wait_for_copy(
        &self,
        guest: &GuestId,
        copy: &mut Child,
    ) -> Result<(), HypervisorError> {
        loop {
            if let Ok(Some(status)) = copy.try_wait() {
                if status.success() {
                    return Ok(());
                }
                let mut text = Vec::new();
                if let Some(stderr) = copy.stderr.take() {
                    let _ = stderr.take(ERROR_BYTES_MAX as u64).read_to_end(&mut text).await;
                }
                let error = error_excerpt(&text);
                return Err(HypervisorError(format!("virsh migrate: {status}: {error}")));
            }
            if self.job(guest).await.is_some_and(|job| job.is_copy) {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Reads the state; `None` for other words.
fn domain_state(text: &str) -> Option<DomainState> {
    match text.trim() {
        "paused (migrating)" => Some(DomainState::Incoming),
        text if text.starts_with("running ") => Some(DomainState::Runs),
        text if text.starts_with("paused ") => Some(DomainState::Paused),
        "shut off (migrated)" => Some(DomainState::Migrated),
        text if text.starts_with("shut off ") => Some(DomainState::ShutOff),
        _ => None,
    }
}

fn job(text: &str) -> CopyJob {
    let figure = |name: &str| {
        let value =
            text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        value?.trim().parse::<u64>().ok()
    };
    // Job types 1 (its end is known) and 2 (its end is not) are under way.
    let is_under_way = matches!(figure("Job type"), Some(1 | 2));
    let is_copy = is_under_way && figure("operation") == Some(MIGRATION_OUT);
    let progress = figure("memory_processed").zip(figure("memory_remaining"));
    let elapsed_ms = figure("time_elapsed").filter(|ms| *ms >= MEASURED_MIN_MS);
    let progress = progress.map(|(sent, remaining)| {
        let (sent, remaining) = (Bytes::new(sent), Bytes::new(remaining));
        // Of a copy that was last seen at its beginning, the mean says little.
        let counted_ms = elapsed_ms.filter(|_| sent > Bytes::ZERO && remaining <= sent);
        let bandwidth_per_s = counted_ms.map(|ms| sent.fraction(1000, ms));
        CopyProgress { sent, remaining, bandwidth_per_s }
    });
    CopyJob { is_copy, progress }
}

/// The bytes a second that `virsh domstats --dirtyrate` prints, once they are measured.
fn dirty_rate(text: &str) -> Option<Bytes> {
    /// The line that says that a measurement is complete.
    const MEASURED: &str = "dirtyrate.calc_status=2";
    /// More than any machine writes: 1 TiB a second.
    const MIB_PER_S_MAX: u64 = 1 << 20;
    let is_measured = text.lines().any(|line| line.trim() == MEASURED);
    let rate = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("dirtyrate.megabytes_per_second="))
        .and_then(|rate| rate.parse().ok())
        .filter(|rate| *rate <= MIB_PER_S_MAX);
    rate.filter(|_| is_measured).map(Bytes::mib)
}

impl Hypervisor for Libvirt {
    fn ends_source(&self) -> bool {
        true
    }

    async fn look(&self, guest: &GuestId, origin: Origin) -> HypervisorView {
        let view = |process, copy| HypervisorView { process, copy };
        let Origin { is_listener, began_copy } = origin;
        let Some(state) = self.state(guest).await else { return view(Process::Unknown, None) };
        let waiting = Process::Waiting(self.config.listen);
        match state {
            DomainState::Undefined
            | DomainState::ShutOff
            | DomainState::Migrated
            | DomainState::Incoming
                if is_listener =>
            {
                view(waiting, None)
            }
            DomainState::Undefined | DomainState::Migrated if began_copy => {
                view(Process::Ended, self.last_figures(guest))
            }
            DomainState::Undefined | DomainState::ShutOff | DomainState::Migrated => {
                view(Process::Absent, None)
            }
            DomainState::Paused if is_listener => view(Process::Loaded, None),
            DomainState::Paused => {
                // At the end of its copy a domain is paused, too.
                match self.job(guest).await {
                    None => view(Process::Unknown, None),
                    Some(CopyJob { is_copy: true, progress }) if began_copy => {
                        view(Process::Runs(CopyState::Partly), self.keep_figures(guest, progress))
                    }
                    Some(_) => view(Process::Paused, None),
                }
            }
            // Another program moves it here.
            DomainState::Incoming => view(Process::Unknown, None),
            DomainState::Runs => match self.job(guest).await {
                None => view(Process::Unknown, None),
                Some(CopyJob { is_copy: true, progress }) => {
                    view(Process::Runs(CopyState::Partly), self.keep_figures(guest, progress))
                }
                // The copy may have ended well since the state was read. Then the domain has been
                // paused before its job ended, and the destination has the guest.
                Some(_) if began_copy => match self.state(guest).await {
                    Some(DomainState::Runs) => view(Process::Runs(CopyState::Failed), None),
                    _ => view(Process::Unknown, None),
                },
                Some(_) => view(Process::Runs(CopyState::Nothing), None),
            },
        }
    }

    async fn writes_per_s(&self, guest: &GuestId) -> Option<Bytes> {
        let text = self.virsh(&["domstats", guest.as_str(), "--dirtyrate"]).await.ok()?;
        // It fails if a measurement is under way, which is fine.
        let _ = self.virsh(&["domdirtyrate-calc", guest.as_str(), "--seconds", "1"]).await;
        dirty_rate(&text)
    }

    async fn listen(&self, _guest: &GuestId) -> Result<(), HypervisorError> {
        // libvirt always listens. The call only shows that it answers.
        self.virsh(&["version"]).await.map(drop)
    }

    async fn copy(&self, guest: &GuestId, to: SocketAddr) -> Result<(), HypervisorError> {
        let info = self.virsh(&["dominfo", guest.as_str()]).await?;
        let is_persistent = info.lines().any(|line| {
            line.strip_prefix("Persistent:").is_some_and(|value| value.trim() == "yes")
        });
        if !is_persistent {
            let why = "expected a persistent domain: one that is not cannot be told from one that \
                       died (`virsh define` makes it one)";
            return Err(HypervisorError(format!("{guest}: {why}")));
        }
        // What is left of an earlier copy is not of this one.
        self.drop_figures(guest);
        let mib_per_s = (self.config.bandwidth_per_s.get() >> 20).max(1).to_string();
        self.virsh(&["migrate-setspeed", guest.as_str(), &mib_per_s]).await?;
        let peer = self.config.peer.replace(ADDRESS_PLACEHOLDER, &to.to_string());
        let data = match to {
            SocketAddr::V4(to) => format!("tcp://{}", to.ip()),
            SocketAddr::V6(to) => format!("tcp://[{}]", to.ip()),
        };
        let words = ["migrate", "--live", "--p2p", "--persistent", "--undefinesource", "--suspend"];
        let mut command = self.command(&words);
        command.args([guest.as_str(), &peer, "--migrateuri", &data]);
        // libvirt finishes the copy even if this program dies.
        command.stdout(Stdio::null());
        let spawned = command.spawn();
        let mut copy =
            spawned.map_err(|error| HypervisorError(format!("virsh migrate: {error}")))?;
        self.wait_for_copy(guest, &mut copy).await?;
        tokio::spawn(copy.wait_with_output());
        Ok(())
    }

    async fn cancel(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        self.virsh(&["domjobabort", guest.as_str()]).await.map(drop)
    }

    async fn run(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        match self.state(guest).await {
            Some(DomainState::Runs) => Ok(()),
            _ => self.virsh(&["resume", guest.as_str()]).await.map(drop),
        }
    }

    async fn end(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        match self.state(guest).await {
            // A running domain is never ended.
            Some(DomainState::Incoming | DomainState::Paused) => {
                self.virsh(&["destroy", guest.as_str()]).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::block_on;

    #[test]
    fn output_of_virsh_is_parsed() {
        for (text, expected) in [
            ("running (booted)\n", Some(DomainState::Runs)),
            ("running (unpaused)", Some(DomainState::Runs)),
            ("paused (migrating)", Some(DomainState::Incoming)),
            ("paused (user)", Some(DomainState::Paused)),
            ("shut off (crashed)", Some(DomainState::ShutOff)),
            ("shut off (migrated)", Some(DomainState::Migrated)),
            ("no state (unknown)", None),
            ("", None),
        ] {
            assert_eq!(domain_state(text), expected, "{text}");
        }
        assert_eq!(job("Job type: 0\n\n"), CopyJob { is_copy: false, progress: None });
        let text = "Job type: 2\n\noperation: 5\ntime_elapsed: 766\nmemory_total: 67502080\n\
                    memory_processed: 108762\nmemory_remaining: 66465792\n";
        let progress = CopyProgress {
            sent: Bytes::new(108_762),
            remaining: Bytes::new(66_465_792),
            bandwidth_per_s: None,
        };
        assert_eq!(job(text), CopyJob { is_copy: true, progress: Some(progress) });
        for (sent, remaining, ms, bandwidth) in [
            (600_000_000, 5_000, 6_000, Some(100_000_000)),
            (600_000_000, 600_000_001, 6_000, None),
            (600_000_000, 5_000, 4_999, None),
            (0, 0, 6_000, None),
        ] {
            let job = job(&figures(sent, remaining, ms));
            let bandwidth = bandwidth.map(Bytes::new);
            assert_eq!(job.progress.unwrap().bandwidth_per_s, bandwidth, "{sent} {ms}");
        }
        let rate = "Domain: 'g1'\n  dirtyrate.calc_status=2\n  dirtyrate.calc_period=1\n  \
                    dirtyrate.megabytes_per_second=7\n\n";
        assert_eq!(dirty_rate(rate), Some(Bytes::mib(7)));
        assert_eq!(dirty_rate(&rate.replace("status=2", "status=1")), None);
        assert_eq!(dirty_rate("Domain: 'g1'\n"), None);
    }

    /// What `virsh domjobinfo --rawstats` prints of a copy.
    fn figures(sent: u64, remaining: u64, elapsed_ms: u64) -> String {
        format!(
            "Job type: 2\n\noperation: 5\ntime_elapsed: {elapsed_ms}\n\
             memory_processed: {sent}\nmemory_remaining: {remaining}\n"
        )
    }

    /// A source whose `virsh` prints what files say. Reading the job may change the state.
    struct FakeSource {
        folder: tempfile::TempDir,
        libvirt: Libvirt,
        guest: GuestId,
    }

    impl FakeSource {
        fn new() -> FakeSource {
            let folder = tempfile::tempdir().unwrap();
            let virsh = folder.path().join("virsh");
            let script = "case \"$4\" in\nlist) cat \"$0.list\" ;;\n\
                          domstate) cat \"$0.state\" ;;\n\
                          *) cat \"$0.job\"\n\
                          [ ! -e \"$0.next\" ] || mv \"$0.next\" \"$0.state\" ;;\nesac\n";
            std::fs::write(&virsh, script).unwrap();
            let config = LibvirtConfig {
                uri: "test:///default".to_owned(),
                peer: "test:///default".to_owned(),
                listen: ([192, 0, 2, 1], 16514).into(),
                bandwidth_per_s: Bytes::gib(1),
            };
            let words = vec!["sh".to_owned(), virsh.display().to_string()];
            let libvirt = Libvirt::new(config).run_by(words);
            let source = FakeSource { folder, libvirt, guest: "g1".parse().unwrap() };
            source.print("list", "g1\n");
            source.print("state", "running (booted)\n");
            source
        }

        fn print(&self, what: &str, text: &str) {
            std::fs::write(self.folder.path().join(format!("virsh.{what}")), text).unwrap();
        }

        /// Looks at the guest, whose copy has begun.
        fn look(&self) -> HypervisorView {
            let origin = Origin { is_listener: false, began_copy: true };
            block_on(false, self.libvirt.look(&self.guest, origin))
        }
    }

    /// libvirt has undefined it, so only what was seen before is known.
    #[test]
    fn a_copied_domain_leaves_the_figures_of_its_copy() {
        let source = FakeSource::new();
        source.print("job", &figures(600_000_000, 5_000, 6_000));
        let seen = source.look();
        assert_eq!(seen.process, Process::Runs(CopyState::Partly));
        let copy = seen.copy.unwrap();
        assert_eq!((copy.sent, copy.bandwidth_per_s), (Bytes::new(600_000_000), None));
        source.print("list", "\n");
        let seen = source.look();
        assert_eq!(seen.process, Process::Ended);
        let over = CopyProgress { bandwidth_per_s: Some(Bytes::new(100_000_000)), ..copy };
        assert_eq!(seen.copy, Some(over));
        source.libvirt.drop_figures(&source.guest);
        assert_eq!(source.look().copy, None, "those of another copy are not its own");
    }

    /// The destination has the guest then: a move that counts as failed would end it there.
    #[test]
    fn a_copy_that_ends_during_a_look_has_not_failed() {
        let source = FakeSource::new();
        source.print("job", "Job type: 0\n");
        source.print("next", "paused (post-migration)\n");
        assert_eq!(source.look().process, Process::Unknown);
        source.print("state", "running (booted)\n");
        assert_eq!(source.look().process, Process::Runs(CopyState::Failed));
    }

    #[test]
    fn a_copied_domain_has_ended_before_it_is_undefined() {
        let source = FakeSource::new();
        for (state, process) in [
            ("shut off (migrated)", Process::Ended),
            ("shut off (crashed)", Process::Absent),
            ("shut off (destroyed)", Process::Absent),
        ] {
            source.print("state", state);
            assert_eq!(source.look().process, process, "{state}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_output_does_not_panic(text in ".*", n: u64) {
            for text in [
                text.clone(),
                format!("Job type: {n}\nmemory_processed: {text}\nmemory_remaining: {n}"),
                figures(n, n, n),
                format!("dirtyrate.calc_status=2\ndirtyrate.megabytes_per_second={n}"),
            ] {
                let _ = domain_state(&text);
                let _ = job(&text);
                prop_assert!(dirty_rate(&text).is_none_or(|rate| rate <= Bytes::gib(1024)));
            }
        }
    }
}
