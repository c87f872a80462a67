//! JSON on standard output.
//!
//! Idea: output is streamed, so memory does not grow with its length. Control characters are
//! escaped, also those JSON permits, to protect terminals.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

/// Writes `value` to `out`, indented, with a line end.
///
/// # Errors
/// `out` cannot be written.
pub(crate) fn write(value: &impl Serialize, out: impl Write) -> io::Result<()> {
    let mut out = Escaping(BufWriter::new(out));
    // `?` converts back to the writer's error, which shows whether a pipe was closed.
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes `value` to `out` as one line.
///
/// # Errors
/// `out` cannot be written.
pub(crate) fn write_line(value: &impl Serialize, out: impl Write) -> io::Result<()> {
    let mut out = Escaping(BufWriter::new(out));
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Escapes U+007F to U+009F, which occur only in strings. Each write must end at a character
/// boundary.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        for at in 0..bytes.len() {
            let (code, len) = match bytes[at..] {
                [0x7f, ..] => (0x7f, 1),
                [0xc2, code @ 0x80..=0x9f, ..] => (code, 2),
                _ => continue,
            };
            self.0.write_all(&bytes[from..at])?;
            write!(self.0, "\\u{code:04x}")?;
            from = at + len;
        }
        self.0.write_all(&bytes[from..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        write(value, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_control_character_is_left() {
        let all: String = ('\0'..='\u{a1}').chain("ÂßÃ\u{2028}".chars()).collect();
        let text = written(&[&all]);
        assert!(!text.trim_end().chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(
            text.contains(r"~\u007f\u0080") && text.contains("\\u009f\u{a0}\u{a1}ÂßÃ"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [all]);
    }

    #[test]
    fn output_is_indented() {
        let value = serde_json::json!({"a": [1, 2.5], "b": {}, "c": null});
        assert_eq!(written(&value), format!("{value:#}\n"));
    }

    #[test]
    fn a_closed_pipe_is_reported_as_broken_pipe() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for value in ["short".to_owned(), "long".repeat(1 << 16)] {
            assert_eq!(write(&value, Closed).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }
}
