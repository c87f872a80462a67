//! A host with guests that can be moved: stand-ins for its daemon and its hypervisors.
//!
//! Idea: a guest's memory is a number that rises while the guest runs. A copy takes time, stops the
//! guest and takes the number along, so a guest that runs twice, or runs on from an older number,
//! is detected. All of it survives a crash of the host's program, as real guests would.
//! Limits: a daemon gives and takes memory at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ballast_api::{ClientError, ErrorReply, ExplainReply, Reserve, StatusReply};
use ballast_fleet_move::{CarriedState, CopyState, Process};
use ballast_model::{Bytes, GuestChange, GuestId, GuestLimits, LimitSource, LimitSources};
use ballast_qmp::migration::Origin;
use serde_json::{Value, json};

use super::{MIB, explained, status_reply};
use crate::carry::{CopyProgress, Hypervisor, HypervisorError, HypervisorView};
use crate::host_record::Daemon;

/// The measured bandwidth of copies, and the measured dirty rate of each guest.
pub(crate) const BANDWIDTH: Bytes = Bytes::mib(300);
pub(crate) const WRITES: Bytes = Bytes::mib(5);
/// How long a copy takes.
const COPY: Duration = Duration::from_secs(7);
/// How long a look takes, so that no step is too short to be seen.
const LOOK: Duration = Duration::from_millis(150);
/// Time between two writes of a guest to its memory.
const WRITE: Duration = Duration::from_millis(100);

/// One host.
#[derive(Clone, Default)]
pub(crate) struct Machine(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    budget_mib: u64,
    /// The machines by the address at which they listen.
    network: Network,
    address: Option<SocketAddr>,
    hypervisors: BTreeMap<GuestId, GuestHypervisor>,
    reservations: BTreeMap<GuestId, u64>,
    /// The limits by command of guests that have left, which count again if they come back.
    left: BTreeMap<GuestId, GuestLimits>,
    is_silent: bool,
    /// Whether its daemon answers that it is busy.
    is_busy: bool,
    /// Whether its daemon is of an earlier version.
    is_early: bool,
}

/// All machines, by the address at which they listen.
pub(crate) type Network = Rc<RefCell<BTreeMap<SocketAddr, Machine>>>;

/// One guest's hypervisor.
#[derive(Clone, Default)]
struct GuestHypervisor {
    state: HypervisorState,
    boot_mib: u64,
    floor_mib: u64,
    /// As set by command.
    limits: GuestLimits,
    /// The ceiling in the configuration.
    configured: Option<Bytes>,
    /// Whether it needs only its floor.
    is_modest: bool,
    /// Whether it gives none of what it is asked for.
    is_stuck: bool,
    /// What the guest has written so far, as a number.
    memory: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum HypervisorState {
    #[default]
    Listens,
    Loaded,
    Runs,
    /// The number of the copy.
    Copies(u64),
    CopyFailed,
    Left,
}

impl Machine {
    pub(crate) fn new(budget_mib: u64, network: &Network, port: u16) -> Machine {
        let machine = Machine::default();
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        {
            let mut state = machine.0.borrow_mut();
            (state.budget_mib, state.network) = (budget_mib, network.clone());
            state.address = Some(address);
        }
        network.borrow_mut().insert(address, machine.clone());
        machine
    }

    /// Adds a guest that runs here.
    pub(crate) fn guest(&self, name: &str, floor_mib: u64, boot_mib: u64, shares: u32) {
        let floor = Some(Bytes::mib(floor_mib));
        let limits = GuestLimits { shares, floor, ..GuestLimits::default() };
        let state = HypervisorState::Runs;
        let hyper =
            GuestHypervisor { state, boot_mib, floor_mib, limits, ..GuestHypervisor::default() };
        self.0.borrow_mut().hypervisors.insert(name.parse().unwrap(), hyper);
        self.write_on(name.parse().unwrap());
    }

    /// The guest writes to its memory as long as it is here.
    fn write_on(&self, guest: GuestId) {
        let machine = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(WRITE).await;
                let mut state = machine.0.borrow_mut();
                let Some(hyper) = state.hypervisors.get_mut(&guest) else { return };
                if hyper.runs() {
                    hyper.memory += 1;
                }
            }
        });
    }

    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.0.borrow_mut().is_silent = is_silent;
    }

    /// Has the daemon answer each request that it is busy.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.0.borrow_mut().is_busy = is_busy;
    }

    /// Makes the daemon one of an earlier version, which cannot unset a ceiling.
    pub(crate) fn set_early(&self) {
        self.0.borrow_mut().is_early = true;
    }

    /// From now on the guest needs only its floor. `can_shrink`: whether it gives the rest.
    pub(crate) fn set_modest(&self, guest: &str, can_shrink: bool) {
        let change =
            |hyper: &mut GuestHypervisor| (hyper.is_modest, hyper.is_stuck) = (true, !can_shrink);
        self.change(&guest.parse().unwrap(), change).unwrap();
    }

    /// Sets the guest's ceiling by command and in the configuration.
    pub(crate) fn set_ceilings(&self, guest: &str, set: Option<Bytes>, configured: Option<Bytes>) {
        let change = |hyper: &mut GuestHypervisor| {
            (hyper.limits.ceiling, hyper.configured) = (set, configured)
        };
        self.change(&guest.parse().unwrap(), change).unwrap();
    }

    /// The ceiling by command that a guest which was here has left; `None`: it was never here.
    pub(crate) fn ceiling_left(&self, guest: &str) -> Option<Option<Bytes>> {
        self.0.borrow().left.get(&guest.parse::<GuestId>().unwrap()).map(|it| it.ceiling)
    }

    /// The guest's ceiling as set by command.
    pub(crate) fn ceiling_set(&self, guest: &str) -> Option<Bytes> {
        self.change(&guest.parse().unwrap(), |hyper| hyper.limits.ceiling).unwrap()
    }

    /// What the guest has written, if it runs here.
    pub(crate) fn running(&self, guest: &str) -> Option<u64> {
        let state = self.0.borrow();
        let hyper = state.hypervisors.get(&guest.parse::<GuestId>().unwrap())?;
        hyper.runs().then_some(hyper.memory)
    }

    pub(crate) fn shares(&self, guest: &str) -> Option<u32> {
        let state = self.0.borrow();
        Some(state.hypervisors.get(&guest.parse::<GuestId>().unwrap())?.limits.shares)
    }

    /// What a move has left here: waiting or left hypervisors, reservations, ceilings.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let state = self.0.borrow();
        let mut all: Vec<String> =
            state.reservations.keys().map(|guest| format!("reservation for {guest}")).collect();
        for (guest, hyper) in &state.hypervisors {
            if !hyper.runs() {
                all.push(format!("{guest} {:?}", hyper.state));
            }
            let ceiling = hyper.limits.ceiling;
            if ceiling.is_some_and(|it| it < Bytes::mib(hyper.boot_mib)) {
                all.push(format!("{guest} with ceiling {ceiling:?}"));
            }
        }
        all
    }

    /// Kills the guest's hypervisor.
    pub(crate) fn kill(&self, guest: &str) {
        self.remove(&guest.parse().unwrap());
    }

    fn remove(&self, guest: &GuestId) {
        let mut state = self.0.borrow_mut();
        if let Some(hyper) = state.hypervisors.remove(guest) {
            state.left.insert(guest.clone(), hyper.limits);
        }
    }

    fn answers(&self) -> Result<(), ClientError> {
        let state = self.0.borrow();
        match (state.is_silent, state.is_busy) {
            (true, _) => Err(ClientError::NoDaemon { socket: "stand-in".into() }),
            (false, true) => Err(refused(503)),
            (false, false) => Ok(()),
        }
    }

    fn change<T>(
        &self,
        guest: &GuestId,
        change: impl FnOnce(&mut GuestHypervisor) -> T,
    ) -> Result<T, ClientError> {
        self.answers()?;
        match self.0.borrow_mut().hypervisors.get_mut(guest) {
            Some(hyper) => Ok(change(hyper)),
            None => Err(refused(404)),
        }
    }

    fn hyper(
        &self,
        guest: &GuestId,
        change: impl FnOnce(&mut GuestHypervisor) -> bool,
    ) -> Result<(), HypervisorError> {
        let mut state = self.0.borrow_mut();
        let Some(hyper) = state.hypervisors.get_mut(guest) else {
            return Err(HypervisorError("it is not there".to_owned()));
        };
        let before = hyper.state;
        match change(hyper) {
            true => Ok(()),
            false => Err(HypervisorError(format!("it is {before:?}"))),
        }
    }
}

fn refused(status: u16) -> ClientError {
    let reply = Box::new(ErrorReply::new("refused", "stand-in"));
    ClientError::Refused { status, reply }
}

impl GuestHypervisor {
    fn runs(&self) -> bool {
        matches!(
            self.state,
            HypervisorState::Runs | HypervisorState::Copies(_) | HypervisorState::CopyFailed
        )
    }

    fn size_mib(&self) -> u64 {
        if self.is_stuck {
            return self.boot_mib;
        }
        self.boot_mib.min(self.ceiling().get() / MIB)
    }

    fn ceiling(&self) -> Bytes {
        let own = self.limits.ceiling.or(self.configured);
        own.map_or(Bytes::mib(self.boot_mib), |it| it.min(Bytes::mib(self.boot_mib)))
    }

    fn sources(&self) -> LimitSources {
        let ceiling = match (self.limits.ceiling, self.configured) {
            (Some(_), _) => LimitSource::Set,
            (None, Some(_)) => LimitSource::File,
            (None, None) => LimitSource::Default,
        };
        LimitSources { ceiling, ..LimitSources::default() }
    }
}

impl Daemon for Machine {
    async fn status(&self) -> Result<StatusReply, ClientError> {
        self.answers()?;
        let state = self.0.borrow();
        let running = json!({"code": "running", "text": "running"});
        let guests: Vec<Value> = state
            .hypervisors
            .iter()
            .map(|(name, hyper)| {
                let size = hyper.size_mib() * MIB;
                json!({
                    "guest": name, "state": running, "managed": true,
                    "boot_bytes": hyper.boot_mib * MIB, "allocation_bytes": size,
                    "demand_bytes": if hyper.is_modest { hyper.floor_mib * MIB } else { size },
                    "resident_bytes": size, "copied_resident_bytes": size,
                    "floor_bytes": hyper.floor_mib * MIB,
                    "ceiling_bytes": hyper.ceiling().get(),
                    "compliance": {"code": "compliant", "text": ""},
                })
            })
            .collect();
        let held: u64 = state.hypervisors.values().map(|hyper| hyper.size_mib() * MIB).sum();
        let budget = state.budget_mib * MIB;
        let free = budget.saturating_sub(held);
        let reservations: Vec<Value> = state
            .reservations
            .iter()
            .filter(|(guest, _)| !state.hypervisors.contains_key(*guest))
            .map(|(guest, size)| {
                json!({
                    "guest": guest, "size_bytes": size, "free_bytes": free.min(*size),
                    "ends_in_ms": 1000,
                })
            })
            .collect();
        Ok(status_reply(0, budget, held, &guests, &reservations))
    }

    async fn explain(&self, guest: &GuestId) -> Result<ExplainReply, ClientError> {
        self.change(guest, |hyper| {
            let mut reply = explained(guest, hyper.size_mib());
            reply.limits.miss_rate_max_per_s = None;
            reply.limits.ceiling_bytes = Some(hyper.ceiling().get());
            reply.limits.sources = Some((&hyper.sources()).into());
            reply
        })
    }

    async fn carried(&self, guest: &GuestId) -> Result<CarriedState, ClientError> {
        let change = |hyper: &mut GuestHypervisor| (hyper.limits.clone(), hyper.configured);
        let (limits, configured) = self.change(guest, change)?;
        let limits = GuestChange {
            floor: limits.floor,
            ceiling: limits.ceiling.or(configured),
            shares: Some(limits.shares),
            ..GuestChange::default()
        };
        Ok(CarriedState { limits, ..CarriedState::default() })
    }

    async fn take_over(&self, guest: &GuestId, carried: &CarriedState) -> Result<(), ClientError> {
        self.change(guest, |hyper| hyper.limits = carried.limits.apply(&hyper.limits))
    }

    async fn set(&self, guest: &GuestId, change: &GuestChange) -> Result<(), ClientError> {
        if change.ceiling_unset && self.0.borrow().is_early {
            return Err(refused(400));
        }
        self.answers()?;
        if let Some(limits) = self.0.borrow_mut().left.get_mut(guest) {
            *limits = change.apply(limits);
            return Ok(());
        }
        self.change(guest, |hyper| hyper.limits = change.apply(&hyper.limits))
    }

    async fn reserve(&self, guest: &GuestId, reserve: &Reserve) -> Result<(), ClientError> {
        self.answers()?;
        self.0.borrow_mut().reservations.insert(guest.clone(), reserve.size_bytes);
        Ok(())
    }

    async fn unreserve(&self, guest: &GuestId) -> Result<(), ClientError> {
        self.answers()?;
        match self.0.borrow_mut().reservations.remove(guest) {
            Some(_) => Ok(()),
            None => Err(refused(404)),
        }
    }
}

impl Hypervisor for Machine {
    async fn look(&self, guest: &GuestId, origin: Origin) -> HypervisorView {
        tokio::time::sleep(LOOK).await;
        let state = self.0.borrow();
        let process = match state.hypervisors.get(guest).map(|hyper| hyper.state) {
            None => Process::Absent,
            Some(HypervisorState::Listens) => Process::Waiting(state.address.unwrap()),
            Some(HypervisorState::Loaded) if origin.is_listener => Process::Loaded,
            Some(HypervisorState::Loaded) => Process::Paused,
            Some(HypervisorState::Copies(_)) => Process::Runs(CopyState::Partly),
            Some(HypervisorState::CopyFailed) if origin.began_copy => {
                Process::Runs(CopyState::Failed)
            }
            Some(HypervisorState::Runs | HypervisorState::CopyFailed) => {
                Process::Runs(CopyState::Nothing)
            }
            Some(HypervisorState::Left) => Process::Left,
        };
        let copy = CopyProgress {
            sent: Bytes::mib(1),
            remaining: Bytes::mib(1),
            bandwidth_per_s: (process == Process::Left).then_some(BANDWIDTH),
        };
        HypervisorView { process, copy: Some(copy) }
    }

    async fn writes_per_s(&self, _: &GuestId) -> Option<Bytes> {
        Some(WRITES)
    }

    async fn listen(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        let mut state = self.0.borrow_mut();
        let limits = state.left.remove(guest).unwrap_or_default();
        let empty = GuestHypervisor { limits, ..GuestHypervisor::default() };
        state.hypervisors.entry(guest.clone()).or_insert(empty);
        // The guest has appeared, so its reservation becomes an entitlement.
        state.reservations.remove(guest);
        Ok(())
    }

    async fn copy(&self, guest: &GuestId, to: SocketAddr) -> Result<(), HypervisorError> {
        let number = fastrand::u64(..);
        self.hyper(guest, |hyper| {
            let may = matches!(hyper.state, HypervisorState::Runs | HypervisorState::CopyFailed);
            if may {
                hyper.state = HypervisorState::Copies(number);
            }
            may
        })?;
        let (source, guest) = (self.clone(), guest.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(COPY).await;
            let there = source.0.borrow().network.borrow().get(&to).cloned().unwrap();
            let mut state = source.0.borrow_mut();
            let Some(hyper) = state.hypervisors.get_mut(&guest) else { return };
            if hyper.state != HypervisorState::Copies(number) {
                return;
            }
            let mut there_state = there.0.borrow_mut();
            match there_state.hypervisors.get_mut(&guest) {
                Some(other) if other.state == HypervisorState::Listens => {
                    hyper.state = HypervisorState::Left;
                    let (state, configured) = (HypervisorState::Loaded, None);
                    let limits = other.limits.clone();
                    *other = GuestHypervisor { state, limits, configured, ..hyper.clone() };
                    drop(there_state);
                    there.write_on(guest);
                }
                _ => hyper.state = HypervisorState::CopyFailed,
            }
        });
        Ok(())
    }

    async fn cancel(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        self.hyper(guest, |hyper| {
            if let HypervisorState::Copies(_) = hyper.state {
                hyper.state = HypervisorState::CopyFailed;
            }
            true
        })
    }

    async fn run(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        self.hyper(guest, |hyper| {
            let may = matches!(hyper.state, HypervisorState::Loaded | HypervisorState::Left);
            if may {
                hyper.state = HypervisorState::Runs;
            }
            may || hyper.runs()
        })
    }

    async fn end(&self, guest: &GuestId) -> Result<(), HypervisorError> {
        let runs = self.running(guest.as_str()).is_some();
        assert!(!runs, "{guest} runs, and nobody may end it");
        self.remove(guest);
        Ok(())
    }
}
