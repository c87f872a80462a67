//! All containers that the configuration names, as a [`Backend`].
//!
//! Idea: every full sample looks for new containers; every sample reads their files anew, and keeps
//! none open. A cgroup that holds a virtual machine is refused, because that machine may be a guest
//! already. So is a cgroup within another guest's, because its memory would count twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_backend::{Backend, GuestReading, SampleRequest, Waiting};
use ballast_model::{Action, Bytes, GuestId, Outcome, OutcomeKind, Plan, Timestamp};
use tokio::time::{Instant, timeout_at};

use crate::container::{Container, PendingOrder};
use crate::find::{CgroupPattern, cgroup2_mount};

/// Most notices kept; further ones are dropped.
const NOTICES_MAX: usize = 1000;

/// Most cgroups below a container that are searched for virtual machines.
const INNER_MAX: usize = 64;

/// Longest name of a guest.
const NAME_MAX: usize = 64;

/// Settings of the containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainersConfig {
    /// The cgroups that are guests.
    pub cgroups: Vec<CgroupPattern>,
    /// The most memory that a container without a limit of its own may have; `None`: such
    /// containers are refused.
    pub memory: Option<Bytes>,
    /// Whether they are probed for idle memory.
    pub probes: bool,
    /// How long to wait for an order.
    pub order_timeout: Duration,
    /// Most containers; further ones are refused with a notice.
    pub guests_max: usize,
}

/// The containers of this host.
#[derive(Debug)]
pub struct Containers {
    config: ContainersConfig,
    proc: PathBuf,
    /// The root of cgroups; `None` if they are not of version 2.
    root: Option<PathBuf>,
    containers: BTreeMap<GuestId, Container>,
    /// Cgroups that are refused as guests, and why.
    refused: BTreeMap<PathBuf, String>,
    notices: Vec<String>,
}

impl Containers {
    /// The containers on the host whose processes are in `proc` (usually `/proc`).
    pub fn new(config: ContainersConfig, proc: &Path) -> Containers {
        let (root, why) = match root(proc) {
            Ok(root) => (Some(root), None),
            Err(why) => (None, Some(format!("no container is a guest: {why}"))),
        };
        Containers {
            config,
            proc: proc.to_owned(),
            root,
            containers: BTreeMap::new(),
            refused: BTreeMap::new(),
            notices: Vec::from_iter(why),
        }
    }

    fn say(&mut self, notice: String) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }

    /// Looks for containers that are new, and for those that are gone.
    fn discover(&mut self, now: Timestamp) {
        let Some(root) = self.root.clone() else { return };
        let patterns = &self.config.cgroups;
        let folders: BTreeSet<PathBuf> = patterns.iter().flat_map(|it| it.folders(&root)).collect();
        let is_gone = |container: &Container| {
            !folders.contains(container.folder())
                || inode(container.folder()) != Some(container.inode())
        };
        let gone: Vec<GuestId> = self
            .containers
            .iter()
            .filter(|(_, container)| is_gone(container))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.containers.remove(&id);
            self.say(format!("container {id} is gone"));
        }
        let known: BTreeSet<&Path> = self.containers.values().map(Container::folder).collect();
        let new: Vec<&PathBuf> =
            folders.iter().filter(|folder| !known.contains(folder.as_path())).collect();
        let mut refused = BTreeMap::new();
        for folder in new {
            match self.adopt(folder, now) {
                Ok(id) => self.say(format!("container {id}: {}", folder.display())),
                Err(why) => {
                    if self.refused.get(folder) != Some(&why) {
                        self.say(format!("ignoring the cgroup {}: {why}", folder.display()));
                    }
                    refused.insert(folder.clone(), why);
                }
            }
        }
        self.refused = refused;
    }

    /// Makes a guest of a cgroup.
    ///
    /// # Errors
    /// The reason why it is refused.
    fn adopt(&mut self, folder: &Path, now: Timestamp) -> Result<GuestId, String> {
        for other in self.containers.values().map(Container::folder) {
            if folder.starts_with(other) {
                return Err(format!("it is within {}, which is a guest", other.display()));
            }
            if other.starts_with(folder) {
                return Err(format!("{}, which is a guest, is within it", other.display()));
            }
        }
        let id = guest_name(folder).ok_or("its name names no guest")?;
        if self.containers.contains_key(&id) {
            return Err(format!("another container is called {id}"));
        }
        if self.containers.len() >= self.config.guests_max {
            return Err(format!("there are {} containers already", self.config.guests_max));
        }
        if holds_virtual_machine(folder, &self.proc) {
            return Err("it holds a virtual machine, which is reached by QMP or libvirt".to_owned());
        }
        let inode = inode(folder).ok_or("it is gone")?;
        let container = Container::open(folder, inode, self.config.memory, now)?;
        self.containers.insert(id.clone(), container);
        Ok(id)
    }

    fn sample_now(&mut self, request: SampleRequest<'_>) -> Vec<GuestReading> {
        let SampleRequest { now, only, .. } = request;
        if only.is_none() {
            self.discover(now);
        }
        let mut troubles = Vec::new();
        let mut readings = Vec::with_capacity(self.containers.len());
        for (id, container) in &mut self.containers {
            if only.is_none_or(|only| only.contains(id)) {
                // A container that has just ended is dropped by the next sample.
                if let Err(why) = container.observe(now)
                    && container.folder().exists()
                {
                    troubles.push(format!("container {id}: {why}"));
                }
                if self.config.probes && only.is_none() {
                    container.probe(now);
                }
            }
            let sample = container.sample(id, now);
            readings.push(GuestReading {
                sample,
                pid: None,
                listens_at: None,
                has_answered: true,
                settings: None,
            });
        }
        for trouble in troubles {
            self.say(trouble);
        }
        readings
    }

    async fn order_all(&mut self, now: Timestamp, actions: &[Action]) -> Vec<Outcome> {
        let until = Instant::now() + self.config.order_timeout;
        let sent: Vec<Result<PendingOrder, OutcomeKind>> =
            actions.iter().map(|action| self.order(action, now)).collect();
        let mut outcomes = Vec::with_capacity(actions.len());
        for (action, sent) in actions.iter().zip(sent) {
            let kind = match sent {
                Err(not_sent) => not_sent,
                Ok(done) => match timeout_at(until, done).await {
                    // The kernel has set the limit, and may still be reclaiming.
                    Err(_) | Ok(Ok(Ok(()))) => OutcomeKind::Accepted,
                    Ok(Ok(Err(why))) => OutcomeKind::Failed(why),
                    Ok(Err(_)) => OutcomeKind::Failed("the order's thread has ended".to_owned()),
                },
            };
            outcomes.push(Outcome {
                guest: action.guest.clone(),
                generation: action.generation,
                target: action.target,
                kind,
            });
        }
        outcomes
    }

    fn order(&mut self, action: &Action, now: Timestamp) -> Result<PendingOrder, OutcomeKind> {
        let failed = |why: &str| OutcomeKind::Failed(format!("not sent: {why}"));
        let container =
            self.containers.get_mut(&action.guest).ok_or(failed("the guest is gone"))?;
        container.gate.check(action, now)?;
        if action.plug.is_some() {
            return Err(failed("nothing can be plugged into a container"));
        }
        container.gate.sent(action);
        container.order(action.target).map_err(|why| failed(&why))
    }
}

impl Backend for Containers {
    fn name(&self) -> &'static str {
        "containers"
    }

    fn sample<'a>(&'a mut self, request: SampleRequest<'a>) -> Waiting<'a, Vec<GuestReading>> {
        let readings = self.sample_now(request);
        Box::pin(std::future::ready(readings))
    }

    fn act_all<'a>(
        &'a mut self,
        now: Timestamp,
        actions: &'a [Action],
    ) -> Waiting<'a, Vec<Outcome>> {
        Box::pin(self.order_all(now, actions))
    }

    fn planned(&mut self, plan: &Plan) {
        for (id, container) in &mut self.containers {
            let index = plan.guests.binary_search_by(|guest| guest.id.cmp(id));
            let Ok(index) = index else { continue };
            let guest = &plan.guests[index];
            // A guest that is only observed is not probed either, because a probe takes memory.
            let is_left = guest.change.leaves_alone();
            let floor = guest.bounds.map_or(Bytes::MAX, |bounds| bounds.floor);
            container.planned(floor, guest.estimate.is_some() && !is_left);
        }
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn refused(&self) -> usize {
        self.refused.len()
    }
}

/// The mount point of cgroups of version 2, if they have the memory controller.
fn root(proc: &Path) -> Result<PathBuf, String> {
    let mountinfo = fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
    let root =
        cgroup2_mount(&mountinfo).ok_or("version 2 of cgroups is not mounted on this host")?;
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    match controllers.split_whitespace().any(|it| it == "memory") {
        true => Ok(root),
        false => {
            Err("this host controls memory by version 1 of cgroups, which kills what it cannot \
                      take: boot it with systemd.unified_cgroup_hierarchy=1"
                .to_owned())
        }
    }
}

fn inode(folder: &Path) -> Option<u64> {
    fs::metadata(folder).ok().map(|it| it.ino())
}

/// The guest's name for a cgroup: the name of its folder, without systemd's escapes.
fn guest_name(folder: &Path) -> Option<GuestId> {
    let name = folder.file_name()?.to_str()?.replace("\\x2d", "-");
    let is_fit = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    let name = name.chars().map(|it| if is_fit(it) { it } else { '_' });
    name.take(NAME_MAX).collect::<String>().parse().ok()
}

/// Whether one of its processes is QEMU.
fn holds_virtual_machine(folder: &Path, proc: &Path) -> bool {
    let mut folders = vec![folder.to_owned()];
    let mut looked_at = 0;
    while let Some(folder) = folders.pop().filter(|_| looked_at < INNER_MAX) {
        looked_at += 1;
        let pids = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let is_qemu = |pid: &str| {
            let name = fs::read_to_string(proc.join(pid).join("comm")).unwrap_or_default();
            name.starts_with("qemu-")
        };
        if pids.lines().any(is_qemu) {
            return true;
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
        let inner = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(inner.map(|it| it.path()));
    }
    false
}

#[cfg(test)]
mod tests;
