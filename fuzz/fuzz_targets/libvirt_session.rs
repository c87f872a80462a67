//! A whole connection to libvirt: with any answers in any pieces, the session does not panic,
//! answers each call at most once, and sends only what it was asked to send.
#![no_main]

use std::collections::BTreeSet;

use ballast_libvirt::{Call, Domain, EventKind, LibvirtSession};
use libfuzzer_sys::fuzz_target;

/// Most bytes received at once.
const PART_MAX: usize = 64;

fuzz_target!(|data: &[u8]| {
    let mut session = LibvirtSession::new("qemu:///system");
    let (mut made, mut answered) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = data;
    while let Some((&len, more)) = rest.split_first() {
        let (part, later) = more.split_at(usize::from(len).min(PART_MAX).min(more.len()));
        rest = later;
        if session.receive(part).is_err() {
            return;
        }
        if session.is_open() {
            made.extend(session.call(Call::AllDomainStats));
            made.extend(session.call(Call::LibVersion));
            made.extend(session.call(Call::Watch(EventKind::MetadataChange)));
            let domain = Domain { name: "a".to_owned(), uuid: [7; 16], id: 1 };
            made.extend(session.call(Call::MemoryStats(domain)));
            made.extend(session.call(Call::AllDiskReads));
        }
        session.mark_written(usize::from(len));
        while session.next_event().is_some() {}
        while let Some((serial, _)) = session.next_answer() {
            assert!(made.contains(&serial) && answered.insert(serial), "{serial:?}");
        }
    }
});
