//! The styles of kinds of text, with colours and without.

use ratatui::style::{Color, Modifier, Style};

/// Colours, or the attributes that every terminal has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) colour: bool,
}

impl Theme {
    fn coloured(self, colour: Color, style: Style) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }

    /// Headings and names.
    pub(super) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Errors, warnings and held guests.
    pub(super) fn trouble(self) -> Style {
        self.coloured(Color::Red, self.head())
    }

    /// Guests that grow.
    pub(super) fn growing(self) -> Style {
        self.coloured(Color::Green, Style::new())
    }

    /// Guests that shrink.
    pub(super) fn shrinking(self) -> Style {
        self.coloured(Color::Yellow, Style::new())
    }

    /// Text of little interest.
    pub(super) fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The selected line.
    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
