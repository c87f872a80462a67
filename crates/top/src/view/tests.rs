//! Whole screens as text, drawn into memory: what an operator sees, by state and size.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::fixture::mixed;
use crate::state::{Event, JournalCursor, State};
use crossterm::event::KeyCode;
use expect_test::expect;
use jiff::tz::TimeZone;
use std::time::Duration;

/// The view of a daemon after some ticks.
fn live() -> State {
    let mut state = State::new(Source::Daemon { socket: None }, true, TimeZone::UTC);
    for second in 10..16 {
        state.update(Event::Time(Duration::from_secs(second)));
        state.update(Event::Status(Ok(Box::new(mixed(second)))));
    }
    state
}

fn press(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            letter => KeyCode::Char(letter),
        };
        state.update(Event::Key(code.into()));
    }
}

fn drawn(state: &mut State, columns: u16, rows: u16) -> Terminal<TestBackend> {
    state.update(Event::Size(columns, rows));
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(state, frame)).unwrap();
    terminal
}

/// The screen as text, without the spaces at the ends of lines.
fn screen(state: &mut State, columns: u16, rows: u16) -> String {
    let terminal = drawn(state, columns, rows);
    let cells = terminal.backend().buffer().content();
    let mut text = String::new();
    for line in cells.chunks(columns.into()) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn eighty_columns_show_the_guests_and_what_is_done() {
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲                     ALLOC    DEMAND    TARGET     SWAP-IN DOING
        batch-7                   240MiB     90MiB    200MiB        0B/s shrink 64MiB
        db-of-the-accounting-…    512MiB         ?    512MiB        0B/s stale
        idle-1                    128MiB    100MiB    128MiB        0B/s dead-band
        idle-2                    128MiB    100MiB    128MiB        0B/s dead-band
        idle-3                    128MiB    100MiB    128MiB        0B/s dead-band
        mute                           ?         ?      none           ? no-allocation
        web-1                     520MiB    600MiB    576MiB    7.3MiB/s grow 64MiB











        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut live(), 80, 24));
}

#[test]
fn narrow_screens_show_fewer_columns() {
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s
        #15, 0.4s old
        budget 2GiB  1.4GiB committed  1.6GiB allocated
        64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB
        swap 1GiB of 2GiB free
        GUEST▲             ALLOC    DEMAND DOING
        batch-7           240MiB     90MiB shrink 64MiB
        db-of-the-acc…    512MiB         ? stale
        idle-1            128MiB    100MiB dead-band
        idle-2            128MiB    100MiB dead-band
        idle-3            128MiB    100MiB dead-band
        mute                   ?         ? no-allocation
        web-1             520MiB    600MiB grow 64MiB





        q quit  ? help  / filter  <>r GUEST▲  f fold
    "#]]
    .assert_eq(&screen(&mut live(), 50, 20));
}

#[test]
fn wide_screens_show_lines_of_the_last_ticks() {
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free  pressure some 1.12% full 0.03%
        GUEST▲                              ALLOC ~ALLOC      DEMAND ~DEMAND     TARGET FLOOR–CEILING           SWAP-IN ~SWAP-IN DOING
        batch-7                            240MiB   ██████     90MiB   ▃▃▃▃▃▃    200MiB 128MiB–1GiB                0B/s    ▁▁▁▁▁ shrink 64MiB
        db-of-the-accounting-department    512MiB   ██████         ?             512MiB 128MiB–1GiB                0B/s    ▁▁▁▁▁ stale
        idle-1                             128MiB   ██████    100MiB   ▇▇▇▇▇▇    128MiB 128MiB–1GiB                0B/s    ▁▁▁▁▁ dead-band
        idle-2                             128MiB   ██████    100MiB   ▇▇▇▇▇▇    128MiB 128MiB–1GiB                0B/s    ▁▁▁▁▁ dead-band
        idle-3                             128MiB   ██████    100MiB   ▇▇▇▇▇▇    128MiB 128MiB–1GiB                0B/s    ▁▁▁▁▁ dead-band
        mute                                    ?                  ?               none ?                             ?          no-allocation
        web-1                              520MiB   ▇▇▇▇▇▇    600MiB   ██████    576MiB 128MiB–1GiB            7.3MiB/s    ▆▇▇██ grow 64MiB




























        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]].assert_eq(&screen(&mut live(), 160, 40));
}

#[test]
fn nothing_is_coloured_where_colours_are_unwanted() {
    let mut state = live();
    let coloured = |state: &mut State| {
        let terminal = drawn(state, 80, 24);
        let cells = terminal.backend().buffer().content();
        cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(&mut state));
    let text = screen(&mut state, 80, 24);
    state.colour = false;
    assert!(!coloured(&mut state));
    assert_eq!(screen(&mut state, 80, 24), text);
    // The selected line is still on the screen.
    let terminal = drawn(&mut state, 80, 24);
    let cells = terminal.backend().buffer().content();
    let reversed = cells.iter().filter(|cell| cell.modifier.contains(Modifier::REVERSED)).count();
    assert!(reversed >= 40, "{reversed}");
}

#[test]
fn a_journal_shows_its_moment_and_place() {
    let cursor = JournalCursor { file: "journal.db".to_owned(), places: None, playing: false };
    let mut state = State::new(Source::Journal(cursor), true, TimeZone::UTC);
    let mut history = crate::history::History::default();
    for second in 10..16 {
        history.push(&mixed(second));
    }
    let mut status = mixed(15);
    status.daemon = None;
    status.tick.paused = true;
    let place = |id| ballast_store::Place { id, wall_ms: 0 };
    let places = [place(10), place(40), place(210)];
    let recorded = crate::recorded::RecordedTick { status, history, places };
    state.update(Event::Recorded(Ok(Box::new(recorded))));
    press(&mut state, " ");
    expect![[r#"
        journal journal.db  2026-01-02 03:04:15 +00:00  at 15 % of it  PLAYING
        policy global  PAUSED  #15
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲                       ALLOC    DEMAND    WANTED    TARGET DOING
        batch-7                     240MiB     90MiB    100MiB    200MiB shrink 64MiB
        db-of-the-accounting-de…    512MiB         ?    640MiB    512MiB stale
        idle-1                      128MiB    100MiB    124MiB    128MiB dead-band
        idle-2                      128MiB    100MiB    124MiB    128MiB dead-band
        idle-3                      128MiB    100MiB    124MiB    128MiB dead-band
        mute                             ?         ?         ?      none no-allocation
        web-1                       520MiB    600MiB    640MiB    576MiB grow 64MiB










        q quit  ? help  ←→ tick  PgUp PgDn minute  Space stop  / filter  <>r GUEST▲
    "#]]
    .assert_eq(&screen(&mut state, 80, 24));
}

#[test]
fn guests_at_rest_are_one_line() {
    let mut state = live();
    press(&mut state, "fG");
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲                     ALLOC    DEMAND    TARGET     SWAP-IN DOING
        batch-7                   240MiB     90MiB    200MiB        0B/s shrink 64MiB
        db-of-the-accounting-…    512MiB         ?    512MiB        0B/s stale
        mute                           ?         ?      none           ? no-allocation
        web-1                     520MiB    600MiB    576MiB    7.3MiB/s grow 64MiB
        ▸ 3 at rest               384MiB                                 f unfolds













        q quit  ? help  / filter  <>r GUEST▲  f unfold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 24));
}

#[test]
fn a_filter_shows_the_guests_it_names() {
    let mut state = live();
    press(&mut state, "/eb");
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲     ALLOC ~ALLOC      DEMAND    TARGET     SWAP-IN DOING
        web-1     520MiB   ▇▇▇▇▇▇    600MiB    576MiB    7.3MiB/s grow 64MiB





        /eb_  Enter keeps it, Esc ends it
    "#]]
    .assert_eq(&screen(&mut state, 80, 12));
    press(&mut state, "\n>");
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST     ALLOC▼ ~ALLOC      DEMAND    TARGET     SWAP-IN DOING
        web-1     520MiB   ▇▇▇▇▇▇    600MiB    576MiB    7.3MiB/s grow 64MiB





        q quit  ? help  /eb: Esc shows all  <>r ALLOC▼  f fold  Enter explain  p pause
    "#]]
    .assert_eq(&screen(&mut state, 80, 12));
}

#[test]
fn a_filter_that_fits_nobody_says_so() {
    let mut state = live();
    press(&mut state, "/nobody");
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        no guest's name contains the filter's text




        /nobody_  Enter keeps it, Esc ends it
    "#]]
    .assert_eq(&screen(&mut state, 80, 8));
}

const EXPLANATION: &str = "\
guest      web-1
decision   plan #15 by policy global, 0.3s ago
memory     booted with 1GiB, holds 512MiB (0.1s old), occupies 542MiB (0.0s old) of the host
guard      waiting for other guests to release 64MiB
           a line that goes on
";

#[test]
fn an_explanation_wraps_below_its_text() {
    let mut state = live();
    press(&mut state, "G\n");
    let explained = Event::Explained("web-1".to_owned(), Ok(EXPLANATION.to_owned()));
    state.update(explained);
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed
        1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB
        swap 1GiB of 2GiB free  pressure some 1.12% full 0.03%
        guest      web-1
        decision   plan #15 by policy global, 0.3s ago
        memory     booted with 1GiB, holds 512MiB (0.1s old),
                   occupies 542MiB (0.0s old) of the host
        guard      waiting for other guests to release 64MiB
                   a line that goes on




        q quit  ? help  Esc back  j k scroll  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 60, 16));
    press(&mut state, "jj");
    let scrolled = screen(&mut state, 60, 16);
    assert!(!scrolled.contains("guest      web-1") && scrolled.contains("memory"), "{scrolled}");
}

#[test]
fn a_question_shows_the_same_command() {
    let mut state = live();
    state.source = Source::Daemon { socket: Some("/run/my ballast.sock".to_owned()) };
    press(&mut state, "Gs");
    press(&mut state, &"\x08".repeat(9));
    press(&mut state, "256MiB\t\t0");
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲                     ALLOC    DEMAND    TARGET     SWAP-IN DOING
        batch-7                   240MiB     90MiB    200MiB        0B/s shrink 64MiB
        db-of-the-accounting-…    512MiB         ?    512MiB        0B/s stale
        idle-1                    128MiB    100MiB    128MiB        0B/s dead-band
        idle┌ Bounds of web-1 ─────────────────────────────────────────────────────┐
        idle│floor    256MiB                                                       │
        mute│ceiling  1GiB                                                         │on
        web-│shares   10000_                                                       │
            │                                                                      │
            │Tab next field  Enter go on  Esc back                                 │
            │                                                                      │
            └──────────────────────────────────────────────────────────────────────┘







        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 24));
    press(&mut state, "\n");
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲                     ALLOC    DEMAND    TARGET     SWAP-IN DOING
        batch-7                   240MiB     90MiB    200MiB        0B/s shrink 64MiB
        db-of-the-accounting-…    512MiB         ?    512MiB        0B/s stale
        idle┌ Sure? ───────────────────────────────────────────────────────────────┐
        idle│Change the bounds of web-1?                                           │
        idle│This is the same as:                                                  │
        mute│ballast set web-1 --floor 256MiB --shares 10000 --socket '/run/my     │on
        web-│ballast.sock'                                                         │
            │                                                                      │
            │y yes  n no                                                           │
            │                                                                      │
            └──────────────────────────────────────────────────────────────────────┘







        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 24));
}

#[test]
fn help_names_every_key() {
    let mut state = live();
    press(&mut state, "?");
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUES┌ Keys ────────────────────────────────────────────────────────────────┐
        batc│j k ↓ ↑    select a guest; g G the first, the last                    │B
        db-o│PgUp PgDn  a page of guests; in a journal a minute                    │
        idle│Enter      explain the guest, or unfold; Esc back                     │
        idle│/          show guests whose name contains a text; Esc all            │
        idle│< > r      sort by another column; turn around                        │
        mute│f          fold guests at rest into one line                          │on
        web-│p          pause or resume, after a question                          │
            │s          set floor, ceiling, shares, after a question               │
            │← →        in a journal: a tick back, a tick ahead                    │
            │Home End   first and last guest; in a journal tick                    │
            │Space      in a journal: play, stop                                   │
            │? q        this help; quit                                            │
            │                                                                      │
            └──────────────────────────────────────────────────────────────────────┘




        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 24));
}

#[test]
fn a_daemon_that_is_gone_leaves_its_last_tick() {
    let mut state = live();
    let error = "no daemon listens on /run/ballast/ballast.sock: start one with `ballast daemon`";
    for second in [17, 29] {
        state.update(Event::Time(Duration::from_secs(second)));
        state.update(Event::Status(Err(error.to_owned())));
    }
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #15, 14.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲                     ALLOC    DEMAND    TARGET     SWAP-IN DOING
        batch-7                   240MiB     90MiB    200MiB        0B/s shrink 64MiB
        db-of-the-accounting-…    512MiB         ?    512MiB        0B/s stale
        idle-1                    128MiB    100MiB    128MiB        0B/s dead-band
        idle-2                    128MiB    100MiB    128MiB        0B/s dead-band
        idle-3                    128MiB    100MiB    128MiB        0B/s dead-band
        mute                           ?         ?      none           ? no-allocation
        web-1                     520MiB    600MiB    576MiB    7.3MiB/s grow 64MiB

        no status for 12.0s, asking again: no daemon listens on
        /run/ballast/ballast.sock: start one with `ballast daemon`
        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 16));
}

#[test]
fn before_the_first_answer_the_error_is_shown() {
    let mut state = State::new(Source::Daemon { socket: None }, false, TimeZone::UTC);
    state.update(Event::Status(Err("permission denied on /run/ballast.sock".to_owned())));
    expect![[r#"
        Ballast  no daemon answered yet



        no status for 0.0s, asking again: permission denied on /run/ballast.sock
        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 6));
}

#[test]
fn warnings_of_the_host_stand_above_the_guests() {
    let mut state = live();
    let mut status = mixed(17);
    status.host_pressure = ballast_api::Coded::new("low", "the host is short of memory");
    let note = |text: &str| ballast_api::Coded::new("note", text);
    status.notes = vec![note("budget reduced\x1b[2J to 2GiB"), note("a second"), note("a third")];
    state.update(Event::Status(Ok(Box::new(status))));
    expect![[r#"
        Ballast  policy global  acting  tick 1.0s  #17, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        ! the host is short of memory
        ! budget reduced�[2J to 2GiB (+2: ballast status)
        GUEST▲                     ALLOC    DEMAND    TARGET     SWAP-IN DOING
        batch-7                   240MiB     90MiB    200MiB        0B/s shrink 64MiB
        db-of-the-accounting-…    512MiB         ?    512MiB        0B/s stale
        idle-1                    128MiB    100MiB    128MiB        0B/s dead-band
        idle-2                    128MiB    100MiB    128MiB        0B/s dead-band
        idle-3                    128MiB    100MiB    128MiB        0B/s dead-band
        mute                           ?         ?      none           ? no-allocation
        web-1                     520MiB    600MiB    576MiB      8MiB/s grow 64MiB









        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 24));
}

#[test]
fn what_is_wanted_stands_beside_targets_while_observing() {
    let mut state = live();
    let mut status = mixed(17);
    status.tick.observing = true;
    for guest in &mut status.guests {
        guest.change = Some(crate::fixture::change("hold", "observing", "observing"));
    }
    state.update(Event::Status(Ok(Box::new(status))));
    expect![[r#"
        Ballast  policy global  OBSERVING  tick 1.0s  #17, 0.4s old
        budget 2GiB  [████████░░░░]  1.4GiB committed  1.6GiB allocated  64MiB grantable
        host 9.2GiB of 16GiB available  reserve 512MiB  swap 1GiB of 2GiB free
        pressure some 1.12% full 0.03%
        GUEST▲                       ALLOC    DEMAND    WANTED    TARGET DOING
        batch-7                     240MiB     90MiB    100MiB    200MiB observing
        db-of-the-accounting-de…    512MiB         ?    640MiB    512MiB observing
        idle-1                      128MiB    100MiB    124MiB    128MiB observing
        idle-2                      128MiB    100MiB    124MiB    128MiB observing
        idle-3                      128MiB    100MiB    124MiB    128MiB observing
        mute                             ?         ?         ?      none observing
        web-1                       520MiB    600MiB    640MiB    576MiB observing



        q quit  ? help  / filter  <>r GUEST▲  f fold  Enter explain  p pause  s set
    "#]]
    .assert_eq(&screen(&mut state, 80, 16));
}

#[test]
fn foreign_text_cannot_control_the_terminal() {
    let evil = "a\x1b[2J\x07\r\n\u{9b}31m";
    let mut state = live();
    let mut status = mixed(17);
    let mut guest = crate::fixture::guest(evil);
    guest.change = Some(crate::fixture::change("hold", evil, evil));
    status.guests = vec![guest];
    status.tick.policy = evil.to_owned();
    status.daemon.as_mut().unwrap().policy = evil.to_owned();
    status.host_pressure = ballast_api::Coded::new("low", evil);
    state.update(Event::Status(Ok(Box::new(status))));
    state.update(Event::Done(Err(evil.to_owned())));
    let is_clean = |state: &mut State, columns| {
        let terminal = drawn(state, columns, 24);
        let cells = terminal.backend().buffer().content();
        assert!(cells.iter().all(|cell| !cell.symbol().contains(char::is_control)));
    };
    is_clean(&mut state, 80);
    is_clean(&mut state, 160);
    state.update(Event::Status(Ok(Box::new(mixed(18)))));
    press(&mut state, "G\n");
    state.update(Event::Explained("web-1".to_owned(), Ok(format!("guest      {evil}"))));
    is_clean(&mut state, 80);
    state.update(Event::Explained("web-1".to_owned(), Err(evil.to_owned())));
    is_clean(&mut state, 80);
}

#[test]
fn wrapped_lines_keep_every_word() {
    for width in 0..60 {
        for line in EXPLANATION.lines() {
            let pieces = wrapped(line, width, EXPLANATION_INDENT);
            assert!(pieces.iter().all(|piece| piece.chars().count() <= width.max(12)), "{width}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            assert_eq!(letters(&pieces.concat()), letters(line), "{width}");
        }
    }
}
