//! Findings about guests of Cloud Hypervisor and Firecracker, by their APIs' answers.

use super::*;

/// The answer of a guest's API, modified by `change`.
fn answered(change: impl FnOnce(&mut RestAnswer)) -> Option<Result<RestAnswer, LinkDown>> {
    let mut sample = GuestSample::unknown("a".parse().unwrap(), LinkState::Up);
    sample.run_state = Some(RunState::Running);
    sample.boot_memory = Some(Bytes::gib(1));
    sample.capabilities.balloon = Some(true);
    sample.capabilities.deflate_on_oom = Some(true);
    let mut answer = RestAnswer {
        version: Some("53.0.0".to_owned()),
        sample,
        has_unmeasured_balloon: false,
        vsock: Some("/r/a.vsock".into()),
    };
    change(&mut answer);
    Some(Ok(answer))
}

#[test]
fn rest_apis_are_told_with_the_flags_of_their_programs() {
    let bare = |answer: &mut RestAnswer| {
        answer.sample.capabilities = Capabilities::default();
        answer.sample.capabilities.balloon = Some(false);
        answer.vsock = None;
    };
    let answers = [
        answered(|_| {}),
        answered(|it| it.sample.capabilities.statistics = Some(true)),
        answered(bare),
        answered(|it| {
            bare(it);
            it.sample.capabilities.memory_devices = Some(true);
        }),
        answered(|it| {
            it.sample.capabilities.deflate_on_oom = Some(false);
            it.sample.capabilities.free_page_reporting = Some(true);
            it.sample.capabilities.statistics = Some(true);
            it.vsock = None;
        }),
        answered(|it| {
            bare(it);
            it.has_unmeasured_balloon = true;
        }),
        answered(|it| {
            it.version = None;
            it.sample = GuestSample::unknown("a".parse().unwrap(), LinkState::Up);
        }),
        Some(Err(LinkDown::PermissionDenied)),
        Some(Err(LinkDown::Refused)),
        Some(Err(LinkDown::Protocol("GET / was answered with `<html>`".to_owned()))),
        Some(Err(LinkDown::TimedOut)),
        None,
    ];
    let sockets: Vec<RestSocket> = answers
        .into_iter()
        .zip('a'..)
        .map(|(answer, name)| RestSocket {
            path: format!("/r/{name}.sock").into(),
            guest: name.to_string(),
            answer,
        })
        .collect();
    let seen = |hypervisor, sockets: &[RestSocket]| RestSeen {
        hypervisor,
        patterns: vec![("/r/*.sock".to_owned(), sockets.len()), ("/n/*".to_owned(), 0)],
        sockets: sockets.to_vec(),
    };
    let cloud_hypervisor = [seen(RestHypervisor::CloudHypervisor, &sockets)];
    let found = rest::judge(&cloud_hypervisor, true, "/etc/b.toml");
    expect![[r#"
        note cloud-hypervisor /n/*: matches no socket now
          $ ls -l /n/*
        note cloud-hypervisor: 11 of 12 sockets were asked
        ok cloud-hypervisor /r/a.sock: Cloud Hypervisor 53.0.0 answers; its guest: running
        ok cloud-hypervisor /r/a.sock: has a balloon; this program's have no statistics
        ok cloud-hypervisor /r/a.sock: `ballast-agent --connect vsock` in the guest connects by its device at /r/a.vsock
        ok cloud-hypervisor /r/b.sock: Cloud Hypervisor 53.0.0 answers; its guest: running
        ok cloud-hypervisor /r/b.sock: has a balloon with statistics
        ok cloud-hypervisor /r/b.sock: `ballast-agent --connect vsock` in the guest connects by its device at /r/a.vsock
        ok cloud-hypervisor /r/c.sock: Cloud Hypervisor 53.0.0 answers; its guest: running
        problem cloud-hypervisor /r/c.sock: no balloon: its memory cannot be moved
          $ cloud-hypervisor … --balloon size=0,deflate_on_oom=on    # for c
        warning cloud-hypervisor /r/c.sock: no vsock device: nothing says what it could give back, so it gives nothing back
          $ cloud-hypervisor … --vsock cid=3,socket=/r/c.vsock    # for c
        ok cloud-hypervisor /r/d.sock: Cloud Hypervisor 53.0.0 answers; its guest: running
        note cloud-hypervisor /r/d.sock: no balloon: it is moved by virtio-mem alone
          $ cloud-hypervisor … --balloon size=0,deflate_on_oom=on    # for d
        warning cloud-hypervisor /r/d.sock: no vsock device: nothing says what it could give back, so it gives nothing back
          $ cloud-hypervisor … --vsock cid=3,socket=/r/d.vsock    # for d
        ok cloud-hypervisor /r/e.sock: Cloud Hypervisor 53.0.0 answers; its guest: running
        ok cloud-hypervisor /r/e.sock: has a balloon with statistics
        note cloud-hypervisor /r/e.sock: deflate_on_oom is off
          $ cloud-hypervisor … --balloon size=0,deflate_on_oom=on,free_page_reporting=on    # for e
        note cloud-hypervisor /r/e.sock: no vsock device: an agent cannot connect by it
          $ cloud-hypervisor … --vsock cid=3,socket=/r/e.vsock    # for e
        ok cloud-hypervisor /r/f.sock: Cloud Hypervisor 53.0.0 answers; its guest: running
        problem cloud-hypervisor /r/f.sock: its balloon is not used: it was configured without statistics before boot, and does not say what it holds
          $ cloud-hypervisor … --balloon size=0,deflate_on_oom=on    # for f
        warning cloud-hypervisor /r/f.sock: no vsock device: nothing says what it could give back, so it gives nothing back
          $ cloud-hypervisor … --vsock cid=3,socket=/r/f.vsock    # for f
        ok cloud-hypervisor /r/g.sock: Cloud Hypervisor answers; it does not say what its guest does
        problem cloud-hypervisor /r/h.sock: this user may not connect
          $ sudo ballast doctor host    # run the daemon as root, too
        note cloud-hypervisor /r/i.sock: nobody listens on the socket
          $ rm /r/i.sock
        warning cloud-hypervisor /r/j.sock: no guest of Cloud Hypervisor: protocol error: GET / was answered with `<html>`
          $ fuser -v /r/j.sock    # who does; correct sockets of [cloud_hypervisor]
        warning cloud-hypervisor /r/k.sock: no answer in time
          $ fuser -v /r/k.sock    # which process that is
    "#]].assert_eq(&as_text(&found));
    let firecracker = [seen(RestHypervisor::Firecracker, &sockets[..6])];
    let found = rest::judge(&firecracker, false, "/etc/b.toml");
    expect![[r#"
        note firecracker /n/*: matches no socket now
          $ ls -l /n/*
        ok firecracker /r/a.sock: Firecracker 53.0.0 answers; its guest: running
        ok firecracker /r/a.sock: has a balloon; this program's have no statistics
        warning firecracker /r/a.sock: agents by vsock are not accepted: nothing says what it could give back, so it gives nothing back
          $ $EDITOR /etc/b.toml && systemctl restart ballast    # vsock = true under [agents]
        ok firecracker /r/b.sock: Firecracker 53.0.0 answers; its guest: running
        ok firecracker /r/b.sock: has a balloon with statistics
        note firecracker /r/b.sock: agents by vsock are not accepted: an agent cannot connect by it
          $ $EDITOR /etc/b.toml && systemctl restart ballast    # vsock = true under [agents]
        ok firecracker /r/c.sock: Firecracker 53.0.0 answers; its guest: running
        problem firecracker /r/c.sock: no balloon: its memory cannot be moved
          $ firecracker … --config-file    # for c, with "balloon": { "amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 1, "free_page_reporting": false } in it
        warning firecracker /r/c.sock: no vsock device: nothing says what it could give back, so it gives nothing back
          $ firecracker … --config-file    # for c, with "vsock": { "guest_cid": 3, "uds_path": "/r/c.vsock" } in it
        ok firecracker /r/d.sock: Firecracker 53.0.0 answers; its guest: running
        note firecracker /r/d.sock: no balloon: it is moved by virtio-mem alone
          $ firecracker … --config-file    # for d, with "balloon": { "amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 1, "free_page_reporting": false } in it
        warning firecracker /r/d.sock: no vsock device: nothing says what it could give back, so it gives nothing back
          $ firecracker … --config-file    # for d, with "vsock": { "guest_cid": 3, "uds_path": "/r/d.vsock" } in it
        ok firecracker /r/e.sock: Firecracker 53.0.0 answers; its guest: running
        ok firecracker /r/e.sock: has a balloon with statistics
        note firecracker /r/e.sock: deflate_on_oom is off
          $ firecracker … --config-file    # for e, with "balloon": { "amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 1, "free_page_reporting": true } in it
        note firecracker /r/e.sock: no vsock device: an agent cannot connect by it
          $ firecracker … --config-file    # for e, with "vsock": { "guest_cid": 3, "uds_path": "/r/e.vsock" } in it
        ok firecracker /r/f.sock: Firecracker 53.0.0 answers; its guest: running
        problem firecracker /r/f.sock: its balloon is not used: it was configured without statistics before boot, and does not say what it holds
          $ firecracker … --config-file    # for f, with "balloon": { "amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 1, "free_page_reporting": false } in it
        warning firecracker /r/f.sock: no vsock device: nothing says what it could give back, so it gives nothing back
          $ firecracker … --config-file    # for f, with "vsock": { "guest_cid": 3, "uds_path": "/r/f.vsock" } in it
    "#]].assert_eq(&as_text(&found));
}

#[test]
fn guests_of_rest_apis_have_no_remedy_of_qemus() {
    let mut status = status();
    let guest = &mut status.guests[0];
    guest.stats_age_ms = None;
    guest.capabilities = ballast_api::CapabilitiesView {
        balloon: Some(true),
        statistics: Some(false),
        free_page_reporting: Some(false),
        deflate_on_oom: Some(false),
        shared_control: Some(true),
        ..ballast_api::CapabilitiesView::default()
    };
    for hypervisor in [RestHypervisor::CloudHypervisor, RestHypervisor::Firecracker] {
        let socket = RestSocket {
            path: "/r/grow.sock".into(),
            guest: "grow".to_owned(),
            answer: answered(|_| {}),
        };
        let rest = [RestSeen { hypervisor, patterns: vec![], sockets: vec![socket] }];
        let managers = manager::managers(&rest, None, &[]);
        let found =
            guests::judge(&status, &["grow".to_owned()], &tracking(), &managers, STALE).unwrap();
        let text = as_text(&found);
        assert!(!text.contains("qemu") && !text.contains("virsh"), "{text}");
        let flag = match hypervisor {
            RestHypervisor::CloudHypervisor => "--balloon size=0,deflate_on_oom=on",
            RestHypervisor::Firecracker => "\"deflate_on_oom\": true",
        };
        assert!(text.contains(flag) && text.contains("ballast-agent --connect vsock"), "{text}");
    }
}
