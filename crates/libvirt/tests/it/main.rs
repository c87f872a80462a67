//! A session over what a real libvirt answered, and a host over a libvirt that misbehaves.

mod fake;
mod host;
mod transcript;
