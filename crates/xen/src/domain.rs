//! One domain as a guest: what is known of it, and its readings.
//!
//! Idea: a domain's size is the hypervisor's count, including video memory; `memory/target` is the
//! size without video memory. The hypervisor's count differs from the target by some pages that are
//! not guest memory: this offset is measured once, while the domain rests.
//! Limits: `xl` rounds down to whole MiB. A domain that has reached its target counts as holding
//! exactly the target; any other counts as holding a MiB more than `xl` shows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ballast_agent_proto::wire::message::payload;
use ballast_agent_proto::wire::{HostFrame, HostMessage};
use ballast_backend::{GenerationGate, GuestReading};
use ballast_model::{
    Bytes, Capabilities, GuestChange, GuestId, GuestSample, GuestStats, LinkState, Measured,
    ProcessId, Timestamp,
};
use ballast_xenstore::StorePath;
use tokio::time::Instant;

use crate::claims::{Claims, DomainFacts, ValueTimes};
use crate::key::{DomainId, DomainKey, parse_kib};
use crate::limit::MaxMem;
use crate::xl::XlDomain;

/// How long a balloon may need to reach a target.
const ORDER_TIME: Duration = Duration::from_secs(30);
/// `xl` rounds down to this.
const ROUNDING: Bytes = Bytes::mib(1);
/// Most that a domain at rest differs from its target.
const OFFSET_MAX: Bytes = Bytes::mib(16);
/// A driver may stop this much short of its target. The target is set lower by as much, or the
/// host's free memory would lack it for ever. Source: squeezed's `inaccuracy_kib`.
const SHORT: Bytes = Bytes::kib(4);
/// Longest name that is kept, in bytes.
const NAME_MAX: usize = 255;

/// A domain's settings, as the toolstack wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ToolstackConfig {
    name: Option<String>,
    /// The path of its virtual machine.
    vm: Option<String>,
    target: Option<Bytes>,
    static_max: Option<Bytes>,
    static_min: Option<Bytes>,
    dynamic_min: Option<Bytes>,
    dynamic_max: Option<Bytes>,
    videoram: Option<Bytes>,
    feature_balloon: Option<bool>,
}

/// The hypervisor's last figures of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct XlReading {
    xl: XlDomain,
    at: Timestamp,
    /// The size that its target stood for then.
    target: Option<Bytes>,
}

/// The consequence of a key's new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    /// Nothing: it can wait for the next sample.
    Nothing,
    /// The guest has an emergency: a sample is due at once.
    Emergency,
    /// The number belongs to another domain now.
    AnotherDomain,
}

/// What is known of a domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) id: DomainId,
    toolstack: ToolstackConfig,
    claims: Claims,
    pub(crate) gate: GenerationGate,
    pub(crate) maxmem: MaxMem,
    /// Its ceiling in the last plan.
    pub(crate) ceiling: Option<Bytes>,
    /// Whether it does not release what was requested.
    pub(crate) is_stuck: bool,
    /// When the last order was sent, and the size ordered.
    ordered: Option<(Instant, Bytes)>,
    last_reading: Option<XlReading>,
    /// Offset of the hypervisor's count from the target while it rests, in MiB; `None` if not
    /// measured yet.
    offset_mib: Option<i64>,
    /// Keys that a notice has complained about.
    complained: BTreeSet<DomainKey>,
    /// Its floor from the configuration.
    floor: Option<Bytes>,
    settings: Option<Arc<GuestChange>>,
    pub(crate) notices: Vec<String>,
    /// The number of its agent's last request that was answered.
    answered: Option<u64>,
    /// When its request was last read between samples.
    pub(crate) request_read_at: Option<Instant>,
}

impl Domain {
    /// A domain without any figures yet. `floor` is its floor from the configuration.
    pub(crate) fn new(id: DomainId, floor: Option<Bytes>) -> Domain {
        Domain {
            id,
            toolstack: ToolstackConfig::default(),
            claims: Claims::default(),
            gate: GenerationGate::default(),
            maxmem: MaxMem::default(),
            ceiling: None,
            is_stuck: false,
            ordered: None,
            last_reading: None,
            offset_mib: None,
            complained: BTreeSet::new(),
            floor,
            settings: None,
            notices: Vec::new(),
            answered: None,
            request_read_at: None,
        }
    }

    /// Its name; `None` while it is being built.
    pub(crate) fn name(&self) -> Option<&str> {
        self.toolstack.name.as_deref()
    }

    /// A key that distinguishes it from another domain of the same number, and that key's value;
    /// `None` if neither its virtual machine nor its name is known.
    pub(crate) fn expected(&self) -> Option<(StorePath, Vec<u8>)> {
        let (key, value) = match (&self.toolstack.vm, &self.toolstack.name) {
            (Some(vm), _) => (DomainKey::Vm, vm),
            (None, Some(name)) => (DomainKey::Name, name),
            (None, None) => return None,
        };
        Some((key.path(self.id)?, value.as_bytes().to_vec()))
    }

    /// The text of an answer to its agent's last request; `None` if that was answered already, or
    /// there is no such request.
    pub(crate) fn answer(&mut self, message: &HostMessage) -> Option<Vec<u8>> {
        let HostMessage::Answer { request, outcome, bytes, why } = message else { return None };
        let number = self.claims.own_number(*request)?;
        if self.answered >= Some(*request) {
            return None;
        }
        self.answered = Some(*request);
        let (outcome, bytes, why) = (*outcome, *bytes, why.clone());
        let message = HostMessage::Answer { request: number, outcome, bytes, why };
        payload(&HostFrame { seq: *request, message }).ok().map(String::into_bytes)
    }

    /// Takes in the value of a key; `None` if there is no such key.
    pub(crate) fn take(
        &mut self,
        key: DomainKey,
        value: Option<&[u8]>,
        at: ValueTimes,
        emergency_period: Duration,
    ) -> KeyEffect {
        let facts = DomainFacts { memory_max: self.memory_max(), emergency_period };
        let taken = match key {
            DomainKey::Name | DomainKey::Vm => return self.take_identity(key, value),
            DomainKey::Target => self.size(key, value).map(|size| self.toolstack.target = size),
            DomainKey::StaticMax => {
                self.size(key, value).map(|size| self.toolstack.static_max = size)
            }
            DomainKey::StaticMin => {
                self.size(key, value).map(|size| self.toolstack.static_min = size)
            }
            DomainKey::DynamicMin => {
                self.size(key, value).map(|size| self.toolstack.dynamic_min = size)
            }
            DomainKey::DynamicMax => {
                self.size(key, value).map(|size| self.toolstack.dynamic_max = size)
            }
            DomainKey::Videoram => self.size(key, value).map(|size| self.toolstack.videoram = size),
            DomainKey::FeatureBalloon => {
                self.toolstack.feature_balloon = value.map(|value| value.trim_ascii() != b"0");
                Ok(())
            }
            DomainKey::MemStats => self.claims.take_stats(value, at, facts),
            DomainKey::MeminfoTotal => self.claims.take_total(value, facts),
            DomainKey::MeminfoFree => self.claims.take_free(value, at),
            DomainKey::MemReq => match self.claims.take_request(value, at, facts) {
                Ok(true) => return KeyEffect::Emergency,
                Ok(false) => Ok(()),
                Err(why) => Err(why),
            },
        };
        if let Err(why) = taken {
            self.complain(key, &why);
        }
        // The toolstack starts a domain with a maxmem of at least its first target.
        if let Some(target) = self.target().filter(|_| self.ordered.is_none()) {
            self.maxmem.observe(target);
        }
        self.settings = self.settings_given();
        KeyEffect::Nothing
    }

    fn take_identity(&mut self, key: DomainKey, value: Option<&[u8]>) -> KeyEffect {
        let text = value.map(|value| {
            let value = &value[..value.len().min(NAME_MAX)];
            String::from_utf8_lossy(value).into_owned()
        });
        let known = match key {
            DomainKey::Vm => &mut self.toolstack.vm,
            _ => &mut self.toolstack.name,
        };
        // A domain may be renamed; its virtual machine stays.
        let is_another =
            key == DomainKey::Vm && known.is_some() && text.is_some() && *known != text;
        *known = text;
        if is_another { KeyEffect::AnotherDomain } else { KeyEffect::Nothing }
    }

    /// Reads a size that the toolstack wrote.
    fn size(&self, key: DomainKey, value: Option<&[u8]>) -> Result<Option<Bytes>, String> {
        match value.map(|value| value.trim_ascii()) {
            None => Ok(None),
            // xl writes this where there is no video memory.
            Some(b"-1" | b"") if key == DomainKey::Videoram => Ok(None),
            Some(value) => parse_kib(value).map(Some),
        }
    }

    /// Reports once for each key why it is ignored.
    pub(crate) fn complain(&mut self, key: DomainKey, why: &str) {
        if self.complained.insert(key) {
            let id = self.id;
            self.notices.push(format!("domain {id}: {} is ignored: {why}", key.suffix()));
        }
    }

    /// Floor and ceiling from the toolstack and the configuration. A ceiling below the floor is
    /// ignored.
    fn settings_given(&mut self) -> Option<Arc<GuestChange>> {
        let toolstack = &self.toolstack;
        let floor = toolstack.dynamic_min.or(toolstack.static_min).max(self.floor);
        let mut ceiling = toolstack.dynamic_max;
        if let (Some(least), Some(most)) = (floor, ceiling)
            && least > most
        {
            let why = format!("{most:#} is less than the least, {least:#}");
            self.complain(DomainKey::DynamicMax, &why);
            // The floor stays: without it, dom0 could be squeezed to nothing.
            ceiling = None;
        }
        let change = GuestChange {
            floor: floor.map(Bytes::page_floor),
            ceiling: ceiling.map(Bytes::page_floor),
            ..GuestChange::default()
        };
        let is_known = self.settings.as_deref().is_some_and(|known| *known == change);
        match change == GuestChange::default() {
            true => None,
            false if is_known => self.settings.clone(),
            false => Some(Arc::new(change)),
        }
    }

    /// Video memory, which is part of its size and not of its target.
    fn videoram(&self) -> Bytes {
        self.toolstack.videoram.unwrap_or_default()
    }

    /// Its size when it is at its target.
    fn target(&self) -> Option<Bytes> {
        Some(self.toolstack.target?.saturating_add(self.videoram()).page_floor())
    }

    /// The most that it can ever hold: `memory/static-max` or, without that key, the maxmem as far
    /// as it is known. A fence does not count: it goes again.
    pub(crate) fn memory_max(&self) -> Option<Bytes> {
        let unfenced = Some(self.maxmem.unfenced()).filter(|size| *size > Bytes::ZERO);
        self.toolstack.static_max.map(Bytes::page_floor).or(unfenced)
    }

    /// `memory/target` for a size, in KiB; `None` if nothing is left beside its video memory.
    pub(crate) fn target_kib(&self, size: Bytes) -> Option<u64> {
        let most = self.memory_max().unwrap_or(size);
        let left = size.min(most).saturating_sub(self.videoram());
        let kib = left.saturating_sub(SHORT).get() >> 10;
        (kib > 0).then_some(kib)
    }

    /// The size to which its maxmem may be raised: its ceiling in the last plan, else the most that
    /// it can hold.
    pub(crate) fn ceiling(&self) -> Bytes {
        let most = self.memory_max().unwrap_or_default();
        self.ceiling.map_or(most, |ceiling| ceiling.min(most))
    }

    /// Records that an order to hold `size` was sent.
    pub(crate) fn order_was_sent(&mut self, size: Bytes) {
        self.ordered = Some((Instant::now(), size));
    }

    /// The size last ordered.
    pub(crate) fn ordered(&self) -> Option<Bytes> {
        self.ordered.map(|(_, size)| size)
    }

    /// Whether its balloon may still be moving: `xl` then runs with every sample.
    pub(crate) fn is_moving(&self) -> bool {
        let is_late = |at: Instant| at.elapsed() >= ORDER_TIME;
        let Some((_, target)) = self.ordered.filter(|(at, _)| !is_late(*at)) else { return false };
        self.holds() != Some(target)
    }

    /// Takes in the hypervisor's figures, queried at `at`.
    pub(crate) fn observe(&mut self, xl: XlDomain, at: Timestamp) {
        let target = self.target();
        if let (None, Some(before), Some(rest)) = (self.offset_mib, &self.last_reading, target)
            && self.ordered.is_none()
            && before.target == target
            && before.xl.holds == xl.holds
        {
            let shown = xl.holds.get() >> 20;
            let expected = rest.get() >> 20;
            let offset = shown.cast_signed() - expected.cast_signed();
            if offset.unsigned_abs() <= OFFSET_MAX.get() >> 20 {
                self.offset_mib = Some(offset);
            }
        }
        self.last_reading = Some(XlReading { xl, at, target });
        if let Some(holds) = self.holds() {
            self.maxmem.observe(holds);
        }
    }

    /// The size that it holds, by the hypervisor's figures.
    pub(crate) fn holds(&self) -> Option<Bytes> {
        let shown = self.last_reading.as_ref()?.xl.holds.get() >> 20;
        let offset = self.offset_mib.unwrap_or_default();
        let mib = shown.cast_signed().saturating_sub(offset).max(0).unsigned_abs();
        let least = Bytes::mib(mib);
        let most = least.saturating_add(ROUNDING);
        let at = |size: Bytes| (least..most).contains(&size);
        let exact = [self.ordered.map(|(_, size)| size), self.target()];
        exact.into_iter().flatten().find(|size| at(*size)).or(Some(most))
    }

    /// Its reading at `now`. `dom0`: for dom0, the statistics of its kernel. While `xl` does not
    /// work (`is_xl_failing`), it counts as holding its target.
    pub(crate) fn reading(
        &self,
        id: &GuestId,
        link: LinkState,
        now: Timestamp,
        dom0: Option<GuestStats>,
        is_xl_failing: bool,
    ) -> GuestReading {
        let mut sample = GuestSample::unknown(id.clone(), link);
        let reading = self.last_reading.as_ref().zip(self.holds());
        let measured = reading
            .map(|(reading, value)| Measured { value, age: now.saturating_since(reading.at) });
        let claimed = self.target().filter(|_| is_xl_failing).map(Measured::fresh);
        sample.allocation = claimed.or(measured);
        // The hypervisor's count is the memory that the domain occupies on the machine.
        sample.resident = measured.filter(|_| !is_xl_failing);
        sample.overhead = Some(Bytes::ZERO);
        sample.run_state =
            self.last_reading.as_ref().filter(|_| !is_xl_failing).map(|it| it.xl.state.clone());
        sample.boot_memory = self.memory_max();
        sample.process = Some(self.process());
        sample.stats = match dom0 {
            Some(stats) => Some(Measured::fresh(stats)),
            None => self.claims.stats(now),
        };
        sample.agent = self.claims.report(now).map(Box::new);
        sample.capabilities = Capabilities {
            // Without a target key there is no target to change.
            balloon: Some(
                self.toolstack.target.is_some() && self.toolstack.feature_balloon != Some(false),
            ),
            statistics: Some(sample.stats.is_some()),
            free_page_reporting: Some(false),
            deflate_on_oom: Some(false),
            memory_devices: Some(false),
            discard_inhibited: Some(false),
            shared_control: Some(true),
        };
        let settings = self.settings.clone();
        GuestReading { sample, pid: None, listens_at: None, has_answered: true, settings }
    }

    /// Stands in for a process, which a domain does not have. It is made of its number and its
    /// virtual machine, so that another domain of the same name does not inherit its debt.
    fn process(&self) -> ProcessId {
        // FNV-1a: the same in every run of the daemon, which remembers it in its journal.
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        let vm = self.toolstack.vm.as_deref().unwrap_or_default();
        for byte in self.id.0.to_le_bytes().iter().chain(vm.as_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        ProcessId { pid: 0, start_ticks: hash & (u64::MAX >> 11) }
    }
}
