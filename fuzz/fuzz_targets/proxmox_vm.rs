//! A virtual machine's configuration under Proxmox VE; anyone who may edit it can forge it.
#![no_main]

use std::path::Path;

use ballast_proxmox::read_vm;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match read_vm(text, Path::new("101.conf")) {
        Ok(vm) => {
            assert_eq!(vm.vmid, 101);
            vm.settings.apply(&Default::default()).validate().expect("bounds can be kept");
        }
        Err(error) => {
            let told = error.to_string();
            assert!(told.starts_with("101.conf:") && told.len() < 8192, "{} bytes", told.len());
            assert!(!told.contains(char::is_control), "{told:?}");
        }
    }
});
