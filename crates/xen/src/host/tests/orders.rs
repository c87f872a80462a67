//! Orders, and changes of maxmem.

use ballast_model::Bytes;

use super::{FakeXen, holds};

/// `memory/target` for a size in MiB: a page less, because drivers may stop a page short of it.
fn target_key_value(mib: u64) -> String {
    ((mib << 10) - 4).to_string()
}

#[tokio::test]
async fn a_target_is_written_and_maxmem_raised_once_to_grow() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.sample().await;
    xen.order("web", 128).await.unwrap();
    assert_eq!(xen.read(3, "memory/target").unwrap(), target_key_value(128));
    assert!(xen.limits().is_empty(), "shrinking needs none");
    xen.order("web", 200).await.unwrap();
    xen.order("web", 256).await.unwrap();
    assert_eq!(xen.limits(), [(3, 256)], "up to what it was made for, once");
    assert_eq!(xen.read(3, "memory/target").unwrap(), target_key_value(256));
}

#[tokio::test]
async fn dom0_is_ordered_and_its_maxmem_left() {
    let mut xen = FakeXen::start().await;
    xen.sample().await;
    xen.order("Domain-0", 700).await.unwrap();
    assert_eq!(xen.read(0, "memory/target").unwrap(), target_key_value(700));
    assert!(xen.limits().is_empty());
}

#[tokio::test]
async fn without_xl_domains_shrink_and_grow_back_only() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 192, 256);
    xen.xl_fails(Some("xencall: error: Could not obtain handle on privileged command\n"));
    let readings = xen.sample().await;
    assert_eq!(holds(&readings, "web"), Some(192), "what it was told to hold");
    assert_eq!(readings[1].sample.resident, None, "nobody sees that");
    let notices = xen.notices().join("\n");
    assert!(notices.contains("Could not obtain handle") && notices.contains("shrinking goes on"));
    xen.order("web", 128).await.unwrap();
    xen.order("web", 192).await.unwrap();
    let refused = xen.order("web", 200).await.unwrap_err();
    assert!(refused.contains("its maxmem is not raised to 256MiB"), "{refused}");
    assert!(refused.contains("Could not obtain handle"), "{refused}");
    assert_eq!(xen.read(3, "memory/target").unwrap(), target_key_value(192));
    xen.sample().await;
    assert!(xen.notices().is_empty(), "it is said once");
    xen.xl_fails(None);
    for _ in 0..6 {
        xen.sample().await;
    }
    assert!(xen.notices().contains(&"xl works again".to_owned()));
    xen.order("web", 200).await.unwrap();
}

#[tokio::test]
async fn a_missing_xl_is_reported() {
    let mut xen = FakeXen::start().await;
    std::fs::remove_file(xen.folder.path().join("xl")).unwrap();
    xen.sample().await;
    let notices = xen.notices().join("\n");
    assert!(notices.contains("xl list`: No such file or directory"), "{notices}");
    assert!(xen.host.xl_error.is_some());
}

/// Samples until one more change of maxmem was made and noted. One sample begins the run, and a
/// later one takes in its result.
async fn until_limited(xen: &mut FakeXen) {
    let before = xen.limits().len();
    for _ in 0..100 {
        xen.sample().await;
        if xen.limits().len() > before && xen.host.limiting.is_empty() {
            break;
        }
    }
}

#[tokio::test]
async fn a_domain_that_does_not_give_is_fenced() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 500, 600);
    xen.sample().await;
    xen.order("web", 300).await.unwrap();
    let id = crate::key::DomainId(3);
    for (held, is_stuck) in [(500, true), (400, true), (300, true), (300, false)] {
        xen.hold(3, held);
        xen.host.domains.get_mut(&id).unwrap().is_stuck = is_stuck;
        until_limited(&mut xen).await;
    }
    // The figure of `xl` is rounded up: a maxmem is never below what the domain holds.
    assert_eq!(xen.limits(), [(3, 501), (3, 401), (3, 316), (3, 600)]);
    let notices = xen.notices().join("\n");
    assert!(notices.contains("domain 3 does not give: the hypervisor lets it hold 501MiB"));
    assert!(notices.contains("domain 3: the hypervisor lets it hold 600MiB again"), "{notices}");
}

#[tokio::test]
async fn without_a_maximum_a_fenced_domain_grows_back() {
    let mut xen = FakeXen::start().await;
    xen.create("web", 3, 500, 600);
    xen.store().remove("/local/domain/3/memory/static-max");
    xen.sample().await;
    xen.order("web", 300).await.unwrap();
    let id = crate::key::DomainId(3);
    for (held, is_stuck) in [(300, true), (300, false)] {
        xen.hold(3, held);
        xen.host.domains.get_mut(&id).unwrap().is_stuck = is_stuck;
        until_limited(&mut xen).await;
        // The ceiling of a plan comes from this.
        let most = xen.sample().await[1].sample.boot_memory;
        assert_eq!(most, Some(Bytes::mib(500)), "fenced: {is_stuck}");
        xen.host.domains.get_mut(&id).unwrap().ceiling = most;
    }
    assert_eq!(xen.limits(), [(3, 316), (3, 500)]);
    xen.order("web", 500).await.unwrap();
    assert_eq!(xen.read(3, "memory/target").unwrap(), target_key_value(500));
    assert_eq!(xen.limits().len(), 2, "it is high enough");
}
