//! A guest's boot memory, pluggable memory and balloon; and the calls of an order.
//!
//! Idea: an order has a target. Boot memory less the balloon, plus the plugged memory, must be the
//! target or slightly more, and never less. Memory is plugged in before the balloon moves, and out
//! after, so that both never squeeze a guest at once.
//! Limits: the API reports what the guest holds as one figure. If there is a balloon, too, that
//! figure does not show how much is plugged in: the requested size counts instead.

use ballast_model::{Bytes, Hotplug, HotplugKind};
use ballast_rest::{Call, Method};
use serde_json::json;

use crate::api::{Config, Version};

/// Cloud Hypervisor plugs memory in blocks of this size.
const BLOCK: Bytes = Bytes::mib(2);

/// Most zones in which memory is plugged; with more zones, no memory is plugged.
const ZONES_MAX: usize = 64;

/// The calls that change sizes.
pub(crate) const RESIZE: &str = "/api/v1/vm.resize";
pub(crate) const RESIZE_ZONE: &str = "/api/v1/vm.resize-zone";

/// The parts of a guest's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Memory that cannot be plugged out.
    pub boot: Bytes,
    /// The virtio-mem devices.
    pub devices: Vec<Device>,
    /// The size requested of its balloon; `None` if it has no balloon.
    pub balloon: Option<Bytes>,
}

/// A virtio-mem device: of the whole guest, or of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The zone; `None` if the guest has no zones.
    pub zone: Option<String>,
    /// The size in the API that stands for nothing plugged in.
    pub base: Bytes,
    /// The most that can be plugged in, in whole blocks.
    pub most: Bytes,
    /// The size requested to be plugged in.
    pub requested: Bytes,
}

/// The calls of an order, and the amounts in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The calls, to be made one after the other.
    pub calls: Vec<Call>,
    /// The size requested of each device.
    pub plugged: Vec<Bytes>,
    /// The size requested of the balloon; `None` if it stays as it is.
    pub balloon: Option<Bytes>,
}

impl Layout {
    /// Reads the layout from a configuration. Before version 52 the API reports memory as plugged
    /// out as soon as that was requested: plugged memory then counts as boot memory, and none is
    /// plugged in or out.
    pub(crate) fn read(config: &Config, version: Version) -> Layout {
        let memory = &config.memory;
        let zones = memory.zones.as_deref().unwrap_or_default();
        let mut boot = Bytes::new(memory.size);
        let mut devices = Vec::new();
        let is_virtio = memory.hotplug_method.as_deref() == Some("VirtioMem");
        let mut add = |zone: Option<String>, base: u64, most: Option<u64>, asked: Option<u64>| {
            let (most, requested) = (in_blocks(Bytes::new(most.unwrap_or(0))), asked.unwrap_or(0));
            devices.push(Device {
                zone,
                base: Bytes::new(base),
                most,
                requested: Bytes::new(requested),
            });
        };
        if zones.is_empty() {
            add(None, memory.size, memory.hotplug_size, memory.hotplugged_size);
        }
        for zone in zones {
            boot = boot.saturating_add(Bytes::new(zone.size));
            add(Some(zone.id.clone()), zone.size, zone.hotplug_size, zone.hotplugged_size);
        }
        let is_counted =
            version >= Version::COUNTS_PLUGGED && is_virtio && zones.len() <= ZONES_MAX;
        if !is_counted {
            boot = devices.iter().fold(boot, |sum, it| sum.saturating_add(it.requested));
            devices.clear();
        }
        devices.retain(|device| device.most > Bytes::ZERO);
        let balloon = config.balloon.as_ref().map(|balloon| Bytes::new(balloon.size));
        Layout { boot: boot.page_floor(), devices, balloon }
    }

    /// The size requested of all devices together.
    fn requested(&self) -> Bytes {
        self.devices.iter().map(|device| device.requested.min(device.most)).sum()
    }

    /// The pluggable memory of a guest that holds `holds`; `None` if nothing can be plugged in.
    pub fn hotplug(&self, holds: Bytes) -> Option<Hotplug> {
        if self.devices.is_empty() {
            return None;
        }
        let (max, requested) = (self.devices.iter().map(|it| it.most).sum(), self.requested());
        let plugged = match self.balloon {
            Some(_) => requested,
            None => in_blocks(holds.saturating_sub(self.boot)).min(max),
        };
        Some(Hotplug { kind: HotplugKind::VirtioMem, plugged, requested, max, block: BLOCK })
    }

    /// The calls that lead to `target`, with `plug` plugged in (`None`: as much as was requested
    /// last).
    ///
    /// # Errors
    /// The target is impossible; the text says why.
    pub fn orders(&self, target: Bytes, plug: Option<Bytes>) -> Result<Orders, String> {
        let most: Bytes = self.devices.iter().map(|device| device.most).sum();
        if let Some(plug) = plug.filter(|plug| *plug > most) {
            return Err(format!("cannot plug {plug}: expected at most {most}"));
        }
        if self.balloon.is_none() && plug.is_none() {
            return Err("it has no balloon".to_owned());
        }
        let (mut growing, mut shrinking, mut plugged) = (Vec::new(), Vec::new(), Vec::new());
        let mut total = Bytes::ZERO;
        for device in &self.devices {
            let wanted = plug.map_or(device.requested, |plug| {
                in_blocks(plug.saturating_sub(total)).min(device.most)
            });
            total = total.saturating_add(wanted);
            plugged.push(wanted);
            // The API refuses a size that is requested already.
            match wanted.cmp(&device.requested) {
                std::cmp::Ordering::Greater => growing.push(device.resize(wanted)),
                std::cmp::Ordering::Less => shrinking.push(device.resize(wanted)),
                std::cmp::Ordering::Equal => {}
            }
        }
        let mut calls = growing;
        let mut balloon = None;
        if self.balloon.is_some() {
            let left = target.saturating_sub(total).min(self.boot);
            if left == Bytes::ZERO {
                return Err(format!(
                    "{total} of plugged memory leave nothing of {target} for boot memory"
                ));
            }
            // Rounded down, so that the guest never has less than its target.
            let size = (self.boot - left).page_floor();
            calls.push(Call::send(Method::Put, RESIZE, &json!({ "desired_balloon": size.get() })));
            balloon = Some(size);
        }
        calls.extend(shrinking);
        Ok(Orders { calls, plugged, balloon })
    }

    /// Records that `orders` were sent.
    pub(crate) fn ordered(&mut self, orders: &Orders) {
        for (device, wanted) in self.devices.iter_mut().zip(&orders.plugged) {
            device.requested = *wanted;
        }
        self.balloon = orders.balloon.or(self.balloon);
    }
}

impl Device {
    fn resize(&self, plugged: Bytes) -> Call {
        let size = self.base.saturating_add(plugged).get();
        match &self.zone {
            None => Call::send(Method::Put, RESIZE, &json!({ "desired_ram": size })),
            Some(zone) => {
                let body = json!({ "id": zone, "desired_ram": size });
                Call::send(Method::Put, RESIZE_ZONE, &body)
            }
        }
    }
}

fn in_blocks(amount: Bytes) -> Bytes {
    Bytes::new(amount.get() - amount.get() % BLOCK.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(balloon: bool, devices: &[(u64, u64)]) -> Layout {
        let device = |&(most, requested): &(u64, u64)| Device {
            zone: (devices.len() > 1).then(|| format!("z{most}")),
            base: Bytes::mib(512),
            most: Bytes::mib(most),
            requested: Bytes::mib(requested),
        };
        Layout {
            boot: Bytes::mib(1024),
            devices: devices.iter().map(device).collect(),
            balloon: balloon.then_some(Bytes::ZERO),
        }
    }

    fn calls(layout: &Layout, target: u64, plug: Option<u64>) -> Vec<String> {
        let orders = layout.orders(Bytes::mib(target), plug.map(Bytes::mib)).unwrap();
        orders.calls.iter().map(|call| format!("{} {}", call.path, call.body)).collect()
    }

    #[test]
    fn a_balloon_takes_what_is_beyond_the_target() {
        let balloon = |mib: u64| format!("{RESIZE} {{\"desired_balloon\":{}}}", mib << 20);
        assert_eq!(calls(&layout(true, &[]), 700, None), [balloon(324)]);
        assert_eq!(calls(&layout(true, &[]), 5000, None), [balloon(0)]);
        let plugs = layout(true, &[(512, 64)]);
        assert_eq!(calls(&plugs, 700, None), [balloon(1024 - 636)], "64 stay plugged");
        let grow = format!("{RESIZE} {{\"desired_ram\":{}}}", (512 + 128) << 20);
        assert_eq!(calls(&plugs, 1152, Some(128)), [grow, balloon(0)], "first in");
        let shrink = format!("{RESIZE} {{\"desired_ram\":{}}}", 512 << 20);
        assert_eq!(calls(&plugs, 1000, Some(0)), [balloon(24), shrink], "last out");
    }

    #[test]
    fn zones_are_plugged_one_after_the_other() {
        let zones = layout(false, &[(256, 256), (128, 0)]);
        let zone = |id: &str, mib: u64| {
            format!("{RESIZE_ZONE} {{\"desired_ram\":{},\"id\":\"{id}\"}}", mib << 20)
        };
        assert_eq!(calls(&zones, 1344, Some(320)), [zone("z128", 512 + 64)]);
        assert_eq!(calls(&zones, 1224, Some(200)), [zone("z256", 512 + 200)]);
    }

    #[test]
    fn what_cannot_be_says_why() {
        let why = |layout: Layout, target: u64, plug: Option<u64>| {
            layout.orders(Bytes::mib(target), plug.map(Bytes::mib)).unwrap_err()
        };
        assert_eq!(why(layout(false, &[]), 500, None), "it has no balloon");
        assert!(why(layout(true, &[(64, 0)]), 500, Some(65)).contains("expected at most 64"));
        assert!(why(layout(true, &[(512, 512)]), 500, None).contains("leave nothing of 500"));
    }

    proptest! {
        /// A guest that complies holds its target or all its memory, and never less.
        #[test]
        fn nothing_is_asked_for_below_the_target(
            boot in 1u64..1 << 30,
            has_balloon: bool,
            sizes in prop::collection::vec((0u64..1 << 20, 0u64..1 << 20), 0..3),
            target in 1u64..1 << 31,
            plug in prop::option::of(0u64..1 << 21),
        ) {
            let device = |&(most, requested): &(u64, u64)| Device {
                zone: Some("a".to_owned()),
                base: Bytes::ZERO,
                most: Bytes::pages(most & !511),
                requested: Bytes::pages(requested & !511).min(Bytes::pages(most & !511)),
            };
            let layout = Layout {
                boot: Bytes::pages(boot),
                devices: sizes.iter().map(device).collect(),
                balloon: has_balloon.then_some(Bytes::ZERO),
            };
            let target = Bytes::pages(target);
            let Ok(orders) = layout.orders(target, plug.map(Bytes::pages)) else { return Ok(()) };
            let plugged: Bytes = orders.plugged.iter().copied().sum();
            let balloon = orders.balloon.unwrap_or_default();
            prop_assert!(balloon < layout.boot);
            let held = layout.boot - balloon + plugged;
            prop_assert!(held >= target.min(layout.boot + plugged));
            for (device, plugged) in layout.devices.iter().zip(&orders.plugged) {
                prop_assert!(*plugged <= device.most);
            }
        }
    }
}
