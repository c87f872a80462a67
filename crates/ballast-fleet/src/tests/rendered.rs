//! What operators read, and how a daemon's figures become a record.

use ballast_fleet::PinnedBy;
use ballast_fleet_proto::{FleetKey, FleetView, MemoryCoordinator};
use ballast_model::Bytes;
use expect_test::expect;
use tokio::time::sleep;

use super::{block_on, local, roomy, s, short};
use crate::commands::orders::write;
use crate::commands::{explain, plan, status};
use crate::host_record::{Measurements, Observer};
use crate::member::Member;

async fn view(coordinator: &MemoryCoordinator) -> FleetView {
    FleetView::read(coordinator, &local("a", "").keys).await.unwrap()
}

#[test]
fn status_plan_and_explanation_read_like_this() {
    block_on(true, async {
        let coordinator = MemoryCoordinator::default();
        let a = Member::new(coordinator.clone(), short(), local("a", ""), "1".to_owned());
        let b = Member::new(coordinator.clone(), roomy(), local("b", ""), "2".to_owned());
        let seen = tokio::select! {
            biased;
            () = a.run_until(std::future::pending()) => unreachable!(),
            () = b.run_until(std::future::pending()) => unreachable!(),
            seen = async { sleep(s(25)).await; view(&coordinator).await } => seen,
        };
        let text = status::render(&status::fleet_status(&local("a", ""), &seen), None);
        expect![[r#"
            fleet test, led by a (revision 3), mode advise
            HOST  GUESTS  BUDGET  FLOORS  COMMITTED  DEMAND   FREE  STATE
            a          2    4GiB    5GiB       5GiB    5GiB   4GiB  1GiB short of floors
            b          1   16GiB  512MiB       1GiB    1GiB  16GiB  ok
            the plan has 1 move and 0 unmet needs: `ballast fleet plan`
        "#]]
        .assert_eq(&text);
        let text = plan::render(&plan::shown(&seen).unwrap(), None);
        expect![[r#"
            plan of a (revision 3) for 2 hosts with 3 guests; mode advise: nothing is moved
            move now:
              db from a to b: its host is 1GiB short of its guests' floors; copies 3GiB, in about 3 s, shrunk to 3GiB first
        "#]].assert_eq(&text);
        let explained = explain::explanation(&seen, &"cache".parse().unwrap()).unwrap();
        expect![[r#"
            cache on a: holds 2GiB, floor 2GiB, should have 2GiB, misses 50 pages a second
              its host: budget 4GiB, floors 5GiB, all guests should have 5GiB
              it stays: it is enough that other guests leave its host
        "#]]
        .assert_eq(&explain::render(&explained, None));
        let explained = explain::explanation(&seen, &"web".parse().unwrap()).unwrap();
        expect![[r#"
            web on b: holds 1GiB, floor 512MiB, should have 1GiB, misses 50 pages a second
              its host: budget 16GiB, floors 512MiB, all guests should have 1GiB
              it stays: its host has enough for floors and objectives, and no move is worth it
        "#]]
        .assert_eq(&explain::render(&explained, None));
        let error = explain::explanation(&seen, &"nobody".parse().unwrap()).unwrap_err();
        expect!["no guest nobody on 2 hosts; `ballast fleet status` lists them"]
            .assert_eq(&error.to_string());
    });
}

#[test]
fn an_empty_fleet_is_reported() {
    block_on(true, async {
        let coordinator = MemoryCoordinator::default();
        write(&coordinator, &local("a", ""), FleetKey::Pause, true).await.unwrap();
        write(&coordinator, &local("a", ""), FleetKey::Drain("c".parse().unwrap()), true)
            .await
            .unwrap();
        let seen = view(&coordinator).await;
        let text = status::render(&status::fleet_status(&local("a", ""), &seen), None);
        expect![[r#"
            fleet test, without a leader, mode advise
            paused from a: nothing is planned; `ballast fleet resume` ends it
            c is to be drained, but is not registered
            no host is registered
            the plan moves nothing
        "#]]
        .assert_eq(&text);
        expect!["there is no plan yet: 0 hosts are registered and none leads; does `ballast-fleet run` run on a host?"].assert_eq(&plan::shown(&seen).unwrap_err().to_string());
    });
}

#[test]
fn the_daemon_and_the_configuration_make_the_record() {
    block_on(true, async {
        let more = "[guests.db]\nstays = true\ngroup = \"g\"\nstorage = []\nwrites = \"5MiB\"";
        let text = format!(
            "cluster = \"t\"\nhost = \"a\"\nendpoints = [\"http://h:1\"]\nbandwidth = \"1GiB\"\n\
             [compatibility]\nhypervisor = \"qemu\"\nversion = \"7\"\ncpu_model = \"E\"\n\
             storage = [\"ceph\"]\n{more}\n"
        );
        let config = crate::config::parse(&text, "f".as_ref(), "a").unwrap();
        let record =
            Observer::default().look(&short(), &config, &Measurements::default()).await.unwrap();
        let [cache, db] = &record.guests[..] else { panic!("{record:?}") };
        assert_eq!(
            (db.id.as_str(), db.pinned_by, db.storage.len()),
            ("db", Some(PinnedBy::Operator), 0)
        );
        assert_eq!(db.dirty_per_s, Bytes::mib(5));
        assert_eq!((cache.pinned_by, cache.storage.len(), cache.can_shrink), (None, 1, true));
        assert_eq!((cache.misses_per_s_max, cache.floor), (Some(20), Bytes::gib(2)));
        let curve = cache.curve.as_ref().unwrap();
        assert_eq!(curve.points().len(), 7);
        assert_eq!(curve.size_for(20), Some(Bytes::gib(2).fraction(149, 100)));
        assert_eq!(curve.misses_per_s(Bytes::gib(2)), 50);
        assert_eq!((record.budget, record.committed), (Bytes::gib(4), Bytes::gib(5)));
    });
}
