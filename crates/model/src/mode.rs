//! Whether memory is moved at all.
//!
//! Idea: the configuration file sets a mode, and an operator may set another one while the daemon
//! runs. The operator's holds until the mode in the file changes.

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "serde")]
use crate::unit::is_none;

/// Whether plans are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum Mode {
    /// Plans are carried out.
    #[default]
    Balance,
    /// Everything is seen, decided and recorded, but nothing is moved.
    Observe,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 2] = [Mode::Balance, Mode::Observe];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Balance => "balance",
            Mode::Observe => "observe",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseModeError(String);

impl fmt::Display for ParseModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a mode: expected balance or observe", self.0)
    }
}

impl std::error::Error for ParseModeError {}

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(name: &str) -> Result<Mode, ParseModeError> {
        let found = Mode::ALL.into_iter().find(|mode| mode.as_str() == name);
        found.ok_or_else(|| ParseModeError(name.to_owned()))
    }
}

/// The mode in force, and where it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ModeChoice {
    /// The mode in the configuration file.
    configured: Mode,
    /// The mode that an operator has set since, if it differs.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_none"))]
    set: Option<Mode>,
}

impl ModeChoice {
    /// The mode of the configuration file.
    pub const fn new(configured: Mode) -> ModeChoice {
        ModeChoice { configured, set: None }
    }

    /// The mode in force.
    pub fn in_force(self) -> Mode {
        self.set.unwrap_or(self.configured)
    }

    /// The mode in the configuration file.
    pub const fn configured(self) -> Mode {
        self.configured
    }

    /// Sets an operator's mode.
    pub fn set(&mut self, mode: Mode) {
        self.set = (mode != self.configured).then_some(mode);
    }

    /// The configuration file was read again, by this daemon or its successor. An operator's mode
    /// stays only if the mode in the file is unchanged.
    pub fn configure(&mut self, mode: Mode) {
        if mode != self.configured {
            *self = ModeChoice::new(mode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let why = "obsrve".parse::<Mode>().unwrap_err().to_string();
        assert_eq!(why, "`obsrve` is not a mode: expected balance or observe");
    }

    #[test]
    fn a_set_mode_holds_until_the_file_says_another() {
        let mut choice = ModeChoice::new(Mode::Observe);
        choice.set(Mode::Balance);
        choice.configure(Mode::Observe);
        assert_eq!((choice.in_force(), choice.configured()), (Mode::Balance, Mode::Observe));
        choice.configure(Mode::Balance);
        assert_eq!(choice, ModeChoice::new(Mode::Balance));
        choice.configure(Mode::Observe);
        assert_eq!(choice.in_force(), Mode::Observe, "what was set before is forgotten");
    }
}
