//! Facts about a domain's memory, from its XML.
//!
//! Source: libvirt's domain format. Limits: to notice a change while the domain runs, the XML has
//! to be read again.

use ballast_model::{Capabilities, GuestChange, Pinned};
use roxmltree::{Document, Node};

use crate::metadata;
use crate::virtio_mem::VirtioMem;
use crate::xml::{child, children};

/// Largest XML that is read.
const XML_MAX: usize = 4 << 20;

/// A domain's configuration, as far as Ballast uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainFacts {
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// The CID of its vsock device; `None` if it has none, or libvirt does not say.
    pub vsock_cid: Option<u32>,
    /// Why pages that its balloon takes stay on the host; `None` if the host gains them.
    pub pinned: Option<Pinned>,
    /// Its virtio-mem devices.
    pub virtio_mem: Vec<VirtioMem>,
    /// How often its balloon reports, in seconds; `None`: libvirt does not say.
    pub stats_period: Option<u32>,
    /// The settings in its metadata; `None` if it has no element of ours.
    pub settings: Option<GuestChange>,
    /// Problems of that element.
    pub complaints: Vec<String>,
}

/// Reads a domain's XML.
///
/// # Errors
/// The text is not XML, or is too large.
pub fn read_domain_xml(xml: &str) -> Result<DomainFacts, String> {
    if xml.len() > XML_MAX {
        return Err(format!("its XML has {} bytes, more than {XML_MAX}", xml.len()));
    }
    let document = Document::parse(xml).map_err(|error| format!("its XML: {error}"))?;
    let domain = document.root_element();
    let devices = child(domain, "devices");
    let balloon = devices.and_then(|devices| child(devices, "memballoon"));
    let is_there = balloon.is_some_and(|it| it.attribute("model") != Some("none"));
    let is_on = |name| balloon.is_some_and(|it| it.attribute(name) == Some("on"));
    let memory_devices = || devices.into_iter().flat_map(|it| children(it, "memory"));
    let mut virtio_mem = Vec::new();
    let mut is_whole = true;
    for device in memory_devices().filter(|it| it.attribute("model") == Some("virtio-mem")) {
        match VirtioMem::read(device, xml) {
            Some(device) => virtio_mem.push(device),
            None => is_whole = false,
        }
    }
    let pinned = pinned(domain, devices);
    let vsock = devices.and_then(|devices| child(child(devices, "vsock")?, "cid"));
    let element = child(domain, "metadata").and_then(metadata::element);
    let (settings, complaints) = element.map(metadata::read).unzip();
    let period = balloon.and_then(|balloon| child(balloon, "stats"));
    Ok(DomainFacts {
        capabilities: Capabilities {
            // If a virtio-mem device cannot be read, its memory cannot be told from the balloon's,
            // so the balloon is not used.
            balloon: Some(is_there && is_whole),
            statistics: Some(is_there),
            free_page_reporting: Some(is_on("freePageReporting")),
            deflate_on_oom: Some(is_on("autodeflate")),
            memory_devices: Some(memory_devices().next().is_some()),
            discard_inhibited: Some(pinned.is_some()),
            // Every client of libvirt may order the balloon.
            shared_control: Some(true),
        },
        vsock_cid: vsock.and_then(|cid| cid.attribute("address")?.parse().ok()),
        pinned,
        virtio_mem,
        settings,
        complaints: complaints.unwrap_or_default(),
        stats_period: period.and_then(|stats| stats.attribute("period")?.parse().ok()),
    })
}

/// Why a domain's pages stay on the host. Encryption takes precedence over a passthrough device.
fn pinned(domain: Node<'_, '_>, devices: Option<Node<'_, '_>>) -> Option<Pinned> {
    let security = child(domain, "launchSecurity").and_then(|it| it.attribute("type"));
    let backing = |name| child(domain, "memoryBacking").is_some_and(|it| child(it, name).is_some());
    let is_of = |it: Node<'_, '_>, kinds: &[&str]| {
        it.attribute("type").is_some_and(|kind| kinds.contains(&kind))
    };
    let passes_through = devices.is_some_and(|devices| {
        children(devices, "hostdev").any(|it| is_of(it, &["pci", "mdev"]))
            || children(devices, "interface").any(|it| is_of(it, &["hostdev", "vdpa"]))
    });
    match security {
        Some("sev") => Some(Pinned::Sev),
        Some("sev-snp") => Some(Pinned::SevSnp),
        Some("tdx") => Some(Pinned::Tdx),
        _ if passes_through => Some(Pinned::Passthrough),
        _ if backing("locked") => Some(Pinned::Locked),
        _ if backing("hugepages") => Some(Pinned::HugePages),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_model::Bytes;
    use proptest::prelude::*;

    #[test]
    fn balloons_and_what_inhibits_them_are_found() {
        let read = |devices: &str, more: &str| {
            let xml = format!("<domain>{more}<devices>{devices}</devices></domain>");
            read_domain_xml(&xml).unwrap()
        };
        let plain = read("<memballoon model='virtio'/>", "");
        let expected = Capabilities {
            balloon: Some(true),
            statistics: Some(true),
            free_page_reporting: Some(false),
            deflate_on_oom: Some(false),
            memory_devices: Some(false),
            discard_inhibited: Some(false),
            shared_control: Some(true),
        };
        assert_eq!((plain.capabilities, plain.stats_period), (expected, None));
        let all = read(
            "<memballoon model='virtio' autodeflate='on' freePageReporting='on'>\
             <stats period='5'/></memballoon>\
             <memory model='virtio-mem'><target><size unit='MiB'>512</size>\
             <block unit='MiB'>2</block><requested>0</requested></target></memory>\
             <memory model='dimm'><target><size unit='MiB'>256</size></target></memory>\
             <hostdev mode='subsystem' type='usb'/>",
            "",
        );
        let on = Capabilities {
            free_page_reporting: Some(true),
            deflate_on_oom: Some(true),
            memory_devices: Some(true),
            ..expected
        };
        assert_eq!(all.capabilities, on);
        let sizes: Vec<Bytes> = all.virtio_mem.iter().map(|it| it.size).collect();
        assert_eq!((all.stats_period, &sizes[..]), (Some(5), &[Bytes::mib(512)][..]));
        let unreadable =
            "<memballoon model='virtio'/><memory model='virtio-mem'><target/></memory>";
        assert_eq!(read(unreadable, "").capabilities.balloon, Some(false));
        let none = Capabilities { balloon: Some(false), statistics: Some(false), ..expected };
        assert_eq!(read("<memballoon model='none'/>", "").capabilities, none);
        let inhibited = |facts: DomainFacts| facts.capabilities.discard_inhibited;
        let vsock = "<vsock model='virtio'><cid auto='yes' address='7'/></vsock>";
        assert_eq!((read(vsock, "").vsock_cid, read("<vsock/>", "").vsock_cid), (Some(7), None));
        assert_eq!(inhibited(read("<hostdev type='pci'/>", "")), Some(true));
        let locked = "<memoryBacking><locked/></memoryBacking>";
        assert_eq!(inhibited(read("", locked)), Some(true));
        let pinned = |devices: &str, more: &str| read(devices, more).pinned;
        let vfio = "<hostdev type='pci'/>";
        assert_eq!(pinned(vfio, locked), Some(Pinned::Passthrough));
        assert_eq!(pinned(vfio, "<launchSecurity type='sev-snp'/>"), Some(Pinned::SevSnp));
        assert_eq!(pinned("<interface type='vdpa'/>", ""), Some(Pinned::Passthrough));
        let huge = "<memoryBacking><hugepages/></memoryBacking>";
        assert_eq!(pinned("<interface type='network'/>", huge), Some(Pinned::HugePages));
        assert_eq!(pinned("", "<launchSecurity type='s390-pv'/>"), None);
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_without_a_panic(text in "[<>a-z/='\" ]{0,60}") {
            let _ = read_domain_xml(&text);
        }
    }
}
