//! What Proxmox VE keeps of its virtual machines: names, bounds, and which QMP socket is whose.
//!
//! Idea: guests of Proxmox VE are reached by a QMP socket like any other; their settings live in
//! `/etc/pve/qemu-server/VMID.conf`. [`read_vm`] reads one such text, [`VmFolder::read`] the
//! folder: it takes a path, so that Proxmox's own file system need not be there. Begin reading at
//! `vm_config.rs`.
//! Source: the parser and the options of Proxmox VE 9.2 (`qemu-server`). Limits: nothing is written
//! there.

#![forbid(unsafe_code)]

mod folder;
mod monitors;
mod vm_config;
mod vm_tags;

pub use folder::VmFolder;
pub use vm_config::{VmConfig, VmConfigError, read_vm};
