//! Proxmox VE's configurations of its virtual machines: names, bounds, and QMP sockets.
//!
//! Idea: guests of Proxmox VE are reached by a QMP socket like any other; their settings are in
//! `/etc/pve/qemu-server/VMID.conf`. [`read_vm`] reads the text of one such file,
//! [`VmFolder::read`] a folder of them: it takes a path, so that it also works without Proxmox's
//! own file system. Start reading at `vm_config.rs`.
//! Source: the parser and the options of Proxmox VE 9.2 (`qemu-server`). Limits: read only.

#![forbid(unsafe_code)]

mod folder;
mod monitors;
mod vm_config;
mod vm_tags;

pub use folder::VmFolder;
pub use vm_config::{VmConfig, VmConfigError, read_vm};
