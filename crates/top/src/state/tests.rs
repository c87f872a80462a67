//! Effects of keys, replies and ticks on the state: named cases, then any events in any order.

use super::*;
use crate::fixture::{change, guest, mixed, status};
use crate::view;
use ballast_api::GuestChange;
use crossterm::event::{KeyCode, KeyModifiers};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn live() -> State {
    let mut state = State::new(Source::Daemon { socket: None }, true, TimeZone::UTC);
    state.update(Event::Status(Ok(Box::new(mixed(10)))));
    state
}

fn recorded() -> State {
    let cursor = JournalCursor { file: "journal.db".to_owned(), places: None, playing: false };
    let mut state = State::new(Source::Journal(cursor), true, TimeZone::UTC);
    state.update(tick(2, 4));
    state
}

/// Tick `at` of a journal with ticks 1 to `last`.
fn tick(at: i64, last: i64) -> Event {
    let place = |id| Place { id, wall_ms: id * 1000 };
    let status = mixed(at.unsigned_abs());
    let mut history = History::default();
    history.push(&status);
    let places = [1, at, last].map(place);
    Event::Recorded(Ok(Box::new(RecordedTick { status, history, places })))
}

fn press(state: &mut State, code: KeyCode) -> Option<Order> {
    state.update(Event::Key(code.into()))
}

fn type_in(state: &mut State, text: &str) -> Vec<Order> {
    text.chars().flat_map(|letter| press(state, KeyCode::Char(letter))).collect()
}

fn selected(state: &State) -> &str {
    match &state.selected {
        Some(Selected::Guest(name)) => name,
        Some(Selected::Rest) => "at rest",
        None => "nothing",
    }
}

fn id(name: &str) -> GuestId {
    name.parse().unwrap()
}

#[test]
fn the_selection_stays_with_its_guest() {
    let mut state = live();
    assert_eq!(selected(&state), "batch-7");
    type_in(&mut state, "jj");
    assert_eq!(selected(&state), "idle-1");
    type_in(&mut state, ">r");
    assert_eq!(selected(&state), "idle-1");
    let others = mixed(11).guests.into_iter().filter(|guest| guest.guest != "batch-7").collect();
    state.update(Event::Status(Ok(Box::new(status(11, others)))));
    assert_eq!(selected(&state), "idle-1");
}

#[test]
fn a_neighbour_is_selected_where_a_guest_went() {
    let mut state = live();
    type_in(&mut state, "j");
    let others = || mixed(11).guests.into_iter();
    let without = others().filter(|guest| guest.guest != selected(&state)).collect();
    state.update(Event::Status(Ok(Box::new(status(11, without)))));
    assert_eq!(selected(&state), "idle-1");
    state.update(Event::Status(Ok(Box::new(status(12, vec![])))));
    assert_eq!(selected(&state), "nothing");
    state.update(Event::Status(Ok(Box::new(status(13, vec![guest("new")])))));
    assert_eq!(selected(&state), "new");
}

#[test]
fn ends_and_pages_stop_at_the_ends() {
    let mut state = live();
    for (code, name) in [
        (KeyCode::Up, "batch-7"),
        (KeyCode::End, "web-1"),
        (KeyCode::Down, "web-1"),
        (KeyCode::PageUp, "db-of-the-accounting-department"),
        (KeyCode::PageDown, "web-1"),
        (KeyCode::Home, "batch-7"),
    ] {
        press(&mut state, code);
        assert_eq!(selected(&state), name, "{code:?}");
    }
}

#[test]
fn folded_guests_unfold_on_enter() {
    let mut state = live();
    type_in(&mut state, "fG");
    assert_eq!(selected(&state), "at rest");
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    assert!(!state.options.folded);
    assert_eq!(state.rows().len(), 7);
}

#[test]
fn an_explanation_follows_each_tick() {
    let mut state = live();
    let explain = Some(Order::Explain(id("batch-7")));
    assert_eq!(press(&mut state, KeyCode::Enter), explain);
    // Nothing is asked for twice: neither while a request is under way, nor for the same tick.
    assert_eq!(state.update(Event::Status(Ok(Box::new(mixed(11))))), None);
    state.update(Event::Explained("batch-7".to_owned(), Ok("first".to_owned())));
    assert_eq!(state.update(Event::Status(Ok(Box::new(mixed(11))))), None);
    assert_eq!(state.update(Event::Status(Ok(Box::new(mixed(12))))), explain);
    // After a failure the last text stays.
    state.update(Event::Explained("batch-7".to_owned(), Err("gone".to_owned())));
    let explanation = state.explanation.as_ref().unwrap();
    assert_eq!(explanation.text.as_deref(), Some("first"));
    assert_eq!(explanation.error.as_deref(), Some("gone"));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.update(Event::Status(Ok(Box::new(mixed(13))))), None);
}

#[test]
fn an_explanation_that_comes_late_is_of_its_guest() {
    let mut state = live();
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Esc);
    type_in(&mut state, "G");
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    let late = Event::Explained("batch-7".to_owned(), Ok("of batch-7".to_owned()));
    assert_eq!(state.update(late), Some(Order::Explain(id("web-1"))));
    assert_eq!(state.explanation.as_ref().unwrap().text, None);
}

#[test]
fn pausing_needs_a_yes() {
    let mut state = live();
    assert_eq!(type_in(&mut state, "p"), []);
    assert!(matches!(&state.dialog, Some(Dialog::Question(it)) if it.command == "ballast pause"));
    assert_eq!(type_in(&mut state, "n"), []);
    assert_eq!((type_in(&mut state, "y"), &state.dialog), (vec![], &None));
    assert_eq!(type_in(&mut state, "py"), [Order::Pause]);
    // One command at a time.
    assert_eq!(type_in(&mut state, "py"), []);
    press(&mut state, KeyCode::Esc);
    state.update(Event::Done(Ok("paused".to_owned())));
    assert_eq!(state.message.as_ref().unwrap().text, "paused");
    let mut paused = mixed(11);
    paused.tick.paused = true;
    state.update(Event::Status(Ok(Box::new(paused))));
    assert_eq!(type_in(&mut state, "py"), [Order::Resume]);
}

#[test]
fn bounds_are_set_after_a_yes() {
    let mut state = live();
    type_in(&mut state, "Gs");
    for _ in 0..8 {
        press(&mut state, KeyCode::Backspace);
    }
    type_in(&mut state, "256MiB");
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    let Some(Dialog::Question(question)) = &state.dialog else { panic!("{:?}", state.dialog) };
    assert_eq!(question.command, "ballast set web-1 --floor 256MiB");
    // `n` leads back to the form, as it was filled in.
    type_in(&mut state, "n");
    assert!(matches!(&state.dialog, Some(Dialog::Form(form)) if form.fields[0].text == "256MiB"));
    press(&mut state, KeyCode::Enter);
    let floor = Some(ballast_model::Bytes::mib(256));
    let change = GuestChange { floor, ..GuestChange::default() };
    assert_eq!(type_in(&mut state, "y"), [Order::Set(id("web-1"), change)]);
    let refusal = "only the daemon's user may act".to_owned();
    state.update(Event::Done(Err(refusal.clone())));
    assert_eq!(state.message, Some(Message { text: refusal, is_failure: true }));
}

#[test]
fn a_journal_obeys_no_command() {
    let mut state = recorded();
    for key in ["p", "s"] {
        assert_eq!((type_in(&mut state, key), &state.dialog), (vec![], &None));
        assert!(state.message.as_ref().unwrap().text.starts_with("this is a journal"));
    }
}

#[test]
fn keys_move_through_a_journal_one_at_a_time() {
    let mut state = recorded();
    for (code, seek) in [
        (KeyCode::Left, Seek::Previous),
        (KeyCode::Right, Seek::Next),
        (KeyCode::PageUp, Seek::Earlier(60_000)),
        (KeyCode::PageDown, Seek::Later(60_000)),
        (KeyCode::Home, Seek::First),
        (KeyCode::End, Seek::Last),
    ] {
        assert_eq!(press(&mut state, code), Some(Order::Seek(seek)));
        assert_eq!(press(&mut state, code), None);
        state.update(tick(2, 4));
    }
    assert_eq!(live().seek(Seek::Next), None);
}

#[test]
fn playing_stops_at_the_end_and_on_errors() {
    let playing =
        |state: &State| matches!(&state.source, Source::Journal(cursor) if cursor.playing);
    let mut state = recorded();
    assert_eq!(state.update(Event::Timeout), None);
    type_in(&mut state, " ");
    assert_eq!(state.timeout(), PLAYBACK_PERIOD);
    assert_eq!(state.update(Event::Timeout), Some(Order::Seek(Seek::Next)));
    assert_eq!(state.update(Event::Timeout), None);
    state.update(tick(3, 4));
    assert!(playing(&state));
    assert_eq!(state.update(Event::Timeout), Some(Order::Seek(Seek::Next)));
    state.update(tick(4, 4));
    assert!(!playing(&state));
    type_in(&mut state, " ");
    state.update(Event::Recorded(Err("row 5 is damaged".to_owned())));
    assert!(!playing(&state));
    assert_eq!(state.trouble.as_ref().unwrap().text, "row 5 is damaged");
    // The next move is possible, and ends the trouble.
    assert_eq!(press(&mut state, KeyCode::Left), Some(Order::Seek(Seek::Previous)));
    state.update(tick(3, 4));
    assert_eq!(state.trouble, None);
}

#[test]
fn trouble_lasts_from_its_first_error_to_an_answer() {
    let mut state = live();
    let mut at = |second, status: Result<StatusReply, &str>| {
        state.update(Event::Time(Duration::from_secs(second)));
        state.update(Event::Status(status.map(Box::new).map_err(str::to_owned)));
        (state.trouble.clone(), state.age().unwrap(), state.message.clone())
    };
    let (trouble, age, _) = at(5, Err("gone"));
    assert_eq!(trouble.unwrap().since, Duration::from_secs(5));
    assert_eq!(age, Duration::from_millis(5400));
    let (trouble, _, _) = at(9, Err("still gone"));
    let expected = Trouble { text: "still gone".to_owned(), since: Duration::from_secs(5) };
    assert_eq!(trouble.unwrap(), expected);
    let (trouble, age, message) = at(11, Ok(mixed(20)));
    assert_eq!((trouble, age), (None, Duration::from_millis(400)));
    assert_eq!(message.unwrap().text, "the daemon answers again, after 6.0s");
}

#[test]
fn filters_take_letters_and_escape_clears_them() {
    let mut state = live();
    type_in(&mut state, "/qsp?");
    assert!(state.filtering && state.dialog.is_none());
    assert_eq!((state.options.filter.as_str(), selected(&state)), ("qsp?", "nothing"));
    press(&mut state, KeyCode::Esc);
    assert_eq!((state.filtering, state.options.filter.as_str()), (false, ""));
    type_in(&mut state, "/web");
    press(&mut state, KeyCode::Enter);
    assert_eq!((state.options.filter.as_str(), selected(&state)), ("web", "web-1"));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.rows().len(), 7);
}

#[test]
fn control_c_ends_it_from_everywhere() {
    let end = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for keys in ["", "/we", "?", "s", "sx", "p"] {
        let mut state = live();
        type_in(&mut state, keys);
        assert_eq!(state.update(Event::Key(end)), Some(Order::Quit), "{keys}");
    }
}

fn any_key() -> impl Strategy<Value = KeyCode> {
    let letters = prop::sample::select("qjkgG/?<>rfpsyn x1é".chars().collect::<Vec<_>>());
    prop_oneof![
        letters.prop_map(KeyCode::Char),
        prop::sample::select(vec![
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Tab,
            KeyCode::BackTab,
            KeyCode::Backspace,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::PageUp,
            KeyCode::PageDown,
        ]),
    ]
}

/// A status that may be empty, have unknown figures, or have extreme ones.
fn any_status() -> impl Strategy<Value = StatusReply> {
    let figure = prop_oneof![Just(None), Just(Some(0)), Just(Some(u64::MAX)), any::<Option<u64>>()];
    let one = (0..30_u8, figure.clone(), figure.clone(), figure, any::<bool>());
    (0..40_u64, prop::collection::vec(one, 0..30)).prop_map(|(second, guests)| {
        let guests = guests.into_iter().map(|(name, allocation, demand, swap_in, rests)| {
            let mut it = guest(&format!("g{name}"));
            (it.allocation_bytes, it.demand_bytes, it.swap_in_bytes) =
                (allocation, demand, swap_in);
            if rests {
                it.change = Some(change("hold", "on-target", "on target"));
            }
            it
        });
        status(second, guests.collect())
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    let size = prop_oneof![Just((1, 1)), (1..200_u16, 1..60_u16)];
    prop_oneof![
        8 => any_key().prop_map(|code| Event::Key(code.into())),
        2 => size.prop_map(|(columns, rows)| Event::Size(columns, rows)),
        1 => any_status().prop_map(|status| Event::Status(Ok(Box::new(status)))),
        1 => (1..5_i64).prop_map(|at| tick(at, 4)),
        1 => Just(Event::Status(Err("gone".to_owned()))),
        1 => Just(Event::Recorded(Err("damaged".to_owned()))),
        1 => Just(Event::Explained("g1".to_owned(), Ok("guest      g1\nstate      ä …".to_owned()))),
        1 => Just(Event::Done(Ok("done".to_owned()))),
        1 => (0..100_u64).prop_map(|second| Event::Time(Duration::from_secs(second))),
        1 => Just(Event::Timeout),
    ]
}

proptest! {
    // Each case draws dozens of screens.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_keys_and_sizes_draw_and_q_quits(
        in_journal: bool,
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let mut state = if in_journal { recorded() } else { live() };
        state.update(Event::Size(80, 24));
        for event in events {
            if let Some(order) = state.update(event) {
                let acts = matches!(order, Order::Pause | Order::Resume | Order::Set(..));
                prop_assert!(!(in_journal && acts), "{order:?}");
            }
            let (columns, rows) = state.size;
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal.draw(|frame| view::draw(&state, frame)).unwrap();
        }
        // Leaves a filter, a question and its form.
        for _ in 0..3 {
            press(&mut state, KeyCode::Esc);
        }
        prop_assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Order::Quit));
    }
}
