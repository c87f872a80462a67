//! A client for line-based protocols of local servers.
//!
//! Each step has a time limit. Addresses are numeric; no name is looked up.
//! Limits: a line has at most [`LINE_BYTES_MAX`] bytes. If a line is not understood, the error
//! shows [`EXCERPT_CHARS_MAX`] characters of it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest line read.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Most characters shown of what a server sent.
const EXCERPT_CHARS_MAX: usize = 120;
/// Time limit of each step: a slower server is overloaded and must be left alone.
const STEP_TIME_MAX: Duration = Duration::from_secs(5);

trait ByteStream: Read + Write + Send {}
impl<T: Read + Write + Send> ByteStream for T {}

/// What a server sent, for an error: printable and short.
pub(crate) fn excerpt(line: &str) -> String {
    line.chars().flat_map(char::escape_debug).take(EXCERPT_CHARS_MAX).collect()
}

/// A connection to a server.
pub struct LineClient {
    stream: BufReader<Box<dyn ByteStream>>,
}

impl LineClient {
    /// Connects to `address`: an IP address and port, or the path of a socket.
    pub(crate) fn connect(address: &str) -> Result<LineClient, String> {
        let stream: io::Result<Box<dyn ByteStream>> = if address.starts_with('/') {
            UnixStream::connect(address).and_then(|stream| {
                stream.set_read_timeout(Some(STEP_TIME_MAX))?;
                stream.set_write_timeout(Some(STEP_TIME_MAX))?;
                Ok(Box::new(stream) as Box<dyn ByteStream>)
            })
        } else {
            let ip: SocketAddr = address.parse().map_err(|_| {
                format!(
                    "address `{address}`: expected an IP address and a port, such as \
                     127.0.0.1:6379, or the path of a socket"
                )
            })?;
            TcpStream::connect_timeout(&ip, STEP_TIME_MAX).and_then(|stream| {
                stream.set_read_timeout(Some(STEP_TIME_MAX))?;
                stream.set_write_timeout(Some(STEP_TIME_MAX))?;
                Ok(Box::new(stream) as Box<dyn ByteStream>)
            })
        };
        let stream = stream.map_err(|error| format!("{address}: {error}"))?;
        Ok(LineClient { stream: BufReader::new(stream) })
    }

    /// A connection over `stream`. Its steps take as long as the stream's own time limits allow.
    pub fn from_stream(stream: impl Read + Write + Send + 'static) -> LineClient {
        LineClient { stream: BufReader::new(Box::new(stream)) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.get_mut().write_all(bytes).map_err(|error| error.to_string())
    }

    /// Reads a line, without its end.
    pub(crate) fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| error.to_string())?;
        if line.pop() != Some(b'\n') {
            return Err("the server closed the connection, or sent an overlong line".to_owned());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| "the server sent a line that is not UTF-8".to_owned())
    }

    pub(crate) fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>, String> {
        let mut text = vec![0; bytes];
        self.stream.read_exact(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }
}
