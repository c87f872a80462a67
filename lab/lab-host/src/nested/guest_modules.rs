//! Which kernel modules a guest needs that is a host itself, or has vsock.

use super::xen;
use crate::GuestSpec;
use crate::modules::VSOCK_MODULES;

/// The modules that make it a KVM host, and have its guests and itself connect by vsock.
const KVM_MODULES: [&str; 3] = ["kvm_amd", "vhost_vsock", "vsock_loopback"];

/// The modules of a guest beside those of every guest: of a host, and of one with vsock.
pub(crate) fn modules(spec: &GuestSpec) -> &'static [&'static str] {
    match (&spec.host_disk, &spec.xen, spec.vsock_cid) {
        (Some(_), Some(_), _) => &xen::MODULES,
        (Some(_), None, _) => &KVM_MODULES,
        (None, _, Some(_)) => &VSOCK_MODULES,
        (None, _, None) => &[],
    }
}
