//! Which domains a sample finds, and what it reads of them.

use std::time::Duration;

use ballast_agent_proto::wire::message::decode;
use ballast_agent_proto::wire::{HostFrame, HostMessage, RequestOutcome};
use ballast_backend::Backend;
use ballast_model::{Bytes, GuestId, RequestKind, RunState};
use tokio::time::timeout;

use super::{FakeXen, available, holds};

fn names(readings: &[ballast_backend::GuestReading]) -> Vec<&str> {
    readings.iter().map(|it| it.sample.id.as_str()).collect()
}

#[tokio::test]
async fn domains_are_guests_with_what_the_hypervisor_counts() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    let readings = xen.sample().await;
    assert_eq!(names(&readings), ["Domain-0", "web"]);
    let web = &readings[1].sample;
    assert_eq!(web.allocation.unwrap().value, Bytes::mib(192));
    assert_eq!(web.boot_memory, Some(Bytes::mib(256)));
    assert_eq!(web.resident, web.allocation, "the hypervisor's count is evidence");
    assert_eq!(web.run_state, Some(RunState::Running));
    assert_eq!(web.stats, None);
    let dom0 = &readings[0];
    assert!(dom0.sample.stats.is_some(), "dom0 tells of itself");
    assert_eq!(dom0.settings.as_ref().unwrap().floor, Some(Bytes::mib(256)));
    let memory = xen.host.host_memory().unwrap();
    assert_eq!(memory.total, Some(Bytes::mib(4096)));
    assert_eq!(memory.available, Some(Bytes::mib(1024)));
}

#[tokio::test]
async fn a_domain_on_its_way_is_rounded_up() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    xen.order("web", 128).await.unwrap();
    for (shown, held) in [(192, 193), (150, 151), (128, 128)] {
        xen.hold(3, shown);
        assert_eq!(holds(&xen.sample().await, "web"), Some(held));
    }
}

#[tokio::test]
async fn a_difference_at_rest_is_no_memory_of_the_guest() {
    let mut xen = FakeXen::start().await;
    xen.create("hvm", 3, 190, 256);
    xen.hold(3, 195);
    assert_eq!(holds(&xen.sample().await, "hvm"), Some(196), "it may be on its way");
    xen.sample().await;
    assert_eq!(holds(&xen.sample().await, "hvm"), Some(190));
    xen.order("hvm", 100).await.unwrap();
    xen.hold(3, 105);
    assert_eq!(holds(&xen.sample().await, "hvm"), Some(100));
}

#[tokio::test]
async fn video_memory_is_in_the_size_but_not_the_target() {
    let mut xen = FakeXen::start().await;
    xen.create("hvm", 3, 192, 256);
    xen.store().write("/local/domain/3/memory/videoram", "8192");
    xen.hold(3, 200);
    assert_eq!(holds(&xen.sample().await, "hvm"), Some(200));
    xen.order("hvm", 128).await.unwrap();
    assert_eq!(xen.read(3, "memory/target").unwrap(), ((120 << 10) - 4).to_string());
}

#[tokio::test]
async fn bounds_that_the_toolstack_wrote_are_settings() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.store().write("/local/domain/3/memory/dynamic-min", "65536");
    xen.store().write("/local/domain/3/memory/dynamic-max", "204800");
    let readings = xen.sample().await;
    let settings = readings[1].settings.as_ref().unwrap();
    assert_eq!((settings.floor, settings.ceiling), (Some(Bytes::mib(64)), Some(Bytes::mib(200))));
    xen.store().write("/local/domain/3/memory/dynamic-max", "1024");
    xen.notices();
    let readings = xen.sample().await;
    let settings = readings[1].settings.as_ref().unwrap();
    assert_eq!((settings.floor, settings.ceiling), (Some(Bytes::mib(64)), None));
    let notices = xen.notices();
    assert!(notices[0].contains("dynamic-max is ignored"), "{notices:?}");
}

#[tokio::test]
async fn a_maximum_below_the_floor_leaves_dom0_its_floor() {
    let mut xen = FakeXen::start().await;
    xen.store().write("/local/domain/0/memory/dynamic-max", "131072");
    let readings = xen.sample().await;
    let settings = readings[0].settings.as_ref().unwrap();
    assert_eq!((settings.floor, settings.ceiling), (Some(Bytes::mib(256)), None));
    let notices = xen.notices().join("\n");
    assert!(notices.contains("128MiB is less than the least, 256MiB"), "{notices}");
}

#[tokio::test]
async fn statistics_age_from_the_moment_they_were_published() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.publish_stats(3, 5, 180, 90);
    assert_eq!(available(&xen.sample().await, "web"), None, "of unknown age");
    xen.publish_stats(3, 6, 180, 80);
    assert_eq!(available(&xen.sample().await, "web"), Some((80, 0)));
    assert_eq!(available(&xen.sample().await, "web"), Some((80, 2)));
}

#[tokio::test]
async fn domains_that_come_and_go_are_reported_at_once() {
    let mut xen = FakeXen::start().await;
    xen.sample().await;
    let wait = Duration::from_secs(5);
    let quiet = timeout(Duration::from_millis(50), xen.host.wait_for_event()).await;
    assert!(quiet.is_err(), "nothing happens");
    xen.create("web", 3, 192, 256);
    timeout(wait, xen.host.wait_for_event()).await.unwrap();
    assert_eq!(names(&xen.sample().await), ["Domain-0", "web"]);
    xen.destroy(3);
    let readings = xen.sample().await;
    assert_eq!(names(&readings), ["Domain-0"]);
    let notices = xen.notices();
    assert!(notices.contains(&"domain 3 is gone: web".to_owned()), "{notices:?}");
}

#[tokio::test]
async fn an_emergency_ends_a_wait_and_statistics_do_not() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    xen.publish_stats(3, 1, 180, 9);
    let quiet = timeout(Duration::from_millis(100), xen.host.wait_for_event()).await;
    assert!(quiet.is_err());
    let why = r#"{"rule":"reclaim-fails","text":"x"}"#;
    let ask =
        format!(r#"{{"type":"request","number":1,"kind":"emergency","bytes":0,"why":{why}}}"#);
    xen.publish(3, "mem_req", format!(r#"{{"seq":2,"uptime_ms":2000,"message":{ask}}}"#));
    timeout(Duration::from_secs(5), xen.host.wait_for_event()).await.unwrap();
    let readings = xen.sample().await;
    let request = readings[1].sample.agent.as_ref().unwrap().value.request.unwrap();
    assert_eq!((request.number, request.kind), (1, RequestKind::Emergency));
    assert_eq!(available(&readings, "web").unwrap().0, 9);
    let answer = HostMessage::Answer {
        request: 1,
        outcome: RequestOutcome::Partly,
        bytes: 4096,
        why: Some("short".to_owned()),
    };
    let web: GuestId = "web".parse().unwrap();
    xen.host.send_to_agent(&web, &answer);
    xen.sample().await;
    xen.sample().await;
    let frame: HostFrame = decode(&xen.read(3, "data/mem_answer").unwrap()).unwrap();
    assert_eq!(frame.message, answer);
    xen.store().write("/local/domain/3/data/mem_answer", "");
    xen.host.send_to_agent(&web, &answer);
    xen.sample().await;
    xen.sample().await;
    assert_eq!(xen.read(3, "data/mem_answer").unwrap(), "", "the answer is written once");
}

#[tokio::test]
async fn names_that_name_no_guest_are_refused_once() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.create("web", 4, 192, 256);
    xen.create("a b", 5, 192, 256);
    let readings = xen.sample().await;
    assert_eq!(names(&readings), ["Domain-0", "web"]);
    assert_eq!(xen.host.refused(), 2);
    let notices = xen.notices();
    let ignored: Vec<_> = notices.iter().filter(|it| it.starts_with("ignoring")).collect();
    assert_eq!(ignored.len(), 2, "{notices:?}");
    xen.sample().await;
    assert!(xen.notices().is_empty());
    assert!("web".parse::<GuestId>().is_ok());
}

#[tokio::test]
async fn more_domains_than_an_answer_holds_are_found() {
    let mut xen = FakeXen::start().await;
    for id in 1..=1000 {
        xen.store().write(&format!("/local/domain/{id}/vm"), "/vm/x");
    }
    xen.create("last", 1001, 192, 256);
    assert_eq!(names(&xen.sample().await), ["Domain-0", "last"]);
}
