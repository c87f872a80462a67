//! A session with recorded answers of a real libvirt, and a host with a fake libvirt that
//! misbehaves.

mod fake;
mod host;
mod transcript;
