//! A time range of a recording.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// A time range of a journal.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Moments {
    /// Only entries at this moment or later
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    from: Option<Timestamp>,
    /// Only entries at this moment or earlier
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    to: Option<Timestamp>,
}

impl Moments {
    /// Its start in milliseconds since 1970; `None`: from the beginning.
    pub fn from_ms(self) -> Option<i64> {
        self.from.map(Timestamp::as_millisecond)
    }

    /// Its end in milliseconds since 1970; `None`: to the end.
    pub fn to_ms(self) -> Option<i64> {
        self.to.map(Timestamp::as_millisecond)
    }
}

/// Parses a date, a date with a time, or a span before now.
fn moment(text: &str) -> Result<Timestamp, String> {
    let local = |at: DateTime| at.to_zoned(TimeZone::system()).map(|at| at.timestamp()).ok();
    let span = |span: SignedDuration| Timestamp::now().checked_sub(span.abs()).ok();
    text.parse()
        .ok()
        .or_else(|| text.parse().ok().and_then(local))
        .or_else(|| text.parse().ok().and_then(span))
        .ok_or_else(|| {
            "expected a date, a date with a time, or a span before now such as 2h".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_times_and_durations_are_parsed_as_moments() {
        assert_eq!(moment("2026-01-02T03:04:05Z").unwrap().as_second(), 1_767_323_045);
        for text in ["2026-01-02", "2026-01-02 03:04", "2026-01-02T03:04:05+02:00"] {
            assert!(moment(text).is_ok(), "{text}");
        }
        let ago = moment("2h").unwrap();
        let passed = Timestamp::now().duration_since(ago).as_secs();
        assert!((7200..7800).contains(&passed), "{passed}");
        for text in ["", "yesterday", "12", "2026-13-01"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }
}
