//! Orders, and changes of maxmem.

use ballast_model::Bytes;

use super::{Ground, holds};

/// `memory/target` for a size in MiB: a page less, because drivers may stop a page short of it.
fn told(mib: u64) -> String {
    ((mib << 10) - 4).to_string()
}

#[tokio::test]
async fn a_target_is_written_and_maxmem_raised_once_to_grow() {
    let mut ground = Ground::start().await;
    ground.create("web", 3, 192, 256);
    ground.sample().await;
    ground.order("web", 128).await.unwrap();
    assert_eq!(ground.read(3, "memory/target").unwrap(), told(128));
    assert!(ground.limits().is_empty(), "shrinking needs none");
    ground.order("web", 200).await.unwrap();
    ground.order("web", 256).await.unwrap();
    assert_eq!(ground.limits(), [(3, 256)], "up to what it was made for, once");
    assert_eq!(ground.read(3, "memory/target").unwrap(), told(256));
}

#[tokio::test]
async fn dom0_is_ordered_and_its_maxmem_left() {
    let mut ground = Ground::start().await;
    ground.sample().await;
    ground.order("Domain-0", 700).await.unwrap();
    assert_eq!(ground.read(0, "memory/target").unwrap(), told(700));
    assert!(ground.limits().is_empty());
}

#[tokio::test]
async fn without_xl_domains_shrink_and_grow_back_only() {
    let mut ground = Ground::start().await;
    ground.create("web", 3, 192, 256);
    ground.xl_fails(Some("xencall: error: Could not obtain handle on privileged command\n"));
    let readings = ground.sample().await;
    assert_eq!(holds(&readings, "web"), Some(192), "what it was told to hold");
    assert_eq!(readings[1].sample.resident, None, "nobody sees that");
    let notices = ground.notices().join("\n");
    assert!(notices.contains("Could not obtain handle") && notices.contains("shrinking goes on"));
    ground.order("web", 128).await.unwrap();
    ground.order("web", 192).await.unwrap();
    let refused = ground.order("web", 200).await.unwrap_err();
    assert!(refused.contains("its maxmem is not raised to 256MiB"), "{refused}");
    assert!(refused.contains("Could not obtain handle"), "{refused}");
    assert_eq!(ground.read(3, "memory/target").unwrap(), told(192));
    ground.sample().await;
    assert!(ground.notices().is_empty(), "it is said once");
    ground.xl_fails(None);
    for _ in 0..6 {
        ground.sample().await;
    }
    assert!(ground.notices().contains(&"xl works again".to_owned()));
    ground.order("web", 200).await.unwrap();
}

#[tokio::test]
async fn an_xl_that_is_missing_is_said() {
    let mut ground = Ground::start().await;
    std::fs::remove_file(ground.folder.path().join("xl")).unwrap();
    ground.sample().await;
    let notices = ground.notices().join("\n");
    assert!(notices.contains("xl list`: No such file or directory"), "{notices}");
    assert!(ground.host.blind.is_some());
}

/// Samples until one more change of maxmem was made and noted. One sample begins the run, and a
/// later one takes in its result.
async fn until_limited(ground: &mut Ground) {
    let before = ground.limits().len();
    for _ in 0..100 {
        ground.sample().await;
        if ground.limits().len() > before && ground.host.limiting.is_empty() {
            break;
        }
    }
}

#[tokio::test]
async fn a_domain_that_does_not_give_is_fenced() {
    let mut ground = Ground::start().await;
    ground.create("web", 3, 500, 600);
    ground.sample().await;
    ground.order("web", 300).await.unwrap();
    let id = crate::key::DomainId(3);
    for (held, is_stuck) in [(500, true), (400, true), (300, true), (300, false)] {
        ground.hold(3, held);
        ground.host.domains.get_mut(&id).unwrap().is_stuck = is_stuck;
        until_limited(&mut ground).await;
    }
    // The figure of `xl` is rounded up: a maxmem is never below what the domain holds.
    assert_eq!(ground.limits(), [(3, 501), (3, 401), (3, 316), (3, 600)]);
    let notices = ground.notices().join("\n");
    assert!(notices.contains("domain 3 does not give: the hypervisor lets it hold 501MiB"));
    assert!(notices.contains("domain 3: the hypervisor lets it hold 600MiB again"), "{notices}");
}

#[tokio::test]
async fn without_a_maximum_a_fenced_domain_grows_back() {
    let mut ground = Ground::start().await;
    ground.create("web", 3, 500, 600);
    ground.store().remove("/local/domain/3/memory/static-max");
    ground.sample().await;
    ground.order("web", 300).await.unwrap();
    let id = crate::key::DomainId(3);
    for (held, is_stuck) in [(300, true), (300, false)] {
        ground.hold(3, held);
        ground.host.domains.get_mut(&id).unwrap().is_stuck = is_stuck;
        until_limited(&mut ground).await;
        // The ceiling of a plan comes from this.
        let most = ground.sample().await[1].sample.boot_memory;
        assert_eq!(most, Some(Bytes::mib(500)), "fenced: {is_stuck}");
        ground.host.domains.get_mut(&id).unwrap().ceiling = most;
    }
    assert_eq!(ground.limits(), [(3, 316), (3, 500)]);
    ground.order("web", 500).await.unwrap();
    assert_eq!(ground.read(3, "memory/target").unwrap(), told(500));
    assert_eq!(ground.limits().len(), 2, "it is high enough");
}
