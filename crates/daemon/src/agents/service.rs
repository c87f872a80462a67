//! The connections to all guests' agents.
//!
//! Idea: each tick names the present guests. A guest with a socket of its name in one of the
//! folders gets a task ([`follow`](super::follow)), which ends with the guest. After a decision,
//! the decided requests are answered. Which guest has which vsock number (CID) is only a claim of
//! its hypervisor: if two guests claim the same number, the daemon listens to neither.
//!
//! Cost: per tick, one read of the latest state per guest with an agent, and one search of the
//! folders per guest without.
//! Limits: [`GUESTS_MAX`] guests; [`ORDERS_MAX`] pending orders per guest, further ones are
//! dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ballast_agent_proto::wire::BalloonActivity;
use ballast_backend::VsockAddress;
use ballast_model::{Bytes, GuestId, ProcessId, Timestamp};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tracing::warn;

use super::conversation::Conversation;
use super::follow::follow;
use super::hybrid_socket::HybridSocket;
use super::latest::{AgentState, Shared};
use super::order::{Answer, Order};
use super::transport::{AgentTransport, VsockListener, VsockRoute};
use crate::clock;
use crate::gathered::gathered;
use crate::rate_limited::RateLimited;
use ballast_config::AgentSettings;

/// Most agents connected to.
const GUESTS_MAX: usize = 4096;
/// Most pending orders per guest.
const ORDERS_MAX: usize = 8;
/// Programs are not asked to release less than this.
const SHRINK_MIN: Bytes = Bytes::mib(16);
/// Longest time the balloon waits for programs to release memory.
const SHRINK_WAIT: Duration = Duration::from_secs(3);
/// Shortest time between two such requests, so that balloons do not wait forever.
const SHRINK_APART: Duration = Duration::from_secs(10);

/// Shortest time between two changes of a guest's vsock device. Its hypervisor names the device,
/// and each change makes the daemon listen anew.
const DEVICE_MIN: Duration = Duration::from_secs(30);

/// Vsock numbers that guests can have: vsock(7) has the lower ones for the hypervisor, for loopback
/// and for the host, and the highest for any.
const CIDS: Range<u32> = 3..u32::MAX;

/// The connected agents.
#[derive(Debug)]
pub(crate) struct Agents {
    settings: AgentSettings,
    followed: BTreeMap<GuestId, FollowedAgent>,
    urgent: Arc<Notify>,
    /// The kernel's vsock listener; `None`: no guest with vsock was seen yet, or listening failed.
    vsock: Option<VsockListener>,
    is_vsock_refused: bool,
    /// Numbers that more than one guest claims.
    contested: BTreeSet<u32>,
    /// Limits the warnings about contested numbers.
    contest_warnings: RateLimited,
}

/// One connected agent.
#[derive(Debug)]
struct FollowedAgent {
    /// Its guest's hypervisor; `None`: not known yet.
    process: Option<ProcessId>,
    /// The vsock device that the agent connects through; `None`: it uses a virtio-serial port.
    vsock: Option<VsockAddress>,
    _route: Option<VsockRoute>,
    began: Timestamp,
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    /// Number of the last answered request.
    answered: Option<u64>,
    balloon: BalloonActivity,
    /// When its programs were last asked to release memory.
    shrinks_since: Option<Timestamp>,
    task: JoinHandle<()>,
}

impl FollowedAgent {
    /// Its vsock number in the kernel; `None`: its agent connects in another way.
    fn cid(&self) -> Option<u32> {
        cid_of(self.vsock.as_ref()?)
    }

    /// Whether the guest has another process or vsock device by now, so that the connection has to
    /// be made anew. What is unknown counts as unchanged.
    fn is_outdated(&self, process: Option<ProcessId>, vsock: Option<&VsockAddress>) -> bool {
        if let (Some(known), Some(seen)) = (self.process, process)
            && known != seen
        {
            return true;
        }
        match (&self.vsock, vsock) {
            (Some(known), Some(seen)) if known != seen => {
                clock::now().saturating_since(self.began) >= DEVICE_MIN
            }
            _ => false,
        }
    }
}

impl Drop for FollowedAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Agents {
    /// Not connected to any agent yet.
    pub(crate) fn new(settings: AgentSettings) -> Agents {
        Agents {
            settings,
            followed: BTreeMap::new(),
            urgent: Arc::new(Notify::new()),
            vsock: None,
            is_vsock_refused: false,
            contested: BTreeSet::new(),
            contest_warnings: RateLimited::default(),
        }
    }

    /// Notified of an emergency: a guest that cannot reclaim memory.
    pub(crate) fn urgent(&self) -> Arc<Notify> {
        Arc::clone(&self.urgent)
    }

    /// The guests that have called for a tick since the last call of this function.
    pub(crate) fn callers(&self) -> BTreeSet<GuestId> {
        let called = self.followed.iter().filter(|(_, followed)| followed.shared.has_called());
        gathered(called.map(|(id, _)| id.clone()))
    }

    /// Drops the connections to all other guests.
    pub(crate) fn keep(&mut self, mut is_there: impl FnMut(&GuestId) -> bool) {
        self.followed.retain(|id, _| is_there(id));
    }

    /// Takes in which vsock devices the hypervisors of all present guests claim. A number that two
    /// of them claim has no connection, and an earlier one is dropped.
    pub(crate) fn take_in_claims(
        &mut self,
        claims: impl IntoIterator<Item = (GuestId, VsockAddress)>,
    ) {
        if !self.settings.vsock {
            return;
        }
        let claims = claims.into_iter().filter_map(|(id, vsock)| Some((cid_of(&vsock)?, id)));
        let mut claims: BTreeSet<(u32, GuestId)> = gathered(claims);
        // A connected guest keeps its claim, even if this tick's samples lack it.
        for (id, followed) in &self.followed {
            claims.extend(followed.cid().map(|cid| (cid, id.clone())));
        }
        let contested = contested(&claims);
        for (cid, [first, second]) in &contested {
            if !self.contested.contains(cid) {
                self.contest_warnings.warn(format!(
                    "no agent is heard at vsock number {cid}: the hypervisors of {first} and \
                     {second} both claim it"
                ));
            }
        }
        self.followed.retain(|_, it| it.cid().is_none_or(|cid| !contested.contains_key(&cid)));
        self.contested = gathered(contested.into_keys());
    }

    /// The latest state of a guest's agent, connecting to it if necessary. `memory_max` limits what
    /// the agent may claim, `hypervisor` is the process that must be at the other end of its
    /// socket, and `vsock` is the guest's device. `None`: the guest has neither port nor device.
    /// Reports of an earlier `process` of the guest are forgotten.
    pub(crate) fn state(
        &mut self,
        id: &GuestId,
        process: Option<ProcessId>,
        memory_max: Option<Bytes>,
        hypervisor: Option<u32>,
        vsock: Option<VsockAddress>,
    ) -> Option<AgentState> {
        if self.followed.get(id).is_some_and(|it| it.is_outdated(process, vsock.as_ref())) {
            self.followed.remove(id);
        }
        // A conversation never ends by itself, so its task has panicked.
        let has_panicked = self.followed.get(id).is_some_and(|it| it.task.is_finished());
        if has_panicked {
            self.followed.remove(id);
        }
        if !self.followed.contains_key(id) {
            if self.followed.len() >= GUESTS_MAX {
                return None;
            }
            let followed = self.begin(id, vsock)?;
            self.followed.insert(id.clone(), followed);
        }
        let followed = self.followed.get_mut(id)?;
        followed.process = process.or(followed.process);
        followed.shared.set_memory_max(memory_max);
        followed.shared.set_hypervisor(hypervisor);
        if has_panicked {
            followed.shared.warn("the task that talks to its agent panicked", clock::now());
        }
        Some(followed.shared.take(clock::now()))
    }

    /// Answers a guest's request by its number, once.
    pub(crate) fn answer(&mut self, id: &GuestId, number: u64, answer: Answer) {
        let Some(followed) = self.followed.get_mut(id) else { return };
        if followed.answered.is_some_and(|answered| answered >= number) {
            return;
        }
        if followed.orders.try_send(Order::Answer(number, answer)).is_ok() {
            followed.answered = Some(number);
        }
    }

    /// Reports to a guest what its balloon does, if that changed.
    pub(crate) fn balloon(&mut self, id: &GuestId, holds: Bytes, target: Bytes) {
        let Some(followed) = self.followed.get_mut(id) else { return };
        let state = match target.cmp(&holds) {
            std::cmp::Ordering::Less => BalloonActivity::Inflating,
            std::cmp::Ordering::Greater => BalloonActivity::Deflating,
            std::cmp::Ordering::Equal => BalloonActivity::Resting,
        };
        if followed.balloon != state && followed.orders.try_send(Order::Balloon(state)).is_ok() {
            followed.balloon = state;
        }
    }

    /// Whether a guest's balloon must wait before it inflates from `holds` to `target`. Programs
    /// release memory first, so that the guest's kernel need not swap for the balloon. Asks the
    /// programs to release what `free` memory does not cover, unless they were asked recently;
    /// allows them to grow again when the guest grows.
    pub(crate) fn must_wait(
        &mut self,
        id: &GuestId,
        holds: Bytes,
        free: Option<Bytes>,
        target: Bytes,
    ) -> bool {
        let now = clock::now();
        let is_enabled = self.settings.shrink;
        let Some(followed) = self.followed.get_mut(id) else { return false };
        if target > holds {
            // Always sent: an earlier daemon or the agent itself may have shrunk programs. If the
            // queue is full, the next call sends it.
            let _ = followed.orders.try_send(Order::Release);
            return false;
        }
        let since = followed.shrinks_since.map(|since| now.saturating_since(since));
        if since.is_some_and(|since| since < SHRINK_APART) {
            return followed.shared.is_shrinking() && since < Some(SHRINK_WAIT);
        }
        let bytes = holds.saturating_sub(target).saturating_sub(free.unwrap_or_default());
        let is_asked = is_enabled
            && bytes >= SHRINK_MIN
            && followed.shared.begin_shrinking()
            && followed.orders.try_send(Order::Shrink(bytes)).is_ok();
        if is_asked {
            followed.shrinks_since = Some(now);
        }
        is_asked
    }

    /// Begins to follow the agent of a guest that has a port or, if configured, a vsock device.
    fn begin(&mut self, id: &GuestId, vsock: Option<VsockAddress>) -> Option<FollowedAgent> {
        let name = format!("{id}.sock");
        let mut paths = self.settings.folders.iter().map(|folder| folder.join(&name));
        if let Some(path) = paths.find(|path| path.exists()) {
            return Some(self.start(AgentTransport::Port(path), None, None));
        }
        match vsock.filter(|_| self.settings.vsock)? {
            VsockAddress::Socket(device) => {
                let transport = AgentTransport::Hybrid(HybridSocket::new(&device));
                Some(self.start(transport, Some(VsockAddress::Socket(device)), None))
            }
            device @ VsockAddress::Cid(_) => {
                let cid = cid_of(&device).filter(|cid| !self.contested.contains(cid))?;
                let (route, streams) = self.listener()?.route(cid)?;
                Some(self.start(AgentTransport::Vsock(streams), Some(device), Some(route)))
            }
        }
    }

    /// The kernel's vsock listener. A failure to listen is logged once.
    fn listener(&mut self) -> Option<&VsockListener> {
        if self.vsock.is_none() && !self.is_vsock_refused {
            match VsockListener::start() {
                Ok(listener) => self.vsock = Some(listener),
                Err(error) => {
                    self.is_vsock_refused = true;
                    warn!("no agent is heard by the kernel's vsock: {error}");
                }
            }
        }
        self.vsock.as_ref()
    }

    fn start(
        &self,
        transport: AgentTransport,
        vsock: Option<VsockAddress>,
        route: Option<VsockRoute>,
    ) -> FollowedAgent {
        let (shared, began) = (Arc::<Shared>::default(), clock::now());
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        let AgentSettings { period, emergency_period, .. } = self.settings;
        let (theirs, urgent) = (Arc::clone(&shared), self.urgent());
        let agent = Conversation::shared(period, emergency_period, theirs, urgent, began);
        let task = tokio::spawn(follow(transport, agent, receiver));
        FollowedAgent {
            process: None,
            vsock,
            _route: route,
            began,
            shared,
            orders,
            answered: None,
            balloon: BalloonActivity::Resting,
            shrinks_since: None,
            task,
        }
    }
}

/// The guest's number for the kernel's vsock. `None`: it has none, or one that no guest can have.
fn cid_of(vsock: &VsockAddress) -> Option<u32> {
    match vsock {
        VsockAddress::Cid(cid) => Some(*cid).filter(|cid| CIDS.contains(cid)),
        VsockAddress::Socket(_) => None,
    }
}

/// The numbers that more than one guest claims, each with two that do.
fn contested(claims: &BTreeSet<(u32, GuestId)>) -> BTreeMap<u32, [GuestId; 2]> {
    let mut contested = BTreeMap::new();
    for ((cid, first), (next, second)) in claims.iter().zip(claims.iter().skip(1)) {
        if cid == next {
            contested.entry(*cid).or_insert_with(|| [first.clone(), second.clone()]);
        }
    }
    contested
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::latest::AgentNotice;
    use super::*;

    /// Agents, a guest with an agent, and the folder of its socket.
    fn one_agent() -> (Agents, GuestId, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.sock"), "").unwrap();
        let agents = Agents::new(AgentSettings {
            folders: vec![folder.path().to_owned()],
            period: Duration::from_secs(1),
            emergency_period: Duration::from_secs(1),
            shrink: true,
            vsock: true,
        });
        (agents, "a".parse().unwrap(), folder)
    }

    #[tokio::test]
    async fn a_restarted_guest_gets_a_new_conversation() {
        let (mut agents, id, _folder) = one_agent();
        let mut shared = |start_ticks: Option<u64>| {
            let process = start_ticks.map(|start_ticks| ProcessId { pid: 7, start_ticks });
            agents.state(&id, process, None, None, None).unwrap();
            Arc::clone(&agents.followed[&id].shared)
        };
        let first = shared(None);
        assert!(Arc::ptr_eq(&first, &shared(Some(1))) && Arc::ptr_eq(&first, &shared(None)));
        let second = shared(Some(2));
        assert!(!Arc::ptr_eq(&first, &second));
    }

    #[tokio::test]
    async fn a_conversation_whose_task_ended_is_started_anew() {
        let (mut agents, id, _folder) = one_agent();
        agents.state(&id, None, None, None, None).unwrap();
        let first = Arc::clone(&agents.followed[&id].shared);
        agents.followed[&id].task.abort();
        while !agents.followed[&id].task.is_finished() {
            tokio::task::yield_now().await;
        }
        let state = agents.state(&id, None, None, None, None).unwrap();
        assert!(matches!(state.notices[..], [AgentNotice::Warning(_)]));
        assert!(!Arc::ptr_eq(&first, &agents.followed[&id].shared));
    }

    #[tokio::test]
    async fn programs_may_grow_whenever_their_guest_does() {
        let (mut agents, id, _folder) = one_agent();
        agents.state(&id, None, None, None, None).unwrap();
        let (orders, mut sent) = mpsc::channel(ORDERS_MAX);
        agents.followed.get_mut(&id).unwrap().orders = orders;
        // This daemon has not asked them to release anything.
        for holds in [64, 65] {
            let (holds, target) = (Bytes::mib(holds), Bytes::mib(holds + 1));
            assert!(!agents.must_wait(&id, holds, None, target));
            assert!(matches!(sent.try_recv(), Ok(Order::Release)));
        }
        assert!(!agents.must_wait(&id, Bytes::mib(66), None, Bytes::mib(66)));
        assert!(sent.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_guest_with_a_vsock_device_needs_no_port() {
        let (mut agents, _, folder) = one_agent();
        let id: GuestId = "b".parse().unwrap();
        assert!(agents.state(&id, None, None, None, None).is_none());
        let device = |name: &str| Some(VsockAddress::Socket(folder.path().join(name)));
        agents.state(&id, None, None, None, device("v.sock")).unwrap();
        let first = Arc::clone(&agents.followed[&id].shared);
        agents.state(&id, None, None, None, None).unwrap();
        assert!(Arc::ptr_eq(&first, &agents.followed[&id].shared), "it is not always known");
        agents.state(&id, None, None, None, device("w.sock")).unwrap();
        assert!(Arc::ptr_eq(&first, &agents.followed[&id].shared), "so soon after the first");
        agents.followed.get_mut(&id).unwrap().began = Timestamp::ZERO;
        agents.state(&id, None, None, None, device("w.sock")).unwrap();
        assert!(!Arc::ptr_eq(&first, &agents.followed[&id].shared), "another device");
        agents.settings.vsock = false;
        agents.keep(|_| false);
        assert!(agents.state(&id, None, None, None, device("v.sock")).is_none(), "it is off");
    }

    /// Agents without ports, by the kernel's vsock, and three guests.
    fn by_vsock() -> (Agents, [GuestId; 3]) {
        let (mut agents, ..) = one_agent();
        agents.vsock = Some(VsockListener::unconnected());
        (agents, ["x", "y", "z"].map(|name| name.parse().unwrap()))
    }

    #[tokio::test]
    async fn two_guests_that_claim_one_number_are_both_unheard() {
        let (mut agents, [x, y, _]) = by_vsock();
        let claim = |id: &GuestId, cid| (id.clone(), VsockAddress::Cid(cid));
        let is_heard = |agents: &mut Agents, id: &GuestId, cid| {
            agents.state(id, None, None, None, Some(VsockAddress::Cid(cid))).is_some()
        };
        agents.take_in_claims([claim(&y, 7)]);
        assert!(is_heard(&mut agents, &y, 7));
        agents.take_in_claims([claim(&x, 7), claim(&y, 7)]);
        assert!(agents.followed.is_empty(), "not even the one that was heard");
        assert!(!is_heard(&mut agents, &x, 7) && !is_heard(&mut agents, &y, 7));
        agents.take_in_claims([claim(&x, 8), claim(&y, 7)]);
        assert!(is_heard(&mut agents, &x, 8) && is_heard(&mut agents, &y, 7));
        // What the other claims is not known now.
        agents.take_in_claims([claim(&x, 7)]);
        assert!(is_heard(&mut agents, &x, 7) && !agents.followed.contains_key(&y));
        assert_eq!(agents.followed[&x].vsock, Some(VsockAddress::Cid(8)), "only by its own");
    }

    #[tokio::test]
    async fn numbers_that_no_guest_has_are_refused() {
        let (mut agents, [_, _, z]) = by_vsock();
        for cid in [0, 1, 2, u32::MAX] {
            let claimed = VsockAddress::Cid(cid);
            agents.take_in_claims([(z.clone(), claimed.clone())]);
            assert!(agents.state(&z, None, None, None, Some(claimed)).is_none(), "{cid}");
        }
        assert!(agents.state(&z, None, None, None, Some(VsockAddress::Cid(3))).is_some());
    }

    proptest! {
        #[test]
        fn a_number_is_contested_exactly_if_two_claim_it(
            claims in prop::collection::btree_set((0u32..6, 0u8..5), 0..20),
        ) {
            let id = |name: u8| format!("g{name}").parse::<GuestId>().unwrap();
            let claims: BTreeSet<_> =
                claims.into_iter().map(|(cid, name)| (cid, id(name))).collect();
            let found = contested(&claims);
            for cid in 0..6 {
                let claimed = claims.iter().filter(|it| it.0 == cid);
                let guests: Vec<&GuestId> = claimed.map(|it| &it.1).collect();
                prop_assert_eq!(found.contains_key(&cid), guests.len() > 1);
                if let Some([first, second]) = found.get(&cid) {
                    prop_assert!(first != second);
                    prop_assert!(guests.contains(&first) && guests.contains(&second));
                }
            }
        }
    }
}
