//! A domain's virtio-mem devices: their figures in libvirt's XML, and changes of their plugged
//! memory.
//!
//! Idea: to change a device, libvirt gets the device's element again, with another requested size
//! and everything else as libvirt wrote it. Several devices are filled one after the other.
//!
//! Source: libvirt's domain format, `virDomainUpdateDeviceFlags`; seen with libvirt 9.0: a domain's
//! current and maximum memory include these devices; the target of its balloon and
//! `virDomainMemoryStats` do not. Limits: the plugged size is libvirt's figure, from an event that
//! QEMU sends at most once a second.

use ballast_model::{Bytes, Hotplug, HotplugKind};
use roxmltree::Node;

use crate::xml::{child, size};

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioMem {
    /// The most that can be plugged into it.
    pub size: Bytes,
    /// Amounts are whole multiples of this.
    pub block: Bytes,
    /// The size requested last.
    pub requested: Bytes,
    /// The size plugged in.
    pub current: Bytes,
    /// The text of its element before and after the requested size.
    element: [String; 2],
}

/// The changes that plug an amount into all devices together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PlugPlan {
    /// Elements of devices that get more; before the balloon moves.
    pub(crate) growing: Vec<String>,
    /// Elements of devices that get less; after the balloon has moved.
    pub(crate) shrinking: Vec<String>,
    /// The size requested of all devices in the end.
    pub(crate) requested: Bytes,
}

impl VirtioMem {
    /// Reads a `<memory model='virtio-mem'>` of the domain's XML; `None`: a figure is missing.
    pub(crate) fn read(node: Node<'_, '_>, xml: &str) -> Option<VirtioMem> {
        let target = child(node, "target")?;
        let of = |name| child(target, name).and_then(size);
        let (whole, requested) = (node.range(), child(target, "requested")?);
        let block = of("block").filter(|block| *block > Bytes::ZERO)?;
        Some(VirtioMem {
            size: of("size")?,
            block,
            requested: size(requested)?,
            current: of("current").unwrap_or(Bytes::ZERO),
            element: [
                xml.get(whole.start..requested.range().start)?.to_owned(),
                xml.get(requested.range().end..whole.end)?.to_owned(),
            ],
        })
    }

    /// The most that can be plugged, in whole blocks.
    fn most(&self) -> Bytes {
        self.in_blocks(self.size)
    }

    fn in_blocks(&self, amount: Bytes) -> Bytes {
        Bytes::new(amount.get() - amount.get() % self.block.get())
    }

    /// Its element with another requested size.
    fn with_requested(&self, amount: Bytes) -> String {
        let [before, after] = &self.element;
        format!("{before}<requested unit='KiB'>{}</requested>{after}", amount.get() >> 10)
    }
}

/// All devices together; `None`: there is none.
pub(crate) fn total_hotplug(devices: &[VirtioMem]) -> Option<Hotplug> {
    let block = devices.iter().map(|it| it.block).max()?;
    Some(Hotplug {
        kind: HotplugKind::VirtioMem,
        plugged: devices.iter().map(|it| it.current).sum(),
        requested: devices.iter().map(|it| it.requested).sum(),
        max: devices.iter().map(VirtioMem::most).sum(),
        block,
    })
}

/// The changes that lead to `plug` in all of them, rounded down to blocks; `None` leaves the
/// requested sizes as they are.
pub(crate) fn plan(devices: &[VirtioMem], plug: Option<Bytes>) -> PlugPlan {
    let mut plan = PlugPlan::default();
    for device in devices {
        let wanted = plug.map_or(device.requested, |plug| {
            device.in_blocks(plug.saturating_sub(plan.requested).min(device.size))
        });
        plan.requested = plan.requested.saturating_add(wanted);
        if wanted > device.requested {
            plan.growing.push(device.with_requested(wanted));
        } else if wanted < device.requested {
            plan.shrinking.push(device.with_requested(wanted));
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain_xml::read_domain_xml;

    const XML: &str = "<domain><devices><memory model='virtio-mem'><target>\
        <size unit='KiB'>524288</size><node>0</node><block unit='KiB'>2048</block>\
        <requested unit='KiB'>65536</requested><current unit='KiB'>32768</current></target>\
        <alias name='ua-a'/></memory>\
        <memory model='virtio-mem'><target><size unit='MiB'>65</size><block unit='MiB'>4</block>\
        <requested unit='MiB'>16</requested></target><alias name='ua-b'/></memory>\
        </devices></domain>";

    fn devices() -> Vec<VirtioMem> {
        read_domain_xml(XML).unwrap().virtio_mem
    }

    #[test]
    fn devices_count_together() {
        let expected = Hotplug {
            kind: HotplugKind::VirtioMem,
            plugged: Bytes::mib(32),
            requested: Bytes::mib(80),
            max: Bytes::mib(512 + 64),
            block: Bytes::mib(4),
        };
        assert_eq!(total_hotplug(&devices()), Some(expected));
        assert_eq!(total_hotplug(&[]), None);
    }

    #[test]
    fn an_amount_fills_one_device_after_the_other() {
        let requested = |plug: Option<u64>| {
            let plan = plan(&devices(), plug.map(Bytes::mib));
            (plan.growing.len(), plan.shrinking.len(), plan.requested.get() >> 20)
        };
        assert_eq!(requested(None), (0, 0, 80), "all stay");
        assert_eq!(requested(Some(0)), (0, 2, 0));
        assert_eq!(requested(Some(101)), (1, 1, 100), "in whole blocks");
        assert_eq!(requested(Some(530)), (1, 0, 528), "the second has what it had");
        assert_eq!(requested(Some(9999)), (2, 0, 576), "as much as there is");
    }

    #[test]
    fn all_but_the_requested_size_stays_as_libvirt_wrote_it() {
        let plan = plan(&devices(), Some(Bytes::mib(128)));
        let before = XML.find("<memory").unwrap();
        let after = XML.find("</memory>").unwrap() + "</memory>".len();
        let expected = XML[before..after].replace(
            "<requested unit='KiB'>65536</requested>",
            "<requested unit='KiB'>131072</requested>",
        );
        assert_eq!(plan.growing, [expected]);
        let changed = format!("<domain><devices>{}</devices></domain>", plan.growing[0]);
        assert_eq!(read_domain_xml(&changed).unwrap().virtio_mem[0].requested, Bytes::mib(128));
    }
}
