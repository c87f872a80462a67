//! A domain's XML, with parts that its author may have made up.
#![no_main]

use ballast_libvirt::read_domain_xml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = read_domain_xml(text);
});
