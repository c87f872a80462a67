//! The form that changes a guest's bounds: floor, ceiling, shares.
//!
//! Idea: each field starts with the value in force. Only fields that differ from it when the form
//! is sent are changed, so an untouched form changes nothing. Values are checked as `ballast set`
//! checks its arguments, and the daemon checks them again.

use ballast_api::{GuestChange, GuestView};
use ballast_model::{Bytes, GuestId, GuestLimits};
use crossterm::event::{KeyCode, KeyEvent};

/// Longest text of a field; the largest size has twenty digits.
const FIELD_CHARS_MAX: usize = 24;

/// A field of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name, which is also the option of `ballast set`.
    pub(crate) name: &'static str,
    /// The text in it.
    pub(crate) text: String,
    /// The value in force; empty: not known.
    in_force: String,
}

impl Field {
    fn new(name: &'static str, in_force: Option<String>) -> Field {
        let in_force = in_force.unwrap_or_default();
        Field { name, text: in_force.clone(), in_force }
    }

    fn is_changed(&self) -> bool {
        self.text != self.in_force
    }

    fn size(&self) -> Result<Option<Bytes>, String> {
        if self.text.is_empty() {
            return Ok(None);
        }
        self.text.parse().map(Some).map_err(|e| format!("{}: {e}", self.name))
    }
}

/// The form for one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The guest.
    pub(crate) guest: GuestId,
    /// Floor, ceiling and shares.
    pub(crate) fields: [Field; 3],
    /// The field that keys go to.
    pub(crate) at: usize,
    /// Why it cannot be sent; `None`: no attempt since the last key.
    pub(crate) error: Option<String>,
}

/// The state of a form after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormResult {
    /// It is still being filled in.
    Open,
    /// It was cancelled.
    Dropped,
    /// It is complete; the change has to be sent.
    Ready(GuestChange),
}

impl Form {
    /// The form for a guest, with its values in force; an error if its name is invalid.
    pub(crate) fn new(guest: &GuestView) -> Result<Form, String> {
        // Exact, not rounded: an untouched field must be read as the same size.
        let size = |bytes: Option<u64>| bytes.map(|bytes| format!("{:#}", Bytes::new(bytes)));
        Ok(Form {
            guest: guest.guest.parse().map_err(|e| format!("{e}"))?,
            fields: [
                Field::new("floor", size(guest.floor_bytes)),
                Field::new("ceiling", size(guest.ceiling_bytes)),
                Field::new("shares", guest.shares.map(|shares| shares.to_string())),
            ],
            at: 0,
            error: None,
        })
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> FormResult {
        self.error = None;
        let fields = self.fields.len();
        match key.code {
            KeyCode::Esc => return FormResult::Dropped,
            KeyCode::Enter => match self.change() {
                Ok(change) => return FormResult::Ready(change),
                Err(error) => self.error = Some(error),
            },
            KeyCode::Tab | KeyCode::Down => self.at = (self.at + 1) % fields,
            KeyCode::BackTab | KeyCode::Up => self.at = (self.at + fields - 1) % fields,
            KeyCode::Backspace => {
                self.fields[self.at].text.pop();
            }
            KeyCode::Char(letter) if letter.is_ascii_graphic() => {
                let text = &mut self.fields[self.at].text;
                if text.len() < FIELD_CHARS_MAX {
                    text.push(letter);
                }
            }
            _ => {}
        }
        FormResult::Open
    }

    /// The fields that differ from what is in force, checked.
    fn change(&self) -> Result<GuestChange, String> {
        let [floor, ceiling, shares] = &self.fields;
        if let Some(field) = self.fields.iter().find(|it| it.is_changed() && it.text.is_empty()) {
            return Err(format!("{} is empty: expected a figure", field.name));
        }
        let (floor_bytes, ceiling_bytes) = (floor.size()?, ceiling.size()?);
        if let (Some(least), Some(most)) = (floor_bytes, ceiling_bytes)
            && least > most
        {
            return Err(format!("floor {least} is above ceiling {most}"));
        }
        let change = GuestChange {
            floor: floor_bytes.filter(|_| floor.is_changed()),
            ceiling: ceiling_bytes.filter(|_| ceiling.is_changed()),
            shares: match shares.is_changed() {
                true => Some(parse_shares(&shares.text)?),
                false => None,
            },
            ..GuestChange::default()
        };
        match change.is_empty() {
            true => Err("nothing is changed: type another figure, or Esc".to_owned()),
            false => Ok(change),
        }
    }
}

fn parse_shares(text: &str) -> Result<u32, String> {
    let shares = text.parse().ok().filter(|shares| (1..=GuestLimits::SHARES_MAX).contains(shares));
    shares.ok_or_else(|| {
        format!("shares: `{text}` is not a whole number from 1 to {}", GuestLimits::SHARES_MAX)
    })
}

/// The arguments of `ballast` for the same change: `set …`.
pub(crate) fn arguments(guest: &GuestId, change: &GuestChange) -> String {
    let mut words = format!("set {guest}");
    for (name, size) in [("floor", change.floor), ("ceiling", change.ceiling)] {
        if let Some(size) = size {
            words.push_str(&format!(" --{name} {size:#}"));
        }
    }
    if let Some(shares) = change.shares {
        words.push_str(&format!(" --shares {shares}"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::guest;

    fn typed(texts: [&str; 3]) -> Result<String, String> {
        let mut form = Form::new(&guest("web-1")).unwrap();
        for text in texts {
            if !text.is_empty() {
                for _ in 0..FIELD_CHARS_MAX {
                    form.key(KeyCode::Backspace.into());
                }
            }
            text.chars().for_each(|letter| {
                form.key(KeyCode::Char(letter).into());
            });
            form.key(KeyCode::Tab.into());
        }
        match form.key(KeyCode::Enter.into()) {
            FormResult::Ready(change) => Ok(arguments(&form.guest, &change)),
            FormResult::Open => Err(form.error.unwrap()),
            FormResult::Dropped => panic!(),
        }
    }

    #[test]
    fn only_what_was_typed_is_changed() {
        for (texts, line) in [
            (["256MiB", "", ""], "set web-1 --floor 256MiB"),
            (["", "1.5GiB", "2000"], "set web-1 --ceiling 1536MiB --shares 2000"),
            (["1000", "4096", "1"], "set web-1 --floor 1000 --ceiling 4KiB --shares 1"),
        ] {
            assert_eq!(typed(texts).unwrap(), line);
        }
    }

    #[test]
    fn wrong_figures_are_named_with_what_was_expected() {
        for (texts, error) in [
            (["", "", ""], "nothing is changed"),
            (["2GiB", "", ""], "floor 2GiB is above ceiling 1GiB"),
            (["1GB", "", ""], "floor: `1GB` uses a decimal unit"),
            (["", "x", ""], "ceiling: `x` is not a size"),
            (["", "", "0"], "shares: `0` is not a whole number from 1 to 1000000"),
            (["", "", "many"], "shares: `many` is not"),
        ] {
            let found = typed(texts).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }

    #[test]
    fn a_field_emptied_is_not_a_change() {
        let mut form = Form::new(&guest("web-1")).unwrap();
        for _ in 0..9 {
            form.key(KeyCode::Backspace.into());
        }
        assert_eq!(form.key(KeyCode::Enter.into()), FormResult::Open);
        assert_eq!(form.error.as_deref(), Some("floor is empty: expected a figure"));
        assert_eq!(form.key(KeyCode::Esc.into()), FormResult::Dropped);
    }
}
