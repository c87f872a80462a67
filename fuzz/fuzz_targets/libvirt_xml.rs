//! A domain's XML, which may have parts that whoever defined it made up.
#![no_main]

use ballast_libvirt::read_domain_xml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = read_domain_xml(text);
});
