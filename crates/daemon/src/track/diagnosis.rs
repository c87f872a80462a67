//! Which sources of working sets work on this host, guest by guest, and why the others do not.
//!
//! Idea: each source runs the checks that it would run before it starts, and one that fails is
//! passed over or waited for by the daemon's own rule (`source_order.rs`), so that the diagnosis
//! agrees with what the daemon then does.
//! Cost: some 10 ms per guest, for its mappings.
//! Limits: does not connect to a tracker, because a tracker has one client at a time. Takes DAMON
//! into use for an instant, which stops a session that a killed daemon left.

use std::path::Path;

use ballast_config::SourceChoice;
use ballast_damon::{DamonError, DamonPaths, DamonSession};
use ballast_host::PROC;
use ballast_reclaim::{PageGenerations, ReclaimError};
use ballast_tracker::{
    Hypervisor, TrackerError, check_referenced_bits, check_shared, hypervisors, memory_paths_at,
};
use serde::Serialize;

use super::damon::{HUGE_MAX, memory_in_huge_pages};
use super::mglru;
use super::source::SourceError;
use super::source_order::{SourceKind, SourceOrder};

/// Whether a source works, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceFinding {
    /// Whether it works.
    pub works: bool,
    /// Whether it cannot work as long as the hypervisor lives; `false` if it works.
    #[serde(skip)]
    pub is_lasting: bool,
    /// A remark; if the source does not work, the reason.
    pub note: String,
    /// What would make it work, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The sources for one guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuestDiagnosis {
    /// Its name, if the hypervisor's command line has one.
    pub guest: Option<String>,
    /// The hypervisor's process.
    pub pid: u32,
    /// The library in its hypervisor.
    pub library: SourceFinding,
    /// The kernel's DAMON.
    pub damon: SourceFinding,
    /// The generations of its cgroup's pages.
    pub mglru: SourceFinding,
    /// The kernel's referenced bits.
    pub referenced: SourceFinding,
}

/// The sources on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrackingDiagnosis {
    /// The kernel's DAMON, for any guest.
    pub damon: SourceFinding,
    /// The generations of pages, for any guest that has a cgroup of its own.
    pub mglru: SourceFinding,
    /// Every running guest.
    pub guests: Vec<GuestDiagnosis>,
}

impl SourceFinding {
    fn works(note: impl Into<String>) -> SourceFinding {
        SourceFinding { works: true, is_lasting: false, note: note.into(), remedy: None }
    }

    fn fails(note: impl Into<String>, remedy: Option<&str>) -> SourceFinding {
        let (note, remedy) = (note.into(), remedy.map(str::to_owned));
        SourceFinding { works: false, is_lasting: false, note, remedy }
    }

    fn lasting(self, is_lasting: bool) -> SourceFinding {
        SourceFinding { is_lasting, ..self }
    }
}

impl GuestDiagnosis {
    /// The source that `source = "auto"` takes; `None`: none works, or one is waited for
    /// ([`GuestDiagnosis::awaited`]). `allows_bits` is `referenced` under `[tracking]`.
    pub fn best(&self, allows_bits: bool) -> Option<&'static str> {
        let (source, finding) = self.kept(allows_bits)?;
        finding.works.then_some(source.code())
    }

    /// The source that `source = "auto"` waits for, because it may work again, instead of taking
    /// one that is trusted less; `None`: it takes one, or none can work.
    pub fn awaited(&self, allows_bits: bool) -> Option<&'static str> {
        let (source, finding) = self.kept(allows_bits)?;
        (!finding.works && !finding.is_lasting).then_some(source.code())
    }

    /// The source that `source = "auto"` does not give up, with what was found of it.
    fn kept(&self, allows_bits: bool) -> Option<(SourceKind, &SourceFinding)> {
        let order = SourceOrder { choice: SourceChoice::Auto, allows_bits };
        let is_kept = |(source, finding): &(SourceKind, &SourceFinding)| {
            finding.works || !order.gives_up(*source, finding.is_lasting)
        };
        order.sources().map(|source| (source, self.finding(source))).find(is_kept)
    }

    fn finding(&self, source: SourceKind) -> &SourceFinding {
        match source {
            SourceKind::Library => &self.library,
            SourceKind::Damon => &self.damon,
            SourceKind::Mglru => &self.mglru,
            SourceKind::Referenced => &self.referenced,
        }
    }
}

impl TrackingDiagnosis {
    /// Checks this host and all its guests.
    pub fn of_host() -> TrackingDiagnosis {
        let is_root = rustix::process::geteuid().is_root();
        let damon = damon_finding(DamonSession::probe(DamonPaths::default()), is_root);
        let guests = hypervisors(Path::new(PROC));
        let guests = guests.iter().map(|guest| guest_diagnosis(guest, &damon)).collect();
        let mglru = mglru_finding(PageGenerations::probe(Path::new("/")), is_root);
        TrackingDiagnosis { damon, mglru, guests }
    }
}

fn damon_finding(probed: Result<(), DamonError>, is_root: bool) -> SourceFinding {
    match probed {
        Ok(()) => SourceFinding::works("nobody uses it"),
        Err(DamonError::Ours) => {
            SourceFinding::works("in use by the daemon, or by `ballast track`")
        }
        Err(error @ DamonError::System { .. }) if !is_root => {
            SourceFinding::fails(error.to_string(), Some("run this as root"))
        }
        Err(error) => {
            let is_lasting = error.is_lasting();
            let remedy = match &error {
                DamonError::NoTracefs(folder) => {
                    Some(format!("mount -t tracefs tracefs {}", folder.display()))
                }
                _ => is_lasting.then(|| "boot a kernel that has it".to_owned()),
            };
            SourceFinding { works: false, is_lasting, note: error.to_string(), remedy }
        }
    }
}

fn guest_diagnosis(guest: &Hypervisor, damon: &SourceFinding) -> GuestDiagnosis {
    let paths = memory_paths_at(Path::new(PROC), guest.pid);
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let is_shared = check_shared(guest.pid, &paths, 0);
    GuestDiagnosis {
        guest: guest.name.clone(),
        pid: guest.pid,
        library: library_finding(guest.tracker.is_some(), &is_shared),
        damon: pages_finding(guest.pid, damon.clone()),
        mglru: mglru_finding_of(guest.pid),
        referenced: match check_referenced_bits(Path::new(PROC), guest.pid).and(is_shared) {
            Ok(()) => SourceFinding::works("with `referenced = true` under [tracking]"),
            // The remedy is another source.
            Err(TrackerError::Kvm) => SourceFinding::fails(
                "the guest runs under KVM, so its process's referenced bits do not show what it touches",
                None,
            )
            .lasting(true),
            Err(error) => SourceFinding::fails(error.to_string(), None).lasting(error.is_lasting()),
        },
    }
}

fn library_finding(is_preloaded: bool, is_shared: &Result<(), TrackerError>) -> SourceFinding {
    const PRELOAD: &str = "restart the guest with LD_PRELOAD=libballast_track.so, \
        BALLAST_TRACK_SOCKET=PATH and shared memory (docs/tracking.md)";
    match (is_preloaded, is_shared) {
        (true, Ok(())) => SourceFinding::works("preloaded"),
        (true, Err(error)) => {
            SourceFinding::fails(error.to_string(), Some(PRELOAD)).lasting(error.is_lasting())
        }
        (false, _) => {
            SourceFinding::fails("not preloaded in its hypervisor", Some(PRELOAD)).lasting(true)
        }
    }
}

fn mglru_finding(probed: Result<(), ReclaimError>, is_root: bool) -> SourceFinding {
    match probed {
        Ok(()) => SourceFinding::works("for guests that have a cgroup of their own"),
        Err(error) => {
            SourceFinding::fails(error.to_string(), (!is_root).then_some("run this as root"))
                .lasting(error.is_lasting())
        }
    }
}

fn mglru_finding_of(pid: u32) -> SourceFinding {
    const OWN: &str = "give the guest's hypervisor a memory cgroup of its own (docs/tracking.md)";
    match mglru::probe(pid) {
        Ok(()) => pages_finding(pid, SourceFinding::works("its cgroup is its own")),
        Err(error) => {
            let remedy = match &error {
                SourceError::Unlisted { .. }
                | SourceError::Memory(
                    ReclaimError::NoCgroup { .. } | ReclaimError::SharedCgroup { .. },
                ) => Some(OWN),
                _ => None,
            };
            SourceFinding::fails(error.to_string(), remedy).lasting(error.is_lasting())
        }
    }
}

/// Whether the kernel sees the guest's pages, provided that it sees any (`host`).
fn pages_finding(pid: u32, host: SourceFinding) -> SourceFinding {
    const SPLIT: &str =
        "write never to /sys/kernel/mm/transparent_hugepage/enabled before the guest starts";
    if !host.works {
        return host;
    }
    match memory_in_huge_pages(pid) {
        Err(error) => SourceFinding::fails(error.to_string(), None).lasting(error.is_lasting()),
        Ok((_, huge)) if huge.ratio() > HUGE_MAX => SourceFinding {
            remedy: Some(SPLIT.to_owned()),
            ..SourceFinding::works(format!(
                "an upper bound: {:.0} % of its memory is in huge pages",
                100.0 * huge.ratio()
            ))
        },
        Ok(_) => SourceFinding::works("page by page"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A guest with these findings.
    fn guest([library, damon, mglru, referenced]: [SourceFinding; 4]) -> GuestDiagnosis {
        GuestDiagnosis { guest: None, pid: 1, library, damon, mglru, referenced }
    }

    fn works() -> SourceFinding {
        SourceFinding::works("")
    }

    /// It can never work.
    fn lacks() -> SourceFinding {
        SourceFinding::fails("", None).lasting(true)
    }

    #[test]
    fn the_most_trusted_source_that_works_is_best() {
        for (found, best) in [
            ([works(), works(), works(), works()], Some("library")),
            ([lacks(), works(), works(), works()], Some("damon")),
            ([lacks(), lacks(), works(), works()], Some("mglru")),
            ([lacks(), lacks(), lacks(), works()], Some("referenced")),
            ([lacks(), lacks(), lacks(), lacks()], None),
        ] {
            let guest = guest(found);
            assert_eq!((guest.best(true), guest.awaited(true)), (best, None), "{guest:?}");
        }
        assert_eq!(guest([lacks(), lacks(), lacks(), works()]).best(false), None);
    }

    #[test]
    fn no_other_source_is_promised_while_auto_waits_for_damon() {
        let taken = DamonError::Foreign { kdamonds: 1, admin: PathBuf::from("/sys/x") };
        let unmounted = DamonError::NoTracefs(PathBuf::from("/sys/t"));
        for error in [taken, unmounted, DamonError::Kernel] {
            let guest = guest([lacks(), damon_finding(Err(error), true), works(), works()]);
            assert_eq!((guest.best(false), guest.awaited(false)), (None, Some("damon")));
            // Where bits may be used, it does not wait.
            assert_eq!((guest.best(true), guest.awaited(true)), (Some("mglru"), None));
        }
        let absent = DamonError::Absent(PathBuf::from("/sys/x"));
        let guest = guest([lacks(), damon_finding(Err(absent), true), works(), works()]);
        assert_eq!((guest.best(false), guest.awaited(false)), (Some("mglru"), None));
    }

    #[test]
    fn generations_that_may_work_again_are_waited_for() {
        let found = |error| guest([lacks(), lacks(), mglru_finding(Err(error), true), works()]);
        let (path, why) = (PathBuf::from("/sys/x"), "turned off".to_owned());
        let off = found(ReclaimError::Unreadable { path: path.clone(), why: why.clone() });
        assert_eq!((off.best(false), off.awaited(false)), (None, Some("mglru")));
        assert_eq!((off.best(true), off.awaited(true)), (Some("referenced"), None));
        let absent = found(ReclaimError::NoGenerations { path, why });
        assert_eq!((absent.best(false), absent.awaited(false)), (None, None));
    }

    #[test]
    fn a_preloaded_library_that_may_work_again_is_waited_for() {
        let found = |error| guest([library_finding(true, &Err(error)), works(), works(), works()]);
        let closed = found(TrackerError::Closed);
        assert_eq!((closed.best(false), closed.awaited(false)), (None, Some("library")));
        let private = found(TrackerError::Private { private: 4096 });
        assert_eq!((private.best(false), private.awaited(false)), (Some("damon"), None));
    }

    #[test]
    fn damon_findings_name_cause_and_remedy() {
        assert!(damon_finding(Ok(()), true).works);
        assert!(
            damon_finding(Err(DamonError::Ours), true).works,
            "the daemon's own use is no fault"
        );
        let absent = || DamonError::Absent(PathBuf::from("/sys/x"));
        assert_eq!(
            damon_finding(Err(absent()), true),
            SourceFinding::fails(absent().to_string(), Some("boot a kernel that has it"))
                .lasting(true)
        );
        let told = damon_finding(Err(DamonError::NoTracefs(PathBuf::from("/sys/t"))), true);
        assert_eq!(told.remedy.as_deref(), Some("mount -t tracefs tracefs /sys/t"));
        let denied = || DamonError::System {
            what: "open",
            path: PathBuf::from("/sys/x"),
            source: std::io::ErrorKind::PermissionDenied.into(),
        };
        assert_eq!(damon_finding(Err(denied()), false).remedy.as_deref(), Some("run this as root"));
        assert_eq!(damon_finding(Err(denied()), true).remedy, None);
    }

    #[test]
    fn mglru_findings_name_the_cause() {
        assert!(mglru_finding(Ok(()), false).works);
        let off = || ReclaimError::Unreadable { path: "/sys/x".into(), why: "turned off".into() };
        assert_eq!(
            mglru_finding(Err(off()), true),
            SourceFinding::fails("/sys/x: turned off", None)
        );
        assert_eq!(mglru_finding(Err(off()), false).remedy.as_deref(), Some("run this as root"));
    }

    #[test]
    fn a_library_needs_shared_memory() {
        let private = TrackerError::Private { private: 4096 };
        assert!(library_finding(true, &Ok(())).works);
        let told = library_finding(true, &Err(private));
        assert!(!told.works && told.note.contains("share=on"), "{told:?}");
        assert!(!library_finding(false, &Ok(())).works);
    }

    #[test]
    fn a_process_without_guest_memory_has_no_source() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let idle = Hypervisor { pid: child.id(), name: None, tracker: None };
        let told = guest_diagnosis(&idle, &SourceFinding::works("nobody uses it"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((told.best(false), told.best(true)), (None, None), "{told:?}");
    }
}
