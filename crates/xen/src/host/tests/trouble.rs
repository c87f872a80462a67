//! A store, domains and guests that misbehave.

use std::sync::Arc;
use std::time::Duration;

use ballast_backend::Backend;
use ballast_model::{LinkDown, LinkState};
use ballast_xenstore::testing::Fault;
use tokio::time::timeout;

use super::{FakeXen, available, holds, link};

#[tokio::test]
async fn an_order_never_reaches_another_domain_of_the_number() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    xen.destroy(3);
    xen.create("other", 3, 64, 96);
    let refused = xen.order("web", 128).await.unwrap_err();
    assert!(refused.contains("another domain has its number now"), "{refused}");
    assert_eq!(xen.read(3, "memory/target").unwrap(), (64 << 10).to_string());
    let readings = xen.sample().await;
    assert_eq!(holds(&readings, "other"), Some(64));
    assert!(readings.iter().all(|it| it.sample.id.as_str() != "web"));
}

#[tokio::test]
async fn a_domain_started_again_is_another_process() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    let before = xen.sample().await[1].sample.process;
    assert_eq!(xen.sample().await[1].sample.process, before);
    xen.destroy(3);
    xen.create("web", 4, 192, 256);
    let after = xen.sample().await[1].sample.process;
    assert!(after.is_some() && after != before, "it owes nothing of before");
}

#[tokio::test]
async fn a_store_that_restarts_loses_no_guest() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    xen.kill_store().await;
    let readings = xen.sample().await;
    assert!(matches!(link(&readings, "web"), LinkState::Down(_)), "{readings:?}");
    let refused = xen.order("web", 128).await.unwrap_err();
    assert!(refused.contains("not sent: xenstored"), "{refused}");
    let readings = xen.sample().await;
    assert_eq!(link(&readings, "web"), LinkState::Down(LinkDown::Refused));
    xen.serve();
    let domains = std::mem::take(&mut xen.domains);
    for (name, id, mib) in domains {
        xen.create(&name, id, mib, 256);
    }
    let readings = xen.sample().await;
    assert_eq!((holds(&readings, "web"), link(&readings, "web")), (Some(192), LinkState::Up));
    xen.order("web", 128).await.unwrap();
    let notices = xen.notices().join("\n");
    assert!(notices.contains("nobody listens on the socket"), "{notices}");
    assert!(notices.contains("connected to xenstored"), "{notices}");
}

#[tokio::test]
async fn what_the_store_refuses_fails_the_order_and_no_more() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    for (fault, why) in [
        (Fault::Conflicts, "gave up after 8 transactions"),
        (Fault::Full, "quota in xenstore is used up"),
        (Fault::Denied("/local/domain/3".to_owned()), "Ballast has to run in dom0"),
    ] {
        xen.store().faults = vec![fault];
        let refused = xen.order("web", 128).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(xen.read(3, "memory/target").unwrap(), (192 << 10).to_string());
    }
    xen.store().faults.clear();
    xen.order("web", 128).await.unwrap();
}

#[tokio::test]
async fn waiting_for_a_silent_store_is_bounded() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    xen.store().faults = vec![Fault::Silent];
    let begun = std::time::Instant::now();
    let refused = xen.order("web", 128).await.unwrap_err();
    assert!(refused.contains("no answer of xenstored in time"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(4));
    xen.store().write("/local/domain/3/memory/target", "1");
    xen.host.config.command_timeout = Duration::ZERO;
    let request = xen.now;
    xen.now = request + 10_000;
    let readings = timeout(Duration::from_secs(10), xen.sample()).await.unwrap();
    assert_eq!(link(&readings, "web"), LinkState::Down(LinkDown::TimedOut));
}

#[tokio::test]
async fn rubbish_of_a_guest_is_reported_once() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.create("good", 4, 192, 256);
    xen.sample().await;
    xen.publish_stats(4, 1, 180, 50);
    for value in [&[0xFF; 4000][..], b"\x1b[2J\n", b"{\"seq\":1", &[b'['; 4000]] {
        for key in ["mem_stats", "mem_req", "meminfo_free", "meminfo_total", "x/y/z"] {
            xen.publish(3, key, value);
        }
        xen.publish(3, "", b"");
        let readings = xen.sample().await;
        assert_eq!(available(&readings, "web"), None);
        assert_eq!(available(&readings, "good").unwrap().0, 50);
    }
    let notices = xen.notices();
    let ignored: Vec<_> = notices.iter().filter(|it| it.contains("is ignored")).collect();
    assert_eq!(ignored.len(), 4, "{notices:?}");
    assert!(ignored.iter().all(|it| it.len() < 1000 && !it.contains('\x1b')), "{ignored:?}");
}

/// xenstored keeps a guest from the keys of others: it can write the same words below its own.
#[tokio::test]
async fn megabytes_and_keys_of_others_change_nothing() {
    const VALUES: u64 = 1024;
    const SETTLED: u64 = 20;
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.create("good", 4, 192, 256);
    xen.sample().await;
    xen.publish_stats(4, 1, 180, 50);
    xen.sample().await;
    let before = xen.store().received;
    for n in 0..VALUES {
        xen.publish(3, &format!("fill/{n}"), [b'x'; 4000]);
    }
    let statistics = br#"{"seq":9,"uptime_ms":1,"message":{"type":"statistics"}}"#;
    for below in ["", "local/domain/4/", "domain/4/", "4/", "good/"] {
        xen.publish(3, &format!("{below}name"), "good");
        xen.publish(3, &format!("{below}memory/target"), "1");
        xen.publish(3, &format!("{below}memory/static-max"), "1");
        xen.publish(3, &format!("{below}data/mem_stats"), statistics);
    }
    for _ in 0..3 {
        let readings = xen.sample().await;
        assert_eq!((holds(&readings, "web"), holds(&readings, "good")), (Some(192), Some(192)));
        assert_eq!(available(&readings, "good").unwrap().0, 50);
        assert_eq!(available(&readings, "web"), None);
        assert_eq!(readings.len(), 3, "dom0 and two guests");
    }
    let asked = xen.store().received - before;
    assert!(asked < 3 * SETTLED, "{asked} messages, as little of it is read");
    xen.order("good", 128).await.unwrap();
    // A page less, because drivers may stop a page short of it.
    assert_eq!(xen.read(4, "memory/target").unwrap(), ((128 << 10) - 4).to_string());
}

#[tokio::test]
async fn a_guest_that_writes_all_the_time_ends_no_wait() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    let before = xen.store().received;
    let store = Arc::clone(&xen.store_shared);
    let flood = async {
        for n in 0..2000_u64 {
            store.lock().unwrap().write("/local/domain/3/data/mem_req", n.to_string());
            store.lock().unwrap().write("/local/domain/3/data/other", n.to_string());
            if n.is_multiple_of(100) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    tokio::select! {
        () = xen.host.wait_for_event() => panic!("rubbish is no news"),
        () = flood => {}
    }
    let asked = xen.store().received - before;
    assert!(asked < 20, "{asked} messages for what a guest wrote");
}

#[tokio::test]
async fn a_guest_that_writes_all_the_time_ends_no_sample() {
    const SAMPLES: u64 = 3;
    /// In a sample: a sign of life, a list, and the keys of three domains.
    const ASKED_MAX: u64 = 2 + 3 * 13;
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.create("good", 4, 192, 256);
    xen.sample().await;
    let before = xen.store().received;
    let store = Arc::clone(&xen.store_shared);
    let flood = async {
        for n in 0_u64.. {
            for part in ["data", "control"] {
                let value = n.to_string();
                store.lock().unwrap().write(&format!("/local/domain/3/{part}"), value);
            }
            tokio::task::yield_now().await;
        }
    };
    let sampled = async {
        for _ in 0..SAMPLES {
            let readings = xen.sample().await;
            for guest in ["good", "web"] {
                assert_eq!(link(&readings, guest), LinkState::Up);
                assert_eq!(holds(&readings, guest), Some(192));
            }
        }
    };
    tokio::select! {
        () = sampled => {}
        () = flood => panic!("it has no end"),
    }
    let asked = xen.store().received - before;
    assert!(asked <= SAMPLES * ASKED_MAX, "{asked} messages for what a guest wrote");
}
