//! JSON on standard output.
//!
//! Idea: output is streamed, so memory does not grow with its length. Control characters are
//! escaped, also those JSON permits, to protect terminals.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

/// Writes `value` to `out`, indented or as one line, with a line end.
///
/// # Errors
/// `out` cannot be written.
pub fn write(value: &impl Serialize, is_indented: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut shaped = JsonWriter::new(out, is_indented);
    // As `dyn Write`, like the replies of the API's server, so that the program has the code for
    // each type only once.
    let out: &mut dyn Write = &mut shaped;
    // `?` converts back to the writer's error, which shows whether a pipe was closed.
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Shapes JSON that comes without spaces: indents it if wanted, and escapes U+007F to U+009F, which
/// occur only in strings. Each write must end at a character boundary.
struct JsonWriter<'a> {
    out: BufWriter<&'a mut dyn Write>,
    is_indented: bool,
    /// How many lists and objects have begun and not ended.
    depth: usize,
    /// Whether the last byte began one.
    has_begun: bool,
    is_in_string: bool,
    /// Whether a backslash precedes, in a string.
    is_escaped: bool,
}

impl<'a> JsonWriter<'a> {
    fn new(out: &'a mut dyn Write, is_indented: bool) -> JsonWriter<'a> {
        let (out, depth) = (BufWriter::new(out), 0);
        let (has_begun, is_in_string, is_escaped) = (false, false, false);
        JsonWriter { out, is_indented, depth, has_begun, is_in_string, is_escaped }
    }

    fn put(&mut self, byte: u8) -> io::Result<()> {
        if self.is_in_string {
            self.is_in_string = self.is_escaped || byte != b'"';
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return self.out.write_all(&[byte]);
        }
        let is_end = matches!(byte, b'}' | b']');
        self.depth = self.depth.saturating_sub(usize::from(is_end));
        // An empty list or object ends on the line on which it began.
        if self.has_begun != is_end {
            self.begin_line()?;
        }
        self.has_begun = matches!(byte, b'{' | b'[');
        self.depth += usize::from(self.has_begun);
        self.is_in_string = byte == b'"';
        self.out.write_all(&[byte])?;
        match byte {
            b',' => self.begin_line(),
            b':' if self.is_indented => self.out.write_all(b" "),
            _ => Ok(()),
        }
    }

    fn begin_line(&mut self) -> io::Result<()> {
        match self.is_indented {
            true => write!(self.out, "\n{:1$}", "", 2 * self.depth),
            false => Ok(()),
        }
    }
}

impl Write for JsonWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let [byte, after @ ..] = rest {
            rest = after;
            match (byte, after) {
                (0x7f, _) => self.out.write_all(b"\\u007f")?,
                (0xc2, [code @ 0x80..=0x9f, after @ ..]) => {
                    write!(self.out, "\\u{code:04x}")?;
                    rest = after;
                }
                _ => self.put(*byte)?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        write(value, true, &mut out).unwrap();
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
        let text = "{\"[,:\\\"]";
        let nested = serde_json::json!([[], [[]], {"e": [{}]}, text]);
        let value = serde_json::json!({"a": [1, 2.5, nested], "b": {}, "c": null, text: true});
        assert_eq!(written(&value), format!("{value:#}\n"));
        let mut line = Vec::new();
        write(&value, false, &mut line).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), format!("{value}\n"));
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
            assert_eq!(
                write(&value, true, &mut Closed).unwrap_err().kind(),
                io::ErrorKind::BrokenPipe
            );
        }
    }
}
