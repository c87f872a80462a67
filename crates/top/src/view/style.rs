//! How kinds of text look, with colours and without.

use ratatui::style::{Color, Modifier, Style};

/// Colours, or the attributes that every terminal has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) colour: bool,
}

impl Look {
    fn coloured(self, colour: Color, style: Style) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }

    /// Names of things.
    pub(super) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What went wrong or is held.
    pub(super) fn trouble(self) -> Style {
        self.coloured(Color::Red, self.head())
    }

    /// What grows.
    pub(super) fn growing(self) -> Style {
        self.coloured(Color::Green, Style::new())
    }

    /// What shrinks.
    pub(super) fn shrinking(self) -> Style {
        self.coloured(Color::Yellow, Style::new())
    }

    /// What is of little interest.
    pub(super) fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The selected line.
    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
