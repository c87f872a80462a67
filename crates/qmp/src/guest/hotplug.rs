//! A guest's pluggable memory: its state, and the steps that change it.
//!
//! Idea: a virtio-mem device gets a requested size, and several devices are filled one after the
//! other. Without such a device, memory modules of [`MODULE`] are added and removed as a whole.
//! Memory is plugged before the balloon moves and unplugged after it, so that both never squeeze
//! the guest at once.
//!
//! The balloon's arithmetic, checked against real guests (`lab/lab-host/tests/real/hotplug.rs`):
//! QEMU counts boot memory and modules (`pc-dimm`) as a guest's memory, but not virtio-mem. The
//! result of `query-balloon` and the value of `balloon` are both that memory less the balloon
//! (`hw/virtio/virtio-balloon.c`, `get_current_ram_size`, QEMU 7.2).
//!
//! Limits: a module counts until the guest has released it, whatever was requested. QEMU cannot
//! cancel an unplug request. Only modules of our own are removed.

use std::collections::BTreeSet;

use ballast_model::{Bytes, Hotplug, HotplugKind};

use super::devices::{MemoryDevices, OwnModule, VirtioMemDevice, floor_to};
use super::probe::{MODULES_MAX, MachineMemory, PATH_BYTES_MAX, ProbeResult};
use crate::command::{ModuleNumber, QmpCommand};

/// Size of our own memory modules: Linux on x86-64 adds memory in sections of this size.
pub const MODULE: Bytes = Bytes::mib(128);

/// QOM path of the devices that have an id.
const NAMED: &str = "/machine/peripheral";

/// The property of a virtio-mem device that sets the amount to plug.
const REQUESTED_SIZE: &str = "requested-size";

/// One command of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ActionStep {
    /// Sets the balloon's target, in QEMU's arithmetic.
    Balloon(Bytes),
    /// Sets the requested size of a virtio-mem device: its index, its path, the size.
    Request(usize, String, Bytes),
    AddMemory(ModuleNumber),
    Plug(ModuleNumber),
    Unplug(ModuleNumber),
}

impl ActionStep {
    pub(super) fn command(&self) -> QmpCommand<'_> {
        match self {
            ActionStep::Balloon(target) => QmpCommand::Balloon { target: *target },
            ActionStep::Request(_, path, size) => {
                QmpCommand::QomSet { path, property: REQUESTED_SIZE, value: size.get() }
            }
            ActionStep::AddMemory(number) => {
                QmpCommand::AddMemory { number: *number, size: MODULE }
            }
            ActionStep::Plug(number) => QmpCommand::PlugModule { number: *number },
            ActionStep::Unplug(number) => QmpCommand::UnplugModule { number: *number },
        }
    }
}

/// The steps that lead to a requested amount of plugged memory.
#[derive(Debug, Default)]
struct PlugPlan {
    before_balloon: Vec<ActionStep>,
    after_balloon: Vec<ActionStep>,
    /// Plugged memory once the guest has complied.
    plugged: Bytes,
    /// Memory in modules when the balloon is set.
    modules: Bytes,
}

/// The pluggable memory of one guest.
#[derive(Debug, Default)]
pub(super) struct HotplugState {
    /// `None`: not read yet.
    devices: Option<MemoryDevices>,
    machine: Option<MachineMemory>,
    /// Paths of virtio-mem devices without an id.
    anonymous: Vec<String>,
    /// Memory objects of our own modules, plugged or not.
    memory: BTreeSet<ModuleNumber>,
    /// Modules that the guest was asked to release.
    unplugging: BTreeSet<ModuleNumber>,
    /// Memory objects without a module, to be removed.
    orphans: BTreeSet<ModuleNumber>,
}

impl HotplugState {
    /// Takes in the list of devices.
    pub(super) fn listed(&mut self, devices: MemoryDevices) {
        self.unplugging.retain(|number| devices.modules.iter().any(|it| it.number == *number));
        self.devices = Some(devices);
    }

    /// Takes in the result of a probe. `is_idle`: no pending action creates modules.
    pub(super) fn probed(&mut self, found: &mut ProbeResult, is_idle: bool) {
        self.machine = found.machine_memory;
        self.anonymous = std::mem::take(&mut found.anonymous_virtio_mem);
        let memory = std::mem::take(&mut found.own_memory);
        if is_idle {
            self.orphans = memory.iter().copied().filter(|it| !self.has_module(*it)).collect();
            self.memory = memory;
        } else {
            self.memory.extend(memory);
        }
    }

    /// Whether there are devices to query in every tick.
    pub(super) fn has_devices(&self) -> bool {
        self.devices.as_ref().is_some_and(|devices| devices.count > 0)
    }

    /// Memory in modules that are not ours.
    pub(super) fn foreign(&self) -> Bytes {
        self.devices.as_ref().map_or(Bytes::ZERO, |devices| devices.foreign)
    }

    /// Plugged memory that can be unplugged; `None` if not read yet.
    pub(super) fn plugged(&self) -> Option<Bytes> {
        self.devices.as_ref().map(MemoryDevices::plugged)
    }

    /// Memory plugged by virtio-mem, which `query-balloon` does not count; `None` if not read yet.
    pub(super) fn virtio_mem_plugged(&self) -> Option<Bytes> {
        self.devices.as_ref().map(MemoryDevices::virtio_mem_size)
    }

    fn modules(&self) -> &[OwnModule] {
        self.devices.as_ref().map_or(&[], |devices| &devices.modules)
    }

    fn modules_size(&self) -> Bytes {
        self.devices.as_ref().map_or(Bytes::ZERO, MemoryDevices::modules_size)
    }

    fn has_module(&self, number: ModuleNumber) -> bool {
        self.modules().iter().any(|module| module.number == number)
    }

    /// The state as a sample reports it; `None` if it was not read yet or nothing can be plugged.
    pub(super) fn summary(&self) -> Option<Hotplug> {
        let devices = self.devices.as_ref()?;
        let plugged = devices.plugged();
        let requested = self.requested();
        if devices.virtio_mem.is_empty() {
            let max = devices.modules_size().saturating_add(self.room_for_modules(devices));
            let kind = HotplugKind::Dimm;
            return (max > Bytes::ZERO).then_some(Hotplug {
                kind,
                plugged,
                requested,
                max,
                block: MODULE,
            });
        }
        let mut max = devices.modules_size();
        for (index, device) in devices.virtio_mem.iter().enumerate() {
            // The requested size of a device without a path cannot be changed.
            max = max.saturating_add(match self.path_of(index) {
                Some(_) => floor_to(device.max, device.block),
                None => device.requested,
            });
        }
        let block = devices.virtio_mem.iter().map(|device| device.block).max()?;
        Some(Hotplug { kind: HotplugKind::VirtioMem, plugged, requested, max, block })
    }

    /// Memory that further modules can add.
    fn room_for_modules(&self, devices: &MemoryDevices) -> Bytes {
        let Some(machine) = self.machine else { return Bytes::ZERO };
        let device_space = machine.max_size.saturating_sub(machine.size);
        let space = device_space.saturating_sub(devices.space.get());
        let count = (space / MODULE.get()).min(machine.slots.saturating_sub(devices.slots));
        MODULE.fraction(count.min(MODULES_MAX as u64), 1)
    }

    /// Plugged memory once the guest has complied with all requests.
    fn requested(&self) -> Bytes {
        let Some(devices) = &self.devices else { return Bytes::ZERO };
        let stays = |module: &&OwnModule| !self.unplugging.contains(&module.number);
        let modules = devices.modules.iter().filter(stays).map(|module| module.size);
        devices.virtio_mem.iter().map(|device| device.requested).chain(modules).sum()
    }

    /// The path of the virtio-mem device at `index`; `None` if it has no id and is not the only one
    /// without.
    fn path_of(&self, index: usize) -> Option<String> {
        let devices = &self.devices.as_ref()?.virtio_mem;
        if let Some(id) = &devices.get(index)?.id {
            return Some(format!("{NAMED}/{id}")).filter(|path| path.len() <= PATH_BYTES_MAX);
        }
        let nameless = devices.iter().filter(|device| device.id.is_none()).count();
        match &self.anonymous[..] {
            [path] if nameless == 1 => Some(path.clone()),
            _ => None,
        }
    }

    /// The steps that give a guest `target` in total, with `plug` of it plugged. Without `plug` the
    /// amount last requested stays. An amount that is not whole blocks is rounded down, which
    /// [`Hotplug::requested`] then shows, and the balloon leaves the difference to the guest.
    ///
    /// `fixed`: memory, apart from our own modules, that the balloon can take from.
    ///
    /// # Errors
    /// The reason why it is impossible.
    pub(super) fn steps(
        &mut self,
        target: Bytes,
        plug: Option<Bytes>,
        fixed: Option<Bytes>,
        has_balloon: bool,
    ) -> Result<Vec<ActionStep>, String> {
        let plan = match plug {
            None => PlugPlan {
                plugged: self.requested(),
                modules: self.modules_size(),
                ..PlugPlan::default()
            },
            Some(plug) => self.plan(plug)?,
        };
        let mut steps = plan.before_balloon;
        // An action that only moves the balloon is sent to a guest without one too: QEMU's error
        // is its outcome.
        if has_balloon || plug.is_none() {
            // QEMU's balloon counts modules like boot memory, and virtio-mem not at all.
            let left = target.saturating_add(plan.modules).saturating_sub(plan.plugged);
            if left == Bytes::ZERO && plan.plugged > Bytes::ZERO {
                return Err(format!(
                    "not sent: {} of plugged memory leave nothing of {target} for boot memory",
                    plan.plugged
                ));
            }
            let most = fixed.map_or(Bytes::MAX, |fixed| fixed.saturating_add(plan.modules));
            steps.push(ActionStep::Balloon(left.min(most)));
        }
        steps.extend(plan.after_balloon);
        Ok(steps)
    }

    fn plan(&mut self, plug: Bytes) -> Result<PlugPlan, String> {
        let Some(hotplug) = self.summary() else {
            return Err(format!("not sent: cannot plug {plug}: the guest has no device for it"));
        };
        let max = hotplug.max.max(hotplug.plugged);
        if plug > max {
            return Err(format!("not sent: cannot plug {plug}: expected at most {max}"));
        }
        Ok(match hotplug.kind {
            HotplugKind::VirtioMem => self.fill_devices(plug),
            HotplugKind::Dimm => self.choose_modules(plug),
        })
    }

    /// Fills virtio-mem devices one after the other. Modules of our own beside them stay.
    fn fill_devices(&self, plug: Bytes) -> PlugPlan {
        let modules = self.modules_size();
        let mut plan = PlugPlan { modules, plugged: modules, ..PlugPlan::default() };
        let devices: &[VirtioMemDevice] =
            self.devices.as_ref().map_or(&[], |devices| &devices.virtio_mem);
        for (index, device) in devices.iter().enumerate() {
            if self.path_of(index).is_none() {
                plan.plugged = plan.plugged.saturating_add(device.requested);
            }
        }
        for (index, device) in devices.iter().enumerate() {
            let Some(path) = self.path_of(index) else { continue };
            let left = plug.saturating_sub(plan.plugged);
            let size = floor_to(left.min(device.max), device.block);
            plan.plugged = plan.plugged.saturating_add(size);
            let grows = size >= device.requested;
            let side = if grows { &mut plan.before_balloon } else { &mut plan.after_balloon };
            side.push(ActionStep::Request(index, path, size));
        }
        plan
    }

    /// Adds modules, or asks the guest to release those with the highest numbers.
    fn choose_modules(&mut self, plug: Bytes) -> PlugPlan {
        let mut modules = self.modules().to_vec();
        // Modules that are leaving already are the first to go.
        modules.sort_by_key(|module| (self.unplugging.contains(&module.number), module.number));
        let mut plan = PlugPlan::default();
        let mut excess = Vec::new();
        for OwnModule { number, size } in modules {
            plan.modules = plan.modules.saturating_add(size);
            let with = plan.plugged.saturating_add(size);
            if excess.is_empty() && with <= plug {
                plan.plugged = with;
                self.unplugging.remove(&number);
            } else {
                excess.push(number);
            }
        }
        if excess.is_empty() {
            let count = plug.saturating_sub(plan.plugged).get() / MODULE.get();
            for number in self.free_numbers(count) {
                plan.before_balloon.push(ActionStep::AddMemory(number));
                plan.before_balloon.push(ActionStep::Plug(number));
                plan.modules = plan.modules.saturating_add(MODULE);
                plan.plugged = plan.plugged.saturating_add(MODULE);
            }
        }
        for number in excess.into_iter().rev() {
            if !self.unplugging.contains(&number) {
                plan.after_balloon.push(ActionStep::Unplug(number));
            }
        }
        plan
    }

    /// The `count` lowest numbers without a module or memory object.
    fn free_numbers(&self, count: u64) -> Vec<ModuleNumber> {
        let is_free =
            |number: &ModuleNumber| !self.memory.contains(number) && !self.has_module(*number);
        let free = (0..u16::MAX).map(ModuleNumber).filter(is_free);
        free.take(usize::try_from(count).unwrap_or(usize::MAX)).collect()
    }

    /// QEMU has accepted a step.
    pub(super) fn accepted(&mut self, step: &ActionStep) {
        let devices = self.devices.get_or_insert_default();
        match step {
            ActionStep::Balloon(_) => {}
            ActionStep::Request(index, _, size) => {
                if let Some(device) = devices.virtio_mem.get_mut(*index) {
                    device.requested = *size;
                }
            }
            ActionStep::AddMemory(number) => {
                self.memory.insert(*number);
            }
            ActionStep::Plug(number) => {
                devices.modules.push(OwnModule { number: *number, size: MODULE });
                devices.count += 1;
                devices.slots += 1;
                devices.space = devices.space.saturating_add(MODULE);
            }
            ActionStep::Unplug(number) => {
                self.unplugging.insert(*number);
            }
        }
    }

    /// QEMU has refused a step.
    pub(super) fn refused(&mut self, step: &ActionStep) {
        if let ActionStep::Plug(number) = step {
            self.orphans.insert(*number);
        }
    }

    /// A device was removed; its memory object is next.
    pub(super) fn device_removed(&mut self, device: &str) {
        let Some(number) = ModuleNumber::of_device(device) else { return };
        self.unplugging.remove(&number);
        self.orphans.insert(number);
        if let Some(devices) = &mut self.devices {
            devices.modules.retain(|module| module.number != number);
        }
    }

    /// The guest refused to release a device.
    pub(super) fn device_kept(&mut self, device: &str) {
        if let Some(number) = ModuleNumber::of_device(device) {
            self.unplugging.remove(&number);
        }
    }

    /// Takes the memory objects to remove.
    pub(super) fn take_orphans(&mut self) -> BTreeSet<ModuleNumber> {
        std::mem::take(&mut self.orphans)
    }

    /// A memory object was removed.
    pub(super) fn memory_removed(&mut self, number: ModuleNumber) {
        self.memory.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Option<Bytes> = Some(Bytes::gib(1));

    fn device(id: Option<&str>, requested: u64, size: u64, max: u64, block: u64) -> String {
        let id = id.map_or(String::new(), |id| format!(r#","id":"{id}""#));
        let [requested, size, max, block] = [requested, size, max, block].map(|mib| mib << 20);
        format!(
            r#"{{"type":"virtio-mem","data":{{"requested-size":{requested},"size":{size},
            "max-size":{max},"block-size":{block}{id}}}}}"#
        )
    }

    fn module(number: u16) -> String {
        let id = ModuleNumber(number).device();
        let size = MODULE.get();
        format!(r#"{{"type":"dimm","data":{{"id":"{id}","size":{size}}}}}"#)
    }

    fn state(devices: &[String]) -> HotplugState {
        let mut state = HotplugState::default();
        state.listed(MemoryDevices::parse(&format!("[{}]", devices.join(","))).unwrap());
        let machine_memory = Some(MachineMemory { size: 1 << 30, max_size: 2 << 30, slots: 6 });
        state.probed(&mut ProbeResult { machine_memory, ..ProbeResult::default() }, true);
        state
    }

    fn steps(state: &mut HotplugState, target_mib: u64, plug_mib: Option<u64>) -> Vec<ActionStep> {
        let plug = plug_mib.map(Bytes::mib);
        state.steps(Bytes::mib(target_mib), plug, BOOT, true).unwrap()
    }

    fn request(index: usize, id: &str, mib: u64) -> ActionStep {
        ActionStep::Request(index, format!("/machine/peripheral/{id}"), Bytes::mib(mib))
    }

    fn balloon(mib: u64) -> ActionStep {
        ActionStep::Balloon(Bytes::mib(mib))
    }

    #[test]
    fn devices_are_filled_in_order_in_their_own_blocks() {
        let two = [device(Some("a"), 0, 0, 101, 2), device(Some("b"), 256, 256, 512, 128)];
        let mut state = state(&two);
        let hotplug = state.summary().unwrap();
        assert_eq!((hotplug.max, hotplug.block), (Bytes::mib(100 + 512), Bytes::mib(128)));
        // Device b shrinks: it is set after the balloon.
        let expected = [request(0, "a", 100), balloon(1000 - 228), request(1, "b", 128)];
        assert_eq!(steps(&mut state, 1000, Some(300)), expected);
    }

    #[test]
    fn the_balloon_target_uses_requested_not_plugged_memory() {
        let mut state = state(&[device(Some("a"), 512, 100, 1024, 2)]);
        assert_eq!(steps(&mut state, 1000, None), [balloon(488)]);
        state.accepted(&request(0, "a", 256));
        assert_eq!(steps(&mut state, 1000, None), [balloon(744)]);
        assert!(state.steps(Bytes::mib(256), None, BOOT, true).is_err());
    }

    #[test]
    fn a_nameless_device_is_set_only_if_unambiguous() {
        let anonymous = || device(None, 64, 64, 512, 2);
        let mut one = state(&[anonymous(), device(Some("a"), 0, 0, 512, 2)]);
        assert_eq!(one.summary().unwrap().max, Bytes::mib(64 + 512), "its size is fixed");
        assert_eq!(steps(&mut one, 800, Some(200)), [request(1, "a", 136), balloon(600)]);
        one.anonymous = vec!["/machine/peripheral-anon/device[1]".to_owned()];
        assert_eq!(one.path_of(0), Some("/machine/peripheral-anon/device[1]".to_owned()));
        let mut two = state(&[anonymous(), anonymous()]);
        two.anonymous = one.anonymous;
        assert_eq!(two.path_of(0), None);
    }

    #[test]
    fn the_balloon_counts_modules_until_they_are_removed() {
        let [add, plug] =
            [ActionStep::AddMemory, ActionStep::Plug].map(|step| step(ModuleNumber(1)));
        let mut state = state(&[module(0), module(2)]);
        assert_eq!(state.summary().unwrap().max, Bytes::mib(6 * 128));
        assert_eq!(steps(&mut state, 1000, None), [balloon(1000)]);
        assert_eq!(steps(&mut state, 1000, Some(384)), [add, plug, balloon(1000)]);
        // QEMU still counts both modules when the balloon is set.
        let unplug = ActionStep::Unplug(ModuleNumber(2));
        assert_eq!(steps(&mut state, 1000, Some(128)), [balloon(1128), unplug.clone()]);
        state.accepted(&unplug);
        assert_eq!(state.requested(), MODULE);
        assert_eq!(steps(&mut state, 1000, Some(128)), [balloon(1128)], "requested once");
        // A leaving module that is wanted again counts as staying.
        assert_eq!(steps(&mut state, 1000, Some(256)), [balloon(1000)]);
        assert_eq!(state.requested(), Bytes::mib(256));
    }

    #[test]
    fn modules_of_others_count_as_boot_memory() {
        let other = r#"{"type":"dimm","data":{"id":"theirs","size":268435456}}"#.to_owned();
        let mut state = state(&[other, module(0)]);
        assert_eq!(state.foreign(), Bytes::mib(256));
        let hotplug = state.summary().unwrap();
        assert_eq!((hotplug.plugged, hotplug.max), (MODULE, Bytes::mib(5 * 128)));
        let list = steps(&mut state, 1000, Some(0));
        assert_eq!(list, [balloon(1128), ActionStep::Unplug(ModuleNumber(0))]);
    }

    #[test]
    fn orphaned_memory_is_removed_unless_an_action_is_pending() {
        let memory = BTreeSet::from([ModuleNumber(0), ModuleNumber(7)]);
        let found = || ProbeResult { own_memory: memory.clone(), ..ProbeResult::default() };
        let mut state = state(&[module(0)]);
        state.probed(&mut found(), false);
        assert_eq!(state.take_orphans(), BTreeSet::new());
        state.probed(&mut found(), true);
        assert_eq!(state.take_orphans(), BTreeSet::from([ModuleNumber(7)]));
        assert_eq!(state.free_numbers(2), [ModuleNumber(1), ModuleNumber(2)]);
    }

    #[test]
    fn hotplug_is_limited_by_space_and_slots() {
        let mut state = state(&[]);
        assert_eq!(state.summary().map(|it| it.max), Some(Bytes::mib(6 * 128)), "six slots");
        state.machine = Some(MachineMemory { size: 1 << 30, max_size: 0, slots: 0 });
        assert_eq!(state.summary(), None);
        state.machine = Some(MachineMemory { size: 0, max_size: u64::MAX, slots: u64::MAX });
        assert_eq!(state.summary().map(|it| it.max), Some(Bytes::mib(256 * 128)));
    }
}
