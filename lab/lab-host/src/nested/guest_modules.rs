//! The kernel modules of a guest that is itself a host, or has vsock.

use super::xen;
use crate::GuestSpec;
use crate::modules::VSOCK_MODULES;

/// The modules that make a guest a KVM host, and let its guests and itself connect by vsock.
const KVM_MODULES: [&str; 3] = ["kvm_amd", "vhost_vsock", "vsock_loopback"];

/// The modules of a guest in addition to those of every guest: for a host, and for one with vsock.
pub(crate) fn modules(spec: &GuestSpec) -> &'static [&'static str] {
    match (&spec.host_disk, &spec.xen, spec.vsock_cid) {
        (Some(_), Some(_), _) => &xen::MODULES,
        (Some(_), None, _) => &KVM_MODULES,
        (None, _, Some(_)) => &VSOCK_MODULES,
        (None, _, None) => &[],
    }
}
