//! A session over what a real libvirt answered.

mod transcript;
