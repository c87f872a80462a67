//! Messages of libvirt 9.0 (Debian 12) and its client, recorded on libvirt's own socket.
//!
//! `tests/golden/transcript.txt` has a message a line, in hexadecimal: one emulated guest of 512
//! MiB that holds 384, is set to 300, and is refused 700.

use ballast_libvirt::{Call, Domain, EventKind, LibvirtSession, Reply, Serial};
use ballast_model::LinkDown;

/// The recorded message of that name.
fn recorded(name: &str) -> Vec<u8> {
    let lines = include_str!("../golden/transcript.txt").lines();
    let hex = lines.filter_map(|line| line.split_once(' ')).find(|(known, _)| *known == name);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.unwrap().1.as_bytes().chunks(2).map(byte).collect()
}

/// Checks that the session wants to send what was recorded, and sends it.
fn sends(session: &mut LibvirtSession, name: &str) {
    assert_eq!(session.outgoing(), recorded(name), "{name}");
    session.mark_written(usize::MAX);
}

fn open() -> LibvirtSession {
    let mut session = LibvirtSession::new("qemu:///session");
    sends(&mut session, "auth-asked");
    session.receive(&recorded("auth-told")).unwrap();
    assert!(!session.is_open());
    sends(&mut session, "open-asked");
    session.receive(&recorded("open-told")).unwrap();
    assert!(session.is_open());
    session
}

/// Asks for the figures of the domain.
fn ask(session: &mut LibvirtSession) -> Serial {
    let serial = session.call(Call::AllDomainStats).unwrap();
    sends(session, "stats-asked");
    serial
}

/// Orders the domain to hold `mib`.
fn order(session: &mut LibvirtSession, mib: u64) -> Serial {
    let uuid = *b"\x04\x5a\xdd\xc0\xc5\x35\x40\xbf\x9a\x39\xec\xd0\xe7\x63\x99\x3b";
    let domain = Domain { name: "a".to_owned(), uuid, id: 1 };
    session.call(Call::SetMemory { domain, kib: mib << 10 }).unwrap()
}

#[test]
fn figures_of_a_real_domain_are_read() {
    let mut session = open();
    let serial = ask(&mut session);
    // In pieces of any size.
    for part in recorded("stats-told").chunks(7) {
        assert_eq!(session.next_answer(), None);
        session.receive(part).unwrap();
    }
    let (answered, answer) = session.next_answer().unwrap();
    let Ok(Reply::AllDomainStats(all)) = answer else { panic!("{answer:?}") };
    assert_eq!((answered, all.len()), (serial, 1));
    let stats = &all[0];
    assert_eq!((stats.domain.name.as_str(), stats.domain.id, stats.state), ("a", 1, Some(1)));
    assert_eq!((stats.current, stats.maximum), (Some(384 << 10), Some(512 << 10)));
    let balloon = stats.balloon;
    let sizes = [balloon.available, balloon.usable, balloon.unused, balloon.disk_caches];
    assert_eq!(sizes, [480_284, 404_044, 403_648, 49_784].map(Some));
    assert_eq!([balloon.swap_in, balloon.swap_out, balloon.major_faults], [Some(0); 3]);
    assert_eq!((balloon.minor_faults, balloon.last_update), (Some(60), Some(1_795_619_248)));
}

#[test]
fn an_order_is_answered_whatever_comes_between() {
    let mut session = open();
    ask(&mut session);
    let serial = order(&mut session, 300);
    sends(&mut session, "set-asked");
    session.receive(&recorded("event")).unwrap();
    assert_eq!(session.next_answer(), None);
    let event = session.next_event().unwrap();
    assert_eq!((event.kind, event.domain.name.as_str()), (EventKind::BalloonChange, "lv0"));
    session.receive(&recorded("set-told")).unwrap();
    assert_eq!(session.next_answer(), Some((serial, Ok(Reply::Done))));
}

#[test]
fn a_refusal_says_why() {
    let mut session = open();
    ask(&mut session);
    order(&mut session, 300);
    session.mark_written(usize::MAX);
    let serial = order(&mut session, 700);
    sends(&mut session, "too-much-asked");
    session.receive(&recorded("too-much-told")).unwrap();
    let (answered, answer) = session.next_answer().unwrap();
    let error = answer.unwrap_err();
    assert_eq!((answered, error.code), (serial, 8));
    assert!(error.to_string().contains("cannot set memory higher than max memory"), "{error}");
}

#[test]
fn what_is_no_reply_ends_the_connection() {
    let changed = |name: &str, place: usize, byte: u8| {
        let mut message = recorded(name);
        message[place] = byte;
        message
    };
    for (why, bytes) in [
        ("a call that was not made", recorded("set-told")),
        ("is this libvirt's socket", b"HTTP/1.1 400 Bad Request\r\n".to_vec()),
        // The serial is the seventh number, a domain's name begins with the ninth.
        ("another call", changed("open-told", 23, 3)),
        ("malformed reply", changed("stats-told", 35, 0xff)),
    ] {
        let mut session = open();
        ask(&mut session);
        match session.receive(&bytes) {
            Err(LinkDown::Protocol(error)) => assert!(error.contains(why), "{error}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn a_socket_that_wants_a_password_is_explained() {
    let mut session = LibvirtSession::new("qemu:///system");
    let mut message = recorded("auth-told");
    // SASL, and nothing else.
    *message.last_mut().unwrap() = 1;
    let why = session.receive(&message).unwrap_err().to_string();
    assert!(why.contains("SASL or polkit") && why.contains("auth_unix_rw"), "{why}");
}
