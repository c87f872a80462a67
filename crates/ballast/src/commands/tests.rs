//! Tests of the commands' output, for handmade replies, and of their arguments.

use std::sync::Arc;
use std::time::Duration;

use ballast_api::{ExplainReply, ModeReply, PlanReply, Source, StatusReply, Tick};
use ballast_model::{
    Bytes, Change, Confidence, Demand, DemandSource, Estimate, HoldReason, MissCurve, Mode,
    ModeChoice, PassedOver, PassedOverReason, PolicyName,
};
use clap::Parser;
use clap::error::ErrorKind;
use expect_test::{Expect, expect};

use super::*;
use crate::cli::Cli;
use ballast_daemon::server::fixture;
use ballast_daemon::server::routes::tick;
use ballast_daemon::view::View;

/// `view` as a tick shown 300 ms later.
fn tick_of(view: &View) -> Tick<'_> {
    let mut tick = tick(view, fixture::seen_at() + Duration::from_millis(300));
    // The expected output must not depend on the program's version.
    tick.daemon.iter_mut().for_each(|daemon| daemon.version = "0.1.0".to_owned());
    tick
}

fn explained(view: &View, guest: &str, expected: Expect) {
    let reply = ExplainReply::new(&tick_of(view), &fixture::id(guest)).unwrap();
    expected.assert_eq(&explain::render(&reply));
}

#[test]
fn status_shows_every_kind_of_trouble() {
    let view = fixture::view();
    let reply = StatusReply::from(&tick_of(&view));
    expect![[r#"
        daemon   version 0.1.0, policy global, up 2h 3m, tick every 1.0s, last one 0.3s ago (plan #42, decided in 420us)
        fairness 100.00% (Jain's index of what guests have of their entitlement), 93.12% over the last 300 decisions
        host     16GiB in all, 9.2GiB available, 1GiB of 2GiB swap free, memory pressure some 1.12% full 0.03%, KSM saves 300MiB
        budget   2GiB for all guests: 1.4GiB committed, 64MiB grantable
        note     budget of 3GiB reduced to 2GiB: the host has no more for guests
        note     floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget

        GUEST  STATE    ALLOCATION  TARGET    USED       DEMAND   FLOOR  CEILING  SHARES  PRIORITY  STATS AGE  TRACKED                                  FENCE          DOING
        grow   running      512MiB  576MiB  452MiB  452MiB  60%  128MiB     1GiB    1000         0       0.8s  600MiB, 0.39% of pages, 0.55% of a core  no             grow by 64MiB
        mute   unknown           ?    none       ?            ?       ?        ?    1000         0       none  no                                       no             hold: allocation not known yet
        old    running      300MiB  300MiB       ?            ?  128MiB     1GiB    1000         0      12.0s  210MiB, resting                          none, failing  hold: statistics 12.0s old, limit 5.0s
        stuck  running      600MiB  600MiB   90MiB   90MiB  60%  128MiB     1GiB    1000         0       0.4s  80MiB, failing                           812MiB         hold: stuck: asked to shrink to 256MiB, released nothing for 42s, next request in 18s
        taken  taken             ?    none       ?            ?       ?        ?    1000         0       none  no                                       no             hold: unreachable: another client holds the socket: give Ballast one of its own (a second -qmp option)
    "#]].assert_eq(&status::render(&reply, None));
}

#[test]
fn status_shows_the_daemons_errors() {
    let mut view = fixture::view();
    view.paused = true;
    view.plans_refused = 3;
    view.reload_error = Some("ballast.toml: unknown key `flor`".to_owned());
    view.journal_error = Some("no space left on device".to_owned());
    view.journal_aside = vec!["/var/lib/ballast/journal.db.aside-20260102T030405Z".into()];
    view.guests_refused = 3;
    view.api.restarts = 2;
    view.api.trouble = Some("its thread panicked: a fault".to_owned());
    view.snapshot = ballast_model::Snapshot::new(
        view.snapshot.taken_at,
        ballast_model::HostSample::default(),
        vec![],
    );
    view.plan.notes = vec![ballast_model::Note::HostUnknown];
    let reply = StatusReply::from(&tick_of(&view));
    expect![[r#"
        daemon   version 0.1.0, policy global, up 2h 3m, tick every 1.0s, last one 0.3s ago (plan #42, decided in 420us)
        refused  3 of 7300 plans were refused by the checker
        fairness 100.00% (Jain's index of what guests have of their entitlement), 93.12% over the last 300 decisions
        reload   refused, the last good configuration stays: ballast.toml: unknown key `flor`
        journal  does not record: no space left on device
        journal  begun anew; the old file could not be used: /var/lib/ballast/journal.db.aside-20260102T030405Z
        guests   3 are left out: raise the daemon's limit of open files (systemd: LimitNOFILE=)
        api      failed, and was started again (2 in all): its thread panicked: a fault
        paused   nothing is acted on: `ballast resume` acts again
        host     ? in all, ? available, memory pressure some ? full ?
        budget   2GiB for all guests: 1.4GiB committed, 64MiB grantable
        note     the host's memory could not be read: nothing is granted

        no guest was found: `ballast doctor host` says where Ballast looks
    "#]].assert_eq(&status::render(&reply, None));
}

#[test]
fn while_observing_status_shows_what_each_guest_would_have() {
    let mut view = fixture::view();
    view.mode = ModeChoice::new(Mode::Observe);
    for guest in &mut view.plan.guests {
        guest.change = Change::Hold(HoldReason::Observing);
    }
    let tick = tick_of(&view);
    let status = status::render(&StatusReply::from(&tick), None);
    expect![[r#"
        daemon   version 0.1.0, policy global, up 2h 3m, tick every 1.0s, last one 0.3s ago (plan #42, decided in 420us)
        fairness 100.00% (Jain's index of what guests have of their entitlement), 93.12% over the last 300 decisions
        mode     observing: nothing is moved (ballast mode balance)
        host     16GiB in all, 9.2GiB available, 1GiB of 2GiB swap free, memory pressure some 1.12% full 0.03%, KSM saves 300MiB
        budget   2GiB for all guests: 1.4GiB committed, 64MiB grantable
        note     budget of 3GiB reduced to 2GiB: the host has no more for guests
        note     floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget

        GUEST  STATE    ALLOCATION  WANTED  TARGET    USED       DEMAND   FLOOR  CEILING  SHARES  PRIORITY  STATS AGE  TRACKED                                  FENCE          DOING
        grow   running      512MiB  700MiB  576MiB  452MiB  452MiB  60%  128MiB     1GiB    1000         0       0.8s  600MiB, 0.39% of pages, 0.55% of a core  no             hold: observing: nothing is moved (ballast mode balance)
        mute   unknown           ?       ?    none       ?            ?       ?        ?    1000         0       none  no                                       no             hold: observing: nothing is moved (ballast mode balance)
        old    running      300MiB       ?  300MiB       ?            ?  128MiB     1GiB    1000         0      12.0s  210MiB, resting                          none, failing  hold: observing: nothing is moved (ballast mode balance)
        stuck  running      600MiB  256MiB  600MiB   90MiB   90MiB  60%  128MiB     1GiB    1000         0       0.4s  80MiB, failing                           812MiB         hold: observing: nothing is moved (ballast mode balance); stuck, released nothing for 42s
        taken  taken             ?       ?    none       ?            ?       ?        ?    1000         0       none  no                                       no             hold: observing: nothing is moved (ballast mode balance)
    "#]].assert_eq(&status);
    let headline = "mode     observing: nothing is moved (ballast mode balance)\n";
    assert!(plan::render(&PlanReply::latest(&tick), None).contains(headline));
    assert!(!plan::render(&PlanReply::dry_run(&tick, &view.plan), None).contains(headline));
    let explained = explain::render(&ExplainReply::new(&tick, &fixture::id("grow")).unwrap());
    assert!(explained.contains("mode       observing: nothing is moved"), "{explained}");
    assert!(explained.contains("action     hold: observing: nothing is moved"), "{explained}");
}

#[test]
fn a_mode_is_shown_with_who_said_it() {
    let mut choice = ModeChoice::new(Mode::Observe);
    let render = |choice| control::render_mode(&ModeReply::from(choice));
    assert_eq!(render(choice), "observe, as configured\n");
    choice.set(Mode::Balance);
    assert_eq!(render(choice), "balance, set while the daemon ran; configured is observe\n");
}

/// Compares the status at a width; no line may be wider.
fn status_at(width: u16, expected: Expect) {
    let view = fixture::view();
    let text = status::render(&StatusReply::from(&tick_of(&view)), Some(width));
    expected.assert_eq(&text);
    let fits = |line: &str| line.chars().count() <= usize::from(width);
    assert!(text.lines().all(fits), "{text}");
}

#[test]
fn status_fits_into_forty_columns() {
    status_at(
        40,
        expect![[r#"
            daemon   version 0.1.0, policy global,
                     up 2h 3m, tick every 1.0s, last
                     one 0.3s ago (plan #42, decided
                     in 420us)
            fairness 100.00% (Jain's index of what
                     guests have of their
                     entitlement), 93.12% over the
                     last 300 decisions
            host     16GiB in all, 9.2GiB available,
                     1GiB of 2GiB swap free, memory
                     pressure some 1.12% full 0.03%,
                     KSM saves 300MiB
            budget   2GiB for all guests: 1.4GiB
                     committed, 64MiB grantable
            note     budget of 3GiB reduced to 2GiB:
                     the host has no more for guests
            note     floors and immovable guests
                     exceed the budget by 100MiB:
                     lower floors or raise the
                     budget

            GUEST  ALLOCATION  DOING
            grow       512MiB  grow by 64MiB
            mute            ?  hold: allocation not
                               known yet
            old        300MiB  hold: statistics
                               12.0s old, limit
                               5.0s
            stuck      600MiB  hold: stuck: asked
                               to shrink to 256MiB,
                               released nothing for
                               42s, next request in
                               18s
            taken           ?  hold: unreachable:
                               another client holds
                               the socket: give
                               Ballast one of its
                               own (a second -qmp
                               option)
            no room for STATE, TARGET, USED, DEMAND,
              FLOOR, CEILING, SHARES, PRIORITY,
              STATS AGE, TRACKED, FENCE (--json has
              all)
        "#]],
    );
}

#[test]
fn status_fits_into_sixty_columns() {
    status_at(
        60,
        expect![[r#"
            daemon   version 0.1.0, policy global, up 2h 3m, tick every
                     1.0s, last one 0.3s ago (plan #42, decided in
                     420us)
            fairness 100.00% (Jain's index of what guests have of their
                     entitlement), 93.12% over the last 300 decisions
            host     16GiB in all, 9.2GiB available, 1GiB of 2GiB swap
                     free, memory pressure some 1.12% full 0.03%, KSM
                     saves 300MiB
            budget   2GiB for all guests: 1.4GiB committed, 64MiB
                     grantable
            note     budget of 3GiB reduced to 2GiB: the host has no
                     more for guests
            note     floors and immovable guests exceed the budget by
                     100MiB: lower floors or raise the budget

            GUEST  STATE    ALLOCATION  TARGET  DOING
            grow   running      512MiB  576MiB  grow by 64MiB
            mute   unknown           ?    none  hold: allocation not
                                                known yet
            old    running      300MiB  300MiB  hold: statistics 12.0s
                                                old, limit 5.0s
            stuck  running      600MiB  600MiB  hold: stuck: asked to
                                                shrink to 256MiB,
                                                released nothing for
                                                42s, next request in
                                                18s
            taken  taken             ?    none  hold: unreachable:
                                                another client holds
                                                the socket: give
                                                Ballast one of its own
                                                (a second -qmp option)
            no room for USED, DEMAND, FLOOR, CEILING, SHARES, PRIORITY,
              STATS AGE, TRACKED, FENCE (--json has all)
        "#]],
    );
}

#[test]
fn status_fits_into_eighty_columns() {
    status_at(
        80,
        expect![[r#"
            daemon   version 0.1.0, policy global, up 2h 3m, tick every 1.0s, last one 0.3s
                     ago (plan #42, decided in 420us)
            fairness 100.00% (Jain's index of what guests have of their entitlement), 93.12%
                     over the last 300 decisions
            host     16GiB in all, 9.2GiB available, 1GiB of 2GiB swap free, memory pressure
                     some 1.12% full 0.03%, KSM saves 300MiB
            budget   2GiB for all guests: 1.4GiB committed, 64MiB grantable
            note     budget of 3GiB reduced to 2GiB: the host has no more for guests
            note     floors and immovable guests exceed the budget by 100MiB: lower floors
                     or raise the budget

            GUEST  STATE    ALLOCATION  TARGET    USED   FLOOR  DOING
            grow   running      512MiB  576MiB  452MiB  128MiB  grow by 64MiB
            mute   unknown           ?    none       ?       ?  hold: allocation not known
                                                                yet
            old    running      300MiB  300MiB       ?  128MiB  hold: statistics 12.0s old,
                                                                limit 5.0s
            stuck  running      600MiB  600MiB   90MiB  128MiB  hold: stuck: asked to
                                                                shrink to 256MiB, released
                                                                nothing for 42s, next
                                                                request in 18s
            taken  taken             ?    none       ?       ?  hold: unreachable: another
                                                                client holds the socket:
                                                                give Ballast one of its own
                                                                (a second -qmp option)
            no room for DEMAND, CEILING, SHARES, PRIORITY, STATS AGE, TRACKED, FENCE (--json
              has all)
        "#]],
    );
}

#[test]
fn status_fits_into_many_columns() {
    status_at(
        120,
        expect![[r#"
            daemon   version 0.1.0, policy global, up 2h 3m, tick every 1.0s, last one 0.3s ago (plan #42, decided in 420us)
            fairness 100.00% (Jain's index of what guests have of their entitlement), 93.12% over the last 300 decisions
            host     16GiB in all, 9.2GiB available, 1GiB of 2GiB swap free, memory pressure some 1.12% full 0.03%, KSM saves 300MiB
            budget   2GiB for all guests: 1.4GiB committed, 64MiB grantable
            note     budget of 3GiB reduced to 2GiB: the host has no more for guests
            note     floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget

            GUEST  STATE    ALLOCATION  TARGET    USED       DEMAND   FLOOR  TRACKED                  DOING
            grow   running      512MiB  576MiB  452MiB  452MiB  60%  128MiB  600MiB, 0.39% of pages,  grow by 64MiB
                                                                             0.55% of a core
            mute   unknown           ?    none       ?            ?       ?  no                       hold: allocation not known
                                                                                                      yet
            old    running      300MiB  300MiB       ?            ?  128MiB  210MiB, resting          hold: statistics 12.0s old,
                                                                                                      limit 5.0s
            stuck  running      600MiB  600MiB   90MiB   90MiB  60%  128MiB  80MiB, failing           hold: stuck: asked to shrink
                                                                                                      to 256MiB, released nothing
                                                                                                      for 42s, next request in 18s
            taken  taken             ?    none       ?            ?       ?  no                       hold: unreachable: another
                                                                                                      client holds the socket: give
                                                                                                      Ballast one of its own (a
                                                                                                      second -qmp option)
            no room for CEILING, SHARES, PRIORITY, STATS AGE, FENCE (--json has all)
        "#]],
    );
}

#[test]
fn status_is_watched_in_seconds() {
    let parse = |arguments: &[&str]| {
        Cli::try_parse_from([&["ballast", "status"], arguments].concat())
            .map(|_| ())
            .map_err(|error| error.kind())
    };
    assert_eq!(parse(&["--watch"]), Ok(()));
    assert_eq!(parse(&["--watch", "0.5", "--json"]), Ok(()));
    assert_eq!(parse(&["--watch", "0"]), Err(ErrorKind::ValueValidation));
    assert_eq!(parse(&["--watch", "often"]), Err(ErrorKind::ValueValidation));
    assert_eq!(parse(&["--watch", "--journal", "x"]), Err(ErrorKind::ArgumentConflict));
}

#[test]
fn explain_shows_a_growing_guest_from_inputs_to_outcome() {
    explained(
        &fixture::view(),
        "grow",
        expect![[r#"
            guest      grow
            decision   plan #42 by policy global, 0.3s ago
            note       budget of 3GiB reduced to 2GiB: the host has no more for guests
            note       floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget
            state      running
            memory     booted with 1GiB, holds 512MiB (0.1s old), occupies 542MiB (0.0s old) of the host
            statistics 0.8s old: total 980MiB, free 20MiB, available 60MiB, page cache 45MiB, swapped in 7MiB, swapped out 90MiB, major faults 1234
            tracking   watching page touches, 0.39% of its pages, for 0.55% of a core; working set 600MiB, 0.4s old
            agent      0.3s old: promised to processes 700MiB, swap in use 83MiB, active 300MiB, inactive 150MiB, kept free 12MiB; asks for 64MiB more
            bounds     floor 128MiB (set), ceiling 1GiB (default), 1000 shares, priority 0
            budget     2GiB for all guests: 1.4GiB committed, 64MiB grantable
            estimate   uses 452MiB, could give back 60MiB without swapping (balloon statistics 0.8s old)
            demand     452MiB, from used memory 0.8s old, confidence 60%
            misses     not known by size
            policy     wants 700MiB: needs 452MiB; idle memory taxed at 75.0% of a budget of 2GiB
            guard      growth limited to 128MiB a decision
            guard      waiting for other guests to release 64MiB
            compliance compliant
            action     grow by 64MiB
            target     576MiB
            outcome    accepted (512MiB for plan #41, 1.3s ago)
        "#]],
    );
}

#[test]
fn explain_shows_the_demands_source_and_the_miss_curve() {
    let mut view = fixture::view();
    view.plan.guests.retain_mut(|guest| {
        guest.estimate = guest.estimate.take().map(tracked);
        guest.id == fixture::id("grow")
    });
    let reply = ExplainReply::new(&tick_of(&view), &fixture::id("grow")).unwrap();
    let text = explain::render(&reply);
    let from = text.find("demand").unwrap();
    let to = text.find("policy     wants").unwrap();
    expect![[r#"
        demand     600MiB, from tracked working set 3.0s old, confidence 90%
                   not used memory (452MiB, 0.8s old): trusted less
                   not Committed_AS (2GiB, 0.8s old): stale, believed for 5.0s
        misses     of allocation       25%     50%     75%    100%    125%    150%
                   size             128MiB  256MiB  384MiB  512MiB  640MiB  768MiB
                   misses a second    4000    2500    1200      40       0       0
    "#]]
    .assert_eq(&text[from..to]);
}

/// `plain` with the working set tracked.
fn tracked(plain: Estimate) -> Estimate {
    let (second, step) = (Duration::from_secs(1), Bytes::mib(64));
    let misses = vec![9000, 9000, 4000, 4000, 2500, 2500, 1200, 1200, 40, 40, 0];
    let used = plain.demand;
    let other = |source, size, why| PassedOver { source, size, age: used.age, why };
    let stale = PassedOverReason::Stale { age_max: Duration::from_secs(5) };
    Estimate {
        demand: Demand {
            size: Bytes::mib(600),
            source: DemandSource::WorkingSet,
            age: 3 * second,
            confidence: Confidence::from_percent(90),
        },
        passed_over: vec![
            other(used.source, used.size, PassedOverReason::LessTrusted),
            other(DemandSource::Committed, Bytes::gib(2), stale),
        ],
        curve: Some(Arc::new(MissCurve::new(step, second, misses).unwrap())),
        ..plain
    }
}

#[test]
fn explain_shows_a_stuck_guest() {
    explained(
        &fixture::view(),
        "stuck",
        expect![[r#"
            guest      stuck
            decision   plan #42 by policy global, 0.3s ago
            note       budget of 3GiB reduced to 2GiB: the host has no more for guests
            note       floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget
            state      running
            memory     booted with 1GiB, holds 600MiB (0.1s old), occupies 630MiB (0.0s old) of the host
            statistics 0.4s old: total 980MiB, free 20MiB, available 60MiB, page cache 45MiB, swapped in 7MiB, swapped out 90MiB, major faults 1234
            tracking   does not work; working set 80MiB, 0.4s old
                       the guest is tracked by another client: stop that one first
            fence      at 812MiB: its cgroup cannot grow beyond that
            bounds     floor 128MiB (set), ceiling 1GiB (default), 1000 shares, priority 0
            budget     2GiB for all guests: 1.4GiB committed, 64MiB grantable
            estimate   uses 90MiB, could give back 510MiB without swapping (balloon statistics 0.4s old)
            demand     90MiB, from used memory 0.4s old, confidence 60%
            misses     not known by size
            policy     wants 256MiB: needs 90MiB; idle memory taxed at 75.0% of a budget of 2GiB
            guard      changes nothing about that
            compliance stuck, released nothing for 42s
            action     hold: stuck: asked to shrink to 256MiB, released nothing for 42s, next request in 18s
            target     600MiB
            outcome    none so far
        "#]],
    );
}

#[test]
fn explain_shows_stale_statistics() {
    explained(
        &fixture::view(),
        "old",
        expect![[r#"
            guest      old
            decision   plan #42 by policy global, 0.3s ago
            note       budget of 3GiB reduced to 2GiB: the host has no more for guests
            note       floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget
            state      running
            memory     booted with 1GiB, holds 300MiB (0.1s old), occupies 330MiB (0.0s old) of the host
            statistics 12.0s old: total 980MiB, free 20MiB, available 60MiB, page cache 45MiB, swapped in 7MiB, swapped out 90MiB, major faults 1234
            tracking   resting until a new phase begins; working set 210MiB, 0.4s old
            fence      none stands
                       the host has no swap: make some
            bounds     floor 128MiB (set), ceiling 1GiB (default), 1000 shares, priority 0
            budget     2GiB for all guests: 1.4GiB committed, 64MiB grantable
            estimate   none: there is nothing to estimate from
            policy     was not asked about it
            guard      has nothing to change
            compliance compliant
            action     hold: statistics 12.0s old, limit 5.0s
            target     300MiB
            outcome    none so far
        "#]],
    );
}

#[test]
fn explain_shows_unknown_values() {
    let mut view = fixture::view();
    view.paused = true;
    explained(
        &view,
        "taken",
        expect![[r#"
            guest      taken
            decision   plan #42 by policy global, 0.3s ago
            paused     nothing is acted on: `ballast resume` acts again
            note       budget of 3GiB reduced to 2GiB: the host has no more for guests
            note       floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget
            state      another client holds the socket: give Ballast one of its own (a second -qmp option)
            memory     booted with an unknown amount, holds an unknown amount, occupies an unknown amount of the host
            statistics none
            bounds     floor ? (set), ceiling ? (default), 1000 shares, priority 0
            budget     2GiB for all guests: 1.4GiB committed, 64MiB grantable
            estimate   none: there is nothing to estimate from
            policy     was not asked about it
            guard      has nothing to change
            compliance compliant
            action     hold: unreachable: another client holds the socket: give Ballast one of its own (a second -qmp option)
            target     none so far
            outcome    none so far
        "#]],
    );
}

#[test]
fn plan_lists_targets_and_actions() {
    let view = fixture::view();
    expect![[r#"
        plan     #42 by policy global, 0.3s ago
        budget   2GiB for all guests: 1.4GiB committed, 64MiB grantable
        note     budget of 3GiB reduced to 2GiB: the host has no more for guests
        note     floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget

        GUEST  ALLOCATION  WANTED  TARGET  ACTION                                                                                                  WHY
        grow       512MiB  700MiB  576MiB  grow by 64MiB                                                                                           needs 452MiB; idle memory taxed at 75.0% of a budget of 2GiB; growth limited to 128MiB a decision; waiting for other guests to release 64MiB
        mute            ?       ?    none  hold: allocation not known yet
        old        300MiB       ?  300MiB  hold: statistics 12.0s old, limit 5.0s
        stuck      600MiB  256MiB  600MiB  hold: stuck: asked to shrink to 256MiB, released nothing for 42s, next request in 18s                   needs 90MiB; idle memory taxed at 75.0% of a budget of 2GiB
        taken           ?       ?    none  hold: unreachable: another client holds the socket: give Ballast one of its own (a second -qmp option)

        1. set grow to 576MiB, to be begun within 2.0s
    "#]].assert_eq(&plan::render(&PlanReply::latest(&tick_of(&view)), None));
}

#[test]
fn a_dry_run_is_marked_as_such() {
    let view = fixture::view();
    let mut next = view.plan.clone();
    next.guests.clear();
    next.actions.clear();
    expect![[r#"
        dry run  what policy global would do next, from what was seen 0.3s ago; nothing is carried out
        budget   2GiB for all guests: 1.4GiB committed, 64MiB grantable
        note     budget of 3GiB reduced to 2GiB: the host has no more for guests
        note     floors and immovable guests exceed the budget by 100MiB: lower floors or raise the budget

        nothing is to be done
    "#]].assert_eq(&plan::render(&PlanReply::dry_run(&tick_of(&view), &next), None));
}

#[test]
fn output_from_a_journal_shows_its_source_and_age() {
    let view = fixture::view();
    let tick = Tick { source: Source::Journal, daemon: None, ..tick_of(&view) };
    let now = fixture::seen_at() + Duration::from_secs(7400);
    let reply = StatusReply::from(&Tick { now, ..tick });
    let text = status::render(&reply, None);
    let head: Vec<_> = text.lines().take(2).collect();
    expect![[r#"
        No daemon answered: this is the last tick of a journal, 2h 3m old; nothing acts on it.
        plan     #42 by policy global"#]]
    .assert_eq(&head.join("\n"));
}

#[test]
fn policy_show_prints_the_whole_entry() {
    let show = |name| policy::show(name).unwrap();
    expect![[r#"
        policy     tws
        rule       Every guest gets its working set, found by taking memory away until it reads some back.
        shortage   Guests that want less than their part by shares get it; the others divide the rest by shares.
        priority   In a shortage, higher priorities take what they need from lower ones.
        source     TWS §2
        pace       every 1.0s; makes every change
        parameter  policy.interval: time between decisions (span of time, one tick to 1h; default "1000ms")
        parameter  policy.reserve_per_guest: free memory for each guest on top of what it uses; part of the need of guests with higher priority (size, any size; default "100MiB")
        parameter  policy.believed_without_evidence: how much more memory than it has filled of its grant a guest is believed to need on its word alone (part of what it has filled, 0 to 1000; default 0.25)
        parameter  policy.tws.fast: memory taken away in an epoch before the guest first reads any back (part of Committed_AS, 0.001 to 0.5; default 0.05)
        parameter  policy.tws.slow: memory taken away in an epoch after that (part of Committed_AS, 0.0001 to 0.5, not above tws.fast; default 0.01)
        parameter  policy.tws.cool_down_epochs: epochs without reading back before memory is taken away again (epochs, 1 to 3600; default 8)
        parameter  policy.tws.change: probing restarts when Committed_AS changes by more than this and tws.change_min (part of Committed_AS, 0 to 1; default 0.02)
        parameter  policy.tws.change_min: amount that such a change must also exceed (size, any size; default "4MiB")
        needs      probed, from the prober, from Committed_AS and counts of swap-ins and refaults; guests without: they want what they use plus the reserve
    "#]].assert_eq(&policy::render(&show(PolicyName::Tws)));
    expect![[r#"
        {
          "policy": "global",
          "rule": "Divides the whole budget by shares, and taxes idle memory as much as the neediest guest requires.",
          "shortage": "The tax is full: every guest gets what it uses, less its part of the shortage.",
          "source": "Global §3.1–3.4",
          "interval_ms": 2000,
          "dead_band_bytes": 10485760,
          "decides_on_request": false,
          "decides_on_need": true,
          "parameters": [
            {
              "key": "policy.interval",
              "meaning": "time between decisions",
              "unit": "span of time",
              "default": "\"2000ms\"",
              "range": "one tick to 1h"
            },
            {
              "key": "policy.reserve_per_guest",
              "meaning": "free memory for each guest on top of what it uses; part of the need of guests with higher priority",
              "unit": "size",
              "default": "\"100MiB\"",
              "range": "any size"
            },
            {
              "key": "policy.believed_without_evidence",
              "meaning": "how much more memory than it has filled of its grant a guest is believed to need on its word alone",
              "unit": "part of what it has filled",
              "default": "0.25",
              "range": "0 to 1000"
            },
            {
              "key": "policy.tau",
              "meaning": "idle-memory tax: 0 divides by shares only, 1 by use",
              "unit": "share of idle memory",
              "default": "\"dynamic\"",
              "range": "\"dynamic\", or 0 to 1"
            }
          ],
          "needs": [],
          "combinations": []
        }"#]].assert_eq(&serde_json::to_string_pretty(&show(PolicyName::Global)).unwrap());
}

#[test]
fn policy_list_has_every_policy() {
    let text = policy::render_list(&policy::list(), None);
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, PolicyName::ALL.map(PolicyName::as_str));
    let line = text.lines().find(|line| line.starts_with("self-balloon")).unwrap();
    assert!(line.contains("committed") && line.contains("Committed_AS"), "{line}");
}

#[test]
fn invalid_arguments_are_wrong_usage() {
    for (line, kind) in [
        ("status --jsn", ErrorKind::UnknownArgument),
        ("statsu", ErrorKind::InvalidSubcommand),
        ("explain", ErrorKind::MissingRequiredArgument),
        ("explain a/b", ErrorKind::ValueValidation),
        ("set", ErrorKind::MissingRequiredArgument),
        ("set web-1", ErrorKind::MissingRequiredArgument),
        ("set --floor 1GiB", ErrorKind::MissingRequiredArgument),
        ("set web-1 --floor 1GB", ErrorKind::ValueValidation),
        ("set web-1 --shares 0", ErrorKind::ValueValidation),
        ("set web-1 --priority 256", ErrorKind::ValueValidation),
        ("set --priority 1", ErrorKind::MissingRequiredArgument),
        ("set web-1 --miss-rate-max -5", ErrorKind::UnknownArgument),
        ("policy", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ("policy show", ErrorKind::MissingRequiredArgument),
        ("policy show globl", ErrorKind::ValueValidation),
        ("set web-1 --managed=maybe", ErrorKind::InvalidValue),
        ("set web-1 --shares 5 --policy global", ErrorKind::ArgumentConflict),
        ("set --policy globl", ErrorKind::ValueValidation),
        ("daemon", ErrorKind::MissingRequiredArgument),
    ] {
        let words = std::iter::once("ballast").chain(line.split(' '));
        let error = Cli::try_parse_from(words).expect_err(line);
        assert_eq!(error.kind(), kind, "{line}: {error}");
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}
