//! Memory plugged into a guest beside what it was booted with, and how it is changed.
//!
//! Idea: a virtio-mem device is told how much it shall have, and several are filled one after the
//! other; without any, memory modules of [`MODULE`] are added and removed as a whole. What is plugged
//! in goes before the balloon moves and what is pulled out after it, so that a guest is never
//! squeezed by both at once.
//!
//! The balloon's arithmetic, checked against real guests (`crates/lab/tests/hotplug.rs`): QEMU counts
//! as a guest's memory what it was booted with and its modules (`pc-dimm`), and nothing of virtio-mem;
//! both `query-balloon` and the value of `balloon` are that memory less the balloon
//! (`hw/virtio/virtio-balloon.c`, `get_current_ram_size`, QEMU 7.2).
//!
//! Limits: a module stays in the sum until the guest has let go of it, whatever was asked for. QEMU
//! cannot take a wish for its removal back. Only modules of our own making are removed.

use std::collections::BTreeSet;

use ballast_model::{Bytes, Hotplug, HotplugKind};
use serde::Deserialize;

use super::devices::{Devices, Module, VirtioMem, floor_to};
use super::probe::{Found, PATH_BYTES_MAX};
use crate::command::{Command, ModuleNumber};

/// Size of a memory module of our own: Linux on x86-64 takes memory in sections of this size.
pub const MODULE: Bytes = Bytes::mib(128);

/// Most modules added at once: QEMU's machines have as many slots.
const MODULES_MAX: u64 = 256;

/// Folder of devices with ids.
const NAMED: &str = "/machine/peripheral";

/// The property of a virtio-mem device that says how much is to be plugged in.
const REQUESTED_SIZE: &str = "requested-size";

/// What `qom-get /machine memory` returns (QEMU 7.1 and later).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Room {
    /// Memory of the boot.
    size: u64,
    /// That, and the space for devices; the same as `size` where it is not there.
    #[serde(default)]
    max_size: u64,
    /// Slots for modules.
    #[serde(default)]
    slots: u64,
}

/// One command of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// In QEMU's own terms.
    Balloon(Bytes),
    /// To the virtio-mem device of this place in the list, with its path.
    Request(usize, String, Bytes),
    AddMemory(ModuleNumber),
    Plug(ModuleNumber),
    Unplug(ModuleNumber),
}

impl Step {
    pub(super) fn command(&self) -> Command<'_> {
        match self {
            Step::Balloon(target) => Command::Balloon { target: *target },
            Step::Request(_, path, size) => {
                Command::QomSet { path, property: REQUESTED_SIZE, value: size.get() }
            }
            Step::AddMemory(number) => Command::AddMemory { number: *number, size: MODULE },
            Step::Plug(number) => Command::PlugModule { number: *number },
            Step::Unplug(number) => Command::UnplugModule { number: *number },
        }
    }
}

/// What changes plugged memory to the amount that shall be.
#[derive(Debug, Default)]
struct Steps {
    before_balloon: Vec<Step>,
    after_balloon: Vec<Step>,
    /// What is plugged in once the guest has done as it was asked.
    in_force: Bytes,
    /// Modules that are there when the balloon is set.
    modules: Bytes,
}

/// What is known of a guest's memory devices.
#[derive(Debug, Default)]
pub(super) struct Plugging {
    /// `None`: not known yet.
    devices: Option<Devices>,
    room: Option<Room>,
    /// Paths of virtio-mem devices without an id.
    anonymous: Vec<String>,
    /// Memory of our own modules, plugged in or not.
    memory: BTreeSet<ModuleNumber>,
    /// Modules the guest was asked to let go of.
    leaving: BTreeSet<ModuleNumber>,
    /// Memory whose module is gone or never came to be, to be given back to the host.
    orphans: BTreeSet<ModuleNumber>,
}

impl Plugging {
    /// The devices were listed.
    pub(super) fn listed(&mut self, devices: Devices) {
        let is_there =
            |number: &ModuleNumber| devices.modules.iter().any(|it| it.number == *number);
        self.leaving.retain(is_there);
        self.devices = Some(devices);
    }

    /// A probe is done. `is_idle`: no order is under way that makes modules.
    pub(super) fn probed(&mut self, found: &mut Found, is_idle: bool) {
        self.room = found.room;
        self.anonymous = std::mem::take(&mut found.anonymous_virtio_mem);
        let memory = std::mem::take(&mut found.own_memory);
        if is_idle {
            let is_used = |number: &ModuleNumber| {
                self.modules().iter().any(|module| module.number == *number)
            };
            self.orphans = memory.iter().copied().filter(|number| !is_used(number)).collect();
            self.memory = memory;
        } else {
            self.memory.extend(memory);
        }
    }

    /// Whether there are devices to be looked at in every tick.
    pub(super) fn has_devices(&self) -> bool {
        self.devices.as_ref().is_some_and(|devices| devices.count > 0)
    }

    /// Memory in modules that are not ours.
    pub(super) fn foreign(&self) -> Bytes {
        self.devices.as_ref().map_or(Bytes::ZERO, |devices| devices.foreign)
    }

    /// What is plugged in that can be pulled out; `None` while it is not known.
    pub(super) fn plugged(&self) -> Option<Bytes> {
        self.devices.as_ref().map(Devices::plugged)
    }

    /// What QEMU leaves out when it counts a guest's memory.
    pub(super) fn uncounted(&self) -> Option<Bytes> {
        self.devices.as_ref().map(Devices::virtio_mem_size)
    }

    fn modules(&self) -> &[Module] {
        self.devices.as_ref().map_or(&[], |devices| &devices.modules)
    }

    /// What the model is told.
    pub(super) fn hotplug(&self) -> Option<Hotplug> {
        let devices = self.devices.as_ref()?;
        let plugged = devices.plugged();
        let requested = self.requested();
        if devices.virtio_mem.is_empty() {
            let max = devices.modules_size().saturating_add(self.modules_more(devices));
            let kind = HotplugKind::Dimm;
            return (max > Bytes::ZERO).then_some(Hotplug {
                kind,
                plugged,
                requested,
                max,
                block: MODULE,
            });
        }
        let most = |(place, device): (usize, &VirtioMem)| match self.path_of(place) {
            Some(_) => floor_to(device.max, device.block),
            None => device.requested,
        };
        let devices_max: Bytes = devices.virtio_mem.iter().enumerate().map(most).sum();
        let max = devices_max.saturating_add(devices.modules_size());
        let block = devices.virtio_mem.iter().map(|device| device.block).max()?;
        Some(Hotplug { kind: HotplugKind::VirtioMem, plugged, requested, max, block })
    }

    /// How much more fits, in whole modules.
    fn modules_more(&self, devices: &Devices) -> Bytes {
        let Some(room) = self.room else { return Bytes::ZERO };
        let space = room.max_size.saturating_sub(room.size).saturating_sub(devices.space.get());
        let count = (space / MODULE.get()).min(room.slots.saturating_sub(devices.slots));
        MODULE.fraction(count.min(MODULES_MAX), 1)
    }

    /// What the guest was asked to have plugged in.
    fn requested(&self) -> Bytes {
        let Some(devices) = &self.devices else { return Bytes::ZERO };
        let stays = |module: &&Module| !self.leaving.contains(&module.number);
        let modules = devices.modules.iter().filter(stays).map(|module| module.size);
        devices.virtio_mem.iter().map(|device| device.requested).chain(modules).sum()
    }

    /// The path of the virtio-mem device at `place`; `None` where it has no id and is not the only one
    /// without.
    fn path_of(&self, place: usize) -> Option<String> {
        let devices = &self.devices.as_ref()?.virtio_mem;
        if let Some(id) = &devices.get(place)?.id {
            return Some(format!("{NAMED}/{id}")).filter(|path| path.len() <= PATH_BYTES_MAX);
        }
        let nameless = devices.iter().filter(|device| device.id.is_none()).count();
        match &self.anonymous[..] {
            [path] if nameless == 1 => Some(path.clone()),
            _ => None,
        }
    }

    /// The commands that give a guest `target` in all, of which `plug` is to be plugged in; without
    /// it, what it was asked to have last stays. An amount of no whole blocks is rounded down, which
    /// [`Hotplug::requested`] then says, and the balloon leaves the guest the difference.
    ///
    /// `unplugged`: memory the balloon can take from that is not plugged in by us.
    ///
    /// # Errors
    /// Says why it cannot be.
    pub(super) fn steps(
        &mut self,
        target: Bytes,
        plug: Option<Bytes>,
        unplugged: Option<Bytes>,
        has_balloon: bool,
    ) -> Result<Vec<Step>, String> {
        let steps = match plug {
            None => Steps {
                in_force: self.requested(),
                modules: self.modules().iter().map(|module| module.size).sum(),
                ..Steps::default()
            },
            Some(plug) => self.plug(plug)?,
        };
        // Without one QEMU shall say so, unless there is something else to do.
        let moves_balloon = has_balloon || plug.is_none();
        let mut list = steps.before_balloon;
        if moves_balloon {
            // QEMU's balloon reckons with modules as with boot memory, and with virtio-mem not at all.
            let left = target.saturating_add(steps.modules).saturating_sub(steps.in_force);
            if left == Bytes::ZERO && steps.in_force > Bytes::ZERO {
                let plugged = steps.in_force;
                return Err(format!(
                    "not sent: {plugged} plugged in leave nothing of {target} for what the guest was \
                     booted with"
                ));
            }
            let most = unplugged.map(|unplugged| unplugged.saturating_add(steps.modules));
            list.push(Step::Balloon(most.map_or(left, |most| left.min(most))));
        }
        list.extend(steps.after_balloon);
        Ok(list)
    }

    fn plug(&mut self, plug: Bytes) -> Result<Steps, String> {
        let Some(hotplug) = self.hotplug() else {
            return Err(format!(
                "not sent: {plug} to be plugged in, and there is no device for it"
            ));
        };
        let max = hotplug.max.max(hotplug.plugged);
        if plug > max {
            return Err(format!("not sent: {plug} to be plugged in, and at most {max} can be"));
        }
        Ok(match hotplug.kind {
            HotplugKind::VirtioMem => self.fill_devices(plug),
            HotplugKind::Dimm => self.choose_modules(plug),
        })
    }

    /// Fills virtio-mem devices one after the other.
    fn fill_devices(&self, plug: Bytes) -> Steps {
        let mut steps = Steps {
            modules: self.modules().iter().map(|module| module.size).sum(),
            ..Steps::default()
        };
        let list = self.devices.as_ref().map_or(&[][..], |devices| &devices.virtio_mem);
        let fixed = list.iter().enumerate().filter(|(place, _)| self.path_of(*place).is_none());
        // Beside virtio-mem our own modules stay as they are.
        steps.in_force = fixed.map(|(_, device)| device.requested).sum::<Bytes>();
        steps.in_force = steps.in_force.saturating_add(steps.modules);
        for (place, device) in list.iter().enumerate() {
            let Some(path) = self.path_of(place) else { continue };
            let left = plug.saturating_sub(steps.in_force);
            let size = floor_to(left.min(device.max), device.block);
            steps.in_force = steps.in_force.saturating_add(size);
            let is_more = size >= device.requested;
            let side = if is_more { &mut steps.before_balloon } else { &mut steps.after_balloon };
            side.push(Step::Request(place, path, size));
        }
        steps
    }

    /// Adds modules, or asks the guest to let go of those with the highest numbers.
    fn choose_modules(&mut self, plug: Bytes) -> Steps {
        let mut modules = self.modules().to_vec();
        // Those that are asked to leave already go first.
        modules.sort_by_key(|module| (self.leaving.contains(&module.number), module.number));
        let mut steps = Steps::default();
        let mut goes = Vec::new();
        for Module { number, size } in modules {
            steps.modules = steps.modules.saturating_add(size);
            let with = steps.in_force.saturating_add(size);
            if goes.is_empty() && with <= plug {
                steps.in_force = with;
                self.leaving.remove(&number);
            } else {
                goes.push(number);
            }
        }
        let new = match goes.is_empty() {
            true => plug.saturating_sub(steps.in_force).get() / MODULE.get(),
            false => 0,
        };
        for number in self.free_numbers(new) {
            steps.before_balloon.extend([Step::AddMemory(number), Step::Plug(number)]);
            steps.modules = steps.modules.saturating_add(MODULE);
            steps.in_force = steps.in_force.saturating_add(MODULE);
        }
        let asked = goes.iter().rev().filter(|number| !self.leaving.contains(number));
        steps.after_balloon = asked.map(|number| Step::Unplug(*number)).collect();
        steps
    }

    /// The `count` lowest numbers that nothing has.
    fn free_numbers(&self, count: u64) -> Vec<ModuleNumber> {
        let is_used = |number: &ModuleNumber| {
            self.memory.contains(number)
                || self.modules().iter().any(|module| module.number == *number)
        };
        let free = (0..u16::MAX).map(ModuleNumber).filter(|number| !is_used(number));
        free.take(usize::try_from(count).unwrap_or(usize::MAX)).collect()
    }

    /// QEMU has accepted a step.
    pub(super) fn accepted(&mut self, step: &Step) {
        let devices = self.devices.get_or_insert_default();
        match step {
            Step::Balloon(_) => {}
            Step::Request(place, _, size) => {
                if let Some(device) = devices.virtio_mem.get_mut(*place) {
                    device.requested = *size;
                }
            }
            Step::AddMemory(number) => {
                self.memory.insert(*number);
            }
            Step::Plug(number) => {
                devices.modules.push(Module { number: *number, size: MODULE });
                devices.count += 1;
                devices.slots += 1;
                devices.space = devices.space.saturating_add(MODULE);
            }
            Step::Unplug(number) => {
                self.leaving.insert(*number);
            }
        }
    }

    /// QEMU has refused a step.
    pub(super) fn refused(&mut self, step: &Step) {
        if let Step::Plug(number) = step {
            self.orphans.insert(*number);
        }
    }

    /// A device is gone. Its memory is to follow.
    pub(super) fn gone(&mut self, device: &str) {
        let Some(number) = ModuleNumber::of_device(device) else { return };
        self.leaving.remove(&number);
        self.orphans.insert(number);
        if let Some(devices) = &mut self.devices {
            devices.modules.retain(|module| module.number != number);
        }
    }

    /// The guest has said that it keeps a device.
    pub(super) fn kept(&mut self, device: &str) {
        if let Some(number) = ModuleNumber::of_device(device) {
            self.leaving.remove(&number);
        }
    }

    /// Memory to be given back to the host, each once.
    pub(super) fn take_orphans(&mut self) -> BTreeSet<ModuleNumber> {
        std::mem::take(&mut self.orphans)
    }

    /// Memory was given back to the host.
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

    fn plugging(devices: &[String]) -> Plugging {
        let mut plugging = Plugging::default();
        plugging.listed(Devices::read(&format!("[{}]", devices.join(","))).unwrap());
        let room = Room { size: 1 << 30, max_size: 2 << 30, slots: 6 };
        plugging.probed(&mut Found { room: Some(room), ..Found::default() }, true);
        plugging
    }

    fn steps(plugging: &mut Plugging, target_mib: u64, plug_mib: Option<u64>) -> Vec<Step> {
        let plug = plug_mib.map(Bytes::mib);
        plugging.steps(Bytes::mib(target_mib), plug, BOOT, true).unwrap()
    }

    fn request(place: usize, id: &str, mib: u64) -> Step {
        Step::Request(place, format!("/machine/peripheral/{id}"), Bytes::mib(mib))
    }

    fn balloon(mib: u64) -> Step {
        Step::Balloon(Bytes::mib(mib))
    }

    #[test]
    fn devices_are_filled_in_order_in_their_own_blocks() {
        let two = [device(Some("a"), 0, 0, 101, 2), device(Some("b"), 200, 200, 512, 128)];
        let mut plugging = plugging(&two);
        let hotplug = plugging.hotplug().unwrap();
        assert_eq!((hotplug.max, hotplug.block), (Bytes::mib(100 + 512), Bytes::mib(128)));
        // b shrinks, and so it is asked after the balloon has moved.
        let expected = [request(0, "a", 100), balloon(1000 - 228), request(1, "b", 128)];
        assert_eq!(steps(&mut plugging, 1000, Some(300)), expected);
    }

    #[test]
    fn the_balloon_is_reckoned_with_what_was_asked_for_not_with_what_is_there() {
        let mut plugging = plugging(&[device(Some("a"), 512, 100, 1024, 2)]);
        assert_eq!(steps(&mut plugging, 1000, None), [balloon(488)]);
        plugging.accepted(&request(0, "a", 256));
        assert_eq!(steps(&mut plugging, 1000, None), [balloon(744)]);
        assert!(plugging.steps(Bytes::mib(256), None, BOOT, true).is_err());
    }

    #[test]
    fn a_device_without_an_id_is_set_where_there_is_no_doubt_which_it_is() {
        let anonymous = || device(None, 64, 64, 512, 2);
        let mut one = plugging(&[anonymous(), device(Some("a"), 0, 0, 512, 2)]);
        assert_eq!(one.hotplug().unwrap().max, Bytes::mib(64 + 512), "it stays as it is");
        assert_eq!(steps(&mut one, 800, Some(200)), [request(1, "a", 136), balloon(600)]);
        one.anonymous = vec!["/machine/peripheral-anon/device[1]".to_owned()];
        assert_eq!(one.path_of(0), Some("/machine/peripheral-anon/device[1]".to_owned()));
        let mut two = plugging(&[anonymous(), anonymous()]);
        two.anonymous = one.anonymous;
        assert_eq!(two.path_of(0), None);
    }

    #[test]
    fn modules_are_counted_by_the_balloon_while_they_are_there() {
        let [add, plug] = [Step::AddMemory, Step::Plug].map(|step| step(ModuleNumber(1)));
        let mut plugging = plugging(&[module(0), module(2)]);
        assert_eq!(plugging.hotplug().unwrap().max, Bytes::mib(6 * 128));
        assert_eq!(steps(&mut plugging, 1000, None), [balloon(1000)]);
        assert_eq!(steps(&mut plugging, 1000, Some(384)), [add, plug, balloon(1000)]);
        // QEMU still counts both modules when the balloon is set.
        let unplug = Step::Unplug(ModuleNumber(2));
        assert_eq!(steps(&mut plugging, 1000, Some(128)), [balloon(1128), unplug.clone()]);
        plugging.accepted(&unplug);
        assert_eq!(plugging.requested(), MODULE);
        assert_eq!(steps(&mut plugging, 1000, Some(128)), [balloon(1128)], "asked once");
        // What was asked to leave is not asked any more once it is wanted again.
        assert_eq!(steps(&mut plugging, 1000, Some(256)), [balloon(1000)]);
        assert_eq!(plugging.requested(), Bytes::mib(256));
    }

    #[test]
    fn modules_of_others_are_memory_like_that_of_the_boot() {
        let other = r#"{"type":"dimm","data":{"id":"theirs","size":268435456}}"#.to_owned();
        let mut plugging = plugging(&[other, module(0)]);
        assert_eq!(plugging.foreign(), Bytes::mib(256));
        let hotplug = plugging.hotplug().unwrap();
        assert_eq!((hotplug.plugged, hotplug.max), (MODULE, Bytes::mib(5 * 128)));
        let list = steps(&mut plugging, 1000, Some(0));
        assert_eq!(list, [balloon(1128), Step::Unplug(ModuleNumber(0))]);
    }

    #[test]
    fn memory_without_a_module_is_given_back_but_not_under_an_order() {
        let memory = BTreeSet::from([ModuleNumber(0), ModuleNumber(7)]);
        let found = || Found { own_memory: memory.clone(), ..Found::default() };
        let mut plugging = plugging(&[module(0)]);
        plugging.probed(&mut found(), false);
        assert_eq!(plugging.take_orphans(), BTreeSet::new());
        plugging.probed(&mut found(), true);
        assert_eq!(plugging.take_orphans(), BTreeSet::from([ModuleNumber(7)]));
        assert_eq!(plugging.free_numbers(2), [ModuleNumber(1), ModuleNumber(2)]);
    }

    #[test]
    fn without_room_nothing_can_be_plugged_in() {
        let mut plugging = plugging(&[]);
        assert_eq!(plugging.hotplug().map(|it| it.max), Some(Bytes::mib(6 * 128)), "six slots");
        plugging.room = Some(Room { size: 1 << 30, max_size: 0, slots: 0 });
        assert_eq!(plugging.hotplug(), None);
        plugging.room = Some(Room { size: 0, max_size: u64::MAX, slots: u64::MAX });
        assert_eq!(plugging.hotplug().map(|it| it.max), Some(Bytes::mib(256 * 128)));
    }

    #[test]
    fn guests_say_in_several_ways_that_a_module_stays() {
        use crate::guest::replies::event_device;
        use crate::session::Event;
        let device =
            |data: &str| event_device(&Event { name: String::new(), data: Some(data.to_owned()) });
        let ost = |source: u32, status: u32| {
            device(&format!(
                r#"{{"info":{{"device":"d","source":{source},"status":{status},"slot":"0",
                "slot-type":"DIMM"}}}}"#
            ))
        };
        assert_eq!(ost(3, 1).as_deref(), Some("d"));
        assert_eq!(ost(3, 0x82).as_deref(), Some("d"));
        assert_eq!((ost(3, 0), ost(3, 0x84), ost(1, 1)), (None, None, None));
        assert_eq!(device(r#"{"device":"d","msg":"busy"}"#).as_deref(), Some("d"));
        assert_eq!((device("{}"), device("5")), (None, None));
    }
}
