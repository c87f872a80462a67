//! What keys do.
//!
//! Idea: one table of keys per place: the filter, a dialog, the explanation, the table. `Ctrl-C`
//! ends the view everywhere, `q` wherever no text is typed, and `Esc` goes one step back.

use ballast_store::Seek;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::dialog::{Dialog, Question};
use crate::form::{self, Form, FormResult};
use crate::order::Order;
use crate::state::{Explanation, Selected, Source, State};
use crate::view;

/// Longest filter: guests' names are not longer.
const FILTER_CHARS_MAX: usize = 64;
/// Least number of lines by which a page key moves the selection.
const PAGE_ROWS_MIN: usize = 5;
/// Rows of the screen outside the table, for the host and the keys.
const ROWS_BESIDE: usize = 7;
/// The step of a page key in a journal, in milliseconds.
const MINUTE_MS: u32 = 60_000;

impl State {
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Order> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Order::Quit),
                _ => None,
            };
        }
        if self.filtering {
            return self.filter_key(key);
        }
        if let Some(dialog) = self.dialog.take() {
            return self.dialog_key(dialog, key);
        }
        if let Source::Journal(cursor) = &mut self.source {
            let seek = seek_by(key.code);
            if seek.is_some() || key.code == KeyCode::Char(' ') {
                cursor.playing = seek.is_none() && !cursor.playing;
                return seek.and_then(|seek| self.seek(seek));
            }
        }
        match key.code {
            KeyCode::Char('q') => Some(Order::Quit),
            KeyCode::Char('?') => {
                self.dialog = Some(Dialog::Help);
                None
            }
            KeyCode::Char('p') => self.ask_to_pause(),
            KeyCode::Char('s') => self.open_form(),
            _ if self.explanation.is_some() => self.explanation_key(key),
            _ => self.table_key(key),
        }
    }

    fn filter_key(&mut self, key: KeyEvent) -> Option<Order> {
        let filter = &mut self.options.filter;
        match key.code {
            KeyCode::Enter => self.filtering = false,
            KeyCode::Esc => {
                filter.clear();
                self.filtering = false;
            }
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Char(letter)
                if letter.is_ascii_graphic() && filter.len() < FILTER_CHARS_MAX =>
            {
                filter.push(letter);
            }
            _ => {}
        }
        None
    }

    fn dialog_key(&mut self, dialog: Dialog, key: KeyEvent) -> Option<Order> {
        match dialog {
            Dialog::Help => match key.code {
                KeyCode::Char('q') => Some(Order::Quit),
                _ => None,
            },
            Dialog::Form(mut form) => {
                self.dialog = match form.key(key) {
                    FormResult::Open => Some(Dialog::Form(form)),
                    FormResult::Dropped => None,
                    FormResult::Ready(change) => Some(Dialog::Question(Question {
                        text: format!("Change the bounds of {}?", form.guest),
                        command: self.command(&form::arguments(&form.guest, &change)),
                        order: Order::Set(form.guest.clone(), change),
                        form: Some(form),
                    })),
                };
                None
            }
            Dialog::Question(question) => self.answer(question, key),
        }
    }

    fn answer(&mut self, question: Question, key: KeyEvent) -> Option<Order> {
        match key.code {
            KeyCode::Char('y' | 'Y') if self.under_way.command => {
                self.dialog = Some(Dialog::Question(question));
                self.show_message("the last command is not answered yet: try again")
            }
            KeyCode::Char('y' | 'Y') => {
                self.under_way.command = true;
                Some(question.order)
            }
            KeyCode::Char('q') => Some(Order::Quit),
            KeyCode::Char('n' | 'N') | KeyCode::Esc => {
                self.dialog = question.form.map(Dialog::Form);
                None
            }
            _ => {
                self.dialog = Some(Dialog::Question(question));
                None
            }
        }
    }

    fn explanation_key(&mut self, key: KeyEvent) -> Option<Order> {
        let lines = view::explanation_lines(self).len();
        let explanation = self.explanation.as_mut()?;
        let page = usize::from(self.size.1).saturating_sub(ROWS_BESIDE).max(PAGE_ROWS_MIN);
        let scroll = explanation.scroll;
        let scroll = match key.code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => {
                self.explanation = None;
                return None;
            }
            KeyCode::Char('j') | KeyCode::Down => scroll + 1,
            KeyCode::Char('k') | KeyCode::Up => scroll.saturating_sub(1),
            KeyCode::PageDown => scroll + page,
            KeyCode::PageUp => scroll.saturating_sub(page),
            KeyCode::Char('g') | KeyCode::Home => 0,
            KeyCode::Char('G') | KeyCode::End => lines.saturating_sub(page),
            _ => scroll,
        };
        explanation.scroll = scroll.min(lines.saturating_sub(1));
        None
    }

    fn table_key(&mut self, key: KeyEvent) -> Option<Order> {
        let page = usize::from(self.size.1).saturating_sub(ROWS_BESIDE).max(PAGE_ROWS_MIN);
        match key.code {
            KeyCode::Char('j') | KeyCode::Down => self.select(self.at.saturating_add(1)),
            KeyCode::Char('k') | KeyCode::Up => self.select(self.at.saturating_sub(1)),
            KeyCode::PageDown => self.select(self.at.saturating_add(page)),
            KeyCode::PageUp => self.select(self.at.saturating_sub(page)),
            KeyCode::Char('g') | KeyCode::Home => self.select(0),
            KeyCode::Char('G') | KeyCode::End => self.select(usize::MAX),
            KeyCode::Char('/') => self.filtering = true,
            KeyCode::Esc => self.options.filter.clear(),
            KeyCode::Char('f') => self.options.folded = !self.options.folded,
            KeyCode::Char('>') => self.options.column = self.options.column.right_by(1),
            KeyCode::Char('<') => self.options.column = self.options.column.left(),
            KeyCode::Char('r') => self.options.reversed = !self.options.reversed,
            KeyCode::Enter => return self.open(),
            _ => {}
        }
        None
    }

    /// Opens what is selected: a guest's explanation, or the guests at rest.
    fn open(&mut self) -> Option<Order> {
        let name = match &self.selected {
            Some(Selected::Guest(name)) => name,
            Some(Selected::Rest) => {
                self.options.folded = false;
                return None;
            }
            None => return None,
        };
        let guest = match name.parse::<ballast_model::GuestId>() {
            Ok(guest) => guest,
            Err(error) => return self.show_message(error.to_string()),
        };
        let (text, error, scroll) = (None, None, 0);
        self.explanation = Some(Explanation { guest: guest.clone(), text, error, scroll });
        self.explain(guest)
    }

    fn ask_to_pause(&mut self) -> Option<Order> {
        if !self.is_live() {
            return self.show_message("this is a journal: nothing can be paused");
        }
        let Some(status) = &self.status else {
            return self.show_message("no daemon answered yet: nothing can be paused");
        };
        let (text, arguments, order) = match status.tick.paused {
            false => {
                ("Pause: guests keep their targets, nothing is acted on?", "pause", Order::Pause)
            }
            true => ("Resume: act on guests again?", "resume", Order::Resume),
        };
        let (text, command) = (text.to_owned(), self.command(arguments));
        self.dialog = Some(Dialog::Question(Question { text, command, order, form: None }));
        None
    }

    fn open_form(&mut self) -> Option<Order> {
        if !self.is_live() {
            return self.show_message("this is a journal: nothing can be set");
        }
        let name = match (&self.explanation, &self.selected) {
            (Some(explanation), _) => explanation.guest.as_str(),
            (None, Some(Selected::Guest(name))) => name.as_str(),
            _ => return self.show_message("no guest is selected"),
        };
        let guests = self.status.iter().flat_map(|status| &status.guests);
        let form = match guests.into_iter().find(|guest| guest.guest == name) {
            Some(guest) => Form::new(guest),
            None => Err(format!("there is no guest `{name}` any more")),
        };
        match form {
            Ok(form) => self.dialog = Some(Dialog::Form(form)),
            Err(error) => return self.show_message(error),
        }
        None
    }
}

/// Where a key moves to in a journal; `None`: it is another key.
fn seek_by(key: KeyCode) -> Option<Seek> {
    Some(match key {
        KeyCode::Left => Seek::Previous,
        KeyCode::Right => Seek::Next,
        KeyCode::PageUp => Seek::Earlier(MINUTE_MS),
        KeyCode::PageDown => Seek::Later(MINUTE_MS),
        KeyCode::Home => Seek::First,
        KeyCode::End => Seek::Last,
        _ => return None,
    })
}
